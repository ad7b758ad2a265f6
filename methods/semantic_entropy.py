"""Semantic entropy: entropy over the distinct meanings of the samples (docs/methods.md §2.22).

Example: of ten samples eight mean "b" and two mean "c": entropy -(0.8 ln 0.8 + 0.2 ln 0.2) = 0.50, score -0.50.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from bench.api import Batch, FloatArray, Needs, Related, Samples, UserError, method
from methods._shared.meaning import group_by_meaning
from methods._shared.sampled import DIGITS, SampledMethod, sample_log_probabilities


@method("semantic-entropy")
@dataclass(kw_only=True, eq=False)
class SemanticEntropy(SampledMethod):
    """Negative entropy of the samples' meanings; samples that entail each other have one meaning; learns nothing.

    Kuhn, Gal and Farquhar, 2023, "Semantic Uncertainty"; the weighting `count` is the discrete variant of Farquhar et
    al., 2024, doi:10.1038/s41586-024-07421-0. With both weightings values are those of LM-Polygraph 0.7.0, but for two
    differences. The question precedes each text, as in Farquhar's code, and the end-of-sequence token is not counted.
    """

    reference = "arXiv:2302.09664"
    needs = Needs(predict=frozenset({Related(question=True), Samples()}))
    output = "score"

    weighting: Literal["count", "likelihood"] = "count"
    """Weight of a meaning: the share of samples that have it, or the sum of their probabilities. CHOSEN: count, for
    which Farquhar's code and LM-Polygraph give the same value."""

    def predict(self, batch: Batch) -> FloatArray:
        """Negative entropy in nats, `(n,)` float64; above 0 only if the samples' probabilities sum to more than 1."""
        if self.weighting not in {"count", "likelihood"}:
            raise UserError(f"semantic-entropy.weighting: expected count or likelihood, got {self.weighting!r}")
        related = batch[Related(question=True, samples=self.samples)][:, :-1, :-1]  # the last text is the answer
        weights = np.full((len(batch), self.n), -math.log(self.n))
        if self.weighting == "likelihood":
            weights = sample_log_probabilities(batch, self.samples)
        groups = group_by_meaning(related)
        same_meaning = np.where(groups[:, :, None] == groups[:, None, :], weights[:, None, :], -np.inf)  # (n, N, N)
        return np.asarray(np.logaddexp.reduce(same_meaning, axis=2).mean(axis=1).round(DIGITS))
