"""Perplexity of the answer: mean log-probability of its tokens (docs/methods.md §2.18).

Example: tokens with probabilities 0.9 and 0.4 have perplexity 1/sqrt(0.36) = 1.67, and the score log 0.6 = -0.51.
"""

from __future__ import annotations

from bench.api import Batch, ConfidenceMethod, FloatArray, Needs, TokenScores, method
from methods._shared.tokens import mean_of


@method("perplexity")
class Perplexity(ConfidenceMethod):
    """Negative logarithm of the answer's perplexity, the mean log-probability of its tokens; learns nothing.

    By default `sequence-probability` ranks answers in the same order, but its values are probabilities.
    As in Fomicheva et al., 2020, "Unsupervised Quality Estimation for Neural Machine Translation". The
    end-of-sequence token is not counted, unlike in LM-Polygraph 0.7.0.
    """

    reference = "arXiv:2005.10608"
    needs = Needs(predict=frozenset({TokenScores()}))
    output = "score"

    def predict(self, batch: Batch) -> FloatArray:
        """Mean log-probability in nats, `(n,)` float64, at most 0."""
        return mean_of(batch, "log_probability")
