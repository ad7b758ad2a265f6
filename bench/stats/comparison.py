"""Comparison of methods on the same questions: paired differences, simultaneous tests, ranks.

All pairs of a block of methods are tested together: a difference is significant where it is farther from 0, in standard
errors, than the largest of all differences is by chance in 95 % of draws. Example:
`ranks(["a", "b"], compare("auroc", {"a": a, "b": b}, sampling, [["a", "b"]], Settings()))["b"]` is 2 where a is better.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Generic, TypeVar

import numpy as np

from bench.api import FloatArray
from bench.metrics import METRICS
from bench.stats.influence import Influence
from bench.stats.intervals import MIN_RARER, SAME, TINY, Interval, Sampling, Spread, quantile
from bench.stats.settings import Settings

K = TypeVar("K")


@dataclass(frozen=True)
class Comparison(Generic[K]):
    """Two methods on the same questions."""

    metric: str
    """Name in `bench.metrics.METRICS`."""
    first: K
    second: K
    difference: float
    """The first's value minus the second's; where the metric is the root of a square, less than 0 counts as 0."""
    fixed: Interval
    """Interval of the difference, for fixed subjects."""
    clustered: Interval
    """Interval of the difference, for subjects like these."""
    p: float | None
    """Two-sided, of no difference, of this pair alone, fixed subjects; None where there is no test."""
    p_corrected: float | None = None
    """The same, corrected for all pairs that are tested together: those of a block, or of all with the same labels."""
    error: float | None = None
    """Standard error of the difference; None where there is no test."""
    critical: float | None = None
    """Standard errors that a difference must exceed to be significant, corrected as the p value is; None without a
    test, or where no difference would be."""

    def decided(self, alpha: float) -> tuple[K, K] | None:
        """The better and the worse one at this level of significance; None where neither is better."""
        if self.p_corrected is None or self.p_corrected >= alpha or not self.difference:
            return None
        is_first = (self.difference > 0) is bool(METRICS[self.metric].higher_is_better)
        return (self.first, self.second) if is_first else (self.second, self.first)

    def winner(self, alpha: float) -> K | None:
        """The one that is better at this level of significance; None where neither is."""
        found = self.decided(alpha)
        return found and found[0]

    def reversed(self) -> Comparison[K]:
        """The second minus the first."""
        return replace(
            self, first=self.second, second=self.first, difference=-self.difference, fixed=self.fixed.reversed(),
            clustered=self.clustered.reversed(),
        )  # fmt: skip


def compare(
    metric: str,
    methods: Mapping[K, Influence | None],
    sampling: Sampling,
    blocks: Sequence[Sequence[K]],
    settings: Settings,
) -> tuple[Comparison[K], ...]:
    """All pairs of the methods for which the metric is defined.

    Args:
        metric: one of `bench.stats.influence.TESTED`.
        methods: by method, its influences.
        sampling: of the questions.
        blocks: methods that are ranked together. The pairs of a block are tested together; a pair of methods that
            share no block is tested together with all pairs there are.
        settings: level and draws; 1 - level is the level of significance of critical values.

    Returns:
        Pairs in the order of the mapping.
    """
    known = {name: each for name, each in methods.items() if each is not None}
    pairs = list(combinations(known, 2))
    if not pairs:
        return ()
    first, second = np.triu_indices(len(known), 1)
    weights = np.eye(len(known))[first] - np.eye(len(known))[second]
    influences = np.stack([each.by_question for each in known.values()])
    spread = sampling.spread(metric, influences, weights)
    values, units = np.array([each.value for each in known.values()]), np.ones(len(pairs))
    if METRICS[metric].is_root:  # a - b is (a^2 - b^2) / (a + b), and so are its error and the ends of its interval
        values = np.maximum(0.0, values)
        units = np.sqrt(values[first]) + np.sqrt(values[second])
    differences = values[first] - values[second]
    of = np.stack([each.of if each.of.size else each.by_question for each in known.values()])
    differ = [np.count_nonzero(np.abs(of[i] - of[j]) > TINY) for i, j in zip(first, second, strict=True)]
    p = np.where(np.array(differ) < MIN_RARER, 1.0, p_values(differences, spread))
    corrected, critical = np.full(p.size, np.nan), np.full(p.size, np.nan)
    reason = sampling.refused(metric)
    for block in () if reason else (list(known), *blocks):  # what a pair's own block says stays
        own = [k for k, names in enumerate(pairs) if set(names) <= set(block)]
        if own:
            family = Spread(spread.covariance, spread.error[own], spread.freedom[own])
            corrected[own], critical[own] = max_t(p[own], weights[own], family, settings)

    low, high = METRICS[metric].bounds
    found = []
    for k, pair in enumerate(pairs):
        difference, unit, error = float(differences[k]), max(TINY, float(units[k])), float(spread.error[k])
        influence = influences[first[k]] - influences[second[k]]
        clustered = sampling.clustered(metric, difference, influence, settings.level)
        none = reason or ("neither is off by more than chance" if unit <= TINY else "")
        if not none and differ[k] < MIN_RARER:
            none = f"{MIN_RARER} questions on which they differ are needed to tell how far, there are {differ[k]}"
        elif not none and abs(difference) > TINY and error <= max(TINY, SAME * abs(difference)):
            none = "nothing varies between these questions"
        if none:
            fixed = Interval("fixed-subjects", reason=none)
            clustered = clustered if clustered.reason else Interval("clustered", reason=none)
        else:
            half = quantile(spread.freedom[k], settings.level) * error
            fixed = Interval("fixed-subjects", difference - half, difference + half, settings.level, "t")
        found.append(
            Comparison(
                metric, *pair, difference / unit,
                fixed=fixed.divided(unit, high - low),
                clustered=clustered.divided(unit, high - low),
                p=None if reason else float(p[k]),
                p_corrected=None if reason else float(corrected[k]),
                error=None if none else error / unit,
                critical=None if none or np.isnan(critical[k]) else float(critical[k]),
            )
        )  # fmt: skip
    return tuple(found)


def p_values(difference: FloatArray, spread: Spread) -> FloatArray:
    """Two-sided p value of each difference alone, Student's t; 1 where nothing varies, which tells nothing."""
    from scipy.special import stdtr

    varies = spread.error > np.maximum(TINY, SAME * np.abs(difference))
    t = np.divide(np.abs(difference), spread.error, out=np.zeros(difference.size), where=varies)
    p: FloatArray = np.where(varies, 2 * stdtr(spread.freedom, -t), 1.0)
    return p


