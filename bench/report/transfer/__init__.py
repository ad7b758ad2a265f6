"""The transfer matrix: numbers of each cell, the price of shift, methods by their worst cell; tables, figure, words."""

from bench.report.transfer.compute import computed
from bench.report.transfer.figure import figures, heat_map
from bench.report.transfer.model import METRICS_SHOWN, Entry, Matrix, Price, Worst
from bench.report.transfer.tables import views
from bench.report.transfer.verdict import verdict

__all__ = [
    "METRICS_SHOWN", "Entry", "Matrix", "Price", "Worst", "computed", "figures", "heat_map", "verdict", "views",
]  # fmt: skip
