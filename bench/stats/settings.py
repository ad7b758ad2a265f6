"""The numbers by which statistics are made, in one frozen dataclass."""

from __future__ import annotations

from dataclasses import dataclass

from bench.api.protocol import ECE_BINS
from bench.metrics.summary import Average

__all__ = ["Average", "Settings"]


@dataclass(frozen=True)
class Settings:
    """The same settings and answers give the same numbers."""

    average: Average = "questions"
    """What metrics are of."""
    draws: int = 10_000
    """Normal draws behind p values that are corrected for all pairs; the smallest of several pairs is then 0.0001."""
    null_draws: int = 999
    """Label draws behind a p value of calibration, whose smallest value is then 0.001."""
    level: float = 0.95
    """Level of confidence of all intervals; 1 - level is the level of significance of ranks."""
    bins: int = ECE_BINS
    """Equal-width bins of the ECEs."""
    seed: int = 0
    """Seed of all draws."""
