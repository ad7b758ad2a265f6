"""Grid of cells: the layout of a table before it is rendered in a format."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple


@dataclass(frozen=True)
class Column:
    """A column: its heading and how formats treat it."""

    label: str
    span: str = ""
    """Heading over several neighbouring columns, e.g. a model; empty for none."""
    is_left: bool = False
    """Whether the column is aligned left, as words are."""
    droppable: int = 0
    """Order in which a narrow terminal drops columns, the largest number first; a column with 0 is never dropped."""
    is_metric: bool = False
    """Whether the column shows a metric; such a column is kept if the table is split into panels."""
    is_in_latex: bool = True
    """Whether LaTeX includes the column."""
    sentence: str = ""
    """Sentence of the legend that is left out with this column; empty for none."""

    @property
    def heading(self) -> str:
        """Span and label in one, for formats without cells over several columns."""
        return f"{self.span} {self.label}".strip()


@dataclass(frozen=True)
class Cell:
    """Text, signs and footnotes of a cell, unescaped."""

    text: str
    bold: bool = False
    mark: str = ""
    """Signs after the text that the legend explains."""
    notes: tuple[str, ...] = ()
    """Footnotes, numbered by first occurrence in the grid."""
    shaded: bool = False
    """Whether the cell has a background (LaTeX only)."""


class GridRow(NamedTuple):
    """One row of cells."""

    cells: Sequence[Cell]
    is_subrow: bool = False
    """Whether the row belongs to the row above, e.g. the published numbers of a method."""
    begins_block: bool = False
    """Whether the row begins a new block of rows."""


@dataclass(frozen=True)
class Grid:
    """A table that is ready to be rendered."""

    facts: tuple[str, ...]
    """Caption: a title, then sentences."""
    columns: tuple[Column, ...]
    rows: tuple[GridRow, ...]
    legend: tuple[str, ...] = ()
    """Sentences that explain marks and columns."""
    remarks: tuple[str, ...] = ()
    """Footnotes that belong to no cell."""
    verdict: tuple[str, ...] = ()
    """Sentences on which method is best, between the caption's title and its facts."""
    leads: tuple[int, ...] = (0,)
    """Indices of the verdict's sentences that are bold and begin a paragraph."""
    label: str = ""
    """Label of the table in LaTeX."""
    is_folded: bool = False
    """Whether a terminal that is too narrow folds long texts; if not, it splits the table into panels of columns."""

    @property
    def footnotes(self) -> tuple[str, ...]:
        """The distinct footnotes; number k is at index k - 1."""
        return tuple(dict.fromkeys(note for row in self.rows for cell in row.cells for note in cell.notes))

    def numbers(self, cell: Cell) -> str:
        """Return the numbers of a cell's footnotes, joined by commas."""
        return ",".join(str(self.footnotes.index(note) + 1) for note in cell.notes)

    @property
    def verdicts(self) -> list[tuple[str, str]]:
        """Paragraphs of the verdict: the first sentence of each, and its other sentences joined by newlines."""
        ends = (*self.leads[1:], len(self.verdict))
        pieces = [self.verdict[start:end] for start, end in zip(self.leads, ends, strict=True)]
        return [(piece[0], "\n".join(piece[1:])) for piece in pieces if piece]


@dataclass(frozen=True)
class TableViews:
    """The tables that one command prints, in the forms from which all formats are made."""

    grids: Sequence[Grid]
    """Grids, rendered for people as terminal text, Markdown, LaTeX or HTML."""
    records: Callable[[], Sequence[Mapping[str, Any]]] = tuple
    """Returns the CSV records: fractions with all digits, None for missing numbers."""
    data: Callable[[], Any] = tuple
    """Returns the JSON data."""