def max_t(p: FloatArray, weights: FloatArray, spread: Spread, settings: Settings) -> tuple[FloatArray, FloatArray]:
    """P values corrected for all of a family: single-step max-t (Hothorn, Bretz and Westfall, 2008).

    Each |t| is taken as the normal deviate of the same p value, since with few degrees of freedom a |t| is large by
    chance more often. Its corrected p value is the share of draws in which the largest of all deviates is at least as
    large; draws are normal, with the correlations of the differences. A difference that is alone needs no correction.

    Args:
        p: shape (m,), of each difference alone.
        weights: shape (m, k), of the k metrics in each difference.
        spread: of these differences.
        settings: draws, their seed, and the level.

    Returns:
        Corrected p values, none below its own, and the standard errors that each difference must exceed; NaN where
        nothing varies, or where there are too few draws for any to be significant. Both (m,).
    """
    from scipy.special import ndtr, ndtri, stdtrit

    varies, alone = spread.error > TINY, -stdtrit(spread.freedom, (1 - settings.level) / 2)
    if np.count_nonzero(varies) <= 1:
        return p, np.where(varies, alone, np.nan)
    draws = normal_draws(spread.covariance, settings) @ weights[varies].T / spread.error[varies]
    largest = np.sort(np.abs(draws).max(axis=1))
    reached = settings.draws - np.searchsorted(largest, -ndtri(p[varies] / 2))
    corrected = p.copy()
    corrected[varies] = np.maximum(p[varies], (1 + reached) / (1 + settings.draws))
    may_reach = int(np.ceil((1 - settings.level) * (1 + settings.draws) - 1)) - 1
    if may_reach < 0:
        return corrected, np.full(p.size, np.nan)
    critical = np.maximum(alone, -stdtrit(spread.freedom, ndtr(-largest[-1 - may_reach])))
    return corrected, np.where(varies, critical, np.nan)


def normal_draws(covariance: FloatArray, settings: Settings) -> FloatArray:
    """Draws of k normal errors with this covariance (k, k), shape (settings.draws, k)."""
    size, vectors = np.linalg.eigh(covariance)
    vectors *= np.where(vectors.sum(axis=0) < 0, -1, 1)  # either sign would do; the order of methods must not decide
    draws = np.random.default_rng(settings.seed).standard_normal((settings.draws, size.size))
    found: FloatArray = draws @ (vectors * np.sqrt(np.maximum(0.0, size))).T
    return found


def ranks(methods: Sequence[K], comparisons: Sequence[Comparison[K]], *, alpha: float = 0.05) -> dict[K, int]:
    """Rank of each method: 1 + the number of these methods that are significantly better.

    Args:
        methods: that are ranked together.
        comparisons: of one metric, by `compare`; those of other methods are passed over.
        alpha: level of significance.

    Returns:
        By method; empty where a pair could not be tested, or where there is no pair.
    """
    own = [pair for pair in comparisons if pair.first in methods and pair.second in methods]
    if not own or len(own) < len(methods) * (len(methods) - 1) // 2 or any(pair.p_corrected is None for pair in own):
        return {}
    ranked = dict.fromkeys(methods, 1)
    for _, worse in filter(None, (pair.decided(alpha) for pair in own)):
        ranked[worse] += 1
    return ranked
