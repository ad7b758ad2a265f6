"""What a comparison table holds, and the grid of cells that it becomes before it is written in any format."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from bench.report.grouping import Key
from bench.report.standings.compute import LineStanding, Standing, Standings
from bench.report.tables.best import Best
from bench.report.tables.published import Published
from bench.results.row import LabelsSeen, Status, Training

COLUMNS = ("ece", "brier", "acc", "aucpr", "auroc")
"""Metrics of the table, in the order of the paper's."""
CALIBRATED = 0.05
"""P value from which on an ECE can't be told from that of a calibrated method."""


# --- what is known ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Estimate:
    """A metric of one method, as fractions: mean over subjects, then over seeds."""

    mean: float | None
    """None where it is undefined in every subject."""
    std: float | None
    """Over subjects; mean over seeds."""
    best: Best | None = None
    """How sure it is that no other of its block is better; None where another one is."""
    standing: Standing | None = None
    """Intervals and the spread between seeds, where standings were computed."""
    notes: tuple[str, ...] = ()
    """Footnotes."""

    @property
    def half(self) -> float | None:
        """Half the width of its 95 % interval for these subjects, on the longer side; None where there is none."""
        return self.standing.fixed.half(self.mean) if self.standing else None


@dataclass(frozen=True)
class Line:
    """One method of a table."""

    key: Key
    method: str
    variant: str
    """Settings in which this line differs from others of the table, e.g. `ccps.steps=10`; usually empty."""
    status: Status
    """ok where at least one seed is."""
    seeds: tuple[int, ...]
    """Seeds that are ok, whose mean is shown."""
    runs: int
    """All seeds, those not ok included."""
    n: int | None
    """Questions."""
    labels: tuple[LabelsSeen, ...]
    """What it learned from; several where seeds differ, empty where the status isn't ok."""
    estimates: Mapping[str, Estimate]
    """By metric; empty where the status isn't ok."""
    reasons: tuple[str, ...] = ()
    """Why it, or one of its seeds, isn't ok."""
    notes: tuple[str, ...] = ()
    """What else a reader should know."""
    standing: LineStanding | None = None
    """Ranks and the test of calibration, where they were computed."""
    training: tuple[Training, ...] = ()
    """Of the seeds that trained."""
    base_rate: float | None = None
    """Share of right answers in training, mean over seeds; None where it learned from none."""

    @property
    def is_calibrated(self) -> bool:
        """Whether its ECE can't be told from that of a calibrated method."""
        return self.standing is not None and self.standing.calibrated_p >= CALIBRATED

    @property
    def orders_answers(self) -> bool:
        """Whether its AUROC is above 50 % beyond chance; also where that can't be told."""
        return self.standing is None or self.standing.orders_answers

    @property
    def is_worse_than_constant(self) -> bool:
        """Whether its Brier is no better than that of a constant confidence; False where that isn't known."""
        return self.standing is not None and self.standing.worse_than_constant


@dataclass(frozen=True)
class Table:
    """All methods on one model and task."""

    model: str
    task: str
    preset: str
    task_version: int
    facts: tuple[str, ...]
    """Caption: a title, then sentences."""
    lines: tuple[Line, ...]
    standings: Standings | None = None
    """None where none were asked for."""
    published: Mapping[tuple[str, str], Published] | None = None
    """The paper's cells of this model and task by method and metric; None where they weren't asked for."""

    @property
    def several_seeds(self) -> bool:
        """Whether any method ran with more than one seed."""
        return any(line.runs > 1 for line in self.lines)

    def cell(self, method: str, metric: str) -> Published | None:
        """The paper's cell, if it was asked for and there is one."""
        return (self.published or {}).get((method, metric))

    def difference(self, line: Line, metric: str) -> float | None:
        """Ours minus the published mean; None where one of them is missing."""
        estimate, cell = line.estimates.get(metric), self.cell(line.method, metric)
        return None if estimate is None or estimate.mean is None or cell is None else estimate.mean - cell.mean


# --- how it is laid out -----------------------------------------------------------------------------------------------


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


@dataclass(frozen=True)
class Cell:
    """What stands in one field, before it is escaped."""

    text: str
    bold: bool = False
    mark: str = ""
    """Signs after the text that the legend explains."""
    notes: tuple[str, ...] = ()
    """Footnotes, which are numbered in the order in which they appear."""


class Row(NamedTuple):
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
    rows: tuple[Row, ...]
    legend: tuple[str, ...] = ()
    """What the marks and columns mean, in sentences."""
    remarks: tuple[str, ...] = ()
    """Footnotes without a mark."""
    is_folded: bool = False
    """Where a terminal is too narrow, text is folded; else columns go below one another."""

    @property
    def footnotes(self) -> tuple[str, ...]:
        """Number k is at k - 1."""
        return tuple(dict.fromkeys(note for row in self.rows for cell in row.cells for note in cell.notes))


@dataclass(frozen=True)
class Sheet:
    """What one command shows, for every format."""

    grids: Sequence[Grid]
    """For people."""
    records: Callable[[], Sequence[Mapping[str, Any]]] = tuple
    """As CSV: fractions with all digits, None where there is no number. Made when it is asked for, as is the next."""
    data: Callable[[], Any] = tuple
    """As JSON."""
