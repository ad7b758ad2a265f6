"""Overconfidence: by how much the mean confidence exceeds the share of right answers, with an interval.

Example: `overconfidence_of(confidence, correct, subjects).interval.low` is above 0 if answers are right less often than
the confidences say, beyond chance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bench.api import BoolArray, FloatArray
from bench.stats.intervals import TINY, Interval, Sampling, quantile
from bench.stats.strata import strata_of

NOT_SHOWN, TOO_FEW = "not shown", "too few to tell"


@dataclass(frozen=True)
class Overconfidence:
    """Mean confidence of n answers, share of right ones, and the interval of their difference."""

    n: int
    confidence: float
    accuracy: float
    interval: Interval
    """Interval of `value` for other questions of the same subjects, or the reason why there is none."""
    distinct: int
    """Number of distinct confidences."""

    @property
    def value(self) -> float:
        """Mean confidence minus share of right answers; positive where answers are right less often than is said."""
        return self.confidence - self.accuracy

    @property
    def least(self) -> float:
        """Distance from 0 of the nearer end of the interval; 0 without an interval, or if it contains 0."""
        low, high = self.interval.ends or (0.0, 0.0)
        return max(low, -high, 0.0)

    @property
    def word(self) -> str:
        """The verdict: `overconfident`, `underconfident` or, if the interval contains 0, `not shown`."""
        if self.interval.ends is None:
            return TOO_FEW
        return NOT_SHOWN if not self.least else "overconfident" if self.value > 0 else "underconfident"


def overconfidence_of(
    confidence: FloatArray, correct: BoolArray, subjects: Sequence[str], level: float = 0.95
) -> Overconfidence:
    """Compute the overconfidence of n answers, at least one, with an interval by Student's t, stratified by subject."""
    gaps = confidence - correct
    value, sampling = float(gaps.mean()), Sampling.of(strata_of(subjects), correct, "questions")
    reason = sampling.no_interval_reason("brier")
    interval = Interval("fixed-subjects", reason=reason)
    if not reason:
        _, (error,), (freedom,) = sampling.standard_errors("brier", ((gaps - value) / gaps.size)[None])
        half = quantile(freedom, level) * max(TINY, float(error))
        interval = Interval("fixed-subjects", max(-1.0, value - half), min(1.0, value + half), level, "t")
    return Overconfidence(
        gaps.size, float(confidence.mean()), float(correct.mean()), interval, np.unique(confidence).size
    )
