"""Isotonic reliability curves with consistency bands (CORP: Dimitriadis, Gneiting and Jordan, 2021).

The curve is the isotonic regression of correctness on confidence, without bins. At each confidence, the band holds 95 %
of the curves that calibrated confidences would give. Where the curve leaves the band, confidences are miscalibrated.
Example: `curve = reliability_curve([records])` has `curve.rate` and the ends of the band, `curve.low` and `curve.high`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bench.api import BoolArray, FloatArray, IntArray
from bench.metrics import corp, ece
from bench.report.bins import BINS
from bench.results.question_records import QuestionRecords

DRAWS = 200
"""Number of simulated sets of labels from which a consistency band is computed."""
LEVEL = 0.95
"""Share of the simulated reliability curves that lie within the consistency band at each confidence."""
POINTS = 41
"""Maximum number of points of a reliability curve."""
_SEED = 2021


class ReliabilityCurve(NamedTuple):
    """Reliability curve over the answers of all seeds of a method, given at g <= `POINTS` confidences."""

    confidence: FloatArray
    """(g,): confidences at which the curve is given, ascending from the lowest to the highest one of all answers."""
    rate: FloatArray
    """(g,): share of right answers by isotonic regression, interpolated linearly between the confidences of answers."""
    low: FloatArray
    """(g,): lower end of the consistency band at each confidence."""
    high: FloatArray
    """(g,): upper end of the consistency band at each confidence."""


def reliability_curve(records: Sequence[QuestionRecords], *, draws: int = DRAWS, seed: int = _SEED) -> ReliabilityCurve:
    """Compute the isotonic reliability curve and its consistency band; deterministic for given records.

    All seeds have the same questions in the same order. In a simulated set of labels, all seeds use the
    same random number for a question. So the band does not become narrower with more seeds, as their answers are not
    independent.

    Args:
        records: records of each seed of one method, with the confidence and correctness of each answer.
        draws: number of simulated sets of labels. In a set, the probability that an answer is right equals its
            confidence.
        seed: seed of the random numbers.
    """
    confidence = np.concatenate([run.confidence for run in records])
    order = np.argsort(confidence, kind="stable")
    ascending = confidence[order]
    start = np.flatnonzero(np.append(True, ascending[1:] != ascending[:-1]))  # first index of each distinct confidence
    size = np.diff(np.append(start, ascending.size))
    points = distinct = ascending[start]
    if distinct.size > POINTS:  # half of the points spaced evenly in confidence, half in rank
        even = np.linspace(distinct[0], distinct[-1], POINTS // 2 + 1)
        ranked = np.quantile(ascending, np.linspace(0, 1, POINTS - even.size + 2)[1:-1], method="nearest")
        points = np.unique(np.concatenate([even, ranked]))
    correct = np.concatenate([run.correct for run in records])
    question = np.concatenate([np.arange(run.correct.size) for run in records])[order]
    rng = np.random.default_rng(seed)
    samples = np.empty((draws, points.size))
    for k in range(draws):
        outcome = rng.random(int(question.max()) + 1)[question] < ascending
        samples[k] = np.interp(points, distinct, _isotonic(outcome, start, size))
    low, high = np.quantile(samples, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    return ReliabilityCurve(points, np.interp(points, distinct, _isotonic(correct[order], start, size)), low, high)


def pooled_errors(records: Sequence[QuestionRecords], bins: int = BINS) -> tuple[float, float]:
    """Return ECE and MCB (miscalibration part of the Brier score) over the answers of all subjects and seeds."""
    confidence = np.concatenate([run.confidence for run in records])
    correct = np.concatenate([run.correct for run in records])
    return ece(confidence, correct, bins=bins), corp(confidence, correct).mcb


def _isotonic(correct: BoolArray, start: IntArray, size: IntArray) -> FloatArray:
    """Return the isotonic regression of correctness on confidence at the d distinct confidences, shape (d,).

    Args:
        correct: shape (n,), whether each answer is right; answers are sorted by confidence.
        start: shape (d,), first index of each distinct confidence.
        size: shape (d,), number of answers with each distinct confidence.
    """
    from scipy.optimize import isotonic_regression

    hits = np.add.reduceat(correct.astype(np.float64), start)
    fit: FloatArray = isotonic_regression(hits / size, weights=size).x
    return np.clip(fit, 0.0, 1.0)  # a weighted mean can leave [0, 1] by rounding
