"""The multiverse of a table: every defensible choice that costs no forward pass, and which claims survive them."""

from bench.report.multiverse.compute import computed
from bench.report.multiverse.figure import claims_drawn, places_drawn
from bench.report.multiverse.model import Contest, Multiverse, MultiverseRequest, Places, Universe
from bench.report.multiverse.tables import views
from bench.report.multiverse.words import verdict
from bench.report.multiverse.write import write

__all__ = [
    "Contest", "Multiverse", "MultiverseRequest", "Places", "Universe", "claims_drawn", "computed", "places_drawn",
    "verdict", "views", "write",
]  # fmt: skip
