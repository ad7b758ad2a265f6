"""Multiverse analysis: ranks of methods over many analyses of the same results, and which choice explains them.

A multiverse (Steegen, Tuerlinckx, Gelman and Vanpaemel, 2016) is a list of analyses, not a sample: shares of
analyses are no probabilities. Example: `explained([True, True, False], ["a", "a", "b"])` is 1: the choice between
a and b decides everything.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bench.api import FloatArray, IntArray

ROUNDING = 1e-12
"""Differences below it are rounding."""
LOW, HIGH = 0.05, 0.95
"""Quantiles that are reported of a distribution of ranks."""


def places(values: FloatArray, *, higher_is_better: bool) -> IntArray:
    """Competition rank of each value: 1 plus the number of values that are better by more than rounding.

    Args:
        values: shape (m,), without NaN.
        higher_is_better: whether the largest value has rank 1.

    Returns:
        Shape (m,), int.

    >>> places(np.array([0.3, 0.1, 0.3, 0.2]), higher_is_better=True).tolist()
    [1, 4, 1, 3]
    """
    goodness = values if higher_is_better else -values
    ranks: IntArray = 1 + np.count_nonzero(goodness[None, :] > goodness[:, None] + ROUNDING, axis=1)
    return ranks


class RankSummary(NamedTuple):
    """Distribution of a method's ranks over the universes (analyses) of a multiverse."""

    median: int
    low: int
    """At least 5 % of the ranks are at it or better."""
    high: int
    """At least 95 % of the ranks are at it or better."""
    mean: float
    first: float
    """Share of universes with rank 1."""


def spread(ranks: npt.ArrayLike) -> RankSummary:
    """Distribution of ranks (u,), u > 0; quantiles are observed ranks (the inverse of the distribution function).

    >>> spread([1, 1, 2, 4])
    RankSummary(median=1, low=1, high=4, mean=2.0, first=0.5)
    """
    values = np.asarray(ranks, dtype=np.int64)
    low, median, high = np.quantile(values, [LOW, 0.5, HIGH], method="inverted_cdf").tolist()
    return RankSummary(int(median), int(low), int(high), float(values.mean()), float(np.mean(values == 1)))


def explained(holds: npt.ArrayLike, options: Sequence[Hashable]) -> float:
    """Correlation ratio: the share of the variance of a finding that the options of one choice explain.

    eta^2 = sum over options of n_k (m_k - m)^2 / sum over universes of (x - m)^2 (Pearson, 1905), which for a full grid
    is the first-order index of Sobol (1993). 1 where the option alone decides; 0 where it changes nothing on average,
    as for choices that matter only in interaction, and where nothing varies.

    Args:
        holds: shape (u,), bool, u > 0: whether the finding holds in each universe.
        options: option of each universe, u of them.

    >>> explained([True, False, True, False], ["a", "a", "b", "b"])
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
