"""Grid of cells: the layout of a table before it is rendered in a format."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

from bench.report.text import Footnotes

T = TypeVar("T")

MOST_SPREADS = 8
"""Largest number of methods below whose rows a terminal shows intervals and standard deviations."""


@dataclass(frozen=True)
class Column:
    """Column of a grid: its heading, and how output formats treat the column."""

    label: str
    span: str = ""
    """Heading over several neighbouring columns, e.g. a model; empty if there is no such heading."""
    is_left: bool = False
    """Whether the column is aligned left, as words are."""
    droppable: int = 0
    """Order in which a narrow terminal drops columns, the largest number first; a column with 0 is never dropped."""
    is_metric: bool = False
    """Whether the column shows a metric. Such a column is kept if a narrow terminal splits the table into panels."""
    is_in_latex: bool = True
    """Whether LaTeX includes the column."""
    sentence: str = ""
    """Sentence of the legend that explains this column, and is left out with it; empty if there is none."""

    @property
    def heading(self) -> str:
        """`span` and `label` joined to one heading, for formats whose cells can't span several columns."""
        return f"{self.span} {self.label}".strip()


@dataclass(frozen=True)
class Cell:
    """Cell of a table: text, signs and footnotes, not yet escaped."""

    text: str
    bold: bool = False
    mark: str = ""
    """Signs behind the text; the legend explains them."""
    notes: tuple[str, ...] = ()
    """Footnotes of the cell. In the grid, footnotes are numbered in the order in which they first occur."""


class GridRow(NamedTuple):
    """Row of cells in a table, and where the row stands among other rows."""

    cells: Sequence[Cell]
    is_subrow: bool = False
    """Whether the row belongs to the row above, e.g. the published numbers of a method."""
    begins_block: bool = False
    """Whether the row begins a new block, which a line or gap separates from the rows above."""
    is_spread: bool = False
    """Whether the row has intervals or standard deviations, which a terminal leaves out of a long table."""
    is_shaded: bool = False
    """Whether the row has a background (LaTeX only)."""


def with_breaks(items: Iterable[T], block: Callable[[T], object]) -> Iterator[tuple[T, bool]]:
    """Yield each item and whether it begins a new block, with another value of `block` than the item before."""
    before = None
    for item in items:
        yield item, before not in {None, block(item)}
        before = block(item)


@dataclass(frozen=True)
class Grid:
    """A table that is ready to be rendered."""

    facts: tuple[str, ...]
    """Caption of the table: a title, then sentences."""
    columns: tuple[Column, ...]
    rows: tuple[GridRow, ...]
    legend: tuple[str, ...] = ()
    """Sentences below the table that explain signs and columns."""
    remarks: tuple[str, ...] = ()
    """Footnotes that belong to no cell."""
    verdict: tuple[str, ...] = ()
    """Sentences on which method is best, the first of them bold.

    They stand between the title and the other sentences of the caption; in LaTeX they stand below the table.
    """
    label: str = ""
    """Label of the table in LaTeX."""
    is_folded: bool = False
    """Whether a narrow terminal folds long texts of this table; if not, it splits the table into panels of columns."""
    brief: str = ""
    """What a terminal prints in place of the legend; empty if it prints the legend."""

    @property
    def hides_spreads(self) -> bool:
        """Whether a terminal leaves out the rows of intervals and standard deviations, as there are too many."""
        return sum(not row.is_subrow for row in self.rows) > MOST_SPREADS and any(row.is_spread for row in self.rows)

    def showing(self, columns: Collection[int]) -> Grid:
        """Return the table with empty cells in all other columns, so without their footnotes."""
        rows = (
            row._replace(cells=[cell if i in columns else Cell("") for i, cell in enumerate(row.cells)])
            for row in self.rows
        )
        return replace(self, rows=tuple(rows))

    @property
    def footnotes(self) -> tuple[str, ...]:
        """Distinct footnotes of all cells; footnote number k is at index k - 1."""
        return tuple(self._footnotes.texts)

    def numbers(self, cell: Cell) -> str:
        """Return the numbers of a cell's footnotes, joined by commas."""
        return ",".join(map(str, dict.fromkeys(map(self._footnotes.number, cell.notes))))

    @cached_property
    def _footnotes(self) -> Footnotes:
        return Footnotes(note for row in self.rows for cell in row.cells for note in cell.notes)

    @property
    def verdicts(self) -> list[tuple[str, str]]:
        """The verdict as at most one paragraph: its first sentence, and its other sentences joined by newlines."""
        return [(self.verdict[0], "\n".join(self.verdict[1:]))] if self.verdict else []


@dataclass(frozen=True)
class TableViews:
    """The tables that one command prints, as grids, CSV records and JSON data.

    All output formats are made from these three forms.
    """

    grids: Sequence[Grid]
    """Tables of cells, which are rendered for people as terminal text, Markdown, LaTeX or HTML."""
    records: Callable[[], Sequence[Mapping[str, Any]]] = tuple
    """Function that returns the CSV records, in which fractions have all digits and missing numbers are None."""
    data: Callable[[], Any] = tuple
    """Function that returns the JSON data."""
