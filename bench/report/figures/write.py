"""Write all figures of a comparison to files: list and name them, and split what doesn't fit on one figure.

Files are named `<model folder>--<task>--<kind>.<format>` for figures of one task, `<model folder>--<kind>.<format>` for
those of all tasks of a model, and `reliability-overview.<format>`. Example: `tiny--atlas-oe--risk-coverage.svg`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from bench.api import UserError
from bench.model.specs import NAME
from bench.report.figures.confidence import confidence_histograms
from bench.report.figures.cost import cost_quality
from bench.report.figures.drawing import save
from bench.report.figures.figure_data import RecordsOf, build_figure_data, table_id
from bench.report.figures.forest import differences_by_metric, differences_to_best
from bench.report.figures.intervals import metric_intervals
from bench.report.figures.overview import reliability_overview
from bench.report.figures.reliability import reliability
from bench.report.figures.risk import risk_coverage
from bench.report.figures.subjects import subject_differences
from bench.report.figures.wins import has_matrix, win_matrix
from bench.report.grouping import Key, tuning_budget
from bench.report.tables.model import Table
from bench.report.text import plain
from bench.results.files import SEPARATOR, config_digest, ensure_writable, model_folder
from bench.results.question_records import QuestionRecords
from bench.results.row import ResultRow

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = ("svg", "png", "pdf")
MOST_METHODS, MOST_TASKS, MOST_MODELS = 12, 5, 4
"""Maximum numbers of methods, tasks and models on one figure; further ones go to further figures."""
MOST_COMPARED, MOST_ROWS = 30, 60
"""Maximum numbers of methods, and of rows over all tasks, on a figure with `FigureKind.compares`."""

T = TypeVar("T")
Draw = Callable[..., "Figure"]
"""Draws tables: (tables, remark=...) -> figure."""


def write_figures(
    tables: Sequence[Table],
    records_of: RecordsOf,
    out: Path,
    formats: Sequence[str] = FORMATS,
    *,
    say: Callable[[str], None] = lambda _: None,
) -> list[Path]:
    """Write all figures for which the tables have numbers; each file is written whole or not at all.

    Each recalibration (`ccps+isotonic`) and each tuning budget has figures of its own, and what doesn't fit on one
    figure goes to several.

    Args:
        tables: one table for each model, task and tuning budget.
        records_of: returns the records of a result row; called once for each row.
        out: folder of the files; created if it does not exist.
        formats: members of `FORMATS`.
        say: called with the name of each figure before it is drawn.

    Returns:
        Paths of the files, in the order in which they were written.

    Raises:
        UserError: nothing to draw, tables that don't belong together, an unknown format, or an unwritable folder.
    """
    unknown = [kind for kind in formats if kind not in FORMATS]
    if unknown or not formats:
        got = ", ".join(map(plain, unknown)) or "none"
        raise UserError(f"unknown figure format {got!r}; expected some of {', '.join(FORMATS)}")
    by_budget: dict[int, list[Table]] = {}
    for table in tables:
        by_budget.setdefault(tuning_budget(table.rows[0]), []).append(table)
    for same_budget in [group for group in by_budget.values() if _has_numbers(group)] or [list(tables)]:
        build_figure_data(same_budget)
    ensure_writable(out)
    records: dict[
        tuple[object, ...], QuestionRecords
    ] = {}  # by the fields that name a row's file, as rows can't be hashed

    def remembered(row: ResultRow) -> QuestionRecords:
        """Return the records of a row, read only once, without texts, which figures don't show."""
        cell = (row.model, row.task, row.method, row.preset, row.seed, row.limit, config_digest(row.config))
        if cell not in records:
            records[cell] = replace(records_of(row), id=(), subject=(), answer=())
        return records[cell]

    paths: list[Path] = []
    stems: set[str] = set()
    for budget, same_budget in sorted(by_budget.items()):  # tuned results have figures of their own
        for stem, draw in _figures(same_budget, remembered, f"{SEPARATOR}tuned{budget}" if budget else ""):
            name = stem
            if name.casefold() in stems:  # model `a/b` on all tasks and model `a` on task `b` would share a name
                name = f"{name}-{hashlib.sha256(str(len(stems)).encode()).hexdigest()[:8]}"
            stems.add(name.casefold())
            say(name)
            figure = draw()
            try:
                out.mkdir(parents=True, exist_ok=True)
                paths += [save(figure, out / f"{name}.{kind}") for kind in formats]
            except OSError as error:
                reason = error.strerror or error
                raise UserError(
                    f"figure {str(out / name)!r} can't be written ({reason}); name another folder"
                ) from error
    return paths


