"""Intervals that name what varies: other questions of the same subjects, or other subjects.

`fixed-subjects`: these subjects, other questions; questions vary within their subject. `clustered`: other subjects like
these; subjects are the sample. Neither contains the chance in fits: several seeds are averaged, and their spread is
told beside the interval. Both are Student's t of a sum of influences. Example:
`Sampling.of(strata, correct, "questions").intervals("brier", influence, 0.95)`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np

from bench.api import BoolArray, FloatArray, IntArray
from bench.metrics import METRICS
from bench.metrics.calibration import MIN_ANSWERS, signed_root
from bench.stats.influence import RANKED, Influence
from bench.stats.settings import Average
from bench.stats.strata import Strata

Estimand = Literal["fixed-subjects", "clustered"]

MIN_CLUSTERS = 20
"""Subjects from which on they may be taken for a sample of subjects."""
MIN_RARER = 5
"""Answers of the rarer kind, right or wrong, below which nothing is told of how far a metric varies."""
MIN_RANKED = 20
"""The same for AUROC and AUCPR, where a few placements that happen to be alike look as if nothing varied."""
MIN_FREEDOM = 20
"""Degrees of freedom, as sizes of subjects give them, below which nothing is told of a mean over subjects."""
MIN_CALIBRATED = 100
"""Questions below which nothing is told of how far RMSCE varies."""
FEW = 3
"""Questions below which a subject has no spread of its own; such subjects share one."""
TINY = 1e-12
"""Differences and errors below it are rounding."""
SAME = 1e-6
"""Share of a difference below which its error says that nothing varied, and so nothing of how far it might."""
MANY = 1e9
"""Degrees of freedom that are as good as infinitely many."""


@dataclass(frozen=True)
class Interval:
    """A confidence interval and what it is an interval of, or the reason why there is none."""

    estimand: Estimand
    """Source of variation: questions within these subjects, or the subjects."""
    low: float | None = None
    high: float | None = None
    level: float | None = None
    """Level of confidence, e.g. 0.95."""
    kind: str = ""
    """Kind of the interval: `t`, or `logit t` where it was taken of the logit."""
    reason: str = ""
    """Why there is none, in words for a reader: it would claim too much."""

    @property
    def ends(self) -> tuple[float, float] | None:
        """Low and high; None where there is no interval."""
        return None if self.low is None or self.high is None else (self.low, self.high)

    def half(self, value: float | None) -> float | None:
        """Distance from a value to the farther end, or to the upper one where the lower is cut at 0; None without."""
        if self.ends is None or value is None:
            return None
        return max(self.ends[1] - value, value - self.ends[0] if self.ends[0] else 0.0)

    def reversed(self) -> Interval:
        """Interval of the difference taken the other way round."""
        return self if self.ends is None else replace(self, low=-self.ends[1], high=-self.ends[0])

    def mapped(self, function: Callable[[float], float]) -> Interval:
        """Interval of an increasing function of the value."""
        return self if self.ends is None else replace(self, low=function(self.ends[0]), high=function(self.ends[1]))

    def divided(self, unit: float, most: float) -> Interval:
        """Interval of the value divided by a unit above 0, within -most and most."""
        return self.mapped(lambda end: min(most, max(-most, end / unit)))


class Spread(NamedTuple):
    """How far metrics, or weighted sums of them, vary."""

    covariance: FloatArray
    """Of the k metrics, shape (k, k)."""
    error: FloatArray
    """Standard error of each sum, shape (sums,)."""
    freedom: FloatArray
    """Its degrees of freedom, shape (sums,), at least 1."""


@dataclass(frozen=True, eq=False)
class Sampling:
    """How the questions of a comparison vary: within their subjects."""

    strata: Strata
    correct: BoolArray
    """Shape (n,)."""
    average: Average
    group: IntArray
    """Questions among which each one varies, by number, shape (n,): its subject, or all subjects of fewer than FEW."""

    @classmethod
    def of(cls, strata: Strata, correct: BoolArray, average: Average) -> Sampling:
        """Subjects of fewer than FEW questions are one group; if that has fewer too, it joins the smallest other."""
        own = np.flatnonzero(strata.sizes >= FEW)
        group = np.full(strata.sizes.size, -1)
        if own.size and strata.sizes.sum() - strata.sizes[own].sum() < FEW:
            group[:] = own[np.argmin(strata.sizes[own])]
        group[own] = own
        return cls(strata, correct, average, np.unique(group[strata.group], return_inverse=True)[1])

    def refused(self, metric: str) -> str:
        """Why nothing can be told of how far a metric varies; empty where it can."""
        n, sizes, label = self.correct.size, self.strata.sizes, METRICS[metric].label
        right = np.bincount(self.strata.group, weights=self.correct).astype(np.int64)
        if METRICS[metric].is_root and self.average == "subjects":  # of the others there is no value
            right, sizes = right[sizes >= MIN_ANSWERS], sizes[sizes >= MIN_ANSWERS]
            n = int(sizes.sum())
        if n < FEW:
            return f"there are {n} questions, from which no spread can be told"
        if METRICS[metric].is_root and n < MIN_CALIBRATED:
            return f"{MIN_CALIBRATED} questions are needed to tell how far {label} varies, there are {n}"
        count, kind = min((int(right.sum()), "right"), (n - int(right.sum()), "wrong"))
        least = MIN_RANKED if metric in RANKED else MIN_RARER
        if count < least:
            return f"{least} {kind} answers are needed to tell how far {label} varies, there are {count}"
        if self.average == "questions" or METRICS[metric].is_root:
            return ""
        if self._freedom_of_sizes < MIN_FREEDOM:
            return "subjects of a few questions count as much as large ones, and say too little of how far they vary"
        if metric in RANKED:
            lone = np.flatnonzero((sizes > 1) & ((right == 1) | (right == sizes - 1)))
            if lone.size:
                kind = "right" if right[lone[0]] == 1 else "wrong"
                return f"subject {self.strata.names[lone[0]]!r} has one {kind} answer, from which no spread can be told"
        return ""

    @property
    def _freedom_of_sizes(self) -> float:
        """Degrees of freedom of a mean over subjects if questions vary alike in all; 0 if small ones make no group."""
        small = self.strata.sizes < FEW
        joined = int(self.strata.sizes[small].sum())
        if 0 < joined < FEW:
            return 0.0
        shares = [(1 / m, m - 1) for m in self.strata.sizes[~small].tolist()]
        shares += [(float((1 / self.strata.sizes[small]).sum()), joined - 1)] * bool(joined)
        return float(sum(v for v, _ in shares) ** 2 / sum(v**2 / freedom for v, freedom in shares))

    def spread(self, metric: str, influences: FloatArray, weights: FloatArray | None = None) -> Spread:
        """Standard errors of metrics, or of weighted sums of them such as differences.

        Within a group of m questions influences c have the covariance m / (m - 1) * sum (c - mean c)(c' - mean c'), and
        groups add up. Degrees of freedom are those of such a sum (Satterthwaite, 1946), for metrics of order at most
        those with right and wrong answers as groups: a few of one kind tell little, however many the others are.

        Args:
            metric: one of `bench.stats.influence.TESTED`.
            influences: shape (k, n).
            weights: shape (sums, k); by default each of the k for itself.
        """
        weights = np.eye(len(influences)) if weights is None else weights
        covariance, error, freedom = _spread(influences, weights, self.group)
        if metric in RANKED:
            kind = self.correct.astype(np.int64)
            kind = kind if self.average == "questions" else 2 * self.strata.group + kind
            freedom = np.minimum(freedom, _spread(influences, weights, kind)[2])
        return Spread(covariance, error, np.clip(freedom, 1, MANY))

    def intervals(self, metric: str, of: Influence, level: float) -> tuple[Interval, Interval]:
        """Intervals of a metric: for these subjects and other questions, and for other subjects like these.

        Of metrics of order the first is taken of the logit, so that it lies within 0 and 1 and is longer on the side of
        one half (Pepe, 2003, section 5.2). Of a squared metric the ends are roots.
        """
        from scipy.special import expit, logit

        def bounded(end: float) -> float:
            low, high = METRICS[metric].bounds
            return signed_root(max(0.0, end)) if METRICS[metric].is_root else min(high, max(low, end))

        reason = self.refused(metric)
        _, (error,), (freedom,) = self.spread(metric, of.by_question[None])
        error = float(np.sqrt(error**2 + of.second_order))
        if not reason and error <= TINY:
            reason = "nothing varies between these questions"
        half = quantile(freedom, level) * error
        clustered = self.clustered(metric, of.value, of.by_question, level).mapped(bounded)
        if reason:
            fixed = Interval("fixed-subjects", reason=reason)
        elif metric in RANKED:
            middle, half = logit(of.value), half / (of.value * (1 - of.value))
            low, high = float(expit(middle - half)), float(expit(middle + half))
            fixed = Interval("fixed-subjects", low, high, level, "logit t")
        else:
            fixed = Interval("fixed-subjects", bounded(of.value - half), bounded(of.value + half), level, "t")
        return fixed, clustered

    def clustered(self, metric: str, value: float, influences: FloatArray, level: float) -> Interval:
        """Interval of a value, or a difference, with influences (n,), for other subjects like these.

        With c the sum of influences in each of S subjects, the variance is S / (S - 1) * sum c^2, of S - 1 degrees of
        freedom. A mean over subjects is one of those in which the metric is defined. MIN_CLUSTERS subjects are needed:
        of sizes m they count as (sum m)^2 / sum m^2, and for metrics of order those with right and wrong answers alone.
        """
        sizes, subjects = self.strata.sizes, self.strata.sizes.size
        if metric in RANKED:
            rate = self.strata.means(self.correct.astype(np.float64))
            sizes = sizes[(rate > 0) & (rate < 1)]
        if METRICS[metric].is_root and self.average == "subjects":
            sizes = sizes[sizes >= MIN_ANSWERS]
        alike = int(sizes.sum() ** 2 / max(1, np.square(sizes).sum()))
        if self.average == "subjects":
            subjects = alike = sizes.size
        reason, sums = self.refused(metric), np.bincount(self.strata.group, weights=influences)
        if min(alike, subjects) < MIN_CLUSTERS:
            few = f"there are {subjects}" if subjects < MIN_CLUSTERS else f"these are as good as {alike} of one size"
            reason = f"{MIN_CLUSTERS} subjects are needed to speak of others, {few}"
        elif not reason and np.abs(sums).max() <= TINY:
            reason = "nothing varies between these subjects"
        if reason:
            return Interval("clustered", reason=reason)
        half = quantile(subjects - 1, level) * float(np.sqrt(subjects / (subjects - 1) * np.square(sums).sum()))
        return Interval("clustered", value - half, value + half, level, "t")


def quantile(freedom: float, level: float) -> float:
    """Half the width of an interval in standard errors, Student's t."""
    from scipy.special import stdtrit

    return float(stdtrit(min(float(freedom), MANY), (1 + level) / 2))


def _spread(influences: FloatArray, weights: FloatArray, group: IntArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Covariance (k, k) of influences (k, n) that vary within groups; errors and degrees of freedom of sums of them."""
    order = np.argsort(group, kind="stable")
    starts = np.flatnonzero(np.diff(group[order], prepend=-1))
    covariance = np.zeros((len(influences), len(influences)))
    total, squares = np.zeros(len(weights)), np.zeros(len(weights))
    for rows in np.split(order, starts[1:]):
        if rows.size > 1:
            own = influences[:, rows] - influences[:, rows].mean(axis=1, keepdims=True)
            own = own @ own.T * (rows.size / (rows.size - 1))
            variance = np.maximum(0.0, ((weights @ own) * weights).sum(axis=1))
            covariance += own
            total += variance
            squares += np.square(variance) / (rows.size - 1)
    freedom = np.divide(np.square(total), squares, out=np.full(total.size, MANY), where=squares > 0)
    return covariance, np.sqrt(total), freedom
