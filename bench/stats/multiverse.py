"""Multiverse analysis: how much results depend on choices made in the analysis (Steegen et al., 2016).

The same results are analysed in many ways, called universes. The module summarises a method's ranks over universes, and
finds out which choice explains a finding. Universes are a list, not a sample: shares of universes are no probabilities.
Example: `correlation_ratio([True, True, False], ["a", "a", "b"])` is 1: the choice between a and b alone decides
whether the finding holds.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bench.api import FloatArray, IntArray

ROUNDING = 1e-12
"""Two values of a metric that differ by less than this count as equal."""
LOW, HIGH = 0.05, 0.95
"""Levels of the two quantiles of a method's ranks that are reported: 5 % and 95 %."""


def competition_ranks(values: FloatArray, *, higher_is_better: bool) -> IntArray:
    """Return the rank of each value: 1 plus the number of values that are better by more than ROUNDING.

    Args:
        values: shape (m,), without NaN.
        higher_is_better: whether the largest value has rank 1.

    Returns:
        Ranks, shape (m,), int.

    >>> competition_ranks(np.array([0.3, 0.1, 0.3, 0.2]), higher_is_better=True).tolist()
    [1, 4, 1, 3]
    """
    goodness = values if higher_is_better else -values
    ranks: IntArray = 1 + np.count_nonzero(goodness[None, :] > goodness[:, None] + ROUNDING, axis=1)
    return ranks


class RankSummary(NamedTuple):
    """Distribution of a method's ranks over the universes of a multiverse, i.e. over alternative analyses."""

    median: int
    low: int
    """5 % quantile: the smallest observed rank r such that at least 5 % of the ranks are at most r."""
    high: int
    """95 % quantile: the smallest observed rank r such that at least 95 % of the ranks are at most r."""
    mean: float
    first: float
    """Share of universes (analyses) in which the method has rank 1."""


def rank_summary(ranks: npt.ArrayLike) -> RankSummary:
    """Summarise a method's ranks (u,) over u > 0 universes (analyses); all quantiles are observed ranks.

    >>> rank_summary([1, 1, 2, 4])
    RankSummary(median=1, low=1, high=4, mean=2.0, first=0.5)
    """
    values = np.asarray(ranks, dtype=np.int64)
    low, median, high = np.quantile(values, [LOW, 0.5, HIGH], method="inverted_cdf").tolist()
    return RankSummary(int(median), int(low), int(high), float(values.mean()), float(np.mean(values == 1)))


def correlation_ratio(holds: npt.ArrayLike, options: Sequence[Hashable]) -> float:
    """Return the correlation ratio: the share of the variance of a finding that the options of one choice explain.

    Let x be 1 in a universe (analysis) where the finding holds and 0 elsewhere, and m its mean. Let m_k be its mean
    over the n_k universes with option k. The ratio is sum over options of n_k (m_k - m)^2 / sum over universes of (x -
    m)^2 (Pearson, 1905). If the universes are all combinations of options, it is the first-order index of Sobol (1993).

    The ratio is 1 if the option alone decides whether the finding holds. It is 0 if options make no difference on
    average, as for a choice that matters only together with others. It is also 0 if the finding holds always or never.

    Args:
        holds: shape (u,), bool, u > 0: whether the finding holds in each universe.
        options: option that each universe has for this choice, u of them.

    >>> correlation_ratio([True, False, True, False], ["a", "a", "b", "b"])
    0.0
    """
    x = np.asarray(holds, dtype=np.float64)
    _, group = np.unique(np.asarray([repr(option) for option in options]), return_inverse=True)
    total = float(np.square(x - x.mean()).sum())
    if total <= ROUNDING:
        return 0.0
    size = np.bincount(group)
    means = np.bincount(group, weights=x) / size
    return float(np.sum(size * np.square(means - x.mean())) / total)
