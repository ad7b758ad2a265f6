"""Metrics of confidences: pure numpy functions of `confidence (n,)` and `correct (n,)`, and averages over subjects.

Definitions are those of docs/methods.md §4 and §0.16-0.17, or of the papers that each function names. An undefined
metric is None, never 0 and never NaN; a confidence outside [0, 1] is an error, never clipped. Example: `brier([0.8,
0.4], [True, False])` is 0.1.
"""

from bench.metrics.calibration import brier_dsc, brier_mcb, brier_unc, corp, ece_mass, isotonic, nll, rmsce, smece
from bench.metrics.paper import accuracy, aucpr, auroc, brier, ece, ece_debiased, ece_floor, ece_ref, ece_ref_closed
from bench.metrics.selection import aurc, coverage95, eaurc, prr
from bench.metrics.summary import METRICS, Metric, Scores, summarise
from bench.metrics.validation import THRESHOLD

__all__ = [
    "METRICS", "THRESHOLD", "Metric", "Scores", "accuracy", "aucpr", "aurc", "auroc", "brier", "brier_dsc", "brier_mcb",
    "brier_unc", "corp", "coverage95", "eaurc", "ece", "ece_debiased", "ece_floor", "ece_mass", "ece_ref",
    "ece_ref_closed", "isotonic", "nll", "prr", "rmsce", "smece", "summarise",
]  # fmt: skip
