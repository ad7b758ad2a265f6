"""Relative Mahalanobis distance: how much closer a hidden state is to right than to wrong answers' states.

Ren et al., 2022, arXiv:2209.15558; docs/methods.md §2.42.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np

from bench.api import At, Batch, BoolArray, Context, FloatArray, Hidden, Needs, RunFacts, method
from methods._shared.logistic import Arrays, HiddenStateMethod, Position, apply_map, calibrated, fit_scaler, standardise

_STATE = frozenset({Hidden(1.0, At.ANSWER_PREDICTING, "mean")})


def distance_score(arrays: Arrays, x: FloatArray) -> FloatArray:
    """Squared Mahalanobis distance to wrong answers minus that to right ones, `(n,)`, of standardised states."""
    wrong, right = ((x - arrays[side]["centre"]) @ arrays[side]["root"] for side in ("wrong", "right"))
    return np.asarray(np.square(wrong).sum(axis=1) - np.square(right).sum(axis=1))


def distance_confidence(arrays: Arrays, states: FloatArray) -> FloatArray:
    """Probability that each answer is right, `(n,)`, after calibration, from states `(n, d)`."""
    return apply_map(arrays, distance_score(arrays, (states - arrays["mean"]) / arrays["scale"]))


@method("relative-mahalanobis")
@dataclass(kw_only=True, eq=False)
class RelativeMahalanobis(HiddenStateMethod):
    """Mahalanobis distance to wrong answers minus that to right ones, mapped to a probability; needs labels."""

    reference = "arXiv:2209.15558"
    needs = Needs(fit=_STATE, predict=_STATE)
    formula = (distance_score, distance_confidence)
    position: Position = "predicting_mean"
    """Where the state is read. arXiv:2209.15558: the mean over the output's tokens (docs/methods.md §2.42)."""

    def fit(self, train: Batch, ctx: Context) -> Self:
        """Fit normal distributions to the states of right and wrong answers, and the map to probabilities."""
        scaler = fit_scaler(self.name, train[self.state])
        x, right = standardise(self.name, scaler, train[self.state]), train.correct

        def normals(rows: BoolArray) -> Callable[[float], Arrays]:
            of_right, of_wrong = _normal(x[rows & right]), _normal(x[rows & ~right])
            return lambda p: {**scaler, "right": of_right(p), "wrong": of_wrong(p)}

        fit_at = calibrated(self.name, right, right, normals, lambda arrays: distance_score(arrays, x))
        return self.select_penalty(ctx, fit_at)

    def n_parameters(self, facts: RunFacts) -> int:
        """Number of learned parameters: two means, two symmetric matrices, and two of the calibration map."""
        return facts.model.hidden_size * (facts.model.hidden_size + 3) + 2


def _normal(x: FloatArray) -> Callable[[float], Arrays]:
    """Return a function from a penalty p to the normal distribution fitted to rows x `(n, d)`.

    The distribution is given by its mean, `centre` `(d,)`, and a root of its precision matrix, `root` `(d, d)`. The
    covariance is shrunk as if p rows of unit covariance were added to x.
    """
    centre = x.mean(axis=0)
    values, vectors = np.linalg.eigh((x - centre).T @ (x - centre))
    return lambda p: {"centre": centre, "root": vectors * np.sqrt((len(x) + p) / (np.maximum(values, 0.0) + p))}
