"""Report of a multiverse analysis: which claims of a table survive other defensible choices of the analysis.

A claim is a significant difference between two methods. The choices need no forward pass, e.g. grading rule or metric.
"""

from collections.abc import Collection

from bench.report.analysis import Analysis, file_stem
from bench.report.multiverse.figure import plot_claims, plot_ranks
from bench.report.multiverse.model import Multiverse
from bench.report.multiverse.views import views


def build_analysis(multiverse: Multiverse, methods: Collection[str] = ()) -> Analysis:
    """Return a multiverse analysis as tables, a figure of ranks and a figure of claims.

    Args:
        multiverse: the analyses of one model and task, and the outcome of each claim in them.
        methods: print only the claims about these methods; files have all claims. Default: all.
    """
    stem = file_stem(multiverse.model, "multiverse", multiverse.task)
    return Analysis(
        stem,
        views(multiverse),
        lambda: {f"{stem}--places": plot_ranks(multiverse), f"{stem}--claims": plot_claims(multiverse)},
        printed=views(multiverse, methods),
    )
