"""Write all figures of a comparison to files; if methods, tasks or models don't fit on one figure, several are drawn.

A figure of one task is named `<model folder>--<task>--<kind>.<format>`. A figure of all tasks of a model is named
`<model folder>--<kind>.<format>`. The overview of all models is `reliability-overview.<format>`. Example:
`tiny--atlas-oe--risk-coverage.svg`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from bench.model.specs import NAME
from bench.report import figures
from bench.report.figures.drawing import save
from bench.report.figures.figure_data import RecordsOf, build_figure_data, table_id
from bench.report.figures.forest import differences_by_metric
from bench.report.figures.wins import has_matrix
from bench.report.grouping import Key, common_corpus, tuning_budget
from bench.report.tables.model import Table
from bench.results.files import SEPARATOR, config_digest, ensure_writable, model_folder
from bench.results.question_records import QuestionRecords
from bench.results.row import AFTER_TRACES, ResultRow
from bench.store.files import named_errors

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = ("svg", "png", "pdf")
MOST_METHODS, MOST_TASKS, MOST_MODELS = 12, 5, 4
"""Maximum numbers of methods, tasks and models on one figure; if there are more, several figures are drawn."""
MOST_COMPARED, MOST_ROWS = 30, 60
"""Maximum number of methods, and of methods times tasks, on a figure that compares methods in common axes."""

T = TypeVar("T")


def write_figures(
    tables: Sequence[Table],
    records_of: RecordsOf,
    out: Path,
    formats: Sequence[str] = FORMATS,
    *,
    say: Callable[[str], None] = lambda _: None,
) -> list[Path]:
    """Write all figures for which the tables have numbers; if writing fails, no partial file is left.

    Methods with different recalibrations (e.g. `ccps+isotonic`) are drawn on different figures. So are results with
    different tuning budgets (numbers of configurations tried), methods that learned on different corpora, and answers
    with and without traces. If the methods or tasks don't fit on one figure, several are written.

    Args:
        tables: one table for each model, task, tuning budget, training corpus and limit of traces.
        records_of: returns the answers and confidences of a result; called once for each result.
        out: folder of the files; created if it does not exist.
        formats: members of `FORMATS`.
        say: called with the name of each figure before it is drawn.

    Returns:
        Paths of the files, in the order in which they were written.

    Raises:
        UserError: no table has a number, two tables agree in all of that, or the folder can't be written.
    """
    by_setting: dict[tuple[int, str, str], list[Table]] = {}
    for table in tables:
        traces = table.answers_source.partition(AFTER_TRACES)[2].partition(" ")[0].replace(",", "")
        setting = tuning_budget(table.rows[0]), common_corpus(table.all_rows), traces
        by_setting.setdefault(setting, []).append(table)
    for same_setting in [group for group in by_setting.values() if _has_numbers(group)] or [list(tables)]:
        build_figure_data(same_setting)
    ensure_writable(out)
    records: dict[tuple[object, ...], QuestionRecords] = {}  # by what names a row's file, as rows can't be hashed

    def remembered(row: ResultRow) -> QuestionRecords:
        """Return the answers and confidences of a result, from memory if they were read before.

        Ids, subjects and texts are dropped, as figures don't show them.
        """
        cell = (row.model, row.task, row.method, row.preset, row.seed, row.limit, config_digest(row.config))
        if cell not in records:
            records[cell] = replace(records_of(row), id=(), subject=(), answer=())
        return records[cell]

    paths: list[Path] = []
    stems: set[str] = set()
    for (budget, corpus, traces), same_setting in sorted(by_setting.items()):
        ending = f"{SEPARATOR}tuned{budget}" if budget else ""
        ending += f"{SEPARATOR}on-{safe_name(corpus)}" if corpus else ""
        ending += f"{SEPARATOR}traces{traces}" if traces else ""
        for stem, draw in _figures(same_setting, remembered, ending):
            name = stem
            if name.casefold() in stems:  # model `a/b` on all tasks and model `a` on task `b` would share a name
                name = f"{name}-{hashlib.sha256(str(len(stems)).encode()).hexdigest()[:8]}"
            stems.add(name.casefold())
            say(name)
            figure = draw()
            with named_errors(f"figure {str(out / name)!r} can't be written", "; name another folder"):
                out.mkdir(parents=True, exist_ok=True)
                paths += [save(figure, out / f"{name}.{kind}") for kind in formats]
    return paths


def _figures(
    tables: Sequence[Table], records_of: RecordsOf, setting: str
) -> Iterator[tuple[str, Callable[[], Figure]]]:
    """Yield (file name without extension, function that draws the figure) for each figure with a number."""
    keys = {line.key for table in tables for line in table.lines}
    for recalibration in sorted({key.recalibration for key in keys}):
        block = _with_lines(tables, {key for key in keys if key.recalibration == recalibration})
        ending = f"{setting}{SEPARATOR}{safe_name(recalibration)}" if recalibration else setting
        for kind in _figure_kinds(block, records_of):
            for page, number in _pages(kind):
                yield f"{kind.stem}{ending}{number}", partial(kind.draw, page)


class FigureKind(NamedTuple):
    """A kind of figure, with the tables that it shows."""

    stem: str
    """Beginning of the figures' file names."""
    draw: Callable[[Sequence[Table]], Figure]
    tables: Sequence[Table]
    compares: bool = False
    """Whether the figure has only a row or a marker for each method, in common axes, so that many methods fit."""


