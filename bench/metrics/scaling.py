"""Scale scores to probabilities: logistic regression on the normal quantile of a score's rank.

Only the order of scores counts: probabilities are invariant, bit by bit, under strictly increasing transforms.
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

    z is the normal quantile of the score's rank among the labelled scores. With a of them below the score, and b below
    or equal to it, z = Phi^-1((a + b) / 2n), Phi being the normal distribution function; for a labelled score, the
    quantile level (a + b) / 2n is (rank - 1/2) / n with mid-ranks for ties. A score between two labelled ones is
    half-way between their levels; a score below or above all labelled ones has the level 1/4n or 1 - 1/4n.

    Labels are smoothed as by Platt (1999), so that the fit is finite where the score separates right from wrong. The
    slope is never negative: a score that is higher for wrong answers is not reversed, as that is up to its method. In
    that case, and where all labelled scores are equal, p is a constant.
    """

    labelled: FloatArray
    """Labelled scores (n,), ascending."""
    slope: float
    level: float

    @classmethod
    def fit(cls, score: npt.ArrayLike, correct: npt.ArrayLike) -> Self:
        """Learn the map from n labelled scores.

        Args:
            score: shape (n,), finite.
            correct: shape (n,), bool; with one class the map is almost constant.

        Raises:
            ValueError: no score, NaN, or unequal lengths.
        """
        s, o = np.asarray(score, dtype=np.float64), np.asarray(correct, dtype=np.bool_)
        if not s.size or s.shape != o.shape or np.isnan(s).any():
            raise ValueError(f"expected labelled scores without NaN, at least one, got {s.shape} and {o.shape}")
        unfitted = cls(np.sort(s), 0.0, 0.0)
        slope, level = fit_logistic(_normal_quantile(unfitted.shares(s))[:, None], smooth_labels(o)).tolist()
        return cls(unfitted.labelled, slope, level)

    def shares(self, score: FloatArray) -> FloatArray:
        """Return the quantile level, in (0, 1), of each of m scores among the labelled ones."""
        n = self.labelled.size
        below, up_to = (np.searchsorted(self.labelled, score, side=side) for side in ("left", "right"))
        clipped: FloatArray = np.clip((below + up_to) / (2 * n), 1 / (4 * n), 1 - 1 / (4 * n))
        return clipped

    def apply(self, score: npt.ArrayLike) -> FloatArray:
        """Return the probability of each of m scores, in [0, 1]; a higher score has no lower probability.

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
