"""`bench guard`: from which confidence on answers can be trusted, and what is left of them."""

from bench.report.guard.found import Guarded, GuardedLine, GuardedTable
from bench.report.guard.request import guarded
from bench.report.guard.views import views_of
from bench.report.selection import GuardRequest

__all__ = ["GuardRequest", "Guarded", "GuardedLine", "GuardedTable", "guarded", "views_of"]
