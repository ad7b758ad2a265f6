"""A method that learns nothing: it turns the entropies of an answer's tokens into one score for the answer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bench.api import Batch, ConfidenceMethod, FloatArray, Needs, TokenScores, method


@method("my-method")
@dataclass(kw_only=True, eq=False)
class MyMethod(ConfidenceMethod):
    """Negative entropy of the answer's tokens."""

    needs = Needs(predict=frozenset({TokenScores()}))  # all that it reads: see docs/signals.md
    output = "score"  # larger is surer, on no scale; without this line `predict` gives probabilities

    pool: str = "mean"
    """Mean or maximum over tokens: mean or max. CHOSEN: as most do."""  # each constant, and where its value is from

    def predict(self, batch: Batch) -> FloatArray:
        """Scores, shape (n,); the score of an answer may depend on no other answer of the batch."""
        pool = {"mean": np.mean, "max": np.max}[self.pool]
        tokens = batch[TokenScores()]  # tokens[i]: one record for each token of answer i
        return np.array([-pool(tokens[i]["entropy"]) for i in range(len(batch))])
