"""Self-consistency: share of samples that agree with the greedy answer (Wang et al., 2022; docs/methods.md §2.14).

Example: of ten samples "b b a b b b c b b b" eight agree with the greedy answer "b": confidence 0.8.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bench.api import Batch, ConfidenceMethod, FloatArray, Needs, Preset, SampleAgreement, method


@method("self-consistency")
@dataclass(kw_only=True, eq=False)
class SelfConsistency(ConfidenceMethod):
    """Share of N sampled answers that say the same as the greedy answer; a multiple of 1/N.

    The paper, arXiv:2505.21772, reports results only and names none of the constants (docs/methods.md §6 #62).
    """

    reference = "arXiv:2203.11171"
    presets: ClassVar[Mapping[str, Preset]] = {"paper": {}, "refcode": {}, "fixed": {}, "demo": {}}
    not_reproduced: ClassVar[Mapping[str, Sequence[str]]] = {
        "refcode": (
            "There is no official code of self-consistency: these are the values of `paper`, which names none.",
        )
    }

    n: int = 10
    """Number of samples per question. CHOSEN: as in the related baseline of Kapoor et al. (docs/methods.md §2.14)."""
    temperature: float = 1.0
    """Sampling temperature. CHOSEN: 1, the model's own distribution (docs/methods.md §0.8)."""
    top_p: float = 1.0
    """Probability mass of nucleus sampling. CHOSEN: all of it (docs/methods.md §0.8); Kapoor et al. use 0.95."""

    needs = Needs(predict=frozenset({SampleAgreement(n, temperature, top_p)}))

    def reads(self) -> Needs:
        """Signals to read: agreement of samples with the method's `n`, `temperature` and `top_p`."""
        return Needs(predict=frozenset({SampleAgreement(self.n, self.temperature, self.top_p)}))

    def predict(self, batch: Batch) -> FloatArray:
        """Share of samples that agree with the greedy answer, `(n,)`."""
        agreement = batch[SampleAgreement(self.n, self.temperature, self.top_p)]  # (n, N) bool
        return np.asarray(agreement.mean(axis=1), dtype=np.float64)
