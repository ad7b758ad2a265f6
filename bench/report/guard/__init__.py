"""`bench guard`: from which confidence on answers can be trusted, and what is left of them."""

from collections.abc import Sequence

from bench.report.analysis import Analysis
from bench.report.guard.compute import guarded
from bench.report.guard.figure import figures_of
from bench.report.guard.model import Guarded, GuardedLine, GuardedTable
from bench.report.guard.views import views
from bench.report.selection import GuardRequest


def shown(tables: Sequence[GuardedTable]) -> Analysis:
    """The guards of all tables, with a figure of each."""
    return Analysis(
        "guard", views(tables), lambda: dict(figures_of(tables)), formats=("csv", "json"), figure_formats=("svg",)
    )


__all__ = ["GuardRequest", "Guarded", "GuardedLine", "GuardedTable", "guarded", "shown"]
