"""Confidences in validation answers as a recalibrator must see them: never of answers that it was fitted on."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bench.api import Batch, BoolArray, ConfidenceMethod, FloatArray
from bench.api.early_stopping import best_point, validation_loss
from bench.api.methods import given
from bench.metrics.recalibration import folds_of
from bench.metrics.scaling import Scale


def out_of_fold(
    fitted_anew: Callable[[Batch], ConfidenceMethod], labelled: Batch, unlabelled: Batch, seed: int
) -> FloatArray:
    """Confidences `(n,)` in the answers that a method learns from, each by a fit that did not see it.

    Args:
        fitted_anew: fits a fresh method on some of the answers.
        labelled: the answers as `fit` gets them.
        unlabelled: the same answers as `predict` gets them.
        seed: of the folds.
    """
    fold = folds_of(labelled.correct, seed=seed)
    confidence = np.empty(len(labelled))
    for k in range(int(fold.max()) + 1):
        confidence[fold == k] = given(fitted_anew(labelled.take(fold != k)), unlabelled.take(fold == k))
    return confidence


def chosen_out_of_fold(curve: FloatArray, correct: BoolArray, seed: int) -> FloatArray:
    """Confidences `(n,)` in the answers that a step was chosen by, each at the step that the others choose.

    Args:
        curve: `(points, n)` confidences at each point of the training.
        correct: `(n,)` labels.
        seed: of the folds.
    """
    fold = folds_of(correct, seed=seed)
    confidence = np.empty(len(correct))
    for k in range(int(fold.max()) + 1):
        inside = fold == k
        losses = [validation_loss(point[~inside], correct[~inside]) for point in curve]
        confidence[inside] = curve[best_point(losses)][inside]
    return confidence


def scaled_out_of_fold(score: FloatArray, correct: BoolArray, seed: int) -> FloatArray:
    """Confidences `(n,)` in the answers that scores are scaled on, each by the scale that the others give.

    Args:
        score: `(n,)`.
        correct: `(n,)` labels.
        seed: of the folds.
    """
    fold = folds_of(correct, seed=seed)
    confidence = np.empty(len(correct))
    for k in range(int(fold.max()) + 1):
        inside = fold == k
        confidence[inside] = Scale.fit(score[~inside], correct[~inside]).apply(score[inside])
    return confidence
