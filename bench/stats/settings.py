"""The numbers by which statistics are made, in one frozen dataclass."""

from __future__ import annotations

from dataclasses import dataclass

from bench.api.protocol import ECE_BINS


@dataclass(frozen=True)
class Settings:
    """The same settings and answers give the same numbers."""

    replicates: int = 1000
    """Bootstrap resamples."""
    null_draws: int = 999
    """Label draws behind a p value of calibration, whose smallest value is then 0.001."""
    model_draws: int = 200
    """Label draws for each size of true gaps that is tried for the debiased calibration error."""
    level: float = 0.95
    """Level of confidence of all intervals; 1 - level is the level of significance of ranks."""
    bins: int = ECE_BINS
    """Equal-width bins of the ECEs."""
    seed: int = 0
    """Seed of resamples and label draws."""
