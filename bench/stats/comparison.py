"""Comparison of methods on the same questions: paired differences, simultaneous tests, ranks.

A block is a group of methods that are ranked together. All pairs of a block are tested at once by single-step max-t,
which controls the family-wise error rate. A difference is significant if its absolute t statistic exceeds a critical
value: the 95 % quantile, under the null hypothesis, of the largest absolute t statistic among the pairs. Example:
`ranks(["a", "b"], compare("auroc", {"a": a, "b": b}, sampling, [["a", "b"]], Settings()))["b"]` is 2 where a is better.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Generic, TypeVar

import numpy as np

from bench.api import FloatArray
from bench.metrics import METRICS
from bench.stats.influence import Influence
from bench.stats.intervals import MIN_RARER, NO_SPREAD, REL_TINY, TINY, Interval, Sampling, StandardErrors, quantile
from bench.stats.settings import Settings

K = TypeVar("K")


@dataclass(frozen=True)
class Comparison(Generic[K]):
    """Comparison of two methods on the same questions by one metric."""

    metric: str
    """Name of the metric in `bench.metrics.METRICS`."""
    first: K
    second: K
    difference: float
    """Metric of the first method minus that of the second. A root metric whose square is estimated below 0 counts as
    0."""
    fixed: Interval
    """Confidence interval of the difference for other questions of the same subjects."""
    clustered: Interval
    """Confidence interval of the difference for other subjects like the tested ones."""
    p: float | None
    """Two-sided p value, uncorrected, of the null hypothesis of no difference. None without a test. The test is about
    other questions of the same subjects, with the same training seeds. The p value is 1 if the difference does not vary
    or too few questions differ."""
    p_corrected: float | None = None
    """The p value `p`, corrected for all pairs of methods in the block, a group of methods ranked together. If the two
    methods share no block, `p` is corrected for all pairs of methods."""
    error: float | None = None
    """Standard error of the difference; None without an interval."""
    critical: float | None = None
    """Smallest absolute difference that would be significant, in standard errors, after correction as for
    `p_corrected`. None without an interval, or if no difference of any size would be significant."""

    def decided(self, alpha: float) -> tuple[K, K] | None:
        """Return the pair (better method, worse method) if the difference is significant at level alpha, else None."""
        if self.p_corrected is None or self.p_corrected >= alpha or not self.difference:
            return None
        is_first = (self.difference > 0) is bool(METRICS[self.metric].higher_is_better)
        return (self.first, self.second) if is_first else (self.second, self.first)

    def winner(self, alpha: float) -> K | None:
        """Return the method that is significantly better at level alpha; None if the difference is not significant."""
        pair = self.decided(alpha)
        return pair and pair[0]

    def reversed(self) -> Comparison[K]:
        """Return the comparison with the two methods exchanged, so that the difference changes its sign."""
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
    """Compare all pairs of methods for which the metric is defined.

    Args:
        metric: one of `bench.stats.influence.TESTED`.
        methods: method -> its metric value and influences; None where the metric is undefined.
        sampling: sampling design of the questions.
        blocks: groups of methods that are ranked together. P values are corrected over the pairs within a block. For
            two methods without a common block they are corrected over all pairs.
        settings: level and draws; 1 - level is the family-wise error rate of critical values.

    Returns:
        One comparison for each pair, in the order of `methods`.
    """
    defined = {name: influence for name, influence in methods.items() if influence is not None}
    pairs = list(combinations(defined, 2))
    if not pairs:
        return ()
    first, second = np.triu_indices(len(defined), 1)
    weights = np.eye(len(defined))[first] - np.eye(len(defined))[second]
    influences = np.stack([influence.by_question for influence in defined.values()])
    spread = sampling.standard_errors(metric, influences, weights)
    values, scales = np.array([influence.value for influence in defined.values()]), np.ones(len(pairs))
    # a - b is (a^2 - b^2) / (a + b). Error and interval are scaled alike, as if a + b were known: right for the test,
    # cautious for the interval (docs/methods.md §4 has its coverage).
    if METRICS[metric].is_root:
        values = np.maximum(0.0, values)
        scales = np.sqrt(values[first]) + np.sqrt(values[second])
    differences = values[first] - values[second]
    inputs = [i.inputs if i.inputs.size else i.by_question for i in defined.values()]
    # of one order throughout, no rank has shifted: such confidences differ where their numbers do
    n_diff = [count_differing(metric, a, b) or count_differing("brier", a, b) for a, b in combinations(inputs, 2)]
    p = np.where(np.array(n_diff) < MIN_RARER, 1.0, p_values(differences, spread))
    corrected, critical = np.full(p.size, np.nan), np.full(p.size, np.nan)
    reason = sampling.no_interval_reason(metric)
    for block in () if reason else (list(defined), *blocks):  # a later block's correction replaces that for all pairs
        members = [k for k, names in enumerate(pairs) if set(names) <= set(block)]
        if members:
            block_spread = StandardErrors(spread.covariance, spread.error[members], spread.freedom[members])
            corrected[members], critical[members] = max_t(p[members], weights[members], block_spread, settings)

    low, high = METRICS[metric].bounds
    comparisons = []
    for k, pair in enumerate(pairs):
        difference, scale, error = float(differences[k]), max(TINY, float(scales[k])), float(spread.error[k])
        influence = influences[first[k]] - influences[second[k]]
        clustered = sampling.clustered(metric, difference, influence, settings.level)
        no_ci = reason or ("neither is off by more than chance" if scale <= TINY else "")
        if not no_ci and n_diff[k] < MIN_RARER:
            no_ci = f"{MIN_RARER} questions on which they differ are needed to tell how far, there are {n_diff[k]}"
        elif not no_ci and abs(difference) > TINY and error <= max(TINY, REL_TINY * abs(difference)):
            no_ci = NO_SPREAD
        if no_ci:
            fixed = Interval("fixed-subjects", reason=no_ci)
            clustered = clustered if clustered.reason else Interval("clustered", reason=no_ci)
        else:
            half = quantile(spread.freedom[k], settings.level) * error
            fixed = Interval("fixed-subjects", difference - half, difference + half, settings.level, "t")
        comparisons.append(
            Comparison(
                metric, *pair, difference / scale,
                fixed=fixed.divided(scale, high - low),
                clustered=clustered.divided(scale, high - low),
                p=None if reason else float(p[k]),
                p_corrected=None if reason else float(corrected[k]),
                error=None if no_ci else error / scale,
                critical=None if no_ci or np.isnan(critical[k]) else float(critical[k]),
            )
        )  # fmt: skip
    return tuple(comparisons)


def count_differing(metric: str, a: FloatArray, b: FloatArray) -> int:
    """Return the number of questions on which two methods differ.

    By a rank-based metric, one moved answer shifts the ranks of many others. So the number is that of the answers to
    leave out for the rest to have the same order and ties in both methods. Where the first 100 questions show that it
    is at least MIN_RARER, a larger number is returned: that of all questions with other inputs. Of several seeds, each
    has an order of its own, and the largest number is returned.

    Args:
        metric: name of the metric in `bench.metrics.METRICS`.
        a: `Influence.inputs` of one method, shape (n,) or (seeds, n).
        b: those of the other method, the seeds of the method with fewer are repeated.
    """
    (a, b), is_ranked = np.atleast_2d(a, b), METRICS[metric].is_rank_based
    if is_ranked and (seeds := max(len(a), len(b))) > 1:  # a mean of ranks has another order
        return max(count_differing(metric, a[k % len(a)], b[k % len(b)]) for k in range(seeds))
    a, b = a.mean(axis=0), b.mean(axis=0)
    count = int(np.count_nonzero(np.abs(a - b) > TINY))
    # the first 100 take a hundredth of the time
    if not is_ranked or count < MIN_RARER or (len(a) > 100 and count_differing(metric, a[:100], b[:100]) >= MIN_RARER):
        return count
    # -1 - (-1 - p) is not p, and would split ties of right and wrong answers, were not both taken through it
    first, second = (-1 - np.where(x < 0, x, -1 - x)[(a < 0) == (b < 0)] for x in (a, b))
    # Longest run that rises in both; `ends[k]` is the least end of runs of k + 1. The signs split ties in one alone.
    places = np.stack([first, second])[:, np.lexsort((-second, first))]
    if np.array_equal(*np.sign(np.diff(places))):  # one order and the same ties throughout, as of a recalibrated line
        return min(count, len(a) - len(first))
    ends: list[tuple[float, float]] = []
    for x, y in places.T.tolist():
        ends[(k := bisect_right(ends, (y, -x))) : k + 1] = [(y, -x)]
    return min(count, len(a) - len(ends))


def p_values(difference: FloatArray, spread: StandardErrors) -> FloatArray:
    """Return the two-sided, uncorrected p value of each difference by Student's t; 1 where the standard error is 0."""
    from scipy.special import stdtr

    varies = spread.error > np.maximum(TINY, REL_TINY * np.abs(difference))
    t = np.divide(np.abs(difference), spread.error, out=np.zeros(difference.size), where=varies)
    p: FloatArray = np.where(varies, 2 * stdtr(spread.freedom, -t), 1.0)
    return p


