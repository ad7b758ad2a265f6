"""Files of a multiverse: Markdown, CSV, JSON, and its figures."""

from __future__ import annotations

from pathlib import Path

from bench.report.analysis_files import write_files
from bench.report.figures.write import safe_name
from bench.report.multiverse.figure import claims_drawn, places_drawn
from bench.report.multiverse.model import Multiverse
from bench.report.tables.grid import TableViews
from bench.results.files import SEPARATOR, model_folder


def write(found: Multiverse, views: TableViews, out: Path) -> list[Path]:
    """Write `<model>--multiverse--<task>.<format>`, and `...--places` and `...--claims` as figures; returns the files.

    Raises:
        UserError: the folder can't be written.
    """
    stem = SEPARATOR.join((model_folder(found.model), "multiverse", safe_name(found.task)))
    figures = {"places": places_drawn(found), "claims": claims_drawn(found)}
    return write_files(out, stem, views, {name: figure for name, figure in figures.items() if figure})
