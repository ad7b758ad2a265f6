"""The transfer matrix: numbers of each cell, the price of shift, methods by their worst cell; tables, figure, words."""

from bench.report.transfer.compute import computed
from bench.report.transfer.figure import heat_map
from bench.report.transfer.model import METRICS_SHOWN, Entry, Matrix, Price, Worst
from bench.report.transfer.tables import views
from bench.report.transfer.verdict import verdict
from bench.report.transfer.write import write

__all__ = [
    "METRICS_SHOWN", "Entry", "Matrix", "Price", "Worst", "computed", "heat_map", "verdict", "views", "write",
]  # fmt: skip
