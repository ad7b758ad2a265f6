"""Judgement of a block of methods by one metric: who leads, by how much, and what is not decided.

All of it follows from the pairs of the table's standings. Example: `judged(table, "brier")[0].leaders`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist
from typing import Literal

from bench.metrics import METRICS
from bench.report.competition import SEVERAL, Competition
from bench.report.grouping import Key
from bench.report.standings.compute import Pair, Standings
from bench.report.tables.model import Line, Table

State = Literal["sure", "tied", "not tested", "none"]
POWER = 0.8
"""Probability with which a test of the questions that are asked for decides."""
_POWER_QUANTILE = NormalDist().inv_cdf(POWER)
HOPELESS = 0.1
"""Share of its interval's width below which a difference is too small to say how many questions would decide it."""


@dataclass(frozen=True)
class Judgement:
    """One block of a table, judged by one metric: lines that were recalibrated alike, with the same answers."""

    competition: Competition
    known: tuple[Line, ...]
    """Lines of the recalibration that have a value in this metric, whether ranked or not, the best mean first."""
    unknown: tuple[Line, ...]
    """Lines of the recalibration without one: skipped, failed, not run, or undefined."""
    standings: Standings | None

    @property
    def metric(self) -> str:
        """Metric that judges; `rmsce` where ECE was asked for."""
        return self.competition.metric

    @property
    def recalibration(self) -> str:
        """Recalibration of these lines; empty for none."""
        return self.competition.recalibration

    @property
    def ranked(self) -> tuple[Line, ...]:
        """Lines that were tested together, the best mean first."""
        return self.competition.ranked

    @property
    def leaders(self) -> tuple[Line, ...]:
        """Ranked lines than which no ranked line is significantly better; also of one that was ranked alone."""
        return self.competition.first

    @property
    def is_good_or_bad(self) -> bool:
        """Whether the metric is no yardstick."""
        return METRICS[self.metric].higher_is_better is not None

    @cached_property
    def others(self) -> tuple[Line, ...]:
        """Ranked lines that don't lead."""
        return tuple(line for line in self.ranked if line.rank(self.metric) != 1)

    @property
    def level(self) -> float:
        """Level of confidence of the intervals."""
        return self.standings.level if self.standings else 0.95

    @property
    def best(self) -> Line:
        """The leader with the best mean."""
        return self.leaders[0]

    @property
    def state(self) -> State:
        """State by the tests; see `Verdict.state`."""
        if self.ranked and not self.leaders:
            return "none"
        if not self.leaders:
            return "not tested" if self.known and self.is_good_or_bad else "none"
        if len(self.ranked) < SEVERAL:
            return "not tested"
        is_alone = len(self.leaders) == 1 and len(self.beaten_by(self.best)) == len(self.others)
        return "sure" if is_alone else "tied"

    @property
    def is_decided(self) -> bool:
        """Whether methods were tested against each other, so that one leads, or several."""
        return self.state in {"sure", "tied"}

    def beaten_by(self, line: Line) -> tuple[Line, ...]:
        """Ranked lines that are significantly worse than this one."""
        beaten = self.standings.beaten.get((self.metric, line.key), frozenset()) if self.standings else frozenset()
        return tuple(other for other in self.ranked if other.key in beaten)

    @cached_property
    def _pairs(self) -> Mapping[tuple[Key, Key], Pair]:
        pairs = [pair for pair in (self.standings.pairs if self.standings else ()) if pair.metric == self.metric]
        return {(pair.first, pair.second): pair for pair in (*pairs, *(pair.reversed() for pair in pairs))}

    def lead(self, line: Line, other: Line) -> Pair | None:
        """The pair, taken so that its difference is how far the line is ahead; None where it isn't there."""
        ends = (line.key, other.key) if METRICS[self.metric].higher_is_better else (other.key, line.key)
        return self._pairs.get(ends)

    @cached_property
    def rivals(self) -> tuple[Line, ...]:
        """Lines that can't be distinguished from the best and may be best as well: the other leaders.

        Where there are none, the lines that the only leader is not significantly better than.
        """
        beaten = {line.key for line in self.beaten_by(self.best)}
        return self.leaders[1:] or tuple(line for line in self.others if line.key not in beaten)

    def needed(self, line: Line) -> float | None:
        """Questions that decide between the best and this line with probability POWER, if the difference is as seen.

        Infinity where the difference is a small part of its interval; None where there is no test or interval.
        """
        pair = self.lead(self.best, line)
        if pair is None or pair.fixed.low is None or pair.fixed.high is None:
            return None
        if abs(pair.difference) <= HOPELESS * (pair.fixed.high - pair.fixed.low):
            return math.inf
        if pair.critical is None or line.n is None or pair.error is None:
            return None
        return questions_needed(line.n, pair.difference, pair.error, pair.critical)


def questions_needed(n: int, difference: float, error: float, critical: float) -> float:
    """Questions with which a difference reaches its critical value with probability POWER.

    Args:
        n: questions that were tested.
        difference: that was seen and is taken as true.
        error: its standard error with n questions, which falls with the square root of n.
        critical: standard errors that the test asks for.
    """
    return n * ((critical + _POWER_QUANTILE) * error / abs(difference)) ** 2


def rounded(value: float) -> int:
    """A count with two significant digits.

    >>> rounded(4347.1), rounded(97.2), rounded(996)
    (4300, 97, 1000)
    """
    return int(float(f"{value:.1e}"))


def judged(table: Table, metric: str | None = None) -> list[Judgement]:
    """The judgements of a table's blocks, those that are not shown included; without recalibration first.

    Args:
        table: with or without standings.
        metric: in `METRICS`; that of the table by default.
    """
    whole = table.whole()
    return [_judged(whole, metric, kind) for kind in sorted({line.key.recalibration for line in whole.lines})]


def _judged(table: Table, metric: str | None, recalibration: str) -> Judgement:
    competition = table.competition(metric, recalibration)
    lines = [line for line in table.lines if line.key.recalibration == recalibration]
    known = [line for line in lines if line.badness(competition.metric) is not None]
    known.sort(key=lambda line: (line.badness(competition.metric) or 0.0, line.place))
    unknown = [line for line in lines if line.badness(competition.metric) is None]
    return Judgement(competition, tuple(known), tuple(unknown), table.standings)