def _figure_kinds(tables: Sequence[Table], records_of: RecordsOf) -> Iterator[FigureKind]:
    """Yield the figures to draw: one of all tables, some of each model, and some of each model and task."""
    diagrams = partial(figures.reliability, records_of=records_of)
    risks = partial(figures.risk_coverage, records_of=records_of)
    yield FigureKind("reliability-overview", partial(figures.reliability_overview, records_of=records_of), tables)
    by_place = {table_id(table): table for table in tables}
    for model in sorted({model for model, _ in by_place}):
        of_model = {task: table for (of, task), table in by_place.items() if of == model}
        folder, every = model_folder(model), list(of_model.values())
        yield FigureKind(f"{folder}--metrics", figures.metric_intervals, every, compares=True)
        yield FigureKind(f"{folder}--confidence", partial(figures.confidence_histograms, records_of=records_of), every)
        if len(every) > 1:
            yield FigureKind(f"{folder}--reliability", diagrams, every)
            yield FigureKind(f"{folder}--risk-coverage", risks, every)
        for task, table in sorted(of_model.items()):
            stem = f"{folder}--{safe_name(task)}"
            yield FigureKind(f"{stem}--reliability", diagrams, [table])
            yield FigureKind(f"{stem}--risk-coverage", risks, [table])
            yield FigureKind(f"{stem}--subjects-auroc", partial(figures.subject_differences, metric="auroc"), [table])
            yield FigureKind(f"{stem}--subjects-brier", partial(figures.subject_differences, metric="brier"), [table])
            yield FigureKind(f"{stem}--cost", figures.cost_quality, [table], compares=True)
            if differences_by_metric(table):
                yield FigureKind(f"{stem}--forest", figures.differences_to_best, [table], compares=True)
            if has_matrix(table):
                yield FigureKind(f"{stem}--wins", figures.win_matrix, [table], compares=True)


def _with_lines(tables: Iterable[Table], keys: Collection[Key]) -> list[Table]:
    """Return the tables with only the given methods shown; a table with none of these methods is left out."""
    shown = (table.with_lines(keys) for table in tables)
    return [table for table in shown if table.lines]


# --- how much fits on one figure --------------------------------------------------------------------------------------


def _pages(kind: FigureKind) -> Iterator[tuple[Sequence[Table], str]]:
    """Split a kind of figure into figures that are small enough; yield the tables of each figure that has a number.

    With the tables comes the ending of the figure's file name, which is empty if one figure is enough.
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
        if len(portions) > 1:
            yield [replace(table, figure=f"Figure {k} of {len(shown)}.") for table in page], f"{SEPARATOR}{k}"
        else:
            yield page, ""


def _has_numbers(tables: Sequence[Table]) -> bool:
    return any(line.ok_rows for table in tables for line in table.lines)


def _split_evenly(values: Sequence[T], most: int) -> list[Sequence[T]]:
    """Split values into the fewest lists of at most `most` values, of about equal length."""
    number = -(-len(values) // most)
    bounds = [round(k * len(values) / number) for k in range(number + 1)]
    return [values[start:end] for start, end in pairwise(bounds)]


def safe_name(name: str) -> str:
    """Return a form of a task's or recalibration's name that can stand in a file name."""
    return name if NAME.fullmatch(name) else model_folder(f"/{name}")
