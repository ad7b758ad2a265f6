"""Settings of the statistics: how metrics are averaged, level, numbers of draws, bins, seed."""

from __future__ import annotations

from dataclasses import dataclass

from bench.api.protocol import ECE_BINS
from bench.metrics.summary import Average

__all__ = ["Average", "Settings"]


@dataclass(frozen=True)
class Settings:
    """Settings of the statistics. Equal settings and equal answers give equal results."""

    average: Average = "questions"
    """Whether metrics are pooled over questions or averaged over subjects."""
    draws: int = 10_000
    """Number of normal draws for the max-t correction of p values; 10,000 draws give p values down to 0.0001."""
    null_draws: int = 999
    """Number of draws of labels in the test of calibration; 999 draws give p values down to 0.001."""
    level: float = 0.95
    """Confidence level of all intervals; 1 - level is the significance level of ranks."""
    bins: int = ECE_BINS
    """Number of equal-width bins of every ECE."""
    seed: int = 0
    """Seed of all random draws of the statistics."""
