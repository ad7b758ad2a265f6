"""EigenScore: spread of the hidden states at the ends of samples (Chen et al., 2024; docs/methods.md §2.25).

Example: if all samples end in the same hidden state, one eigenvalue is above alpha, and the score is high.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bench.api import At, Batch, FloatArray, Hidden, Needs, UserError, method
from methods._shared.sampled import SampledMethod

_LEAST = 1e-10  # lower bound of eigenvalues, which rounding may make negative; as in LM-Polygraph


@method("eigenscore")
@dataclass(kw_only=True, eq=False)
class EigenScore(SampledMethod):
    """Negative mean log-eigenvalue of the covariance of the samples' end states, in the middle layer; learns nothing.

    The paper is "INSIDE: LLMs' Internal States Retain the Power of Hallucination Detection"; its clipping of features
    during generation is left out. The value equals that of LM-Polygraph 0.7.0. Each state is centred by its mean over
    dimensions, as in the paper's formula, and the products of states are not divided by the number of samples.
    """

    reference = "arXiv:2402.03744"
    needs = Needs(predict=frozenset({Hidden(0.5, At.SAMPLE_END)}))
    output = "score"

    alpha: float = 0.001
    """Number added to each eigenvalue. arXiv:2402.03744 and LM-Polygraph 0.7.0."""

    def predict(self, batch: Batch) -> FloatArray:
        """Negative mean log-eigenvalue of the covariance of samples' end states, `(n,)` float64."""
        if not self.alpha > 0:
            raise UserError(f"eigenscore.alpha: expected a positive number, got {self.alpha}")
        states = batch[Hidden(0.5, At.SAMPLE_END, samples=self.samples)].astype(np.float64)  # (n, N, d)
        centred = states - states.mean(axis=-1, keepdims=True)
        covariance = centred @ centred.transpose(0, 2, 1) + self.alpha * np.eye(self.n)
        return np.asarray(-np.log(np.maximum(np.linalg.eigvalsh(covariance), _LEAST)).mean(axis=-1))
