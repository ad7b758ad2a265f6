"""Files of a study of label budgets: Markdown, CSV, JSON, and a figure, for each test."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bench.report.analysis_files import write_files
from bench.report.figures.write import safe_name
from bench.report.labels.figure import small_multiples
from bench.report.labels.published import PaperCount
from bench.report.labels.tables import views
from bench.results.files import SEPARATOR, model_folder
from bench.stats.labels import LabelCurves


def write(found: Sequence[LabelCurves], published: Sequence[PaperCount], out: Path) -> list[Path]:
    """Write `<model>--labels--<task>.<format>` for each test; returns the files.

    Raises:
        UserError: the folder can't be written.
    """
    paths: list[Path] = []
    for curves in found:
        stem = SEPARATOR.join((model_folder(curves.study.model), "labels", safe_name(curves.study.task)))
        paths += write_files(out, stem, views([curves], published), {"": small_multiples(curves)})
    return paths
