"""Helpers that the metrics share: validate `confidence (n,)` and `correct (n,)`, compute ranks and bins."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from bench.api import BoolArray, FloatArray, IntArray

THRESHOLD = 0.5
"""A confidence above this threshold predicts that the answer is right."""


def validate(confidence: npt.ArrayLike, correct: npt.ArrayLike) -> tuple[FloatArray, BoolArray]:
    """Validate confidences and labels; return them as arrays (n,), float64 and bool.

    Raises:
        ValueError: an input is empty or not one-dimensional, lengths differ, `correct` is not bool, or a confidence is
            NaN or outside [0, 1].
    """
    p = np.asarray(confidence, dtype=np.float64)
    o = np.asarray(correct)
    if p.ndim != 1 or p.shape != o.shape:
        raise ValueError(f"expected confidence and correct of one shape (n,), got {p.shape} and {o.shape}")
    if not p.size:
        raise ValueError("expected at least one answer, got none; a metric of nothing is not 0")
    if o.dtype != np.bool_:
        raise ValueError(f"expected correct as bool, got {o.dtype}")
    bad = np.flatnonzero(~((p >= 0.0) & (p <= 1.0)))  # NaN is neither
    if bad.size:
        raise ValueError(f"expected confidences in [0, 1], got {p[bad[0]]} at row {bad[0]} ({bad.size} such rows)")
    return p, o


def normalised_ranks(score: npt.ArrayLike) -> FloatArray:
    """Return the ranks of n scores, scaled to [0, 1]; equal scores have equal ranks.

    Rank-based metrics need nothing else of scores.

    Raises:
        ValueError: a score is NaN, or scores are not one-dimensional.

    >>> normalised_ranks([-3.0, 7e9, -3.0, 0.5]).tolist()
    [0.0, 1.0, 0.0, 0.5]
    """
    s = np.asarray(score, dtype=np.float64)
    if s.ndim != 1 or np.isnan(s).any():
        raise ValueError(f"expected scores of shape (n,) without NaN, got shape {s.shape}")
    values, place = np.unique(s, return_inverse=True)
    return place / max(1, values.size - 1)


def top_label(p: FloatArray, o: BoolArray) -> tuple[FloatArray, BoolArray]:
    """Return the top-label confidence max(p, 1 - p), (n,), and whether `p > THRESHOLD` predicts the label `o`, (n,)."""
    return np.maximum(p, 1.0 - p), (p > THRESHOLD) == o


def bin_of(p: FloatArray, bins: int) -> IntArray:
    """Return the index of the equal-width bin of each confidence, (n,); the last bin includes 1.

    Bin edges are j/bins, each rounded once. Confidences such as 0.3 or 0.7, which sampling-based methods often give,
    lie on an edge; `floor(p * bins)` and `linspace` would put some of them into the wrong bin.
    """
    return np.searchsorted(np.arange(1, bins) / bins, p, side="right")


def calibration_gap(p: FloatArray, target: BoolArray, group: IntArray) -> float:
    """Return the calibration gap: sum over bins j of n_j/n * |mean target - mean p|.

    n_j of the n answers are in bin j, and `group` is the bin of each answer. An equal formula is the sum over bins of
    |sum of (p - target)| / n.
    """
    return float(np.abs(np.bincount(group, weights=p - target)).sum() / p.size)


def count_distinct(p: FloatArray, o: BoolArray) -> tuple[FloatArray, IntArray, IntArray]:
    """Return the d distinct confidences, ascending, with the numbers of answers and of right answers at each.

    All three arrays have shape (d,).
    """
    values, group, size = np.unique(p, return_inverse=True, return_counts=True)
    return values, size, np.bincount(group[o], minlength=values.size)


def average_ranks(values: FloatArray) -> FloatArray:
    """Return the rank of each value, (n,), starting at 1 for the smallest; equal values get the mean of their ranks.

    >>> average_ranks(np.array([0.2, 0.9, 0.2])).tolist()
    [1.5, 3.0, 1.5]
    """
    _, group, size = np.unique(values, return_inverse=True, return_counts=True)
    ranks: FloatArray = (np.cumsum(size) - (size - 1) / 2)[group]
    return ranks


def chunk_sizes(total: int, largest: int) -> Iterator[int]:
    """Yield the sizes of chunks that add up to `total`; no chunk is larger than `largest`."""
    for start in range(0, total, largest):
        yield min(largest, total - start)
