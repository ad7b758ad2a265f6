"""Files of a matrix: Markdown, CSV, JSON, and a heat map for each metric."""

from __future__ import annotations

from pathlib import Path

from bench.report.analysis_files import write_files
from bench.report.tables.grid import TableViews
from bench.report.transfer.figure import heat_map
from bench.report.transfer.model import METRICS_SHOWN, Matrix
from bench.results.files import SEPARATOR, model_folder


def write(matrix: Matrix, views: TableViews, out: Path) -> list[Path]:
    """Write `<model>--transfer.<format>` and `<model>--transfer--<metric>.<format>`; returns the files.

    Raises:
        UserError: the folder can't be written.
    """
    stem = SEPARATOR.join((model_folder(matrix.about.model), "transfer"))
    metrics = [metric for metric in METRICS_SHOWN if any(entry.metric == metric for entry in matrix.entries)]
    return write_files(out, stem, views, {metric: heat_map(matrix, metric) for metric in metrics})
