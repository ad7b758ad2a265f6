"""Comparison of methods on the same questions: paired differences of any resampled metric, simultaneous tests, ranks.

All pairs of a block of methods are tested together: a difference is significant where it exceeds, in standard errors,
what the largest of all differences does by chance in 95 % of the resamples that the methods share. Example:
`ranks(["a", "b"], compare("auroc", {"a": a, "b": b}, strata, [["a", "b"]]))["b"]` is 2 where a is better.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from bench.api import BoolArray, FloatArray
from bench.metrics import METRICS
from bench.stats.intervals import Interval, basic_interval, clustered_interval, macro_mean, mean_interval
from bench.stats.strata import Strata

_TINY = 1e-12
"""Differences and errors below it are rounding."""


class Sample(NamedTuple):
    """One metric of one method, as it is compared with others."""

    value: float | None
    """Macro mean, mean over seeds; None where undefined."""
    replicates: FloatArray
    """The same in every resample, (r,); resamples are shared by the methods that are compared."""
    by_question: FloatArray | None = None
    """Share of each question in a metric that is a mean, (n,), mean over seeds; None for other metrics."""
    by_subject: FloatArray | None = None
    """Mean over seeds in each subject, (S,), NaN where undefined; None where the value is no mean of them."""
    refused: Interval | None = None
    """Why resamples say nothing; None where they do."""


K = TypeVar("K")


@dataclass(frozen=True)
class Comparison(Generic[K]):
    """Two methods on the same questions."""

    metric: str
    """Name in `bench.metrics.METRICS`."""
    first: K
    second: K
    difference: float
    """The first's macro mean minus the second's."""
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

    def winner(self, alpha: float) -> K | None:
        """The one that is better at this level of significance; None where neither is."""
        if self.p_corrected is None or self.p_corrected >= alpha or not self.difference:
            return None
        return self.first if (self.difference > 0) is bool(METRICS[self.metric].higher_is_better) else self.second

    def reversed(self) -> Comparison[K]:
        """The second minus the first."""
        return replace(
            self, first=self.second, second=self.first, difference=-self.difference, fixed=self.fixed.reversed(),
            clustered=self.clustered.reversed(),
        )  # fmt: skip


class _Pair(NamedTuple):
    """A comparison, and what its correction needs."""

    comparison: Comparison[str]
    error: float
    """Standard error of the difference."""
    deviation: FloatArray
    """Resampled differences less their mean, (r,)."""
    critical: float = 0.0
    """Standard errors that Student's t asks of this pair alone; 0 where its p value is from the resamples."""


def compare(
    metric: str,
    samples: Mapping[str, Sample],
    strata: Strata,
    blocks: Sequence[Sequence[str]],
    *,
    level: float = 0.95,
) -> tuple[Comparison[str], ...]:
    """All pairs of the methods for which the metric is defined.

    Interval and p value of a pair alone are Student's t for metrics that are means over questions, else they are
    from the resamples. Corrected p values are from the resamples for all metrics alike; see `corrected`.

    Args:
        metric: by its name in `bench.metrics.METRICS`.
        samples: by method.
        strata: of the questions.
        blocks: methods that are ranked together. The pairs of a block are tested together; a pair of methods that
            share no block is tested together with all pairs there are.
        level: of the intervals; 1 - level is the level of significance of critical values.

    Returns:
        Pairs in the order of the mapping.
    """
    known = {name: sample for name, sample in samples.items() if sample.value is not None}
    pairs = {(a, b): _compared(metric, (a, b), known, strata, level) for a, b in combinations(known, 2)}
    everything = _tested(pairs, 1 - level)
    for block in blocks:
        everything |= _tested({key: pair for key, pair in pairs.items() if set(key) <= set(block)}, 1 - level)
    return tuple(everything.get(key, pair.comparison) for key, pair in pairs.items())


def corrected(difference: FloatArray, error: FloatArray, deviation: FloatArray) -> FloatArray:
    """P values of several differences, each corrected for all of them: single-step max-t (Westfall and Young, 1993).

    The share of resamples in which the largest of all deviations, each in its own standard deviations, is at least as
    large as the difference in its standard errors. Unlike corrections of single p values it uses that differences with
    one method in common go together. The smallest value is 1 / (r + 1). A difference that never varies is certain.

    Args:
        difference: shape (m,).
        error: shape (m,), their standard errors.
        deviation: shape (m, r), resampled differences less their mean.

    Returns:
        Shape (m,).
    """
    varies, largest = _largest(error, deviation)
    p = np.where(np.abs(difference) > _TINY, 0.0, 1.0)
    if varies.any():
        reached = largest.size - np.searchsorted(largest, np.abs(difference[varies]) / error[varies])
        p[varies] = (1 + reached) / (1 + largest.size)
    return p


def critical_value(error: FloatArray, deviation: FloatArray, alpha: float) -> float | None:
    """Standard errors that a difference must exceed for its p value by `corrected` to be below alpha.

    Args:
        error: shape (m,), standard errors of the differences.
        deviation: shape (m, r), resampled differences less their mean.
        alpha: level of significance.

    Returns:
        None where no difference varies, or where there are too few resamples for any to be significant.
    """
    varies, largest = _largest(error, deviation)
    may_reach = int(np.ceil(alpha * (1 + largest.size) - 1)) - 1  # resamples, as (1 + reached) / (1 + r) < alpha
    if not varies.any() or may_reach < 0:
        return None
    return float(largest[-1 - may_reach])


