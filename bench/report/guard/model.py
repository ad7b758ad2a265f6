"""Dataclasses of guards: the threshold of each cell, and its coverage and risk on questions that didn't choose it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bench.api import BoolArray, FloatArray
from bench.report.tables.model import Line, Table
from bench.results.question_records import QuestionRecords
from bench.results.row import ResultRow
from bench.stats.guard import Feasible, Guard, answers_needed, count_selected, share_interval, upper_bound

if TYPE_CHECKING:
    from bench.report.selection import GuardRequest


ALL = slice(None)


class Answers(NamedTuple):
    """Confidences and labels of some answers of a cell."""

    values: FloatArray
    """Confidences, or scores where there are no confidences, shape (n,)."""
    correct: BoolArray
    """Whether each answer is right, shape (n,)."""


def answers_of(records: QuestionRecords, rows: BoolArray | slice = ALL) -> Answers:
    """Return the answers of a cell, or those at the given rows, an index or mask."""
    values = records.confidence if records.probabilities is not None else records.ranking_values
    return Answers(values[rows], records.correct[rows])


@dataclass(frozen=True)
class Realised:
    """Counts that show what a threshold does on answers that it was not chosen on."""

    n: int
    """Number of answers on which the threshold is evaluated."""
    accepted: int
    """Number of answers at or above the threshold."""
    mistakes: int
    """Number of wrong answers at or above the threshold."""

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
        """Share of wrong answers among those at or above the threshold; None where there are none."""
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
    """Labelled answers that chose the threshold."""
    rest: Answers
    """Answers to the other questions, on which the threshold is evaluated."""
    is_score: bool
    """Whether the threshold is one of scores, which are no probabilities."""

    @property
    def threshold(self) -> float | None:
        """The chosen threshold; None where no threshold passes the test."""
        return self.guard.threshold

    @property
    def accepted(self) -> int:
        """Number of calibration answers at or above the threshold, or the strictest tested one where none passes."""
        return int(self.guard.kept[self.guard.place]) if self.guard.grid.size else 0

    @property
    def n_wrong(self) -> int:
        """Number of wrong answers among those that `accepted` counts."""
        return int(self.guard.mistakes[self.guard.place]) if self.guard.grid.size else 0

    @property
    def bound(self) -> float:
        """Upper bound of the error rate at the threshold that `accepted` refers to, not corrected for its choice."""
        return float(upper_bound(self.n_wrong, self.accepted, self.request.level))

    @cached_property
    def realised(self) -> Realised | None:
        """Counts on the answers in `rest`; None without a threshold."""
        if self.threshold is None:
            return None
        accepted, mistakes = count_selected(*self.rest, [self.threshold])
        return Realised(len(self.rest.values), int(accepted[0]), int(mistakes[0]))

    @property
    def answers_needed(self) -> int | None:
        """Number of calibration answers with which the threshold would pass at the same share of mistakes.

        The threshold is that which `accepted` refers to. None where the share of mistakes is not below the risk, so
        that more answers would not help, or where `accepted` is 0.
        """
        if not self.accepted:
            return None
        n_above = answers_needed(self.n_wrong / self.accepted, self.request.risk, self.request.level)
        return None if n_above is None else int(np.ceil(n_above * len(self.calibration.values) / self.accepted))


@dataclass(frozen=True, eq=False)
class GuardedLine:
    """The guards of a method, one for each seed."""

    line: Line
    seeds: tuple[GuardedCell, ...]
    """Guard of each seed; empty where `reason` says why there is none."""
    reason: str = ""
    """Why the method has no guard; empty where it has."""

    @property
    def passed_seeds(self) -> tuple[GuardedCell, ...]:
        """The seeds for which a threshold was found."""
        return tuple(seed for seed in self.seeds if seed.threshold is not None)

    @property
    def coverage(self) -> float:
        """Share of the held-out answers that reach the threshold, mean over seeds; 0 for a seed without threshold.

        Held out are the answers that the threshold was not chosen on.
        """
        coverages = [seed.realised.coverage if seed.realised else 0.0 for seed in self.seeds]
        return float(np.mean(coverages)) if coverages else 0.0


@dataclass(frozen=True, eq=False)
class GuardedTable:
    """The guards of one model and task."""

    request: GuardRequest
    table: Table
    lines: tuple[GuardedLine, ...]
    """Guards of the table's methods: those with a threshold first, by falling coverage."""
    feasible: Feasible
    """Limits that the number of right calibration answers sets to any method; if methods differ, to the first one."""
    source: str
    """Sentence that says where the calibration answers come from."""
    calibrated_on: str
    """Task of the calibration questions."""
    remarks: tuple[str, ...] = ()
    """Further sentences for the reader."""
    aside: str = ""
    """Words that distinguish this table from others of the same model and task, e.g. on tuning; usually empty."""

    @property
    def title(self) -> str:
        """Title of the table: model and task, with `aside` in brackets."""
        return f"{self.table.facts[0]} ({self.aside})" if self.aside else self.table.facts[0]

    @property
    def certified(self) -> tuple[GuardedLine, ...]:
        """Lines with a threshold for at least one seed."""
        return tuple(line for line in self.lines if line.passed_seeds)

    @property
    def evaluated(self) -> tuple[GuardedLine, ...]:
        """Lines with a guard for at least one seed, with or without a threshold."""
        return tuple(line for line in self.lines if line.seeds)
