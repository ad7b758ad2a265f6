"""Tables, sentences and written pages as notebooks, terminals and Markdown show them."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from bench.report.tables import formats, html

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.text import Text

    from bench.report.tables.grid import TableViews

    _Path = Path
else:
    _Path = type(Path())  # before Python 3.12 `Path` itself can't be extended

_WIDTH = 160
"""Width in characters of the text that `repr` returns for a table."""


@dataclass(frozen=True, eq=False, repr=False)
class ShownTable:
    """A table that Python prints as `bench table` does, and that a notebook shows as HTML."""

    views: TableViews

    def render(self, kind: str = "md", *, width: int | None = None) -> str:
        """Return the table as text.

        Args:
            kind: output format: `terminal`, `md`, `csv`, `tex` or `json`.
            width: width of the terminal, in characters; by default the width of the real terminal.

        Raises:
            UserError: unknown format.
        """
        return formats.render(self.views, kind, width=width)

    def __repr__(self) -> str:
        return self.render("terminal", width=_WIDTH)

    def _repr_markdown_(self) -> str:
        return self.render("md")

    def _repr_html_(self) -> str:
        return html.fragment(self.views.grids)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        """Yield the table as text, as wide as the rich console."""
        from rich.console import Console as Plain
        from rich.text import Text

        plain_console = Plain(
            file=io.StringIO(), width=options.max_width, force_terminal=True, force_jupyter=False,
            color_system="standard",
        )  # fmt: skip
        with plain_console.capture() as capture:
            formats.print_terminal(self.views.grids, plain_console)
        yield Text.from_ansi(capture.get())


class Sentences(tuple[str, ...]):
    """Tuple of sentences, which Python and notebooks show one per line."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "\n".join(self)

    def _repr_html_(self) -> str:
        return html.paragraphs(self)


class Page(_Path):
    """Path of a written HTML page, which a notebook shows in a frame."""

    def _repr_html_(self) -> str | None:
        """Return a link to the page and a frame that shows it; None if the page is missing.

        The address is relative, so that the notebook does not contain an absolute path.
        """
        if not self.is_file():
            return None
        address = escape(quote(Path(os.path.relpath(self)).as_posix()))
        return (
            f'<p><a href="{address}" target="_blank">{escape(self.name)}</a></p>'
            f'<iframe src="{address}" width="100%" height="640" style="border:0"></iframe>'
        )
