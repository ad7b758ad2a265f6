"""All figures of a comparison as files: which there are, what they are called, and how much fits on one.

Names are `<model folder>--<task>--<kind>.<format>` for figures of one task, `<model folder>--<kind>.<format>` for those
of all tasks of a model, and `reliability-overview.<format>`. Example: `tiny--atlas-oe--risk-coverage.svg`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from bench.api import UserError
from bench.backbone.models import NAME
from bench.report.figures.bars import metric_bars
from bench.report.figures.board import RecordsOf, board_of
from bench.report.figures.confidence import confidence_histograms
from bench.report.figures.cost import cost_quality
from bench.report.figures.overview import reliability_overview
from bench.report.figures.reliability import reliability
from bench.report.figures.risk import risk_coverage
from bench.report.figures.sheet import save
from bench.report.figures.source import Source
from bench.report.figures.subjects import subject_dots
from bench.report.figures.whiskers import StandingsOf
from bench.report.text import plain
from bench.results.files import SEPARATOR, ensure_writable, model_folder
from bench.results.row import ResultRow

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = ("svg", "png", "pdf")
MOST_METHODS, MOST_TASKS, MOST_MODELS = 12, 5, 4
"""On one figure; more go to further pages."""

T = TypeVar("T")
Draw = Callable[..., "Figure"]
"""(rows, remark=) -> figure."""


def write_figures(
    rows: Sequence[ResultRow],
    records_of: RecordsOf,
    out: Path,
    formats: Sequence[str] = FORMATS,
    *,
    standings_of: StandingsOf | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> list[Path]:
    """Draw all figures that the rows have numbers for; each file is written whole or not at all.

    Recalibrated methods (`ccps+isotonic`) get figures of their own, and what doesn't fit on one figure goes to more.

    Args:
        rows: of any models and tasks, as for one table each.
        records_of: gives the questions of a row; asked once for each.
        out: folder, made if it is not there.
        formats: of `FORMATS`.
        standings_of: gives intervals, e.g. `bench.report.standings.cache.Reader`; asked once for each table.
        say: told the name of each figure before it is drawn.

    Returns:
        The files, in the order in which they were written.

    Raises:
        UserError: nothing to draw, rows that don't belong together, an unknown format, or an unwritable folder.
    """
    unknown = [kind for kind in formats if kind not in FORMATS]
    if unknown or not formats:
        got = ", ".join(map(plain, unknown)) or "none"
        raise UserError(f"unknown figure format {got!r}; expected some of {', '.join(FORMATS)}")
    source = Source(board_of(rows), records_of, standings_of)
    ensure_writable(out)
    paths: list[Path] = []
    stems: set[str] = set()
    for stem, draw in _figures(rows, source):
        name = _unused(stem, stems)
        say(name)
        figure = draw()
        try:
            out.mkdir(parents=True, exist_ok=True)
            paths += [save(figure, out / f"{name}.{kind}") for kind in formats]
        except OSError as error:
            reason = error.strerror or error
            raise UserError(f"figure {str(out / name)!r} can't be written ({reason}); name another folder") from error
    return paths


def _figures(rows: Sequence[ResultRow], source: Source) -> Iterator[tuple[str, Callable[[], Figure]]]:
    """Name and drawing of every figure that has something in it."""
    recalibrations = sorted({_recalibration(row) for row in rows})
    for recalibration in recalibrations:
        block = [row for row in rows if _recalibration(row) == recalibration]
        ending = f"{SEPARATOR}{_safe(recalibration)}" if recalibration else ""
        for stem, draw, shown in _kinds(block, source):
            for page in _pages(shown):
                drawn = partial(draw, page.rows, remark=page.remark)
                yield f"{stem}{ending}{page.ending}", drawn


def _kinds(rows: Sequence[ResultRow], source: Source) -> Iterator[tuple[str, Draw, Sequence[ResultRow]]]:
    """Name, drawing and rows of each kind of figure, for everything, each model, and each task of a model."""
    records = source.records
    yield "reliability-overview", partial(reliability_overview, records_of=records), rows
    for model in sorted({row.model for row in rows}):
        of_model = [row for row in rows if row.model == model]
        tasks = sorted({row.task for row in of_model})
        folder = model_folder(model)
        yield f"{folder}--metrics", partial(metric_bars, standings_of=source.standings), of_model
        yield f"{folder}--confidence", partial(confidence_histograms, records_of=records), of_model
        if len(tasks) > 1:
            yield f"{folder}--reliability", partial(reliability, records_of=records), of_model
            yield f"{folder}--risk-coverage", partial(risk_coverage, records_of=records), of_model
        for task in tasks:
            of_task, stem = [row for row in of_model if row.task == task], f"{folder}--{_safe(task)}"
            yield f"{stem}--reliability", partial(reliability, records_of=records), of_task
            yield f"{stem}--risk-coverage", partial(risk_coverage, records_of=records), of_task
            yield f"{stem}--subjects-auroc", partial(subject_dots, metric="auroc"), of_task
            yield f"{stem}--subjects-brier", partial(subject_dots, metric="brier"), of_task
            yield f"{stem}--cost", partial(cost_quality, standings_of=source.standings), of_task


def _recalibration(row: ResultRow) -> str:
    return row.method.partition("+")[2]


# --- how much fits on one figure --------------------------------------------------------------------------------------


class Page(NamedTuple):
    """Rows for one figure."""

    rows: Sequence[ResultRow]
    ending: str
    """Of the file's name; empty for the only page."""
    remark: str


def _pages(rows: Sequence[ResultRow]) -> list[Page]:
    """Rows in portions that fit; portions without any number are left out."""
    if not any(row.status == "ok" for row in rows):
        return []
    board = board_of(rows)
    portions = [
        [
            row
            for (model, task), cell in board.cells.items()
            for key, series in cell.items()
            for row in (*series.runs, *series.others)
            if model in models and task in tasks and key in keys
        ]
        for models in _portions(board.models, MOST_MODELS)
        for tasks in _portions(board.tasks, MOST_TASKS)
        for keys in _portions(board.keys, MOST_METHODS)
    ]
    shown = [portion for portion in portions if any(row.status == "ok" for row in portion)]
    if len(portions) == 1:
        return [Page(shown[0], "", "")]
    return [Page(page, f"{SEPARATOR}{k}", f"Figure {k} of {len(shown)}.") for k, page in enumerate(shown, start=1)]


def _portions(values: Sequence[T], most: int) -> list[Sequence[T]]:
    """As few portions as possible, of about equal size."""
    number = -(-len(values) // most)
    bounds = [round(k * len(values) / number) for k in range(number + 1)]
    return [values[start:end] for start, end in pairwise(bounds)]


# --- names ------------------------------------------------------------------------------------------------------------


def _safe(name: str) -> str:
    """A task or recalibration as a part of a file name."""
    return name if NAME.fullmatch(name) else model_folder(f"/{name}")


def _unused(stem: str, used: set[str]) -> str:
    """The name, with a hash where another figure has it: `a/b` on all tasks and `a` on task `b` would share theirs."""
    if stem.casefold() in used:
        stem = f"{stem}-{hashlib.sha256(str(len(used)).encode()).hexdigest()[:8]}"
    used.add(stem.casefold())
    return stem
