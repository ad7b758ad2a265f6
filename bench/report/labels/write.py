"""Files of a study of label budgets: Markdown, CSV, JSON, and a figure, for each test."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bench.api import UserError
from bench.backbone.models import NAME
from bench.report.figures.sheet import save
from bench.report.labels.figure import small_multiples
from bench.report.labels.published import PaperCount
from bench.report.labels.tables import views
from bench.report.tables.formats import render
from bench.results.files import SEPARATOR, ensure_writable, model_folder
from bench.stats.labels import LabelCurves
from bench.store.files import write_whole

TABLES = ("md", "csv", "json")
FIGURES = ("svg", "png")


def write(found: Sequence[LabelCurves], published: Sequence[PaperCount], out: Path) -> list[Path]:
    """Write `<model>--labels--<task>.<format>` for each test; returns the files.

    Raises:
        UserError: the folder can't be written.
    """
    ensure_writable(out)
    paths: list[Path] = []
    for curves in found:
        task = curves.study.task
        name = task if NAME.fullmatch(task) else model_folder(f"/{task}")
        stem = SEPARATOR.join((model_folder(curves.study.model), "labels", name))
        shown, figure = views([curves], published), small_multiples(curves)
        texts = {out / f"{stem}.{kind}": render(shown, kind) for kind in TABLES}
        try:
            for path, text in texts.items():
                write_whole(path, text.encode())
            paths += [*texts, *(save(figure, out / f"{stem}.{kind}") for kind in FIGURES)]
        except OSError as error:
            raise UserError(f"--out {out}: it can't be written ({error.strerror or error}); name another") from error
    return paths
