"""Dispersion of samples in their similarity graph: degrees, eccentricity, eigenvalues (docs/methods.md §2.23).

Example, with scores by the three methods: ten samples that all entail each other get 0, 0 and -1. Ten samples of which
none entails another get -0.9, -3 and -10.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bench.api import Batch, FloatArray, Needs, Related, method
from methods._shared.sampled import DIGITS, ENTAILS, SampledMethod


class _Graph(SampledMethod):
    reference = "arXiv:2305.19187"
    needs = Needs(predict=frozenset({Related(question=True)}))
    output = "score"

    def weights(self, batch: Batch) -> FloatArray:
        """`(n, N, N)` float64: weights of the graph's edges.

        A weight is the probability that two samples entail each other, as the mean of both directions.
        """
        related = batch[Related(question=True, samples=self.samples)]  # (n, N + 1, N + 1, 3): the answer is last
        entails = related[:, :-1, :-1, ENTAILS].astype(np.float64)
        return np.asarray((entails + entails.transpose(0, 2, 1)) / 2)

    def laplacian(self, batch: Batch) -> FloatArray:
        """`(n, N, N)`: normalised Laplacian I - D^(-1/2) W D^(-1/2) of the graph.

        W are the weights, and D is the diagonal matrix of their row sums.
        """
        weights = self.weights(batch)
        root = np.maximum(weights.sum(axis=-1), np.finfo(np.float64).tiny) ** -0.5
        return np.asarray(np.eye(self.n) - root[:, :, None] * weights * root[:, None, :])


@method("degree-matrix")
class DegreeMatrix(_Graph):
    """Mean similarity of two samples, minus 1 (Lin, Trivedi and Sun, 2023, "Generating with Confidence")."""

    def predict(self, batch: Batch) -> FloatArray:
        """Mean similarity of two samples, minus 1: `(n,)` float64 within [-1, 0]."""
        return np.asarray(self.weights(batch).mean(axis=(1, 2)) - 1).round(DIGITS)


@method("eccentricity")
@dataclass(kw_only=True, eq=False)
class Eccentricity(_Graph):
    """Negative distance of samples from their centre, in the eigenvectors of small eigenvalues (Lin et al., 2023)."""

    threshold: float = 0.9
    """Only eigenvectors whose eigenvalue is below this are used. Official code of arXiv:2305.19187, and LM-Polygraph
    0.7.0."""

    def predict(self, batch: Batch) -> FloatArray:
        """Negative distance of samples from their centre, `(n,)` float64, at most 0."""
        values, vectors = np.linalg.eigh(self.laplacian(batch))
        centred = vectors - vectors.mean(axis=1, keepdims=True)
        selected = np.where(values[:, None, :] < self.threshold, centred, 0.0)
        return np.asarray(-np.linalg.norm(selected, axis=(1, 2)).round(DIGITS))


@method("eigenvalues")
class Eigenvalues(_Graph):
    """Negative sum of max(0, 1 - eigenvalue), which is minus a continuous number of clusters (Lin et al., 2023)."""

    def predict(self, batch: Batch) -> FloatArray:
        """Negative number of clusters, `(n,)` float64, at most 0; -1 where all samples say the same."""
        values = np.linalg.eigvalsh(self.laplacian(batch))
        return np.asarray(-np.maximum(0.0, 1.0 - values).sum(axis=-1).round(DIGITS))
