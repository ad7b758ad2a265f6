"""The numbers that figures draw, from records: calibration bins with intervals, histograms, risk-coverage curves.

Several seeds are several records of the same questions; what is drawn is their mean, beside what each has. Example:
`bins_of([records]).rate` is the share of right answers in each of ten bins.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bench.api import FloatArray
from bench.api.protocol import Protocol
from bench.metrics.answers import bin_of
from bench.results.files import Records

BINS = Protocol().ece_bins
"""Of reliability diagrams: those of the ECE."""
HISTOGRAM_BINS = 20
"""Of confidence histograms."""
CURVE_POINTS = 200
"""Of a risk-coverage curve; more can't be seen in print."""
Z = 1.959963984540054
"""Quantile of the normal distribution that leaves 2.5 % above it."""


class Bins(NamedTuple):
    """Answers by confidence, in equal-width bins; NaN where a bin is empty."""

    confidence: FloatArray
    """(b,): mean confidence, over all seeds."""
    rate: FloatArray
    """(b,): share of right answers, over all seeds."""
    low: FloatArray
    """(b,): lower end of the 95 % Wilson interval of the rate, for as many answers as one seed has in the bin."""
    high: FloatArray
    """(b,): upper end."""
    answers: FloatArray
    """(b,): how many; mean over seeds."""
    by_seed: FloatArray
    """(s, b): share of right answers of each seed."""


def bins_of(records: Sequence[Records], bins: int = BINS) -> Bins:
    """Answers of one or several seeds by confidence, in the bins of `bench.metrics.ece`.

    The questions of several seeds are the same ones, so intervals are as wide as one seed's: seeds add no questions.
    """
    count = np.zeros((len(records), bins))
    right, total = np.zeros_like(count), np.zeros_like(count)
    for s, run in enumerate(records):
        group = bin_of(run.confidence, bins)
        count[s] = np.bincount(group, minlength=bins)
        right[s] = np.bincount(group, weights=run.correct, minlength=bins)
        total[s] = np.bincount(group, weights=run.confidence, minlength=bins)
    mean_count = count.mean(axis=0)
    rate = _ratio(right.sum(axis=0), count.sum(axis=0))
    low, high = wilson(rate, mean_count)
    return Bins(_ratio(total.sum(axis=0), count.sum(axis=0)), rate, low, high, mean_count, _ratio(right, count))


def wilson(rate: npt.ArrayLike, n: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
    """95 % score interval of a binomial proportion (Wilson, 1927).

    Args:
        rate: shape (b,), share of successes.
        n: shape (b,), trials; NaN comes out where there are none.

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


class Histogram(NamedTuple):
    """Shares of all answers by confidence; rows are seeds."""

    right: FloatArray
    """(s, b): right answers."""
    wrong: FloatArray
    """(s, b): wrong answers."""


def histogram_of(records: Sequence[Records], bins: int = HISTOGRAM_BINS) -> Histogram:
    """Confidences in equal-width bins, right and wrong answers apart; the shares of a seed sum to 1."""
    right, wrong = np.zeros((len(records), bins)), np.zeros((len(records), bins))
    for s, run in enumerate(records):
        group = bin_of(run.confidence, bins)
        right[s] = np.bincount(group, weights=run.correct, minlength=bins) / run.correct.size
        wrong[s] = np.bincount(group, weights=~run.correct, minlength=bins) / run.correct.size
    return Histogram(right, wrong)


class Curve(NamedTuple):
    """Risk at growing coverage."""

    coverage: FloatArray
    """(k,): share of answers that are kept, the most confident first."""
    risk: FloatArray
    """(s, k): share of mistakes among them, for each seed; equal confidences as in `bench.metrics.aurc`."""
    best: FloatArray
    """(k,): of the order that has all right answers first."""


def curve_of(records: Sequence[Records], points: int = CURVE_POINTS) -> Curve:
    """Risk-coverage curves of the seeds, at up to `points` coverages."""
    n = records[0].correct.size
    k = np.unique(np.linspace(1, n, min(points, n)).round())
    coverage = k / n
    risk = np.stack([_risk(run, coverage) for run in records])
    mistakes = np.count_nonzero(~records[0].correct)
    return Curve(coverage, risk, np.maximum(0.0, k - (n - mistakes)) / k)


def _risk(run: Records, coverage: FloatArray) -> FloatArray:
    _, group, size = np.unique(-run.confidence, return_inverse=True, return_counts=True)
    accepted = np.cumsum(np.append(0, size))
    mistakes = np.cumsum(np.append(0, np.bincount(group, weights=~run.correct)))
    k = coverage * run.correct.size
    risk: FloatArray = np.interp(k, accepted, mistakes) / k  # within a tie every order is equally likely
    return risk


def _ratio(numerator: FloatArray, denominator: FloatArray) -> FloatArray:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(denominator > 0, numerator / denominator, np.nan)