def _figures(tables: Sequence[Table], records_of: RecordsOf, tuned: str) -> Iterator[tuple[str, Callable[[], Figure]]]:
    """Yield every figure that has a number, as file name without extension and function that draws it."""
    keys = {line.key for table in tables for line in table.lines}
    for recalibration in sorted({key.recalibration for key in keys}):
        block = _with_lines(tables, {key for key in keys if key.recalibration == recalibration})
        ending = f"{tuned}{SEPARATOR}{safe_name(recalibration)}" if recalibration else tuned
        for kind in _figure_kinds(block, records_of):
            for page, number, remark in _pages(kind):
                yield f"{kind.stem}{ending}{number}", partial(kind.draw, page, remark=remark)


class FigureKind(NamedTuple):
    """A kind of figure, and the tables that it shows."""

    stem: str
    """Beginning of the names of the files."""
    draw: Draw
    tables: Sequence[Table]
    compares: bool = False
    """Whether methods are compared in common axes, by a row or a marker each, so that many of them fit."""


def _figure_kinds(tables: Sequence[Table], records_of: RecordsOf) -> Iterator[FigureKind]:
    """Yield the kinds of figures of all tables together, of each model, and of each task of a model."""
    diagrams = partial(reliability, records_of=records_of)
    risks = partial(risk_coverage, records_of=records_of)
    yield FigureKind("reliability-overview", partial(reliability_overview, records_of=records_of), tables)
    by_place = {table_id(table): table for table in tables}
    for model in sorted({model for model, _ in by_place}):
        of_model = {task: table for (of, task), table in by_place.items() if of == model}
        folder, every = model_folder(model), list(of_model.values())
        yield FigureKind(f"{folder}--metrics", metric_intervals, every, compares=True)
        yield FigureKind(f"{folder}--confidence", partial(confidence_histograms, records_of=records_of), every)
        if len(every) > 1:
            yield FigureKind(f"{folder}--reliability", diagrams, every)
            yield FigureKind(f"{folder}--risk-coverage", risks, every)
        for task, table in sorted(of_model.items()):
            stem = f"{folder}--{safe_name(task)}"
            yield FigureKind(f"{stem}--reliability", diagrams, [table])
            yield FigureKind(f"{stem}--risk-coverage", risks, [table])
            yield FigureKind(f"{stem}--subjects-auroc", partial(subject_differences, metric="auroc"), [table])
            yield FigureKind(f"{stem}--subjects-brier", partial(subject_differences, metric="brier"), [table])
            yield FigureKind(f"{stem}--cost", cost_quality, [table], compares=True)
            if differences_by_metric(table):
                yield FigureKind(f"{stem}--forest", differences_to_best, [table], compares=True)
            if has_matrix(table):
                yield FigureKind(f"{stem}--wins", win_matrix, [table], compares=True)


def _with_lines(tables: Iterable[Table], keys: Collection[Key]) -> list[Table]:
    """Return the tables with only these lines shown, without tables that have none of them."""
    shown = (table.with_lines(keys) for table in tables)
    return [table for table in shown if table.lines]


# --- how much fits on one figure --------------------------------------------------------------------------------------


def _pages(kind: FigureKind) -> Iterator[tuple[Sequence[Table], str, str]]:
    """Yield each portion of a kind's tables that fits on one figure and has a number.

    Each comes with the ending of the figure's name and a remark for its note, both empty if there is only one portion.
    """
    tables = kind.tables
    if not _has_numbers(tables):
        return
    data = build_figure_data(tables)
    keys_in_order = [method.key for method in data.methods]
    if len(tables) == 1:
        keys_in_order = [line.key for line in tables[0].lines]  # the best are on the first figure
    most_methods, most_tasks = MOST_METHODS, MOST_TASKS
    if kind.compares:
        most_methods = MOST_COMPARED
        most_tasks = max(1, min(MOST_TASKS, MOST_ROWS // min(len(keys_in_order), most_methods)))
    portions = [
        _with_lines((table for table in tables if table_id(table)[0] in models and table_id(table)[1] in tasks), keys)
        for models in _split_evenly(data.models, MOST_MODELS)
        for tasks in _split_evenly(data.tasks, most_tasks)
        for keys in _split_evenly(keys_in_order, most_methods)
    ]
    shown = list(filter(_has_numbers, portions))
    for k, page in enumerate(shown, start=1):
        yield (page, f"{SEPARATOR}{k}", f"Figure {k} of {len(shown)}.") if len(portions) > 1 else (page, "", "")


def _has_numbers(tables: Sequence[Table]) -> bool:
    return any(line.ok_rows for table in tables for line in table.lines)


def _split_evenly(values: Sequence[T], most: int) -> list[Sequence[T]]:
    """Split values into as few portions of at most `most` as possible, of about equal size."""
    number = -(-len(values) // most)
    bounds = [round(k * len(values) / number) for k in range(number + 1)]
    return [values[start:end] for start, end in pairwise(bounds)]


def safe_name(name: str) -> str:
    """Return the name of a task or recalibration in a form that is safe in a file name."""
    return name if NAME.fullmatch(name) else model_folder(f"/{name}")