def _largest(error: FloatArray, deviation: FloatArray) -> tuple[BoolArray, FloatArray]:
    """Which differences vary (m,), and the largest standardised deviation of each resample, ascending, (r,)."""
    spread = deviation.std(axis=1, ddof=1)
    varies = (error > _TINY) & (spread > _TINY)
    if not varies.any():
        return varies, np.zeros(0)
    return varies, np.sort(np.max(np.abs(deviation[varies]) / spread[varies, None], axis=0))


def t_test(values: FloatArray, strata: Strata, level: float) -> tuple[Interval, float | None, float]:
    """Student's t test that a macro mean of one value per question (n,) is 0: its interval, p value and standard error.

    The p value is None, and the error 0, where there is no interval.
    """
    from scipy.special import stdtr

    interval = mean_interval(values, strata, level=level)
    if interval.reason:
        return interval, None, 0.0
    mean, error, df = macro_mean(values, strata)
    if error <= _TINY:
        return interval, float(abs(mean) <= _TINY), error
    return interval, float(2 * stdtr(min(df, 1e9), -abs(mean) / error)), error


def normal_test(
    value: float, drawn: FloatArray, strata: Strata, level: float, bounds: tuple[float, float]
) -> tuple[Interval, float | None]:
    """Normal test that a resampled value is 0, with the standard error of its resamples (r,): interval and p value.

    The p value is None where there is no interval; `bounds` are the smallest and largest possible value.
    """
    from scipy.special import ndtr

    interval, error = basic_interval(value, drawn, strata, level=level, bounds=bounds), float(drawn.std(ddof=1))
    if interval.reason:
        return interval, None
    return interval, float(abs(value) <= _TINY) if error <= _TINY else float(2 * ndtr(-abs(value) / error))


def ranks(methods: Sequence[str], comparisons: Sequence[Comparison[str]], *, alpha: float = 0.05) -> dict[str, int]:
    """Rank of each method: 1 + the number of these methods that are significantly better.

    Args:
        methods: that are ranked together.
        comparisons: of one metric, by `compare`; those of other methods are passed over.
        alpha: level of significance.

    Returns:
        By method; empty where a pair could not be tested.
    """
    own = [pair for pair in comparisons if pair.first in methods and pair.second in methods]
    if len(own) < len(methods) * (len(methods) - 1) // 2 or any(pair.p_corrected is None for pair in own):
        return {}
    ranked = dict.fromkeys(methods, 1)
    for pair in own:
        winner = pair.winner(alpha)
        if winner is not None:
            ranked[pair.second if winner == pair.first else pair.first] += 1
    return ranked


# --- one pair ---------------------------------------------------------------------------------------------------------


def _compared(
    metric: str, names: tuple[str, str], samples: Mapping[str, Sample], strata: Strata, level: float
) -> _Pair:
    first, second = (samples[name] for name in names)
    difference = float(first.value or 0.0) - float(second.value or 0.0)
    drawn = first.replicates - second.replicates
    deviation = drawn - drawn.mean()
    if first.by_question is not None and second.by_question is not None:
        interval, p, error = t_test(first.by_question - second.by_question, strata, level)
        ends = interval.ends
        alone = 0.0 if ends is None or error <= _TINY else (ends[1] - ends[0]) / 2 / error
    else:
        interval, p, error = _of_resamples(metric, difference, drawn, first.refused or second.refused, strata, level)
        alone = 0.0
    clustered = Interval("clustered", reason="its value is no mean over subjects")
    if first.by_subject is not None and second.by_subject is not None:
        clustered = clustered_interval(first.by_subject - second.by_subject, level=level)
    found = Comparison(metric, *names, difference, interval, clustered, p)
    return _Pair(found, error, deviation, alone)


def _of_resamples(
    metric: str, difference: float, drawn: FloatArray, refused: Interval | None, strata: Strata, level: float
) -> tuple[Interval, float | None, float]:
    """Interval, p value and standard error from resampled differences (r,)."""
    if refused:
        return refused, None, 0.0
    low, high = METRICS[metric].bounds
    interval = basic_interval(difference, drawn, strata, level=level, bounds=(low - high, high - low))
    if interval.reason:
        return interval, None, 0.0
    error = np.array([drawn.std(ddof=1)])
    (p,) = corrected(np.array([difference]), error, (drawn - drawn.mean())[None])
    return interval, float(p), float(error[0])


def _tested(pairs: Mapping[tuple[str, str], _Pair], alpha: float) -> dict[tuple[str, str], Comparison[str]]:
    """Comparisons that have a test, with its corrected p value and what it asks for, by pair.

    No p value is smaller than that of the pair alone: Student's t knows of small samples, resamples don't.
    """
    tested = {key: pair for key, pair in pairs.items() if pair.comparison.p is not None}
    if not tested:
        return {}
    difference = np.array([pair.comparison.difference for pair in tested.values()])
    error = np.array([pair.error for pair in tested.values()])
    deviation = np.stack([pair.deviation for pair in tested.values()])
    critical = critical_value(error, deviation, alpha)
    return {
        key: replace(
            pair.comparison,
            p_corrected=max(p, pair.comparison.p or 0.0),
            error=pair.error,
            critical=None if critical is None else max(critical, pair.critical),
        )
        for (key, pair), p in zip(tested.items(), corrected(difference, error, deviation).tolist(), strict=True)
    }
