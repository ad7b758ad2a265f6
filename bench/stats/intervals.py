"""Confidence intervals with their estimand: questions sampled within fixed subjects, or subjects sampled as clusters.

`fixed-subjects`: subjects are strata, and questions are sampled within them. `clustered`: subjects are the sampling
units. Neither covers the randomness of training: metrics are averaged over seeds, and their standard deviation over
seeds is reported beside the interval. Both intervals are Student's t for a sum of influences. Example:
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
"""What an interval generalises to: other questions of the same subjects, or other subjects."""

MIN_CLUSTERS = 20
"""Smallest number of subjects for a clustered interval."""
MIN_RARER = 5
"""Smallest number of answers of the rarer class (right or wrong) for an interval."""
MIN_RANKED = 20
"""Smallest number of answers of the rarer class (right or wrong) for an interval of AUROC or AUCPR. The influences of a
few answers may be equal by chance, which would give a standard error near 0."""
MIN_FREEDOM = 20
"""Smallest number of degrees of freedom, computed from subject sizes, for an interval of a mean over subjects."""
MIN_CALIBRATED = 100
"""Smallest number of questions for an interval of RMSCE."""
MIN_STRATUM = 3
"""Smallest number of questions of a stratum; subjects with fewer questions are merged into one stratum."""
TINY = 1e-12
"""Differences and standard errors below this are treated as rounding errors."""
REL_TINY = 1e-6
"""A standard error below this fraction of the difference is treated as a rounding error, and gives no interval."""
NO_SPREAD = "nothing varies between these questions"
"""Reason for no interval where there are enough answers, but all have the same influence."""
MAX_FREEDOM = 1e9
"""Largest number of degrees of freedom used; larger and infinite numbers are set to it."""


@dataclass(frozen=True)
class Interval:
    """A confidence interval with its estimand, or the reason why there is none."""

    estimand: Estimand
    """What the interval generalises to: other questions of the same subjects, or other subjects."""
    low: float | None = None
    high: float | None = None
    level: float | None = None
    """Level of confidence, e.g. 0.95."""
    kind: str = ""
    """How the interval is computed: `t`, by Student's t, `logit t`, by Student's t on the logit scale, or `exact`, from
    the binomial distribution."""
    reason: str = ""
    """Sentence that says why there is no interval; empty if there is one."""

    @property
    def ends(self) -> tuple[float, float] | None:
        """Lower and upper end of the interval; None where there is no interval."""
        return None if self.low is None or self.high is None else (self.low, self.high)

    def half(self, value: float | None) -> float | None:
        """Return the distance from the estimate `value` to the farther end; None without an interval or a value."""
        return None if self.ends is None or value is None else max(self.ends[1] - value, value - self.ends[0])

    def reversed(self) -> Interval:
        """Return the interval of the difference with the opposite sign."""
        return self if self.ends is None else replace(self, low=-self.ends[1], high=-self.ends[0])

    def mapped(self, function: Callable[[float], float]) -> Interval:
        """Return the interval with `function`, which must be increasing, applied to both ends."""
        return self if self.ends is None else replace(self, low=function(self.ends[0]), high=function(self.ends[1]))

    def divided(self, unit: float, most: float) -> Interval:
        """Return the interval with both ends divided by `unit`, which is above 0, and clipped to [-most, most]."""
        return self.mapped(lambda end: min(most, max(-most, end / unit)))


class StandardErrors(NamedTuple):
    """Standard errors of k metric values, or of weighted sums of the values, e.g. differences."""

    covariance: FloatArray
    """Covariance of the k metric values, shape (k, k)."""
    error: FloatArray
    """Standard error of each weighted sum, shape (sums,)."""
    freedom: FloatArray
    """Degrees of freedom of each standard error, shape (sums,), at least 1."""


@dataclass(frozen=True, eq=False)
class Sampling:
    """Sampling design of the n questions of a comparison: a sample stratified by subject."""

    strata: Strata
    """Assignment of questions to subjects, before small subjects are merged."""
    correct: BoolArray
    """Whether the answer to each question is right, shape (n,)."""
    average: Average
    group: IntArray
    """Index of each question's stratum, shape (n,). Subjects with fewer than MIN_STRATUM questions share one
    stratum."""

    @classmethod
    def of(cls, strata: Strata, correct: BoolArray, average: Average) -> Sampling:
        """Build the design: subjects with fewer than MIN_STRATUM questions are merged into one stratum.

        If the merged stratum still has fewer than MIN_STRATUM questions, the smallest of the other subjects is merged
        into it.
        """
        large = np.flatnonzero(strata.sizes >= MIN_STRATUM)
        group = np.full(strata.sizes.size, -1)
        if large.size and strata.sizes.sum() - strata.sizes[large].sum() < MIN_STRATUM:
            group[:] = large[np.argmin(strata.sizes[large])]
        group[large] = large
        return cls(strata, correct, average, np.unique(group[strata.group], return_inverse=True)[1])

    def no_interval_reason(self, metric: str) -> str:
        """Return the reason, in words, why the numbers of answers and subjects allow a metric no interval and no test.

        The result is empty if they allow both. Even then there is no interval if nothing varies between questions.
        """
        n, sizes, label = self.correct.size, self.strata.sizes, METRICS[metric].label
        right = np.bincount(self.strata.group, weights=self.correct).astype(np.int64)
        if METRICS[metric].is_root and self.average == "subjects":  # smaller subjects have no value
            right, sizes = right[sizes >= MIN_ANSWERS], sizes[sizes >= MIN_ANSWERS]
            n = int(sizes.sum())
        if n < MIN_STRATUM:
            return f"there are {n} questions, from which no spread can be told"
        if METRICS[metric].is_root and n < MIN_CALIBRATED:
            return f"{MIN_CALIBRATED} questions are needed to tell how far {label} varies, there are {n}"
        count, kind = min((int(right.sum()), "right"), (n - int(right.sum()), "wrong"))
        least = MIN_RANKED if metric in RANKED else MIN_RARER
        if count < least:
            return f"{least} {kind} answers are needed to tell how far {label} varies, there are {count}"
        if self.average == "questions" or METRICS[metric].is_root:
            return ""
        if self._mean_freedom < MIN_FREEDOM:
            return "subjects of a few questions count as much as large ones, and say too little of how far they vary"
        if metric in RANKED:
            lone = np.flatnonzero((sizes > 1) & ((right == 1) | (right == sizes - 1)))
            if lone.size:
                kind = "right" if right[lone[0]] == 1 else "wrong"
                return f"subject {self.strata.names[lone[0]]!r} has one {kind} answer, from which no spread can be told"
        return ""

    @property
    def _mean_freedom(self) -> float:
        """Degrees of freedom of a mean over subjects, computed as if all subjects had the same variance.

        The result is 0 if subjects with fewer than MIN_STRATUM questions have fewer than MIN_STRATUM together.
        """
        small = self.strata.sizes < MIN_STRATUM
        n_small = int(self.strata.sizes[small].sum())
        if 0 < n_small < MIN_STRATUM:
            return 0.0
        shares = [(1 / m, m - 1) for m in self.strata.sizes[~small].tolist()]
        shares += [(float((1 / self.strata.sizes[small]).sum()), n_small - 1)] * bool(n_small)
        return float(sum(v for v, _ in shares) ** 2 / sum(v**2 / freedom for v, freedom in shares))

    def standard_errors(self, metric: str, influences: FloatArray, weights: FloatArray | None = None) -> StandardErrors:
        """Return the standard errors of k values of a metric, or of weighted sums of the values such as differences.

        Let c and c' be the influences on two values. A stratum of m questions contributes the covariance m / (m - 1) *
        sum (c - mean c)(c' - mean c'), and the strata's contributions add up. Degrees of freedom are Satterthwaite's
        (1946). For rank-based metrics, degrees of freedom are also computed with right and wrong answers as strata,
        because the rarer class limits the precision; the smaller number is used.

        Args:
            metric: one of `bench.stats.influence.TESTED`.
            influences: influence of each question on each value, shape (k, n).
            weights: weights of the values in each sum, shape (sums, k); by default the values themselves.
        """
        weights = np.eye(len(influences)) if weights is None else weights
        covariance, error, freedom = _spread(influences, weights, self.group)
        if metric in RANKED:
            kind = self.correct.astype(np.int64)
            kind = kind if self.average == "questions" else 2 * self.strata.group + kind
            freedom = np.minimum(freedom, _spread(influences, weights, kind)[2])
        return StandardErrors(covariance, error, np.clip(freedom, 1, MAX_FREEDOM))

    def intervals(self, metric: str, influence: Influence, level: float) -> tuple[Interval, Interval]:
        """Return two intervals of a metric: for other questions of these subjects, and for other subjects like these.

        For rank-based metrics the first interval is computed on the logit scale: it then lies within 0 and 1 and is
        longer towards one half (Pepe, 2003, section 5.2). For a root metric, intervals are computed for its square, and
        the ends are then the square roots.
        """
        from scipy.special import expit, logit

        def bounded(end: float) -> float:
            low, high = METRICS[metric].bounds
            return signed_root(max(0.0, end)) if METRICS[metric].is_root else min(high, max(low, end))

        value, reason = influence.value, self.no_interval_reason(metric)
        _, (error,), (freedom,) = self.standard_errors(metric, influence.by_question[None])
        error = float(np.sqrt(error**2 + influence.second_order))
        if not reason and error <= TINY:
            reason = NO_SPREAD
        half = quantile(freedom, level) * error
        clustered = self.clustered(metric, value, influence.by_question, level).mapped(bounded)
        if reason:
            fixed = Interval("fixed-subjects", reason=reason)
        elif metric in RANKED:
            middle, half = logit(value), half / (value * (1 - value))
            low, high = float(expit(middle - half)), float(expit(middle + half))
            fixed = Interval("fixed-subjects", low, high, level, "logit t")
        else:
            fixed = Interval("fixed-subjects", bounded(value - half), bounded(value + half), level, "t")
        return fixed, clustered

    def clustered(self, metric: str, value: float, influences: FloatArray, level: float) -> Interval:
        """Return the clustered interval of a metric or difference with influences (n,), for other subjects like these.

        Let c be the sum of influences in each of S subjects. The variance is S / (S - 1) * sum c^2, with S - 1 degrees
        of freedom. For a mean over subjects, S counts only subjects in which the metric is defined.

        There is no interval if S is below MIN_CLUSTERS. For a metric pooled over questions, the effective number of
        subjects must reach MIN_CLUSTERS too: (sum m)^2 / sum m^2, where m is the number of questions of a subject. For
        rank-based metrics, this number leaves out subjects without both right and wrong answers.
        """
        sizes, subjects = self.strata.sizes, self.strata.sizes.size
        if metric in RANKED:
            rate = self.strata.means(self.correct.astype(np.float64))
            sizes = sizes[(rate > 0) & (rate < 1)]
        if METRICS[metric].is_root and self.average == "subjects":
            sizes = sizes[sizes >= MIN_ANSWERS]
        n_eff = int(sizes.sum() ** 2 / max(1, np.square(sizes).sum()))
        if self.average == "subjects":
            subjects = n_eff = sizes.size
        reason, sums = self.no_interval_reason(metric), np.bincount(self.strata.group, weights=influences)
        if min(n_eff, subjects) < MIN_CLUSTERS:
            few = f"there are {subjects}" if subjects < MIN_CLUSTERS else f"these are as good as {n_eff} of one size"
            reason = f"{MIN_CLUSTERS} subjects are needed to speak of others, {few}"
        elif not reason and np.abs(sums).max() <= TINY:
            reason = "nothing varies between these subjects"
        if reason:
            return Interval("clustered", reason=reason)
        half = quantile(subjects - 1, level) * float(np.sqrt(subjects / (subjects - 1) * np.square(sums).sum()))
        return Interval("clustered", value - half, value + half, level, "t")


def quantile(freedom: float, level: float) -> float:
    """Return the quantile of Student's t for a two-sided interval: its half width in standard errors."""
    from scipy.special import stdtrit

    return float(stdtrit(min(float(freedom), MAX_FREEDOM), (1 + level) / 2))


def _spread(influences: FloatArray, weights: FloatArray, group: IntArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the covariance (k, k) of k metric values, with standard errors and degrees of freedom of weighted sums.

    Args:
        influences: influence of each question on each value, shape (k, n).
        weights: weights of the values in each sum, shape (sums, k).
        group: stratum of each question, shape (n,).
    """
    order = np.argsort(group, kind="stable")
    boundaries = np.flatnonzero(np.diff(group[order], prepend=-1))
    covariance = np.zeros((len(influences), len(influences)))
    total, squares = np.zeros(len(weights)), np.zeros(len(weights))
    for rows in np.split(order, boundaries[1:]):
        if rows.size > 1:
            part = influences[:, rows] - influences[:, rows].mean(axis=1, keepdims=True)
            part = part @ part.T * (rows.size / (rows.size - 1))
            variance = np.maximum(0.0, ((weights @ part) * weights).sum(axis=1))
            covariance += part
            total += variance
            squares += np.square(variance) / (rows.size - 1)
    freedom = np.divide(np.square(total), squares, out=np.full(total.size, MAX_FREEDOM), where=squares > 0)
    return covariance, np.sqrt(total), freedom
