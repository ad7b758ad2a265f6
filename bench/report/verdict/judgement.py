"""Judge methods that were recalibrated alike, by one metric: who leads, by how much, and what is undecided.

Every claim follows from the tests between pairs of methods. Example: `judge_table(table, "brier")[0].leaders`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist
from typing import Literal

from bench.metrics import METRICS
from bench.report.competition import CALIBRATION, Competition
from bench.report.grouping import Key
from bench.report.standings.compute import Pair, Standings
from bench.report.tables.model import Line, Table
from bench.report.text import metric_name
from bench.report.verdict.phrases import sort_by_cost

State = Literal["sure", "tied", "not tested", "none"]
POWER = 0.8
"""Probability of a significant difference for which a verdict says how many questions are needed."""
_POWER_QUANTILE = NormalDist().inv_cdf(POWER)
HOPELESS = 0.1
"""If a difference is at most this share of its interval's width, no number of questions is said to decide it."""


@dataclass(frozen=True)
class Judgement(Competition):
    """Ranking of methods that were recalibrated alike, and what the tests between them decide and leave open."""

    known: tuple[Line, ...]
    """Lines (methods) with a value of the metric, ranked or not, the best mean first."""
    unknown: tuple[Line, ...]
    """Lines (methods) without a value of the metric: skipped, failed, not run, or undefined."""
    standings: Standings | None

    @cached_property
    def others(self) -> tuple[Line, ...]:
        """Ranked lines (methods) that don't lead."""
        return tuple(line for line in self.ranked if line not in self.leaders)

    @cached_property
    def ahead(self) -> tuple[Line, ...]:
        """Methods of rank 1 with a better mean than the first leader, which fail against a constant confidence."""
        bound = self.leaders[0].badness(self.metric) or 0.0
        return tuple(line for line in self.first if (line.badness(self.metric) or 0.0) < bound)

    @property
    def top(self) -> list[Line]:
        """The first leader and the best other ranked method; the two best ranked methods where none leads."""
        return sorted(self.ranked, key=lambda line: line not in self.leaders[:1])[:2]

    @property
    def orders_none(self) -> bool:
        """Whether methods were ranked, none of which has an AUROC above chance."""
        return bool(self.ranked) and not any(line.orders_answers for line in self.ranked)

    @property
    def constant_wins(self) -> bool:
        """Whether methods were ranked by Brier score, and those of rank 1 are no better than a constant confidence."""
        return len(self.ranked) > 1 and bool(self.first) and not self.leaders

    @property
    def state(self) -> State:
        """What the tests say of the leaders: `sure`, `tied`, `not tested` or `none`; see `Verdict.state`."""
        if self.leaders:
            return "tied" if self.rivals else "sure"
        if self.constant_wins:
            return "none"
        is_good_or_bad = METRICS[self.metric].higher_is_better is not None
        return "not tested" if self.first or (self.known and not self.ranked and is_good_or_bad) else "none"

    @property
    def is_decided(self) -> bool:
        """Whether at least two methods were tested against each other, so that one or several lead."""
        return bool(self.leaders)

    def comparison_to(self, line: Line, other: Line) -> Pair | None:
        """Return the paired comparison of two methods; None if they were not compared.

        The difference is positive if `line` is better than `other`.
        """
        first, second = (line, other) if METRICS[self.metric].higher_is_better else (other, line)
        pair = self._pairs.get((first.key, second.key))
        return pair or (reverse.reversed() if (reverse := self._pairs.get((second.key, first.key))) else None)

    @cached_property
    def _pairs(self) -> Mapping[tuple[Key, Key], Pair]:
        pairs = self.standings.pairs if self.standings else ()
        return {(pair.first, pair.second): pair for pair in pairs if pair.metric == self.metric}

    @cached_property
    def rivals(self) -> tuple[Line, ...]:
        """Ranked methods that may be as good as the first leader.

        These are the other leaders. If there is only one leader, they are the methods that are not significantly worse.
        """
        beaten = self.standings.beaten.get((self.metric, self.leaders[0].key), ()) if self.standings else ()
        return self.leaders[1:] or tuple(line for line in self.others if line.key not in beaten)

    @property
    def cheapest(self) -> list[Line]:
        """Leading methods, the cheapest first.

        If no method leads, the list is empty, unless only one method has a value: then the list has this method.
        """
        return sort_by_cost(self.leaders or (self.known if len(self.known) == 1 else ()))

    def questions(self, line: Line) -> float | None:
        """Return how many questions would separate the first leader from this method with probability `POWER`.

        The observed difference is taken as the true one. Infinity if the difference is at most `HOPELESS` of its
        interval's width. None if there is no test or no interval.
        """
        pair = self.comparison_to(self.leaders[0], line)
        if pair is None:
            return None
        low, high = pair.fixed.ends or (0.0, 0.0)
        if not pair.difference or abs(pair.difference) <= HOPELESS * (high - low):
            return math.inf
        if pair.critical is None or line.n is None or pair.error is None or pair.fixed.ends is None:
            return None
        return questions_needed(line.n, pair.difference, pair.error, pair.critical)

    @property
    def why_nobody(self) -> str:
        """Reason why no method leads, as part of a sentence."""
        from bench.stats import TESTED

        if METRICS[self.metric].higher_is_better is None:
            return "it is a yardstick, neither good nor bad"
        if not self.known:
            return "no method has a value"
        if len(self.known) == 1:
            return "there is no other method"
        if self.standings is None:
            return "intervals and tests were not computed"
        if self.metric not in TESTED:
            return f"there is no test of {metric_name(self.metric)}"
        reasons = [pair.fixed.reason for pair in self._pairs.values() if pair.p is None and pair.fixed.reason]
        if reasons:
            return reasons[0]
        if len({line.standing.labels for line in self.known if line.standing}) == len(self.known):
            return "no two methods rest on the same answers and labels"
        if self.metric == CALIBRATION and not any(line.orders_answers for line in self.known):
            return "no method is known to order right answers before wrong ones, and a constant is calibrated, too"
        return "no other method could be ranked" if self.ranked else "no method could be ranked"


def questions_needed(n: int, difference: float, error: float, critical: float) -> float:
    """Return the number of questions at which a difference becomes significant with probability `POWER`.

    Args:
        n: number of questions tested.
        difference: observed difference, taken as the true one.
        error: standard error of the difference with n questions; it is taken to fall with the square root of n.
        critical: critical value of the test, in standard errors.
    """
    return n * ((critical + _POWER_QUANTILE) * error / abs(difference)) ** 2


def judge_table(table: Table, metric: str | None = None) -> list[Judgement]:
    """Judge the methods of a table by a metric: one judgement for each recalibration, hidden methods included.

    The judgement of methods without recalibration comes first.

    Args:
        table: table of methods; its standings (intervals, tests and ranks) may be missing.
        metric: name in `METRICS`; the headline metric of the table by default.
    """
    full = table.with_hidden_lines()
    judgements = []
    for kind in sorted({line.key.recalibration for line in full.lines}):
        comp = full.competition(metric, kind)
        known, unknown = list[tuple[float, tuple[object, ...], Line]](), list[Line]()
        for line in (line for line in full.lines if line.key.recalibration == kind):
            value = line.badness(comp.metric)
            unknown += [line] if value is None else []
            known += [] if value is None else [(value, line.place, line)]
        ordered = tuple(line for *_, line in sorted(known, key=lambda item: item[:2]))
        judgements.append(
            Judgement(
                comp.metric, comp.recalibration, comp.comparable, comp.excluded, ordered, tuple(unknown), full.standings
            )
        )
    return judgements
