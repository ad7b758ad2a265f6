"""Mean token entropy: average uncertainty about the next token over the answer (docs/methods.md §2.19).

Example: two tokens, one from a fair coin and one certain, have entropies ln 2 and 0: score -0.35.
"""

from __future__ import annotations

import numpy as np

from bench.api import Batch, ConfidenceMethod, FloatArray, Needs, TokenScores, method
from methods._shared.tokens import mean_of


@method("mean-token-entropy")
class MeanTokenEntropy(ConfidenceMethod):
    """Negative mean of the entropies of the distributions that the answer's tokens came from; learns nothing.

    As in Fomicheva et al., 2020, "Unsupervised Quality Estimation for Neural Machine Translation". The
    end-of-sequence token is not counted, unlike in LM-Polygraph 0.7.0.
    """

    reference = "arXiv:2005.10608"
    needs = Needs(predict=frozenset({TokenScores()}))
    output = "score"

    def predict(self, batch: Batch) -> FloatArray:
        """Negative mean entropy in nats, `(n,)` float64, at most 0."""
        return np.asarray(-mean_of(batch, "entropy"))
