"""Relative Mahalanobis distance: an answer's state is closer to those of right answers than to those of wrong ones.

Ren et al., 2022, "Out-of-Distribution Detection and Selective Generation for Conditional Language Models",
arXiv:2209.15558; docs/methods.md §2.42.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from bench.api import At, Batch, BoolArray, Context, FloatArray, Hidden, Needs, RunFacts, method
from methods._shared.logistic import Arrays, Penalised, mapped, scaler, through_map
from methods._shared.training import check_finite, check_labels

_STATE = Hidden(1.0, At.ANSWER_PREDICTING, "mean")


@method("relative-mahalanobis")
@dataclass(kw_only=True, eq=False)
class RelativeMahalanobis(Penalised):
    """Mahalanobis distance to wrong answers less that to right ones, mapped to a probability; needs labels."""

    reference: ClassVar[str] = "arXiv:2209.15558"
    needs: ClassVar[Needs] = Needs(fit=frozenset({_STATE}), predict=frozenset({_STATE}))

    def fit(self, train: Batch, ctx: Context) -> Self:
        """Fit a normal distribution to the states of right answers, one to those of wrong ones, and the map."""
        right = train.correct
        check_labels(self.name, right)
        check_finite(self.name, train[_STATE])
        mean, scale = scaler(train[_STATE])
        x = (train[_STATE] - mean) / scale

        def normals(rows: BoolArray) -> Callable[[float], Arrays]:
            of_right, of_wrong = _normal(x[rows & right]), _normal(x[rows & ~right])
            return lambda p: {"mean": mean, "scale": scale, "right": of_right(p), "wrong": of_wrong(p)}

        return self.choose(ctx, mapped(self.name, right, right, normals, lambda arrays: _score(arrays, train[_STATE])))

    def confidence(self, arrays: Arrays, batch: Batch) -> FloatArray:
        """Probability by the map."""
        check_finite(self.name, batch[_STATE])
        return through_map(self.name, arrays, _score(arrays, batch[_STATE]))

    def n_parameters(self, facts: RunFacts) -> int:
        """Two means, two symmetric matrices, and the two numbers of the map."""
        return facts.model.hidden_size * (facts.model.hidden_size + 3) + 2


def _normal(x: FloatArray) -> Callable[[float], Arrays]:
    """Penalty p -> centre `(d,)`, root of the precision `(d, d)`: p rows of unit covariance stand beside x `(n, d)`."""
    centre = x.mean(axis=0)
    values, vectors = np.linalg.eigh((x - centre).T @ (x - centre))
    return lambda p: {"centre": centre, "root": vectors * np.sqrt((len(x) + p) / (np.maximum(values, 0.0) + p))}


def _score(arrays: Arrays, states: FloatArray) -> FloatArray:
    """Squared distance to wrong answers less that to right ones, `(n,)`, of states `(n, d)`."""
    x = (states - arrays["mean"]) / arrays["scale"]
    wrong, right = (np.square((x - arrays[k]["centre"]) @ arrays[k]["root"]).sum(axis=1) for k in ("wrong", "right"))
    return np.asarray(wrong - right)
