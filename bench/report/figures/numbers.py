"""Compute the numbers that figures draw: histograms of confidence, and risk-coverage curves.

Input are the answers and confidences of each seed, on the same questions. Result arrays have a row for each seed;
figures draw the mean over rows. Example: `risk_curve([records]).risk` is the share of mistakes at growing coverage.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bench.api import FloatArray
from bench.metrics.validation import bin_of
from bench.results.question_records import QuestionRecords

HISTOGRAM_BINS = 20
"""Number of bins of confidence histograms."""
CURVE_POINTS = 200
"""Maximum number of points of a risk-coverage curve; in print, more could not be told apart."""


class Histogram(NamedTuple):
    """Histograms of confidence for s seeds: shares of all answers in b bins, for right and wrong answers."""

    right: FloatArray
    """(s, b): shares of right answers."""
    wrong: FloatArray
    """(s, b): shares of wrong answers."""


def compute_histogram(records: Sequence[QuestionRecords]) -> Histogram:
    """Return, for each seed, the shares of right and of wrong answers in equal-width bins of confidence.

    The shares of one seed, right and wrong together, sum to 1.
    """
    bins = HISTOGRAM_BINS
    right, wrong = np.zeros((len(records), bins)), np.zeros((len(records), bins))
    for s, run in enumerate(records):
        group = bin_of(run.confidence, bins)
        right[s] = np.bincount(group, weights=run.correct, minlength=bins) / run.correct.size
        wrong[s] = np.bincount(group, weights=~run.correct, minlength=bins) / run.correct.size
    return Histogram(right, wrong)


class RiskCurve(NamedTuple):
    """Risk-coverage curves of s seeds at k coverages: the share of mistakes among the most confident answers."""

    coverage: FloatArray
    """(k,): shares of answers that are kept, in ascending order; the most confident answers are kept."""
    risk: FloatArray
    """(s, k): share of mistakes among the kept answers. Answers of equal confidence count as kept in random order; the
    share is then the expected one."""
    best: FloatArray
    """(k,): share of mistakes if all right answers were ranked first."""


def risk_curve(records: Sequence[QuestionRecords]) -> RiskCurve:
    """Return the risk-coverage curves of the seeds, at up to `CURVE_POINTS` coverages."""
    n = records[0].correct.size
    k = np.unique(np.linspace(1, n, min(CURVE_POINTS, n)).round())
    coverage, risk = k / n, []
    for run in records:
        _, group, size = np.unique(-run.ranking_values, return_inverse=True, return_counts=True)
        accepted = np.cumsum(np.append(0, size))
        mistakes = np.cumsum(np.append(0, np.bincount(group, weights=~run.correct)))
        at = coverage * run.correct.size
        risk.append(np.interp(at, accepted, mistakes) / at)  # within a tie every order is equally likely
    right = n - np.count_nonzero(~records[0].correct)
    return RiskCurve(coverage, np.stack(risk), np.maximum(0.0, k - right) / k)


def bin_boxes(heights: FloatArray) -> FloatArray:
    """Return rectangles (k, 4) for the bars of a histogram over [0, 1]: left, bottom, right and top of each bar.

    Args:
        heights: shape (b,), heights of the bars over b equal bins; bars of height 0 are left out.
    """
    edges = np.arange(heights.size + 1) / heights.size
    boxes = np.column_stack([edges[:-1], np.zeros(heights.size), edges[1:], heights])
    filled: FloatArray = boxes[heights != 0]
    return filled
