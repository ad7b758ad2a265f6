"""Combined: a penalised logistic regression over all that costs no sample, the baseline that a new method has to beat.

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
    "least log p",
    "mean entropy",
    "largest entropy",
    "mean gap",
    "least gap",
    "length",
    "P(True)",
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
        """Sigmoid of the regression."""
        return probability(log_odds(self.name, arrays, features(batch)))

    def n_parameters(self, facts: RunFacts) -> int:
        """A weight for each feature, and a bias."""
        del facts
        return len(FEATURES) + 1


def features(batch: Batch) -> FloatArray:
    """`FEATURES` of each answer, `(n, 8)` float64: nats, a number of tokens, and the self-check's log odds."""
    scores, query = batch[_SCORES], batch[QueryLogits()].astype(np.float64)
    tokens, starts, likeliest = scores.values, scores.offsets[:-1], scores.values["top_log_probabilities"]
    of_tokens = (tokens["log_probability"], -tokens["entropy"], likeliest[:, 0] - likeliest[:, 1])
    means = [np.add.reduceat(column, starts, dtype=np.float64) / scores.lengths for column in of_tokens]
    least = [np.minimum.reduceat(column, starts) for column in of_tokens]
    return np.column_stack([*means, *least, scores.lengths, query[:, 1] - query[:, 0]])
