"""`Analysis`: the tables, figures and HTML page of one analysis of results, to be printed and written to files.

Most analyses have a package of their own, e.g. `bench.report.transfer`. Such a package has dataclasses for the numbers,
a function `compute_...` that computes the numbers, and `build_analysis`, which makes an `Analysis` of them. The numbers
of `bench.report.label_budgets` and `bench.report.method_analyses` are computed elsewhere. Example:
`write([build_analysis(compute_matrix(cells, about))], Path("results"))`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bench.report.figures.drawing import save
from bench.report.figures.write import safe_name
from bench.report.tables.formats import render
from bench.report.tables.grid import TableViews
from bench.results.files import SEPARATOR, ensure_writable, model_folder
from bench.store.files import named_errors, write_atomic

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False)
class Analysis:
    """Tables, figures and HTML page of one analysis of results, ready to be printed and written."""

    stem: str
    """File name, without extension, of the tables and of the HTML page."""
    views: TableViews
    figures: Callable[[], Mapping[str, Figure | None]] = dict
    """Function that draws the figures, by file name without extension. A figure that is None is not written."""
    formats: tuple[str, ...] = ("md", "csv", "json")
    """File formats of the tables."""
    figure_formats: tuple[str, ...] = ("svg", "png")
    page: str = ""
    """HTML page as text; empty if the analysis has none."""
    printed: TableViews | None = None
    """Tables to print; None prints `views`, the tables that are also written to files."""


def file_stem(model: str, *names: str) -> str:
    """Return a file name without extension: `<model>--<name>--<name>`, for any number of names."""
    return SEPARATOR.join((model_folder(model), *map(safe_name, names)))


def write(analyses: Sequence[Analysis], out: Path) -> list[Path]:
    """Write the tables, pages and figures of analyses, each file atomically; return the paths of the files.

    Raises:
        UserError: the folder `out` can't be written to.
    """
    ensure_writable(out)
    written: list[Path] = []
    with named_errors(f"--out {out}: it can't be written", "; name another"):
        for a in analyses:
            texts = {f"{a.stem}.{kind}": render(a.views, kind) for kind in a.formats}
            texts |= {f"{a.stem}.html": a.page} if a.page else {}
            for name, text in texts.items():
                write_atomic(out / name, text.encode())
                written.append(out / name)
            for name, figure in a.figures().items():
                written += [save(figure, out / f"{name}.{kind}") for kind in a.figure_formats if figure is not None]
    return written


def join_tables(analyses: Sequence[Analysis]) -> TableViews:
    """Return the printed tables of analyses, one below the other."""
    views = [v.printed or v.views for v in analyses]
    if len(views) == 1:
        return views[0]
    return TableViews(
        [grid for v in views for grid in v.grids],
        lambda: [record for v in views for record in v.records()],
        lambda: [part for v in views for part in v.data()],
    )
