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
    sentence: str = ""
    """Sentence of the legend that explains this column and is left out with it; empty where there is none."""
    instead: str = ""
    """Sentence that the legend has instead where this column is left out."""


@dataclass(frozen=True)
class Cell:
    """Text, signs and footnotes of one field, before they are escaped."""

    text: str
    bold: bool = False
    mark: str = ""
    """Signs after the text that the legend explains."""
    notes: tuple[str, ...] = ()
    """Footnotes, which are numbered in the order in which they appear."""


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
    is_folded: bool = False
    """Where a terminal is too narrow, text is folded; else columns go below one another."""

    @property
    def footnotes(self) -> tuple[str, ...]:
        """Number k is at k - 1."""
        return tuple(dict.fromkeys(note for row in self.rows for cell in row.cells for note in cell.notes))


@dataclass(frozen=True)
class TableViews:
    """The views of one command's tables, for every format."""

    grids: Sequence[Grid]
    """For people."""
    records: Callable[[], Sequence[Mapping[str, Any]]] = tuple
    """For CSV: fractions with all digits, None where there is no number. Made when it is asked for, as is the next."""
    data: Callable[[], Any] = tuple
    """For JSON."""
