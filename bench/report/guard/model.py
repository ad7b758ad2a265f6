"""Guards of the cells of a table: thresholds, what they keep on questions that had no part in them, and why not."""

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
    """Some answers of a cell."""

    values: FloatArray
    """(n,) confidences, or scores where there are no confidences."""
    correct: BoolArray
    """(n,)."""


def answers_of(records: Records, rows: BoolArray | slice = ALL) -> Answers:
    """The chosen answers (n,) of a cell; by default all."""
    values = records.confidence if records.probabilities is not None else records.order
    return Answers(values[rows], records.correct[rows])


@dataclass(frozen=True)
class Realised:
    """Answers that had no part in testing a threshold, and those of them that it keeps."""

    n: int
    """Answers."""
    kept: int
    """Those at or above the threshold."""
    mistakes: int
    """Wrong ones among these."""

    @property
    def coverage(self) -> float:
        """Share that is kept."""
        return self.kept / self.n

    @property
    def coverage_interval(self) -> tuple[float, float] | None:
        """Its 95 % interval."""
        return share_interval(self.kept, self.n)

    @property
    def risk(self) -> float | None:
        """Share of mistakes among what is kept; None where nothing is."""
        return self.mistakes / self.kept if self.kept else None

    @property
    def risk_interval(self) -> tuple[float, float] | None:
        """Its 95 % interval; None where nothing is kept."""
        return share_interval(self.mistakes, self.kept)


@dataclass(frozen=True, eq=False)
class Guarded:
    """One cell: a method with one seed, which is a fit of its own and has a threshold of its own."""

    row: ResultRow
    request: GuardRequest
    guard: Guard
    calibration: Answers
    rest: Answers
    is_score: bool
    """Whether thresholds are of scores without a scale."""

    @property
    def threshold(self) -> float | None:
        """The threshold; None where none keeps the risk."""
        return self.guard.threshold

    @property
    def kept(self) -> int:
        """Calibration answers at the threshold or above, or at the strictest one where none keeps the risk."""
        return int(self.guard.kept[self.guard.place]) if self.guard.grid.size else 0

    @property
    def mistakes(self) -> int:
        """Wrong ones among them."""
        return int(self.guard.mistakes[self.guard.place]) if self.guard.grid.size else 0

    @property
    def bound(self) -> float:
        """Upper bound of the risk there, for that threshold by itself."""
        return float(upper_bound(self.mistakes, self.kept, self.request.level))

    @cached_property
    def realised(self) -> Realised | None:
        """Other answers, and those that the threshold keeps; None without a threshold."""
        if self.threshold is None:
            return None
        kept, mistakes = counted(*self.rest, [self.threshold])
        return Realised(len(self.rest.values), int(kept[0]), int(mistakes[0]))

    @property
    def needed(self) -> int | None:
        """Calibration answers with which the strictest threshold would pass if its share of mistakes stayed the same.

        None where that share is not below the risk, so that more answers would not help, or where nothing was kept.
        """
        if not self.kept:
            return None
        above = enough(self.mistakes / self.kept, self.request.risk, self.request.level)
        return None if above is None else int(np.ceil(above * len(self.calibration.values) / self.kept))


@dataclass(frozen=True, eq=False)
class GuardedLine:
    """A method with its seeds."""

    line: Line
    seeds: tuple[Guarded, ...]
    """Its cells with numbers; none where it has none here."""
    reason: str = ""
    """Why it has no guard at all; empty where it has cells."""

    @property
    def done(self) -> tuple[Guarded, ...]:
        """Seeds with a threshold."""
        return tuple(seed for seed in self.seeds if seed.threshold is not None)

    @property
    def coverage(self) -> float:
        """Share of the other answers that is kept, mean over seeds; a seed without a threshold keeps nothing."""
        found = [seed.realised.coverage if seed.realised else 0.0 for seed in self.seeds]
        return float(np.mean(found)) if found else 0.0


@dataclass(frozen=True, eq=False)
class GuardedTable:
    """The methods on one model and task."""

    request: GuardRequest
    table: Table
    lines: tuple[GuardedLine, ...]
    """Methods with guards first, those that keep most answers before others."""
    feasible: Feasible
    """Limits that the calibration answers set to any method; of the first one's where they differ between methods."""
    source: str
    """Where calibration answers come from, in words."""
    calibrated_on: str
    """Task whose questions are the calibration's."""
    remarks: tuple[str, ...] = ()
    """Sentences on what else a reader must know."""
    aside: str = ""
    """Words that tell its results from others of the model and task, e.g. that they are tuned; empty for most."""

    @property
    def title(self) -> str:
        """Model and task, and what tells it from other tables of these."""
        return f"{self.table.facts[0]} ({self.aside})" if self.aside else self.table.facts[0]

    @property
    def some(self) -> tuple[GuardedLine, ...]:
        """Lines of which at least one seed has a threshold."""
        return tuple(line for line in self.lines if line.done)

    @property
    def tested(self) -> tuple[GuardedLine, ...]:
        """Lines that have cells."""
        return tuple(line for line in self.lines if line.seeds)
