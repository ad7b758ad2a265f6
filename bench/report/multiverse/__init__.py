"""The multiverse of a table: every defensible choice that costs no forward pass, and which claims survive them."""

from bench.report.multiverse.compute import computed
from bench.report.multiverse.figure import figures
from bench.report.multiverse.model import Contest, Multiverse, Places, Universe
from bench.report.multiverse.tables import views
from bench.report.multiverse.words import verdict

__all__ = ["Contest", "Multiverse", "Places", "Universe", "computed", "figures", "verdict", "views"]
