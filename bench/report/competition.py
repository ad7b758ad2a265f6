"""Decide which methods of a table are ranked by a metric, which of them lead, how surely, and what is undecided.

Tables, figures and the HTML page share these rules. Methods are compared if they have the same recalibration, answers
and labels. Every claim follows from the tests between pairs of methods. Example:
`rank(table.lines, table.standings, "brier").leaders`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from bench.metrics import METRICS
from bench.report.text import metric_name, plain, value_text

if TYPE_CHECKING:
    from bench.report.grouping import Key
    from bench.report.standings.compute import Pair, Standings
    from bench.report.tables.model import Line

CALIBRATION = "rmsce"
"""Metric by which methods are ranked in place of ECE, because every ECE contains a part that is due to chance."""
NEEDS_ORDER = (CALIBRATION, "aucpr")
"""Metrics that rank and mark only methods whose AUROC is above chance: a constant confidence can be calibrated, and the
AUCPR of confidences that say nothing is on average above that of a constant."""
ORDER_METRICS = ("auroc", "aucpr")
"""Metrics of the order of confidences alone; a constant confidence has none."""
_JUDGED_BY = MappingProxyType({"ece": CALIBRATION})
CHANCE = 0.5
"""AUROC of confidences that say nothing about correctness."""
NOT_TESTED = "not tested"
OTHER_LABELS = "other answers or labels"
Best = Literal["beyond chance", "not beyond chance", "not tested"]
SIGNS: Mapping[Best, str] = MappingProxyType({"beyond chance": "*", "not beyond chance": "~", "not tested": "?"})
"""What tests say of the best number of a column -> sign behind that number."""
_UNMARKED = ("ece", "ece_debiased", "ece_ref", "ece_ref_closed", "ece_mass", "smece", "brier_mcb")
"""Calibration errors whose best number is never marked: they become smaller by chance if confidences vary less."""

State = Literal["sure", "tied", "not tested", "none"]
POWER = 0.8
"""Probability of a significant difference for which a verdict says how many questions are needed."""
_POWER_QUANTILE = NormalDist().inv_cdf(POWER)
HOPELESS = 0.1
"""If a difference is at most this share of its interval's width, no number of questions is said to decide it."""


def ranked_by(metric: str) -> str:
    """Return the metric that sorts, ranks and tests methods if `metric` is requested: `metric` itself, except for ECE.

    >>> ranked_by("ece"), ranked_by("brier")
    ('rmsce', 'brier')
    """
    return _JUDGED_BY.get(metric, metric)


def displayed_value(name: str, value: float) -> float:
    """Return a metric's value as tables show and sort it: a negative RMSCE becomes 0.

    >>> displayed_value("rmsce", -0.01), displayed_value("brier", 0.2)
    (0.0, 0.2)
    """
    return max(0.0, value) if METRICS[name].is_root else value


def badness(name: str, value: float) -> float:
    """Return a metric's value such that less is better: the displayed value, or minus the value of e.g. AUROC.

    >>> badness("auroc", 0.8), badness("brier", 0.2)
    (-0.8, 0.2)
    """
    return -value if METRICS[name].higher_is_better else displayed_value(name, value)


@dataclass(frozen=True)
class Competition:
    """Ranking, by one metric, of the methods of a table that were recalibrated alike, and what its tests leave open."""

    metric: str
    """Metric by which the methods are ranked: `rmsce` if ECE was requested, else the requested metric."""
    recalibration: str
    """Recalibration of the methods, e.g. `isotonic`; an empty string if they are not recalibrated."""
    lines: tuple[Line, ...]
    """All lines (methods) with this recalibration, the best mean first, those without a value last."""
    comparable: tuple[Line, ...]
    """Methods that can be compared by the metric, the best mean first: those that are not in `excluded`, and those that
    are there only because they were not tested.
    """
    excluded: Mapping[Key, str]
    """Method -> reason why it is not ranked. Methods in `comparable` that were not tested have a reason, too."""
    standings: Standings | None
    """Intervals, tests and ranks of the table; None if they were not computed."""

    @cached_property
    def known(self) -> tuple[Line, ...]:
        """Methods with a value of the metric, ranked or not, the best mean first."""
        return tuple(line for line in self.lines if line.badness(self.metric) is not None)

    @cached_property
    def ranked(self) -> tuple[Line, ...]:
        """Methods in `comparable` that were tested against each other."""
        return tuple(line for line in self.comparable if line.rank(self.metric) is not None)

    @cached_property
    def first(self) -> tuple[Line, ...]:
        """Methods of rank 1: no ranked method is significantly better."""
        return tuple(line for line in self.ranked if line.rank(self.metric) == 1)

    def fails(self, line: Line) -> bool:
        """Whether a method's Brier score is no better than a constant confidence's, unless order alone decides."""
        return self.metric not in ORDER_METRICS and line.is_worse_than_constant

    @cached_property
    def leaders(self) -> tuple[Line, ...]:
        """Methods of rank 1 that don't fail against a constant confidence; empty if fewer than two were ranked."""
        return tuple(line for line in self.first if not self.fails(line)) if len(self.ranked) > 1 else ()

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
    def chosen(self) -> tuple[Line, ...]:
        """Leading methods; if no method leads, the only one with a value, if there is only one."""
        return self.leaders or (self.known if len(self.known) == 1 else ())

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


