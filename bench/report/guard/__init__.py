"""Report of `bench guard`: confidence thresholds above which at most a given share of answers is wrong."""

from collections.abc import Sequence

from bench.report.analysis import Analysis
from bench.report.guard.figure import figures_of
from bench.report.guard.model import GuardedTable
from bench.report.guard.views import views


def build_analysis(tables: Sequence[GuardedTable]) -> Analysis:
    """Return the guards (confidence thresholds with a certified error rate) of all tables, as tables and figures."""
    return Analysis(
        "guard", views(tables), lambda: dict(figures_of(tables)), formats=("csv", "json"), figure_formats=("svg",)
    )
