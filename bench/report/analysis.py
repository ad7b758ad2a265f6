"""The end of every analysis: tables, figures and a page that are written to files and printed alike.

The package of an analysis has a model of what was computed, `computed` (or `guarded`), which makes it from a request,
and `shown`, which makes an `Analysis` of it. Example: `write([shown(computed(cells, about))], Path("results"))`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bench.api import UserError
from bench.report.figures.drawing import save
from bench.report.figures.write import safe_name
from bench.report.tables.formats import render
from bench.report.tables.grid import TableViews
from bench.results.files import SEPARATOR, ensure_writable, model_folder
from bench.store.files import write_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False)
class Analysis:
    """What people and programs get of an analysis."""

    stem: str
    """Name of its files, without an ending."""
    views: TableViews
    figures: Callable[[], Mapping[str, Figure | None]] = dict
    """Figures by the names of their files, without an ending; drawn when it is written. None is not written."""
    formats: tuple[str, ...] = ("md", "csv", "json")
    """Formats of the tables' files."""
    figure_formats: tuple[str, ...] = ("svg", "png")
    page: str = ""
    """HTML; empty where there is no page."""
    printed: TableViews | None = None
    """Tables that are printed, where these are not all that are written."""


def stem_of(model: str, *names: str) -> str:
    """Name of a file without its ending: `<model>--<name>--<name>`."""
    return SEPARATOR.join((model_folder(model), *map(safe_name, names)))


def write(analyses: Sequence[Analysis], out: Path) -> list[Path]:
    """Write the tables, pages and figures of analyses, each file whole or not at all; returns the files.

    Raises:
        UserError: the folder can't be written.
    """
    ensure_writable(out)
    written: list[Path] = []
    try:
        for each in analyses:
            texts = {f"{each.stem}.{kind}": render(each.views, kind) for kind in each.formats}
            texts |= {f"{each.stem}.html": each.page} if each.page else {}
            for name, text in texts.items():
                write_whole(out / name, text.encode())
                written.append(out / name)
            for name, figure in each.figures().items():
                written += [save(figure, out / f"{name}.{kind}") for kind in each.figure_formats if figure is not None]
    except OSError as error:
        raise UserError(f"--out {out}: it can't be written ({error.strerror or error}); name another") from error
    return written


def printed(analyses: Sequence[Analysis]) -> TableViews:
    """The tables of analyses below one another."""
    views = [each.printed or each.views for each in analyses]
    if len(views) == 1:
        return views[0]
    return TableViews(
        [grid for each in views for grid in each.grids],
        lambda: [record for each in views for record in each.records()],
        lambda: [part for each in views for part in each.data()],
    )
