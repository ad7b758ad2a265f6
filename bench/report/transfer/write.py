"""Files of a matrix: Markdown, CSV, JSON, and a heat map for each metric."""

from __future__ import annotations

from pathlib import Path

from bench.api import UserError
from bench.report.figures.sheet import save
from bench.report.tables.formats import render
from bench.report.tables.grid import TableViews
from bench.report.transfer.figure import heat_map
from bench.report.transfer.model import METRICS_SHOWN, Matrix
from bench.results.files import SEPARATOR, model_folder
from bench.store.files import write_whole

TABLES = ("md", "csv", "json")
FIGURES = ("svg", "png")


def write(matrix: Matrix, views: TableViews, out: Path) -> list[Path]:
    """Write `<model>--transfer.<format>` and `<model>--transfer--<metric>.<format>`; returns the files.

    Raises:
        UserError: the folder can't be written.
    """
    stem = f"{model_folder(matrix.about.model)}{SEPARATOR}transfer"
    texts = {out / f"{stem}.{kind}": render(views, kind) for kind in TABLES}
    figures = {
        metric: heat_map(matrix, metric) for metric in METRICS_SHOWN if any(e.metric == metric for e in matrix.entries)
    }
    try:
        out.mkdir(parents=True, exist_ok=True)
        for path, text in texts.items():
            write_whole(path, text.encode())
        drawn = [
            save(figure, out / f"{stem}{SEPARATOR}{metric}.{kind}")
            for metric, figure in figures.items()
            for kind in FIGURES
        ]
    except OSError as error:
        raise UserError(
            f"folder {str(out)!r} can't be written ({error.strerror or error}); name another one with --out"
        ) from error
    return [*texts, *drawn]
