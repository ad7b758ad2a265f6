"""Reliability bins: accuracy by confidence with Wilson intervals, over one or several seeds.

Example: `bin_records([records]).rate` is the share of right answers in each of ten bins.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bench.api import FloatArray
from bench.api.protocol import Protocol
from bench.metrics.validation import bin_of
from bench.results.question_records import QuestionRecords

BINS = Protocol().ece_bins
"""Number of bins of a reliability diagram: the default number of bins of the ECE."""
FEW = 5
"""Bins with fewer answers than this (mean over seeds) are drawn pale, and no line connects them to other bins."""
Z = 1.959963984540054
"""The 97.5 % quantile of the standard normal distribution."""


class DiagramBins(NamedTuple):
    """Reliability diagram: statistics of the answers of s seeds in b bins of equal width in confidence.

    Means, rates and interval ends of an empty bin are NaN.
    """

    confidence: FloatArray
    """(b,): mean confidence of the answers in each bin, over all seeds."""
    rate: FloatArray
    """(b,): share of right answers in each bin, over all seeds."""
    low: FloatArray
    """(b,): lower end of the 95 % Wilson interval of `rate`, with `answers` as the number of trials."""
    high: FloatArray
    """(b,): upper end of the 95 % Wilson interval of `rate`, with `answers` as the number of trials."""
    answers: FloatArray
    """(b,): number of answers in each bin, as mean over seeds."""
    by_seed: FloatArray
    """(s, b): share of right answers of each seed in each bin."""


def connected_bins(bins: DiagramBins) -> tuple[FloatArray, FloatArray]:
    """Return the points of a reliability curve: mean confidence and share of right answers of each non-empty bin.

    Both are NaN for bins with fewer than `FEW` answers, so that the curve is interrupted there.
    """
    filled = bins.answers > 0
    few = bins.answers[filled] < FEW
    return np.where(few, np.nan, bins.confidence[filled]), np.where(few, np.nan, bins.rate[filled])


def bin_records(records: Sequence[QuestionRecords]) -> DiagramBins:
    """Bin the answers of one or several seeds of a method by confidence, in the bins of `bench.metrics.ece`.

    All seeds are tested on the same questions, so intervals are as wide as for one seed.
    """
    count = np.zeros((len(records), BINS))
    right, total = np.zeros_like(count), np.zeros_like(count)
    for s, run in enumerate(records):
        group = bin_of(run.confidence, BINS)
        count[s] = np.bincount(group, minlength=BINS)
        right[s] = np.bincount(group, weights=run.correct, minlength=BINS)
        total[s] = np.bincount(group, weights=run.confidence, minlength=BINS)
    rate = _ratio(right.sum(axis=0), count.sum(axis=0))
    low, high = wilson(rate, count.mean(axis=0))
    return DiagramBins(
        confidence=_ratio(total.sum(axis=0), count.sum(axis=0)), rate=rate, low=low, high=high,
        answers=count.mean(axis=0), by_seed=_ratio(right, count),
    )  # fmt: skip


def wilson(rate: npt.ArrayLike, n: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Return the 95 % score interval of a binomial proportion (Wilson, 1927).

    Args:
        rate: shape (b,), share of successes.
        n: shape (b,), number of trials. The interval is NaN where there are 0 trials.

    Returns:
        Lower and upper ends, (b,) each, within [0, 1].

    For five successes in ten trials:

    >>> [round(float(end[0]), 4) for end in wilson([0.5], [10])]
    [0.2366, 0.7634]
    """
    p, n = np.asarray(rate, dtype=np.float64), np.asarray(n, dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        shrink = 1 + Z**2 / n
        centre = (p + Z**2 / (2 * n)) / shrink
        half = Z * np.sqrt(p * (1 - p) / n + (Z / (2 * n)) ** 2) / shrink
    return np.clip(centre - half, 0.0, 1.0), np.clip(centre + half, 0.0, 1.0)


def _ratio(numerator: FloatArray, denominator: FloatArray) -> FloatArray:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(denominator > 0, numerator / denominator, np.nan)
