"""Scores without a scale -> probabilities, by one rule for all: a logistic fit on the score's normal quantile.

Only the order of scores counts: whatever strictly rising function they go through, the probabilities stay the same to
the last bit. Example: `Scale.fit(score, correct).apply(score_on_test)`.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist
from typing import Self

import numpy as np
import numpy.typing as npt

from bench.api import FloatArray
from bench.metrics.recalibration import fit_logistic, rising, sigmoid, smoothed


@dataclass(frozen=True, eq=False)
class Scale:
    """Map p = sigmoid(slope * z + level) of a score, z being its normal quantile among n labelled ones.

    A score with a labelled ones below it and b below or equal to it has z = Phi^-1((a + b) / 2n): (rank - 1/2) / n with
    mid-ranks for ties. So a labelled score has its own place, and one between two labelled ones is half-way between
    their places; one below or above all of them is at 1/4n or 1 - 1/4n, half-way from the outermost place to the edge.

    Labels are smoothed as by Platt (1999), so that the fit is finite where the score separates right from wrong. The
    slope is never negative: a score that orders answers the wrong way round is not turned round, which its method
    would have to do, but says nothing; then, as where all labelled scores are equal, p is a constant.
    """

    labelled: FloatArray
    """(n,), ascending."""
    slope: float
    level: float

    @classmethod
    def fit(cls, score: npt.ArrayLike, correct: npt.ArrayLike) -> Self:
        """Learn the map from n labelled scores.

        Args:
            score: shape (n,), finite.
            correct: shape (n,), bool; of one class only, the map is almost constant.

        Raises:
            ValueError: none, NaN, or unequal lengths.
        """
        s, o = np.asarray(score, dtype=np.float64), np.asarray(correct, dtype=np.bool_)
        if not s.size or s.shape != o.shape or np.isnan(s).any():
            raise ValueError(f"expected labelled scores without NaN, at least one, got {s.shape} and {o.shape}")
        unfitted = cls(np.sort(s), 0.0, 0.0)
        slope, level = fit_logistic(_normal(unfitted.shares(s))[:, None], smoothed(o)).tolist()
        return cls(unfitted.labelled, slope, level)

    def shares(self, score: FloatArray) -> FloatArray:
        """Shares (m,) of the labelled scores that lie below each of these, inside (0, 1)."""
        n = self.labelled.size
        below, upto = (np.searchsorted(self.labelled, score, side=side) for side in ("left", "right"))
        inside: FloatArray = np.clip((below + upto) / (2 * n), 1 / (4 * n), 1 - 1 / (4 * n))
        return inside

    def apply(self, score: npt.ArrayLike) -> FloatArray:
        """Probabilities (m,) within [0, 1] that never fall as the score (m,) rises.

        >>> scale = Scale.fit([1.0, 2.0, 3.0, 4.0], [False, False, True, True])
        >>> scale.apply([0.0, 2.5, 9.0]).round(3).tolist()
        [0.142, 0.5, 0.858]
        """
        shares = self.shares(np.asarray(score, dtype=np.float64))
        return rising(shares, lambda u: sigmoid(self.slope * _normal(u) + self.level))


def _normal(share: FloatArray) -> FloatArray:
    """Quantiles of the normal distribution; shares inside (0, 1)."""
    values, place = np.unique(share, return_inverse=True)
    quantile = NormalDist().inv_cdf
    return np.array([quantile(value) for value in values.tolist()])[place]
