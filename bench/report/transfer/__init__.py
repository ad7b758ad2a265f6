"""Report of a transfer matrix: how good methods are on a test task, by the task whose answers they learned from.

The report has the metrics of each cell, the price of learning from another task, the worst cell of each method, and
heat maps.
"""

from bench.report.analysis import Analysis, file_stem
from bench.report.transfer.figure import heat_map
from bench.report.transfer.model import METRICS_SHOWN, Matrix
from bench.report.transfer.views import views


def build_analysis(matrix: Matrix) -> Analysis:
    """Return a transfer matrix as tables, with a heat map for each metric that is defined in at least one cell.

    A cell is a method, trained on the answers of one task and tested on another one, or on the same.
    """
    stem = file_stem(matrix.about.model, "transfer")
    metrics = [metric for metric in METRICS_SHOWN if any(entry.metric == metric for entry in matrix.entries)]
    return Analysis(stem, views(matrix), lambda: {f"{stem}--{metric}": heat_map(matrix, metric) for metric in metrics})
