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
"""Number of bins of a reliability diagram, as for the ECE."""
FEW = 5
"""Number of answers (mean over seeds) below which a bin is drawn pale and not connected by a line."""
Z = 1.959963984540054
"""Quantile of the standard normal distribution, with 2.5 % of the distribution above it."""


class DiagramBins(NamedTuple):
    """Answers of s seeds in b equal-width bins of confidence; means, rates and ends are NaN where a bin is empty."""

    confidence: FloatArray
    """(b,): mean confidence, over all seeds."""
    rate: FloatArray
    """(b,): share of right answers, over all seeds."""
    low: FloatArray
    """(b,): lower end of the 95 % Wilson interval of the rate, for as many answers as one seed has in the bin."""
    high: FloatArray
    """(b,): upper end of that interval."""
    answers: FloatArray
    """(b,): number of answers; mean over seeds."""
    by_seed: FloatArray
    """(s, b): share of right answers of each seed."""


def connected_bins(bins: DiagramBins) -> tuple[FloatArray, FloatArray]:
    """Return the points of a calibration line: mean confidence and share of right answers of each non-empty bin.

    They are NaN in bins of few answers, where the line is interrupted.
    """
    filled = bins.answers > 0
    few = bins.answers[filled] < FEW
    return np.where(few, np.nan, bins.confidence[filled]), np.where(few, np.nan, bins.rate[filled])


def bin_records(records: Sequence[QuestionRecords]) -> DiagramBins:
    """Bin the answers of one or several seeds by confidence, in the bins of `bench.metrics.ece`.

    Seeds share their questions, so intervals are as wide as for one seed.
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
        n: shape (b,), number of trials; where it is 0 the interval is NaN.

    Returns:
        Lower and upper ends, (b,) each, within [0, 1].

    Five of ten:

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
