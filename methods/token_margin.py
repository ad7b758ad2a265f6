"""Top-2 margin: mean probability gap between the two likeliest tokens (docs/methods.md §2.20).

Example: two tokens with likeliest probabilities 0.9 and 0.1, then 0.5 and 0.3, have margins 0.8 and 0.2: score 0.5.
"""

from __future__ import annotations

import numpy as np

from bench.api import Batch, ConfidenceMethod, FloatArray, Needs, TokenScores, method
from methods._shared.tokens import mean_over_tokens


@method("token-margin")
class TokenMargin(ConfidenceMethod):
    """Mean difference between the two largest token probabilities, over the answer's tokens; learns nothing.

    Wang and Zhou, 2024, "Chain-of-Thought Reasoning Without Prompting", choose among several decoded answers by this
    margin. LM-Polygraph 0.7.0 has no such method.
    """

    reference = "arXiv:2402.10200"
    needs = Needs(predict=frozenset({TokenScores(top=2)}))
    output = "score"

    def predict(self, batch: Batch) -> FloatArray:
        """Mean margin, `(n,)` float64, within [0, 1]."""
        scores = batch[TokenScores(top=2)]
        top = np.exp(scores.values["top_log_probabilities"].astype(np.float64))  # (tokens, 2)
        return mean_over_tokens(scores, top[:, 0] - top[:, 1])
