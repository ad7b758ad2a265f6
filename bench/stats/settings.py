"""Settings of the statistics: average, level, numbers of draws, seed."""

from __future__ import annotations

from dataclasses import dataclass

from bench.api.protocol import ECE_BINS
from bench.metrics.summary import Average

__all__ = ["Average", "Settings"]


@dataclass(frozen=True)
class Settings:
    """Settings of the statistics; equal settings and answers give equal results."""

    average: Average = "questions"
    """Whether metrics are pooled over questions or averaged over subjects."""
    draws: int = 10_000
    """Number of normal draws for p values corrected by max-t; with 10,000 the smallest possible p value is 0.0001."""
    null_draws: int = 999
    """Number of label draws for a p value of calibration; with 999 the smallest possible p value is 0.001."""
    level: float = 0.95
    """Confidence level of all intervals; 1 - level is the significance level of ranks."""
    bins: int = ECE_BINS
    """Number of equal-width bins of the ECEs."""
    seed: int = 0
    """Seed of all random draws."""
