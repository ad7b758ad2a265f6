"""Uncertainty of a comparison: intervals that name their estimand, paired tests, ranks, tests of calibration.

Pure numpy functions of confidences and correctness, question by question, and of one subject name for each. Example:
`summary({"ccps": p, "litcab": q}, correct, subjects).comparisons["brier"][0].p_corrected`.
"""

from bench.stats.calibration import CalibrationError, calibrated_p, calibration_error
from bench.stats.comparison import Comparison, Sample, compare, corrected, critical_value, normal_test, ranks, t_test
from bench.stats.intervals import (
    MIN_CLUSTERS,
    Estimand,
    Interval,
    basic_interval,
    clustered_interval,
    mean_interval,
)
from bench.stats.resampling import RESAMPLED, Resampled, losses, resample, resample_counts, resampled_metrics
from bench.stats.settings import Settings
from bench.stats.strata import Strata, strata_of
from bench.stats.summary import TESTED, Estimate, MethodSummary, Summary, summary

__all__ = [
    "MIN_CLUSTERS", "RESAMPLED", "TESTED", "CalibrationError", "Comparison", "Estimand", "Estimate", "Interval",
    "MethodSummary", "Resampled", "Sample", "Settings", "Strata", "Summary", "basic_interval",
    "calibrated_p", "calibration_error", "clustered_interval", "compare", "corrected", "critical_value", "losses",
    "mean_interval", "normal_test", "ranks", "resample", "resample_counts", "resampled_metrics",
    "strata_of", "summary", "t_test",
]  # fmt: skip
