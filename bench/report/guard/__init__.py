"""`bench guard`: from which confidence on answers can be trusted, and what is left of them."""

from bench.report.guard.found import Guarded, GuardedLine, GuardedTable
from bench.report.guard.request import GuardRequest, guarded
from bench.report.guard.views import views_of

__all__ = ["GuardRequest", "Guarded", "GuardedLine", "GuardedTable", "guarded", "views_of"]
