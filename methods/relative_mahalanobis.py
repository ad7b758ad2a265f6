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


@method("relative-mahalanobis")
@dataclass(kw_only=True, eq=False)
class RelativeMahalanobis(HiddenStateMethod):
    """Mahalanobis distance to wrong answers minus that to right ones, mapped to a probability; needs labels."""

    reference = "arXiv:2209.15558"
    needs = Needs(fit=_STATE, predict=_STATE)
    position: Position = "predicting_mean"
    """Where the state is read. arXiv:2209.15558: the mean over the output's tokens (docs/methods.md §2.42)."""

    def fit(self, train: Batch, ctx: Context) -> Self:
        """Fit normal distributions to the states of right and wrong answers, and the map to probabilities."""
        self.scaler_ = fit_scaler(self.name, train[self.state])
        x, right = standardise(self.name, self.scaler_, train[self.state]), train.correct

        def normals(rows: BoolArray) -> Callable[[float], Arrays]:
            of_right, of_wrong = _normal(x[rows & right]), _normal(x[rows & ~right])
            return lambda p: {"right": of_right(p), "wrong": of_wrong(p)}

        return self.select_penalty(ctx, calibrated(self.name, right, right, normals, lambda arrays: _score(arrays, x)))

    def confidence(self, arrays: Arrays, batch: Batch) -> FloatArray:
        """Probability that each answer is right, `(n,)`, after calibration."""
        return apply_map(self.name, arrays, _score(arrays, standardise(self.name, self.scaler_, batch[self.state])))

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


def _score(arrays: Arrays, x: FloatArray) -> FloatArray:
    """Return the scores `(n,)` of standardised states `(n, d)`.

    A score is the squared Mahalanobis distance to wrong answers minus that to right answers.
    """
    whitened = {side: (x - normal["centre"]) @ normal["root"] for side, normal in arrays.items() if side != "map"}
    return np.asarray(np.square(whitened["wrong"]).sum(axis=1) - np.square(whitened["right"]).sum(axis=1))
