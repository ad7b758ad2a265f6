"""Scaling of scores to probabilities: logistic regression on the normal quantile of a score's rank.

Only the order of scores counts: a strictly increasing transform of the scores changes no bit of the probabilities.
Example: `Scale.fit(score, correct).apply(score_on_test)`.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist
from typing import Self

import numpy as np
import numpy.typing as npt

from bench.api import FloatArray
from bench.metrics.recalibration import apply_monotone, fit_logistic, sigmoid, smooth_labels


@dataclass(frozen=True, eq=False)
class Scale:
    """Map from a score to a probability p = sigmoid(slope * z + level), learned from n labelled scores.

    z is the normal quantile of the score's rank among the labelled scores: z = Phi^-1((a + b) / 2n). Phi is the normal
    distribution function, a the number of labelled scores below the score, and b the number below or equal to it. For a
    labelled score, the quantile level (a + b) / 2n is (rank - 1/2) / n, with mid-ranks for ties. A score between two
    labelled scores is half-way between their levels if neither of them is tied. A score below or above all labelled
    scores has the level 1/4n or 1 - 1/4n.

    Labels are smoothed as by Platt (1999), so that the fit is finite even if the score separates right from wrong. The
    slope is never negative: if wrong answers have the higher scores, the slope is 0 and p is a constant. p is also a
    constant if all labelled scores are equal.
    """

    labelled: FloatArray
    """The labelled scores on which the map was fitted, (n,), ascending."""
    slope: float
    level: float

    @classmethod
    def fit(cls, score: npt.ArrayLike, correct: npt.ArrayLike) -> Self:
        """Learn the map from n labelled scores.

        Args:
            score: shape (n,), finite.
            correct: shape (n,), bool; if all are equal, the map is almost constant.

        Raises:
            ValueError: there is no score, a score is NaN, or lengths differ.
        """
        s, o = np.asarray(score, dtype=np.float64), np.asarray(correct, dtype=np.bool_)
        if not s.size or s.shape != o.shape or np.isnan(s).any():
            raise ValueError(f"expected labelled scores without NaN, at least one, got {s.shape} and {o.shape}")
        unfitted = cls(np.sort(s), 0.0, 0.0)
        slope, level = fit_logistic(_normal_quantile(unfitted.shares(s))[:, None], smooth_labels(o)).tolist()
        return cls(unfitted.labelled, slope, level)

    def shares(self, score: FloatArray) -> FloatArray:
        """Return the quantile level, in (0, 1), of each of m scores by its rank among the labelled scores."""
        n = self.labelled.size
        below, up_to = (np.searchsorted(self.labelled, score, side=side) for side in ("left", "right"))
        clipped: FloatArray = np.clip((below + up_to) / (2 * n), 1 / (4 * n), 1 - 1 / (4 * n))
        return clipped

    def apply(self, score: npt.ArrayLike) -> FloatArray:
        """Return the probability, in [0, 1], of each of m scores; probabilities never fall as scores rise.

        >>> scale = Scale.fit([1.0, 2.0, 3.0, 4.0], [False, False, True, True])
        >>> scale.apply([0.0, 2.5, 9.0]).round(3).tolist()
        [0.142, 0.5, 0.858]
        """
        shares = self.shares(np.asarray(score, dtype=np.float64))
        return apply_monotone(shares, lambda u: sigmoid(self.slope * _normal_quantile(u) + self.level))


def _normal_quantile(share: FloatArray) -> FloatArray:
    """Return the quantile of the standard normal distribution at each level in (0, 1)."""
    values, inverse = np.unique(share, return_inverse=True)
    quantile = NormalDist().inv_cdf
    return np.array([quantile(value) for value in values.tolist()])[inverse]
