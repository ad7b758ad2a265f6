"""Sentence SAR: probabilities of samples, plus a share of those of similar samples (docs/methods.md §2.24).

Example: two samples of probability 0.5 and similarity 0.2 score log(0.5 + 0.5 * 0.2 / 0.001) = 4.61.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bench.api import Batch, FloatArray, Needs, Related, Samples, UserError, method
from methods._shared.sampled import SampledMethod, sample_log_probabilities


@method("sentence-sar")
@dataclass(kw_only=True, eq=False)
class SentenceSAR(SampledMethod):
    """Mean log of the samples' probabilities, to each of which similar samples add theirs; learns nothing.

    The sentence level of Duan et al., 2023, "Shifting Attention to Relevance". The value is that of LM-Polygraph 0.7.0,
    except that the end-of-sequence token is not counted. The token level of SAR is left out.
    """

    reference = "arXiv:2307.01379"
    needs = Needs(predict=frozenset({Related(by="similarity"), Samples()}))
    output = "score"

    t: float = 0.001
    """Temperature t, by which the probabilities of similar samples are divided before they are added. arXiv:2307.01379
    and LM-Polygraph 0.7.0."""

    def predict(self, batch: Batch) -> FloatArray:
        """Mean over samples i of log(p_i + sum of s_ij p_j / t), `(n,)` float64; p: probabilities, s: similarities."""
        if not self.t > 0:
            raise UserError(f"sentence-sar.t: expected a positive number, got {self.t}")
        similarity = batch[Related(by="similarity", samples=self.samples)][:, :-1, :-1].astype(np.float64)
        weights = np.where(np.eye(self.n, dtype=bool), 1.0, similarity / self.t)
        with np.errstate(divide="ignore"):  # a similarity of 0 adds nothing
            logs = np.log(weights) + sample_log_probabilities(batch, self.samples)[:, None, :]
        return np.asarray(np.logaddexp.reduce(logs, axis=-1).mean(axis=-1))
