"""Shares over many ways to analyse the same results: places, their distribution, and which choice decides.

A multiverse (Steegen, Tuerlinckx, Gelman and Vanpaemel, 2016) is a list of analyses, not a sample: shares of it
describe the list, and are no probabilities. Example: `explained([True, True, False], ["a", "a", "b"])` is 1, as the
choice between a and b decides everything.
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
"""Quantiles that a distribution of places is told by."""


def places(values: FloatArray, *, higher_is_better: bool) -> IntArray:
    """Place of each value: 1 plus the number of values that are better by more than rounding; equal ones share it.

    Args:
        values: shape (m,), without NaN.
        higher_is_better: whether the largest has place 1.

    Returns:
        Shape (m,), int.

    >>> places(np.array([0.3, 0.1, 0.3, 0.2]), higher_is_better=True).tolist()
    [1, 4, 1, 3]
    """
    good = values if higher_is_better else -values
    found: IntArray = 1 + np.count_nonzero(good[None, :] > good[:, None] + ROUNDING, axis=1)
    return found


class PlaceSpread(NamedTuple):
    """Distribution of a method's places over universes."""

    median: int
    low: int
    """5 % of the places are at it or better, at least."""
    high: int
    """95 % of the places are at it or better, at least."""
    mean: float
    first: float
    """Share of places that are 1."""


def spread(found: npt.ArrayLike) -> PlaceSpread:
    """Distribution of places (u,), u > 0; quantiles are places that occur (the inverse of the distribution function).

    >>> spread([1, 1, 2, 4])
    PlaceSpread(median=1, low=1, high=4, mean=2.0, first=0.5)
    """
    ranks = np.asarray(found, dtype=np.int64)
    low, median, high = np.quantile(ranks, [LOW, 0.5, HIGH], method="inverted_cdf").tolist()
    return PlaceSpread(int(median), int(low), int(high), float(ranks.mean()), float(np.mean(ranks == 1)))


def explained(holds: npt.ArrayLike, options: Sequence[Hashable]) -> float:
    """Share of the variance of what holds or not that lies between the options of one choice: the correlation ratio.

    eta^2 = sum over options of n_k (m_k - m)^2 / sum over universes of (x - m)^2 (Pearson, 1905), which for a full grid
    is the first-order index of Sobol (1993). 1 where the option alone decides, 0 where it changes nothing on average:
    choices that act only together have 0 each. 0 too where nothing varies.

    Args:
        holds: shape (u,), bool, u > 0.
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
