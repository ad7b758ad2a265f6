"""Tables and sentences as notebooks, terminals and Markdown show them: all of it views of the same grids."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.report.tables import formats, html

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.text import Text

    from bench.report.tables.grid import TableViews

_WIDTH = 160
"""Columns of a table as plain text, where nobody says how wide it may be."""


@dataclass(frozen=True, eq=False, repr=False)
class ShownTable:
    """A table that is printed as `bench table` prints it, and shown by a notebook as HTML."""

    views: TableViews

    def render(self, kind: str = "md", *, width: int | None = None) -> str:
        """The table as text.

        Args:
            kind: `terminal`, `md`, `csv`, `tex` or `json`.
            width: of a terminal, in columns.

        Raises:
            UserError: unknown kind.
        """
        return formats.render(self.views, kind, width=width)

    def __repr__(self) -> str:
        return self.render("terminal", width=_WIDTH)

    def _repr_markdown_(self) -> str:
        return self.render("md")

    def _repr_html_(self) -> str:
        return html.fragment(self.views.grids)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        """The table at the console's width."""
        from rich.console import Console as Plain
        from rich.text import Text

        drawn = Plain(
            file=io.StringIO(), width=options.max_width, force_terminal=True, force_jupyter=False,
            color_system="standard",
        )  # fmt: skip
        with drawn.capture() as captured:
            formats.print_terminal(self.views.grids, drawn)
        yield Text.from_ansi(captured.get())


class Sentences(tuple[str, ...]):
    """Sentences, shown one on a line."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "\n".join(self)

    def _repr_html_(self) -> str:
        return html.paragraphs(self)
