"""Dataclasses of guards: the threshold of each cell, and coverage and risk on the other questions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bench.api import BoolArray, FloatArray
from bench.report.tables.model import Line, Table
from bench.results.records import Records
from bench.results.row import ResultRow
from bench.stats.guard import Feasible, Guard, counted, enough, share_interval, upper_bound

if TYPE_CHECKING:
    from bench.report.selection import GuardRequest


ALL = slice(None)


class Answers(NamedTuple):
    """Confidences and labels of some answers of a cell."""

    values: FloatArray
    """(n,) confidences, or scores where there are no confidences."""
    correct: BoolArray
    """(n,)."""


def answers_of(records: Records, rows: BoolArray | slice = ALL) -> Answers:
    """Return the answers (n,) at the given rows of a cell. Default: all."""
    values = records.confidence if records.probabilities is not None else records.order
    return Answers(values[rows], records.correct[rows])


@dataclass(frozen=True)
class Realised:
    """What a threshold does on answers that it was not chosen on."""

    n: int
    """Number of answers."""
    accepted: int
    """Answers at or above the threshold."""
    mistakes: int
    """Wrong answers among these."""

    @property
    def coverage(self) -> float:
        """Share of answers at or above the threshold."""
        return self.accepted / self.n

    @property
    def coverage_interval(self) -> tuple[float, float] | None:
        """95 % interval of the coverage."""
        return share_interval(self.accepted, self.n)

    @property
    def risk(self) -> float | None:
        """Share of wrong answers at or above the threshold; None where there are no answers."""
        return self.mistakes / self.accepted if self.accepted else None

    @property
    def risk_interval(self) -> tuple[float, float] | None:
        """95 % interval of the risk; None where there is no risk."""
        return share_interval(self.mistakes, self.accepted)


@dataclass(frozen=True, eq=False)
class GuardedCell:
    """The guard of one cell: one method and seed, i.e. one fit, has one threshold."""

    row: ResultRow
    request: GuardRequest
    guard: Guard
    calibration: Answers
    rest: Answers
    is_score: bool
    """Whether thresholds are scores that are no probabilities."""

    @property
    def threshold(self) -> float | None:
        """The chosen threshold; None where none passes the test."""
        return self.guard.threshold

    @property
    def accepted(self) -> int:
        """Calibration answers at or above the threshold, or the strictest tested one where none passes."""
        return int(self.guard.kept[self.guard.place]) if self.guard.grid.size else 0

    @property
    def mistakes(self) -> int:
        """Wrong answers among `kept`."""
        return int(self.guard.mistakes[self.guard.place]) if self.guard.grid.size else 0

    @property
    def bound(self) -> float:
        """Upper bound of the risk at that threshold, not corrected for the choice of it."""
        return float(upper_bound(self.mistakes, self.accepted, self.request.level))

    @cached_property
    def realised(self) -> Realised | None:
        """Counts on the other answers; None without a threshold."""
        if self.threshold is None:
            return None
        accepted, mistakes = counted(*self.rest, [self.threshold])
        return Realised(len(self.rest.values), int(accepted[0]), int(mistakes[0]))

    @property
    def needed(self) -> int | None:
        """Calibration answers with which the strictest threshold would pass at the same share of mistakes.

        None where that share is not below the risk, so that more answers would not help, or where `kept` is 0.
        """
        if not self.accepted:
            return None
        n_above = enough(self.mistakes / self.accepted, self.request.risk, self.request.level)
        return None if n_above is None else int(np.ceil(n_above * len(self.calibration.values) / self.accepted))


@dataclass(frozen=True, eq=False)
class GuardedLine:
    """The guards of a method, one for each seed."""

    line: Line
    seeds: tuple[GuardedCell, ...]
    """Guards of the cells with results."""
    reason: str = ""
    """Why there is no guard; empty where there are cells."""

    @property
    def done(self) -> tuple[GuardedCell, ...]:
        """Seeds with a threshold."""
        return tuple(seed for seed in self.seeds if seed.threshold is not None)

    @property
    def coverage(self) -> float:
        """Coverage of the other answers, mean over seeds; 0 for a seed without a threshold."""
        coverages = [seed.realised.coverage if seed.realised else 0.0 for seed in self.seeds]
        return float(np.mean(coverages)) if coverages else 0.0


@dataclass(frozen=True, eq=False)
class GuardedTable:
    """The guards of one model and task."""

    request: GuardRequest
    table: Table
    lines: tuple[GuardedLine, ...]
    """Methods with thresholds first, then by falling coverage."""
    feasible: Feasible
    """Limits that the calibration labels set to any method; those of the first method where labels differ."""
    source: str
    """Where calibration answers come from, in words."""
    calibrated_on: str
    """Task of the calibration questions."""
    remarks: tuple[str, ...] = ()
    """Further sentences for the reader."""
    aside: str = ""
    """What distinguishes the results from others of the model and task, e.g. tuning; usually empty."""

    @property
    def title(self) -> str:
        """Model, task and what distinguishes the table from others of these."""
        return f"{self.table.facts[0]} ({self.aside})" if self.aside else self.table.facts[0]

    @property
    def certified(self) -> tuple[GuardedLine, ...]:
        """Lines with a threshold for at least one seed."""
        return tuple(line for line in self.lines if line.done)

    @property
    def evaluated(self) -> tuple[GuardedLine, ...]:
        """Lines with cells."""
        return tuple(line for line in self.lines if line.seeds)