def max_t(
    p: FloatArray, weights: FloatArray, spread: StandardErrors, settings: Settings
) -> tuple[FloatArray, FloatArray]:
    """Correct the p values of m differences by single-step max-t (Hothorn, Bretz and Westfall, 2008).

    Degrees of freedom differ between differences. So each t statistic is replaced by the normal deviate with the same p
    value. Draws are normal, with the correlations of the differences. A corrected p value is the share of draws whose
    largest absolute deviate is at least as large as the observed deviate. A single difference needs no correction.

    Args:
        p: shape (m,), uncorrected.
        weights: shape (m, k): each difference as a weighted sum of the metric values of k methods.
        spread: covariance (k, k) of the k values, and standard errors (m,) of the differences.
        settings: number of draws, their seed, and the level.

    Returns:
        Corrected p values (m,), each at least as large as the uncorrected one. Critical absolute t values (m,).
        A critical value is NaN if the standard error is 0, or if there are too few draws for any significance.
    """
    from scipy.special import ndtr, ndtri, stdtrit

    varies, uncorrected = spread.error > TINY, -stdtrit(spread.freedom, (1 - settings.level) / 2)
    if np.count_nonzero(varies) <= 1:
        return p, np.where(varies, uncorrected, np.nan)
    draws = normal_draws(spread.covariance, settings) @ weights[varies].T / spread.error[varies]
    largest = np.sort(np.abs(draws).max(axis=1))
    n_at_least = settings.draws - np.searchsorted(largest, -ndtri(p[varies] / 2))
    corrected = p.copy()
    corrected[varies] = np.maximum(p[varies], (1 + n_at_least) / (1 + settings.draws))
    n_allowed = int(np.ceil((1 - settings.level) * (1 + settings.draws) - 1)) - 1
    if n_allowed < 0:
        return corrected, np.full(p.size, np.nan)
    critical = np.maximum(uncorrected, -stdtrit(spread.freedom, ndtr(-largest[-1 - n_allowed])))
    return corrected, np.where(varies, critical, np.nan)


