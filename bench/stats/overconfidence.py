"""Overconfidence: by how much the mean confidence exceeds the share of right answers, with an interval.

Example: `overconfidence_of(confidence, correct, subjects).interval.low` is above 0 if answers are right less often than
the confidences say, beyond chance.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bench.api import BoolArray, FloatArray
from bench.stats.guard import upper_bound
from bench.stats.intervals import MIN_RARER, NO_SPREAD, REL_TINY, TINY, Interval, Sampling, quantile
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
    """Compute the overconfidence of n answers, at least one, with an interval by Student's t, stratified by subject.

    Where fewer than MIN_RARER answers are right, or wrong, the interval is that of Clopper and Pearson (1934) for the
    share of right answers, widened by the error of the mean confidence (Zou and Donner, 2008).
    """
    gaps, sampling = confidence - correct, Sampling.of(strata_of(subjects), correct, "questions")
    value, reason = float(gaps.mean()), sampling.no_interval_reason("brier")
    n, right, means = gaps.size, int(correct.sum()), (float(confidence.mean()), float(correct.mean()))
    influences = np.stack([gaps - value, confidence - means[0]]) / n
    _, errors, freedom = sampling.standard_errors("brier", influences)
    half, spread = (quantile(df, level) * max(TINY, e) for df, e in zip(freedom.tolist(), errors.tolist(), strict=True))
    low, high, kind = value - half, value + half, "t"
    if reason and n >= 2 * MIN_RARER:  # hardly any right or wrong: the share's exact ends, and the mean's error (MOVER)
        least, most = 1 - upper_bound(n - right, n, (1 + level) / 2), upper_bound(right, n, (1 + level) / 2)
        low, high = value - np.hypot(spread, most - means[1]), value + np.hypot(spread, means[1] - least)
        reason, kind = "", "exact"
    elif not reason and errors[0] <= max(TINY, REL_TINY * abs(value)) < abs(value):
        reason = NO_SPREAD
    interval = Interval("fixed-subjects", max(-1.0, float(low)), min(1.0, float(high)), level, kind)
    interval = Interval("fixed-subjects", reason=reason) if reason else interval
    return Overconfidence(n, np.unique(confidence).size, *means, value, interval)
