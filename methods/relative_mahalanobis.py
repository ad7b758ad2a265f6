"""Relative Mahalanobis distance: distance of a hidden state to wrong answers minus that to right answers.

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
        """Fit a normal distribution to the states of right answers, another to wrong ones, and the calibration map."""
        self.scaler_ = fit_scaler(self.name, train[self.state])
        x, right = standardise(self.name, self.scaler_, train[self.state]), train.correct

        def normals(rows: BoolArray) -> Callable[[float], Arrays]:
            of_right, of_wrong = _normal(x[rows & right]), _normal(x[rows & ~right])
            return lambda p: {"right": of_right(p), "wrong": of_wrong(p)}

        return self.select_penalty(ctx, calibrated(self.name, right, right, normals, lambda arrays: _score(arrays, x)))

    def confidence(self, arrays: Arrays, batch: Batch) -> FloatArray:
        """Calibrated probability that the answer is right."""
        return apply_map(self.name, arrays, _score(arrays, standardise(self.name, self.scaler_, batch[self.state])))

    def n_parameters(self, facts: RunFacts) -> int:
        """Two means, two symmetric matrices, and the two parameters of the calibration map."""
        return facts.model.hidden_size * (facts.model.hidden_size + 3) + 2


def _normal(x: FloatArray) -> Callable[[float], Arrays]:
    """Return a function from a penalty p to the normal distribution of x `(n, d)`: mean and root of the precision.

    The covariance is shrunk as if p rows of unit covariance were added to x. The arrays are `centre` `(d,)` and `root`
    `(d, d)`.
    """
    centre = x.mean(axis=0)
    values, vectors = np.linalg.eigh((x - centre).T @ (x - centre))
    return lambda p: {"centre": centre, "root": vectors * np.sqrt((len(x) + p) / (np.maximum(values, 0.0) + p))}


def _score(arrays: Arrays, x: FloatArray) -> FloatArray:
    """Return the squared distance of standardised states `(n, d)` to wrong answers minus that to right ones, `(n,)`."""
    whitened = {side: (x - normal["centre"]) @ normal["root"] for side, normal in arrays.items() if side != "map"}
    return np.asarray(np.square(whitened["wrong"]).sum(axis=1) - np.square(whitened["right"]).sum(axis=1))
