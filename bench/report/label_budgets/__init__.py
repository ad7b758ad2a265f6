"""Report of a study of label budgets, i.e. of metrics by the number of training labels: tables, figure and verdict.

The reproduced paper's counts of right and wrong answers stand beside the measured ones, if they are known.
"""

from collections.abc import Sequence

from bench.report.analysis import Analysis, file_stem
from bench.report.label_budgets.figure import small_multiples
from bench.report.label_budgets.views import PaperCount, read_counts, views
from bench.stats.label_budgets import LabelCurves

__all__ = ["build_analysis", "read_counts"]


def build_analysis(curves: LabelCurves, published: Sequence[PaperCount]) -> Analysis:
    """Return a study of label budgets (metrics by number of labels) on one test task, as tables and a figure.

    Args:
        curves: results of the study.
        published: counts of right and wrong answers in the reproduced paper.
    """
    stem = file_stem(curves.study.model, "labels", curves.study.task)
    return Analysis(stem, views(curves, published), lambda: {stem: small_multiples(curves)})
