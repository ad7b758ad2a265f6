"""Statistics of a comparison of methods: confidence intervals, paired tests, ranks, and tests of calibration.

Inputs are numpy arrays: each question's confidence, correctness and subject name. Example: `summary({"ccps": p,
"litcab": q}, correct, subjects).comparisons["brier"][0].p_corrected`.
"""

from bench.stats.calibration import calibrated_p
from bench.stats.comparison import Comparison, compare, max_t, p_values, ranks
from bench.stats.influence import RANKED, TESTED, Influence, influence, mean_over_seeds
from bench.stats.intervals import Interval, Sampling, StandardErrors
from bench.stats.overconfidence import Overconfidence, overconfidence_of
from bench.stats.settings import Average, Settings
from bench.stats.strata import strata_of
from bench.stats.summary import Estimate, summary

__all__ = [
    "RANKED", "TESTED", "Average", "Comparison", "Estimate", "Influence", "Interval", "Overconfidence", "Sampling",
    "Settings", "StandardErrors", "calibrated_p", "compare", "influence", "max_t", "mean_over_seeds",
    "overconfidence_of", "p_values", "ranks", "strata_of", "summary",
]  # fmt: skip
