"""Files of an analysis: its tables as Markdown, CSV and JSON, and its figures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from bench.api import UserError
from bench.report.figures.sheet import save
from bench.report.figures.write import safe_name
from bench.report.tables.formats import render
from bench.report.tables.grid import TableViews
from bench.results.files import SEPARATOR, ensure_writable, model_folder
from bench.store.files import write_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TABLES = ("md", "csv", "json")
FIGURES = ("svg", "png")


def write_files(out: Path, of: tuple[str, ...], views: TableViews, figures: Mapping[str, Figure | None]) -> list[Path]:
    """Write `<model>--<analysis>[--<task>].<format>`, and each figure as `...--<name>.<format>`; returns the files.

    Args:
        out: their folder; it is made.
        of: model, analysis, and the task if it is of one.
        views: the tables.
        figures: by name; the name "" adds nothing to the stem.

    Raises:
        UserError: the folder can't be written.
    """
    stem = SEPARATOR.join((model_folder(of[0]), *map(safe_name, of[1:])))
    drawn = (
        (f"{SEPARATOR.join(filter(None, (stem, name)))}.{kind}", figure)
        for name, figure in figures.items()
        for kind in FIGURES
        if figure is not None
    )
    return write_whole_files(out, {f"{stem}.{kind}": render(views, kind) for kind in TABLES}, drawn)


def write_whole_files(out: Path, texts: Mapping[str, str], figures: Iterable[tuple[str, Figure]]) -> list[Path]:
    """Write texts and figures by the names of their files, each whole or not at all; returns the files.

    Raises:
        UserError: the folder can't be written.
    """
    ensure_writable(out)
    try:
        for name, text in texts.items():
            write_whole(out / name, text.encode())
        drawn = [save(figure, out / name) for name, figure in figures]
    except OSError as error:
        raise UserError(f"--out {out}: it can't be written ({error.strerror or error}); name another") from error
    return [*(out / name for name in texts), *drawn]
