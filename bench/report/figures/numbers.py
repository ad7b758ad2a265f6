"""The numbers that figures draw, from records: histograms of confidence, and risk-coverage curves.

Several seeds are several records of the same questions; what is drawn is their mean, beside what each has. Example:
`risk_curve([records]).risk` is the share of mistakes at growing coverage.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bench.api import FloatArray
from bench.metrics.validation import bin_of
from bench.results.records import Records

HISTOGRAM_BINS = 20
"""Bins of confidence histograms."""
CURVE_POINTS = 200
"""Points of a risk-coverage curve; more can't be seen in print."""


class Histogram(NamedTuple):
    """Shares of all answers by confidence; rows are seeds."""

    right: FloatArray
    """(s, b): right answers."""
    wrong: FloatArray
    """(s, b): wrong answers."""


def compute_histogram(records: Sequence[Records], bins: int = HISTOGRAM_BINS) -> Histogram:
    """Confidences in equal-width bins, right and wrong answers apart; the shares of a seed sum to 1."""
    right, wrong = np.zeros((len(records), bins)), np.zeros((len(records), bins))
    for s, run in enumerate(records):
        group = bin_of(run.confidence, bins)
        right[s] = np.bincount(group, weights=run.correct, minlength=bins) / run.correct.size
        wrong[s] = np.bincount(group, weights=~run.correct, minlength=bins) / run.correct.size
    return Histogram(right, wrong)


class RiskCurve(NamedTuple):
    """Risk at growing coverage."""

    coverage: FloatArray
    """(k,): share of answers that are kept, the most confident first."""
    risk: FloatArray
    """(s, k): share of mistakes among them, for each seed; equal confidences as in `bench.metrics.aurc`."""
    best: FloatArray
    """(k,): of the order that has all right answers first."""


def risk_curve(records: Sequence[Records], points: int = CURVE_POINTS) -> RiskCurve:
    """Risk-coverage curves of the seeds, at up to `points` coverages."""
    n = records[0].correct.size
    k = np.unique(np.linspace(1, n, min(points, n)).round())
    coverage, risk = k / n, []
    for run in records:
        _, group, size = np.unique(-run.order, return_inverse=True, return_counts=True)
        accepted = np.cumsum(np.append(0, size))
        mistakes = np.cumsum(np.append(0, np.bincount(group, weights=~run.correct)))
        at = coverage * run.correct.size
        risk.append(np.interp(at, accepted, mistakes) / at)  # within a tie every order is equally likely
    right = n - np.count_nonzero(~records[0].correct)
    return RiskCurve(coverage, np.stack(risk), np.maximum(0.0, k - right) / k)


def bin_boxes(heights: FloatArray, base: float = 0.0) -> FloatArray:
    """Bars over equal bins of [0, 1]: heights (b,) -> left, bottom, right and top, (b, 4), without empty ones."""
    edges = np.arange(heights.size + 1) / heights.size
    boxes = np.column_stack([edges[:-1], np.full(heights.size, base), edges[1:], base + heights])
    filled: FloatArray = boxes[heights != 0]
    return filled
