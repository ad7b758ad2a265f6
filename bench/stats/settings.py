"""The numbers by which statistics are made, in one frozen dataclass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bench.api.protocol import ECE_BINS

Average = Literal["questions", "subjects"]
"""Metrics are of all questions at once, or means over subjects, each of which counts alike."""


@dataclass(frozen=True)
class Settings:
    """The same settings and answers give the same numbers."""

    average: Average = "questions"
    """What metrics are of."""
    draws: int = 10_000
    """Normal draws behind p values that are corrected for all pairs; the smallest possible one is then 0.0001."""
    null_draws: int = 999
    """Label draws behind a p value of calibration, whose smallest value is then 0.001."""
    level: float = 0.95
    """Level of confidence of all intervals; 1 - level is the level of significance of ranks."""
    bins: int = ECE_BINS
    """Equal-width bins of the ECEs."""
    seed: int = 0
    """Seed of all draws."""
