"""Overconfidence: by how much the mean confidence exceeds the share of right answers, with an interval.

Example: `overconfidence_of(confidence, correct, subjects).interval.low` is above 0 if answers are right less often than
the confidences say, beyond chance.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bench.api import BoolArray, FloatArray
from bench.stats.intervals import TINY, Interval, Sampling, quantile
from bench.stats.strata import strata_of

OVER, UNDER, NOT_SHOWN, TOO_FEW = "overconfident", "underconfident", "not shown", "too few to tell"


class Overconfidence(NamedTuple):
    """Mean confidence of n answers, share of right ones, and the interval of their difference."""

    n: int
    distinct: int
    """Number of distinct confidences."""
    confidence: float
    accuracy: float
    value: float
    """Mean confidence minus share of right answers; positive where answers are right less often than is said."""
    interval: Interval
    """Interval of `value` for other questions of the same subjects, or the reason why there is none."""

    @property
    def least(self) -> float:
        """Distance from 0 of the nearer end of the interval; 0 without an interval, or if it contains 0."""
        low, high = self.interval.ends or (0.0, 0.0)
        return max(low, -high, 0.0)

    @property
    def word(self) -> str:
        """What is shown, in words: `OVER`, `UNDER`, `NOT_SHOWN`, or `TOO_FEW` without an interval."""
        shown = (OVER if self.value > 0 else UNDER) if self.least else NOT_SHOWN
        return shown if self.interval.ends else TOO_FEW


def overconfidence_of(
    confidence: FloatArray, correct: BoolArray, subjects: Sequence[str], level: float = 0.95
) -> Overconfidence:
    """Compute the overconfidence of n answers, at least one, with an interval by Student's t, stratified by subject."""
    gaps, sampling = confidence - correct, Sampling.of(strata_of(subjects), correct, "questions")
    value, reason = float(gaps.mean()), sampling.no_interval_reason("brier")
    _, (error,), (freedom,) = sampling.standard_errors("brier", ((gaps - value) / gaps.size)[None])
    half = quantile(freedom, level) * max(TINY, float(error))
    interval = Interval("fixed-subjects", max(-1.0, value - half), min(1.0, value + half), level, "t")
    interval = Interval("fixed-subjects", reason=reason) if reason else interval
    means = float(confidence.mean()), float(correct.mean())
    return Overconfidence(gaps.size, np.unique(confidence).size, *means, value, interval)
