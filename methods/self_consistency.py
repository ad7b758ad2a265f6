"""Self-consistency: the share of sampled answers that agree with the greedy one (Wang et al., 2022; methods.md §2.14).

Example: of ten samples "b b a b b b c b b b" eight agree with the greedy answer "b": confidence 0.8.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import ClassVar

import numpy as np

from bench.api import Batch, ConfidenceMethod, FloatArray, Needs, SampleAgreement, method


@dataclass(frozen=True)
class Settings:
    """Constants; the paper reports results only and names none of them (methods.md §6 #62)."""

    n: int = 10
    """Samples of a question. CHOSEN: as the related baseline of Kapoor et al. (methods.md §2.14)."""
    temperature: float = 1.0
    """Divides the logits. CHOSEN: the model's own distribution (methods.md §0.8)."""
    top_p: float = 1.0
    """Probability mass that is kept. CHOSEN: all of it (methods.md §0.8); Kapoor et al. use 0.95."""


PAPER = Settings()
REFCODE = PAPER  # the official code has no self-consistency
FIXED = PAPER
DEMO = replace(FIXED)


@method("self-consistency")
class SelfConsistency(ConfidenceMethod):
    """Share of N sampled answers that say the same as the greedy answer; a multiple of 1/N."""

    reference = "arXiv:2203.11171"
    needs = Needs(predict=frozenset({SampleAgreement(FIXED.n, FIXED.temperature, FIXED.top_p)}))
    presets: ClassVar = {
        "paper": asdict(PAPER), "refcode": asdict(REFCODE), "fixed": asdict(FIXED), "demo": asdict(DEMO)
    }  # fmt: skip
    not_reproduced: ClassVar = {
        "refcode": (
            "There is no official code of self-consistency: these are the values of `paper`, which names none.",
        )
    }

    def __init__(self, n: int = FIXED.n, temperature: float = FIXED.temperature, top_p: float = FIXED.top_p) -> None:
        self.n = n
        self.temperature = temperature
        self.top_p = top_p

    def reads(self) -> Needs:
        """The samples that the arguments ask for."""
        return Needs(predict=frozenset({SampleAgreement(self.n, self.temperature, self.top_p)}))

    def predict(self, batch: Batch) -> FloatArray:
        """Share of agreeing samples, shape (n,)."""
        agreement = batch[SampleAgreement(self.n, self.temperature, self.top_p)]  # (n, N) bool
        return np.asarray(agreement.mean(axis=1), dtype=np.float64)
