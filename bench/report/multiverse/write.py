"""Files of a multiverse: Markdown, CSV, JSON, and its figures."""

from __future__ import annotations

from pathlib import Path

from bench.api import UserError
from bench.report.figures.sheet import save
from bench.report.figures.write import safe_name
from bench.report.multiverse.figure import claims_drawn, places_drawn
from bench.report.multiverse.model import Multiverse
from bench.report.tables.formats import render
from bench.report.tables.grid import TableViews
from bench.results.files import SEPARATOR, model_folder
from bench.store.files import write_whole

TABLES = ("md", "csv", "json")
FIGURES = ("svg", "png")


def write(found: Multiverse, views: TableViews, out: Path) -> list[Path]:
    """Write `<model>--multiverse--<task>.<format>`, and `...--places` and `...--claims` as figures; returns the files.

    Raises:
        UserError: the folder can't be written.
    """
    stem = f"{model_folder(found.model)}{SEPARATOR}multiverse{SEPARATOR}{safe_name(found.task)}"
    texts = {out / f"{stem}.{kind}": render(views, kind) for kind in TABLES}
    figures = {
        name: figure for name, figure in (("places", places_drawn(found)), ("claims", claims_drawn(found))) if figure
    }
    try:
        out.mkdir(parents=True, exist_ok=True)
        for path, text in texts.items():
            write_whole(path, text.encode())
        drawn = [
            save(figure, out / f"{stem}{SEPARATOR}{name}.{kind}")
            for name, figure in figures.items()
            for kind in FIGURES
        ]
    except OSError as error:
        raise UserError(
            f"folder {str(out)!r} can't be written ({error.strerror or error}); name another one with --out"
        ) from error
    return [*texts, *drawn]
