"""The transfer matrix: numbers of each cell, the price of shift, methods by their worst cell; tables, figure, words."""

from bench.report.analysis import Analysis, stem_of
from bench.report.transfer.compute import computed
from bench.report.transfer.figure import heat_map
from bench.report.transfer.model import METRICS_SHOWN, Matrix, MatrixEntry, Price, Worst
from bench.report.transfer.verdict import verdict
from bench.report.transfer.views import views


def shown(matrix: Matrix) -> Analysis:
    """The matrix, with a heat map for each metric that has numbers."""
    stem = stem_of(matrix.about.model, "transfer")
    there = [metric for metric in METRICS_SHOWN if any(entry.metric == metric for entry in matrix.entries)]
    return Analysis(stem, views(matrix), lambda: {f"{stem}--{metric}": heat_map(matrix, metric) for metric in there})


__all__ = ["METRICS_SHOWN", "Matrix", "MatrixEntry", "Price", "Worst", "computed", "heat_map", "shown", "verdict"]
