"""Dataclasses of guards: a method's threshold, chosen on calibration answers, and what it accepts of other answers."""

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
    """Confidences and labels of n answers of one method and seed."""

    values: FloatArray
    """Confidences, shape (n,); scores if the method has no confidences."""
    correct: BoolArray
    """Whether each answer is right, shape (n,)."""


def answers_of(records: QuestionRecords, rows: BoolArray | slice = ALL) -> Answers:
    """Return the confidences and labels of one method and seed.

    Args:
        records: answers, confidences and labels, question by question.
        rows: mask or slice that selects some of the answers; by default all.
    """
    values = records.confidence if records.probabilities is not None else records.ranking_values
    return Answers(values[rows], records.correct[rows])


class Realised(NamedTuple):
    """How a threshold does on answers that did not take part in choosing it."""

    accepted: int
    """Number of answers whose confidence is at or above the threshold."""
    mistakes: int
    """Number of accepted answers that are wrong."""
    coverage: float
    """Share of answers that are accepted."""
    coverage_interval: tuple[float, float] | None
    """95 % confidence interval of the coverage."""
    risk: float | None
    """Share of wrong answers among the accepted ones; None if none is accepted."""
    risk_interval: tuple[float, float] | None
    """95 % confidence interval of the risk; None if no answer is accepted."""


@dataclass(frozen=True, eq=False)
class GuardedCell:
    """The guard of one method and seed: a threshold, and the answers on which it was chosen and evaluated.

    A method and seed is one fit, and each fit has its own threshold.
    """

    row: ResultRow
    request: GuardRequest
    guard: Guard
    calibration: Answers
    """Labelled answers on which the threshold was chosen."""
    rest: Answers
    """Answers that did not take part in choosing the threshold, on which it is only evaluated."""
    is_score: bool
    """Whether the threshold applies to scores without a scale instead of probabilities."""

    @property
    def threshold(self) -> float | None:
        """The lowest confidence to accept; None if no threshold is certified to keep the requested risk."""
        return self.guard.threshold

    @property
    def accepted(self) -> int:
        """Number of calibration answers (those that choose the threshold) at or above the threshold.

        If no threshold is certified, the strictest tested threshold is taken.
        """
        return int(self.guard.kept[self.guard.place]) if self.guard.grid.size else 0

    @property
    def n_wrong(self) -> int:
        """Number of wrong answers among the calibration answers at or above the threshold."""
        return int(self.guard.mistakes[self.guard.place]) if self.guard.grid.size else 0

    @property
    def bound(self) -> float:
        """Upper confidence bound, at the requested level, of the error rate at or above the threshold.

        It is not corrected for the fact that the threshold was chosen on the same answers.
        """
        return float(upper_bound(self.n_wrong, self.accepted, self.request.level))

    @cached_property
    def realised(self) -> Realised | None:
        """How the threshold does on the answers that did not choose it; None without a threshold."""
        if self.threshold is None:
            return None
        n, (kept, wrong) = len(self.rest.values), (int(k[0]) for k in count_selected(*self.rest, [self.threshold]))
        risk = wrong / kept if kept else None
        return Realised(kept, wrong, kept / n, share_interval(kept, n), risk, share_interval(wrong, kept))

    @property
    def answers_needed(self) -> int | None:
        """Number of labelled answers that would certify the threshold, if its share of mistakes stayed as it is.

        If no threshold is certified, the strictest tested threshold is taken. None if no answer reaches this threshold,
        or if its share of mistakes is not below the requested risk: then more answers would not help.
        """
        if not self.accepted:
            return None
        n_above = answers_needed(self.n_wrong / self.accepted, self.request.risk, self.request.level)
        return None if n_above is None else int(np.ceil(n_above * len(self.calibration.values) / self.accepted))


@dataclass(frozen=True, eq=False)
class GuardedLine:
    """The guards of one method: a threshold for each seed."""

    line: Line
    seeds: tuple[GuardedCell, ...]
    """The guard of each seed; empty if `reason` is set."""
    reason: str = ""
    """Why no threshold could be tested for the method; otherwise empty."""

    @property
    def passed_seeds(self) -> tuple[GuardedCell, ...]:
        """Guards of the seeds for which a threshold is certified."""
        return tuple(seed for seed in self.seeds if seed.threshold is not None)

    @property
    def coverage(self) -> float:
        """Share of answers that reach the threshold, mean over seeds; a seed without a threshold counts as 0.

        Only answers that did not take part in choosing the threshold are counted.
        """
        coverages = [seed.realised.coverage if seed.realised else 0.0 for seed in self.seeds]
        return float(np.mean(coverages)) if coverages else 0.0


@dataclass(frozen=True, eq=False)
class GuardedTable:
    """The guards (confidence thresholds with a certified error rate) of all methods on one model and task."""

    request: GuardRequest
    table: Table
    lines: tuple[GuardedLine, ...]
    """Guards of the methods: methods with a threshold first, then by falling coverage."""
    feasible: Feasible
    """The best that any method could do, given how many of the answers that choose the threshold are right.

    If methods have different labels, the numbers are those of the first method.
    """
    source: str
    """Sentence that says which questions choose the thresholds."""
    calibrated_on: str
    """Name of the task whose questions choose the thresholds."""
    remarks: tuple[str, ...] = ()
    """Sentences for the reader about the data and about what the guards don't cover."""
    aside: str = ""
    """Words that distinguish this table from other tables of its model and task, e.g. on tuning; usually empty."""

    @property
    def title(self) -> str:
        """Title of the table: model, task and, in brackets, the words in `aside`."""
        return f"{self.table.model} on {self.table.task}{f' ({self.aside})' if self.aside else ''}"

    @property
    def certified(self) -> tuple[GuardedLine, ...]:
        """Methods with a certified threshold for at least one seed."""
        return tuple(line for line in self.lines if line.passed_seeds)

    @property
    def evaluated(self) -> tuple[GuardedLine, ...]:
        """Methods for which thresholds were tested, whether or not one of them is certified."""
        return tuple(line for line in self.lines if line.seeds)
