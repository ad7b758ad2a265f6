"""Sequence probability: the model's probability of its answer (Malinin and Gales, 2021; docs/methods.md §2.16).

Example: an answer of two tokens with probabilities 0.9 and 0.4 has the product 0.36, and length-normalised
sqrt(0.36) = 0.6.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bench.api import Batch, ConfidenceMethod, FloatArray, Needs, TokenScores, method


@method("sequence-probability")
@dataclass(kw_only=True, eq=False)
class SequenceProbability(ConfidenceMethod):
    """Geometric mean of the probabilities of the answer's tokens, exp(mean log p), or their product; learns nothing.

    The source is "Uncertainty Estimation in Autoregressive Structured Prediction" (ICLR 2021), which measures
    uncertainty by the log-probability over the length. The end-of-sequence token is not counted.
    """

    reference = "arXiv:2002.07650"
    needs = Needs(predict=frozenset({TokenScores()}))

    length_normalised: bool = True
    """Whether the geometric mean is taken, not the product, which falls with every token. CHOSEN: as in
    arXiv:2002.07650; answers of different lengths are then comparable."""

    def predict(self, batch: Batch) -> FloatArray:
        """Probability of the answer, shape (n,), float64."""
        scores = batch[TokenScores()]
        rows = np.repeat(np.arange(len(batch)), scores.lengths)
        sums = np.bincount(rows, weights=scores.values["log_probability"], minlength=len(batch))  # in float64
        return np.asarray(np.exp(sums / scores.lengths if self.length_normalised else sums))
