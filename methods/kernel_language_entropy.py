"""Kernel language entropy: von Neumann entropy of a kernel on the graph of samples (docs/methods.md §2.29).

Example: ten samples that all entail each other score 0, ten that contradict each other -1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from bench.api import Batch, FloatArray, Format, Needs, Related, RunFacts, UserError, method
from methods._shared.meaning import group_by_meaning
from methods._shared.sampled import DIGITS, SampledMethod

_CONTRADICTS, _ENTAILS = 0, 2
_SAMPLES = 10
"""Samples for which the paper's `t` is meant."""


@method("kernel-language-entropy")
@dataclass(kw_only=True, eq=False)
class KernelLanguageEntropy(SampledMethod):
    """Negative entropy of how alike the samples' meanings are, which near-equal meanings raise little; learns nothing.

    Nikitin et al., 2024, "Kernel Language Entropy". Entailment is the one that `semantic-entropy` reads.
    """

    reference = "arXiv:2405.20003"
    needs = Needs(predict=frozenset({Related(question=True)}))
    output = "score"

    kernel: Literal["heat", "matern", "full"] = "heat"
    """Kernel on the graph: heat, Matern with nu = kappa = 1, or the mean of heat and the one of groups with one meaning
    (K_FULL). arXiv:2405.20003 has all three; heat alone is LM-Polygraph 0.7.0's."""
    t: float = 0.3
    """Time of the heat kernel with ten samples; with N it is 10 t / N, without which the entropy of equal answers would
    be 0.78 of its maximum at two samples. arXiv:2405.20003, App. C, and LM-Polygraph 0.7.0."""
    edges: Literal["likeliest", "shares"] = "shares"
    """Weight of an edge in each direction: 1 for entailment and 1/2 for neutrality, if it is the likeliest class, or in
    proportion to the classes' probabilities. arXiv:2405.20003: likeliest. CHOSEN: shares, as in LM-Polygraph 0.7.0,
    since they tell more samples apart."""

    def skip(self, facts: RunFacts) -> str | None:
        """Letters are refused: they are equal or not, so the score is a function of the votes."""
        return (
            None
            if facts.format is Format.OPEN
            else ("letters are equal or not, so it depends on the samples' votes alone, as semantic-entropy does")
        )

    def predict(self, batch: Batch) -> FloatArray:
        """Negative entropy, `(n,)` float64: 0 if all samples entail each other, -1 if all contradict each other."""
        if self.kernel not in {"heat", "matern", "full"} or self.edges not in {"likeliest", "shares"}:
            raise UserError(
                "kernel-language-entropy: expected kernel=heat, matern or full and edges=likeliest or shares, got"
                f" {self.kernel!r} and {self.edges!r}"
            )
        if self.n < 2 or not self.t > 0:
            raise UserError(
                f"kernel-language-entropy: expected n of at least 2 and t above 0, got {self.n} and {self.t}"
            )
        related = batch[Related(question=True, samples=self.samples)][:, :-1, :-1].astype(np.float64)
        groups = group_by_meaning(related)
        if self.edges == "likeliest":
            related = np.eye(3)[related.argmax(axis=-1)]
        one_way = related[..., _ENTAILS] + (1 - related[..., _ENTAILS] - related[..., _CONTRADICTS]) / 2
        same = (groups[:, :, None] == groups[:, None, :]) / self.n
        entropy = self._entropy(one_way + one_way.transpose(0, 2, 1), same)
        equal = np.ones((1, self.n, self.n))
        least, most = self._entropy(2 * equal, equal / self.n), np.log(self.n)
        return np.asarray(-((entropy - least) / (most - least)).round(DIGITS)) + 0.0

    def _entropy(self, weights: FloatArray, same: FloatArray) -> FloatArray:
        """Entropy `(n,)` of the kernel on graphs with edges `(n, N, N)`; `same` is the kernel of groups."""
        chosen = graph_kernel(weights, None if self.kernel == "matern" else self.t * _SAMPLES / self.n)
        return von_neumann((chosen + same) / 2 if self.kernel == "full" else chosen)


def graph_kernel(weights: FloatArray, t: float | None) -> FloatArray:
    """Return the kernel `(n, N, N)` of graphs with unit trace and equal diagonal.

    Args:
        weights: `(n, N, N)` symmetric weights of edges; the diagonal has no effect.
        t: time of the heat kernel exp(-t L); None for the Matern kernel 1 / (2 + L). L is the Laplacian.
    """
    off = weights * (1 - np.eye(weights.shape[-1]))
    values, vectors = np.linalg.eigh(off.sum(axis=-1)[:, :, None] * np.eye(weights.shape[-1]) - off)
    spread = 1 / (2 + values) if t is None else np.exp(-t * values)
    kernel = (vectors * spread[:, None, :]) @ vectors.transpose(0, 2, 1)
    root = np.sqrt(np.diagonal(kernel, axis1=1, axis2=2))
    return np.asarray(kernel / root[:, :, None] / root[:, None, :] / weights.shape[-1])


def von_neumann(kernel: FloatArray) -> FloatArray:
    """Return the entropy -Tr K log K in nats, `(n,)`, of kernels `(n, N, N)` with unit trace."""
    values = np.maximum(np.linalg.eigvalsh(kernel), 0.0)
    return np.asarray(-(values * np.log(np.where(values > 0, values, 1.0))).sum(axis=-1))
