"""Combined: a penalised logistic regression over all that costs no sample, the baseline that a new method has to beat.

Wolpert, 1992, "Stacked generalization", doi:10.1016/S0893-6080(05)80023-1; docs/methods.md §2.44.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from bench.api import Batch, Context, FloatArray, Needs, QueryLogits, RunFacts, TokenScores, method
from methods._shared.logistic import Arrays, Penalised, Regression, log_odds, probability
from methods._shared.training import check_labels

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
"""What the regression reads, in its order; the logits of no and yes as their difference."""


@method("combined")
@dataclass(kw_only=True, eq=False)
class Combined(Penalised):
    """A penalised logistic regression over token scores, the answer's length and P(True); needs labels."""

    reference: ClassVar[str] = "doi:10.1016/S0893-6080(05)80023-1"
    needs: ClassVar[Needs] = Needs(fit=frozenset({_SCORES, QueryLogits()}), predict=frozenset({_SCORES, QueryLogits()}))

    def fit(self, train: Batch, ctx: Context) -> Self:
        """Fit the regression on the labels.

        Raises:
            UntrainableError: all labels are equal.
            UserError: scores that are not finite.
        """
        check_labels(self.name, train.correct)
        return self.choose(ctx, Regression(self.name, features(train), train.correct))

    def confidence(self, arrays: Arrays, batch: Batch) -> FloatArray:
        """Sigmoid of the regression."""
        return probability(log_odds(self.name, arrays, features(batch)))

    def n_parameters(self, facts: RunFacts) -> int:
        """A weight for each feature, and a bias."""
        del facts
        return len(FEATURES) + 1


def features(batch: Batch) -> FloatArray:
    """`FEATURES` of each answer, `(n, 8)` float64; the gap is between the two likeliest tokens, in nats."""
    scores, query = batch[_SCORES], batch[QueryLogits()].astype(np.float64)
    tokens, starts = scores.values, scores.offsets[:-1]
    likeliest = tokens["top_log_probabilities"].astype(np.float64)
    columns: list[FloatArray] = []
    for column, extreme in (
        (tokens["log_probability"], np.minimum),
        (tokens["entropy"], np.maximum),
        (likeliest[:, 0] - likeliest[:, 1], np.minimum),
    ):
        mean = np.add.reduceat(column.astype(np.float64), starts) / scores.lengths
        columns += [mean, extreme.reduceat(column.astype(np.float64), starts)]
    return np.column_stack([*columns, scores.lengths, query[:, 1] - query[:, 0]])
