"""How sure a comparison can be: intervals that name their estimand, paired tests, ranks, tests of calibration.

Pure numpy functions of confidences and correctness, question by question, and of one subject name for each. Example:
`summary({"ccps": p, "litcab": q}, correct, subjects).comparisons["brier"][0].p_holm`.
"""

from bench.stats.calibration import CalibrationError, calibrated_p, calibration_error
from bench.stats.comparison import LOSSES, Comparison, compare, holm, ranks
from bench.stats.intervals import (
    MIN_CLUSTERS,
    Estimand,
    Interval,
    NoInterval,
    basic_interval,
    clustered_interval,
    mean_interval,
)
from bench.stats.resampling import RESAMPLED, Resampled, losses, resample, resample_counts, resampled_metrics
from bench.stats.settings import Settings
from bench.stats.strata import Strata, strata_of
from bench.stats.summary import Estimate, MethodSummary, Summary, summary

__all__ = [
    "LOSSES", "MIN_CLUSTERS", "RESAMPLED", "CalibrationError", "Comparison", "Estimand", "Estimate", "Interval",
    "MethodSummary", "NoInterval", "Resampled", "Settings", "Strata", "Summary", "basic_interval", "calibrated_p",
    "calibration_error", "clustered_interval", "compare", "holm", "losses", "mean_interval", "ranks", "resample",
    "resample_counts", "resampled_metrics", "strata_of", "summary",
]  # fmt: skip
