"""Self-certainty: divergence of the answer's token distributions from uniform (docs/methods.md §2.21).

Example: over four tokens, probabilities 0.7, 0.1, 0.1 and 0.1 are 0.43 nats from uniform.
"""

from __future__ import annotations

from bench.api import Batch, ConfidenceMethod, FloatArray, Needs, TokenScores, method
from methods._shared.tokens import mean_over_tokens


@method("self-certainty")
class SelfCertainty(ConfidenceMethod):
    """Mean over the answer's tokens of the divergence from the uniform distribution, KL(uniform || model).

    Kang, Zhao and Song, 2025, "Scalable Best-of-N Selection for Large Language Models via Self-Certainty". It learns
    nothing. The end-of-sequence token is not counted, unlike in LM-Polygraph 0.7.0.
    """

    reference = "arXiv:2502.18581"
    needs = Needs(predict=frozenset({TokenScores(divergence=True)}))
    output = "score"

    def predict(self, batch: Batch) -> FloatArray:
        """Mean divergence in nats, `(n,)` float64, at least 0 but for rounding."""
        scores = batch[TokenScores(divergence=True)]
        return mean_over_tokens(scores, scores.values["divergence"])
