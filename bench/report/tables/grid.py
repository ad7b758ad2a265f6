"""A table laid out as a grid of cells, before it is written in any format."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple


@dataclass(frozen=True)
class Column:
    """A heading and what it stands over."""

    label: str
    span: str = ""
    """Heading over several neighbouring columns, e.g. a model; empty for none."""
    is_left: bool = False
    """Set flush left, as words are."""
    droppable: int = 0
    """0 never; of the others, the largest is left out first where a terminal is too narrow."""
    is_metric: bool = False
    """Has numbers that are not left out where columns go below one another."""
    is_in_latex: bool = True
    """Stands in LaTeX too."""
    sentence: str = ""
    """Sentence of the legend that explains this column and is left out with it; empty where there is none."""

    @property
    def heading(self) -> str:
        """Its label after its span, for formats that have no cells over several columns."""
        return f"{self.span} {self.label}".strip()


@dataclass(frozen=True)
class Cell:
    """Text, signs and footnotes of one field, before they are escaped."""

    text: str
    bold: bool = False
    mark: str = ""
    """Signs after the text that the legend explains."""
    notes: tuple[str, ...] = ()
    """Footnotes, which are numbered in the order in which they appear."""
    shaded: bool = False
    """Has a background where a format has backgrounds: LaTeX."""


class GridRow(NamedTuple):
    """One row of cells."""

    cells: Sequence[Cell]
    is_under: bool = False
    """Belongs to the row above, e.g. the published numbers of a method."""
    is_apart: bool = False
    """Begins a new block."""


@dataclass(frozen=True)
class Grid:
    """A table that is ready to be written."""

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
        """Number k is at k - 1."""
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
    """Records for CSV: fractions with all digits, None without a number. Made when it is asked for, as is the next."""
    data: Callable[[], Any] = tuple
    """Data for JSON."""