def rank(
    lines: Iterable[Line], standings: Standings | None, metric: str, recalibration: str | None = None
) -> Competition:
    """Rank by a metric those methods of a table that were recalibrated alike.

    A method is excluded if it has no results or no value of the metric, if its training was cut short, or if it is in
    `standings.left_out`, e.g. because its scores are no probabilities. Methods with other answers or labels than most
    ranked methods are excluded, too. A ranking by a metric of `NEEDS_ORDER` also excludes methods whose AUROC is not
    known to be above chance.

    Args:
        lines: all lines (methods) of a table, including hidden ones.
        standings: intervals, tests and ranks of the table; None if they were not computed.
        metric: name in `bench.metrics.METRICS`.
        recalibration: recalibration of the methods to rank; an empty string ranks methods without recalibration. By
            default these are ranked if the table has any, else the methods of the table's first block.
    """
    all_lines, name = tuple(lines), ranked_by(metric)
    kind = min((line.key.recalibration for line in all_lines), default="") if recalibration is None else recalibration
    candidates = [line for line in all_lines if line.key.recalibration == kind]
    candidates.sort(key=lambda line: (line.badness(name) is None, line.badness(name) or 0.0, line.place))
    excluded = {line.key: reason for line in candidates if (reason := _exclusion_reason(line, standings, name))}
    eligible = [line for line in candidates if line.key not in excluded]
    # sets of labels are numbered, and the one that most methods share has the smallest number
    labels = min(map(_labels, [line for line in eligible if line.rank(name) is not None] or eligible), default=0)
    for line in eligible:
        if _labels(line) != labels:
            excluded[line.key] = OTHER_LABELS
        elif line.rank(name) is None:
            excluded[line.key] = NOT_TESTED
    comparable = tuple(line for line in eligible if _labels(line) == labels)
    return Competition(name, kind, tuple(candidates), comparable, excluded, standings)


def questions_needed(n: int, difference: float, error: float, critical: float) -> float:
    """Return the number of questions at which a difference becomes significant with probability `POWER`.

    Args:
        n: number of questions tested.
        difference: observed difference, taken as the true one.
        error: standard error of the difference with n questions; it is taken to fall with the square root of n.
        critical: critical value of the test, in standard errors.
    """
    return n * ((critical + _POWER_QUANTILE) * error / abs(difference)) ** 2


def comparable_groups(lines: Sequence[Line], standings: Standings | None, metric: str) -> list[list[Line]]:
    """Group methods that can be compared by the metric: with the same recalibration, answers and labels."""
    name = ranked_by(metric)
    by_labels: dict[tuple[str, int], list[Line]] = {}
    for line in lines:
        if not _exclusion_reason(line, standings, name):
            by_labels.setdefault((line.key.recalibration, _labels(line)), []).append(line)
    return list(by_labels.values())


def find_best(lines: Sequence[Line], standings: Standings | None) -> dict[Key, dict[str, Best]]:
    """Return the marks of the best means in each column of a table, by line (method) and metric.

    A mean is compared with the other methods of its group, which have the same recalibration, answers and labels. The
    best mean is *beyond chance* if every other method is significantly worse, else *not beyond chance*. Without a test
    it is *not tested*.

    Args:
        lines: lines (methods) of the table.
        standings: intervals, tests and ranks of the table; None if they were not computed.
    """
    marks: dict[Key, dict[str, Best]] = {line.key: {} for line in lines}
    for name, metric in METRICS.items():
        if metric.higher_is_better is None or name in _UNMARKED:
            continue
        for group in comparable_groups(lines, standings, name):
            values = {
                line.key: displayed_value(name, mean)
                for line in group
                if (mean := line.estimate(name).mean) is not None
            }
            best_value = (max if metric.higher_is_better else min)(values.values(), default=0.0)
            if len(values) < 2 or (name == "auroc" and best_value <= CHANCE):
                continue
            # methods whose printed numbers are equal are best together
            top = value_text(metric, best_value)
            leading = [key for key, value in values.items() if value_text(metric, value) == top]
            best: Best = "not tested"
            if standings is not None and all(line.rank(name) is not None for line in group):
                sure = [key for key in leading if set(values) - {key} <= standings.beaten.get((name, key), frozenset())]
                leading, best = (sure, "beyond chance") if sure else (leading, "not beyond chance")
            for key in leading:
                marks[key][name] = best
    return marks


def _exclusion_reason(line: Line, standings: Standings | None, metric: str) -> str:
    """Return the reason why a method can't be ranked, apart from its answers and labels; empty if there is none."""
    if line.status != "ok":
        return line.status
    if standings is not None and line.key in standings.left_out:
        return plain(standings.left_out[line.key].partition(":")[0])
    if any(training.is_cut_short for training in line.training):
        return "training cut short"
    if metric in NEEDS_ORDER and line.standing and line.standing.unordered:
        return line.standing.unordered
    return f"{metric_name(metric)} undefined" if line.badness(metric) is None else ""


def _labels(line: Line) -> int:
    """Return the index of the set of answers and labels of a method; 0 if standings were not computed."""
    return line.standing.labels if line.standing else 0
