"""CoCoA: uncertainty of the answer times its mean dissimilarity to the samples (docs/methods.md §2.27).

Example: an answer of probability 0.5 and mean similarity 0.8 to the samples scores ln 0.5 * 0.2 = -0.14.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from bench.api import Batch, FloatArray, Needs, Related, TokenScores, UserError, method
from methods._shared.sampled import SampledMethod
from methods._shared.tokens import mean_of


@method("cocoa")
@dataclass(kw_only=True, eq=False)
class CoCoA(SampledMethod):
    """Negative product of the answer's uncertainty and its mean dissimilarity to the samples; learns nothing.

    Vashurin et al., 2025, "A Minimum Bayes Risk Framework Bridging Confidence and Consistency". Values equal those
    of LM-Polygraph 0.7.0, except that the end-of-sequence token is not counted here.
    """

    reference = "arXiv:2502.04964"
    needs = Needs(predict=frozenset({TokenScores(), Related(by="similarity")}))
    output = "score"

    uncertainty: Literal["probability", "perplexity", "entropy"] = "probability"
    """Uncertainty of the answer: its negative log-probability, the same per token (`perplexity`), or the mean token
    entropy. CHOSEN: probability, the first of LM-Polygraph 0.7.0's three variants."""

    def predict(self, batch: Batch) -> FloatArray:
        """Negative product of uncertainty and mean dissimilarity, `(n,)` float64, at most 0."""
        if self.uncertainty not in {"probability", "perplexity", "entropy"}:
            raise UserError(f"cocoa.uncertainty: expected probability, perplexity or entropy, got {self.uncertainty!r}")
        uncertainty = mean_of(batch, "entropy") if self.uncertainty == "entropy" else -mean_of(batch, "log_probability")
        if self.uncertainty == "probability":
            uncertainty = uncertainty * batch[TokenScores()].lengths
        related = batch[Related(by="similarity", samples=self.samples)].astype(np.float64)
        similarity = (related[:, -1, :-1] + related[:, :-1, -1]) / 2  # (n, N): answer and samples, mean of both orders
        return np.asarray(-uncertainty * (1 - similarity).mean(axis=-1))