def normal_draws(covariance: FloatArray, settings: Settings) -> FloatArray:
    """Draw vectors of k normal errors with a given covariance (k, k); returns (settings.draws, k)."""
    values, vectors = np.linalg.eigh(covariance)
    vectors *= np.where(vectors.sum(axis=0) < 0, -1, 1)  # a sign that does not depend on the order of methods
    draws = np.random.default_rng(settings.seed).standard_normal((settings.draws, values.size))
    errors: FloatArray = draws @ (vectors * np.sqrt(np.maximum(0.0, values))).T
    return errors


def ranks(methods: Sequence[K], comparisons: Sequence[Comparison[K]], *, alpha: float = 0.05) -> dict[K, int]:
    """Rank methods: the rank of a method is 1 plus the number of methods that are significantly better.

    Args:
        methods: methods to rank together.
        comparisons: comparisons by one metric, from `compare`; pairs with further methods are ignored.
        alpha: level of significance.

    Returns:
        Method -> rank; empty if a pair of these methods could not be tested, or if there is no pair.
    """
    tested = [pair for pair in comparisons if pair.first in methods and pair.second in methods]
    expected = max(1, len(methods) * (len(methods) - 1) // 2)
    if len(tested) < expected or any(pair.p_corrected is None for pair in tested):
        return {}
    by_method = dict.fromkeys(methods, 1)
    for _, worse in filter(None, (pair.decided(alpha) for pair in tested)):
        by_method[worse] += 1
    return by_method
