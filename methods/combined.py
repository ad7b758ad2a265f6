"""Combined: penalised logistic regression over token scores and P(True), the baseline for a new method; no samples.

Wolpert, 1992, "Stacked generalization", doi:10.1016/S0893-6080(05)80023-1; docs/methods.md §2.44.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from bench.api import Batch, Context, FloatArray, Needs, QueryLogits, RunFacts, TokenScores, method
from methods._shared.logistic import Arrays, PenalisedMethod, log_odds, logistic_path, probability

_SCORES = TokenScores(top=2)
FEATURES = (
    "mean log p",
    "mean negative entropy",
    "mean gap",
    "least log p",
    "least negative entropy",
    "least gap",
    "length",
    "log odds of P(True)",
)


@method("combined")
@dataclass(kw_only=True, eq=False)
class Combined(PenalisedMethod):
    """A penalised logistic regression over token scores, the answer's length and P(True); needs labels."""

    reference = "doi:10.1016/S0893-6080(05)80023-1"
    needs = Needs(fit=frozenset({_SCORES, QueryLogits()}), predict=frozenset({_SCORES, QueryLogits()}))

    def fit(self, train: Batch, ctx: Context) -> Self:
        """Fit the regression on the labels."""
        return self.select_penalty(ctx, logistic_path(self.name, features(train), train.correct))

    def confidence(self, arrays: Arrays, batch: Batch) -> FloatArray:
        """Probability that each answer is right, `(n,)`, by the fitted regression."""
        return probability(log_odds(self.name, arrays, features(batch)))

    def n_parameters(self, facts: RunFacts) -> int:
        """Number of learned parameters: one weight per feature, and a bias."""
        del facts
        return len(FEATURES) + 1


def features(batch: Batch) -> FloatArray:
    """Compute the eight features of each answer, in the order of `FEATURES`, `(n, 8)` float64.

    All but the length are in nats. Each token gives three numbers: its log p, its negative entropy, and the gap between
    the two largest log p.
    """
    scores, query = batch[_SCORES], batch[QueryLogits()].astype(np.float64)
    tokens, offsets, top = scores.values, scores.offsets[:-1], scores.values["top_log_probabilities"]
    columns = (tokens["log_probability"], -tokens["entropy"], top[:, 0] - top[:, 1])
    means = [np.add.reduceat(column, offsets, dtype=np.float64) / scores.lengths for column in columns]
    least = [np.minimum.reduceat(column, offsets) for column in columns]
    return np.column_stack([*means, *least, scores.lengths, query[:, 1] - query[:, 0]])
