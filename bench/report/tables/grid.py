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
    """Aligned left, as words are."""
    droppable: int = 0
    """A narrow terminal drops the column with the largest number first; 0: never dropped."""
    is_metric: bool = False
    """A metric, which is kept where columns are split into panels."""
    is_in_latex: bool = True
    """Included in LaTeX."""
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
    """Has a background (LaTeX only)."""


class GridRow(NamedTuple):
    """One row of cells."""

    cells: Sequence[Cell]
    is_subrow: bool = False
    """Belongs to the row above, e.g. the published numbers of a method."""
    begins_block: bool = False
    """Begins a new block."""


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
    """Footnotes without a mark."""
    verdict: tuple[str, ...] = ()
    """Sentences on which method is best, between the caption's title and its facts."""
    leads: tuple[int, ...] = (0,)
    """Numbers of the verdict's sentences that are bold and begin a paragraph."""
    label: str = ""
    """Name by which LaTeX refers to it."""
    is_folded: bool = False
    """Text is folded where a terminal is too narrow; else columns go below one another."""

    @property
    def footnotes(self) -> tuple[str, ...]:
        """The distinct footnotes; number k is at index k - 1."""
        return tuple(dict.fromkeys(note for row in self.rows for cell in row.cells for note in cell.notes))

    def numbers(self, cell: Cell) -> str:
        """Numbers of a cell's footnotes."""
        return ",".join(str(self.footnotes.index(note) + 1) for note in cell.notes)

    @property
    def verdicts(self) -> list[tuple[str, str]]:
        """Paragraphs of the verdict: the first sentence, and the others, one a line."""
        ends = (*self.leads[1:], len(self.verdict))
        pieces = [self.verdict[start:end] for start, end in zip(self.leads, ends, strict=True)]
        return [(piece[0], "\n".join(piece[1:])) for piece in pieces if piece]


@dataclass(frozen=True)
class TableViews:
    """The views of one command's tables, for every format."""

    grids: Sequence[Grid]
    """Grids for people."""
    records: Callable[[], Sequence[Mapping[str, Any]]] = tuple
    """Makes the CSV records: fractions with all digits, None for missing numbers."""
    data: Callable[[], Any] = tuple
    """Makes the JSON data."""
