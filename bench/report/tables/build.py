"""Result rows -> one comparison table per model and task, and from there to terminal, Markdown, CSV, LaTeX and JSON.

A line is a method; its cells are macro means with half the width of their intervals, or "skipped" / "failed" with a
footnote that says why. Lines are in the order of their mean Brier score. Example:
`print(render(build(read_all(Path("results"))), "md"))`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from bench.metrics import METRICS
from bench.metrics.summary import MetricSummary
from bench.report import training
from bench.report.grouping import Group, Key, grouped, lines_of, recalibration_of
from bench.report.standings.compute import LineStanding, Standings
from bench.report.tables import export, formats
from bench.report.tables import layout as grids
from bench.report.tables.best import best_of
from bench.report.tables.caption import facts_of
from bench.report.tables.legend import RANK_BY
from bench.report.tables.model import COLUMNS, Estimate, Line, Sheet, Table
from bench.report.tables.published import Published
from bench.report.text import REASON_LENGTH, plain
from bench.results.row import LabelsSeen, ResultRow

if TYPE_CHECKING:
    from rich.console import Console

__all__ = [
    "COLUMNS", "REASON_LENGTH", "Judge", "against", "build", "plain", "print_terminal", "render", "sheet", "table_of",
]  # fmt: skip

Judge = Callable[[Mapping[Key, Sequence[ResultRow]]], Standings]
"""Lines of a table -> how sure its numbers are, e.g. `bench.report.standings.cache.Reader`."""

NO_ORDER = "does not order answers: its AUROC is not above 50 % beyond chance, so it has no mark for calibration"
OTHER_LABELS = "rests on other answers or labels than most lines: ranked and compared only with lines marked like it"


def build(
    rows: Sequence[ResultRow],
    *,
    preset: str | None = None,
    deviations: bool = False,
    partial: bool = False,
    judge: Judge | None = None,
) -> list[Table]:
    """Tables in the order of model and task; partial runs, and runs of another protocol, get tables of their own.

    Runs of a method with different settings are lines of one table, told apart by a footnote.

    Args:
        rows: what `bench.results.files.read_all` gives.
        preset: shows this preset only.
        deviations: also shows rows with overridden constants.
        partial: also shows rows of runs with `--limit`.
        judge: computes intervals, tests and ranks; without it the best numbers are marked as not tested.

    Raises:
        UserError: nothing to show, the rows of a model and task differ in schema, preset, task version or protocol, or
            a file that `judge` reads is not as it must be.
    """
    groups = grouped(rows, preset=preset, deviations=deviations, partial=partial)
    return [table_of(group, judge) for group in groups]


def against(tables: Sequence[Table], cells: Mapping[tuple[str, str, str, str], Published]) -> list[Table]:
    """The tables with the published cells beside ours.

    Args:
        tables: from `build`.
        cells: `bench.report.tables.published.read`.
    """
    by_table: dict[tuple[str, str], dict[tuple[str, str], Published]] = defaultdict(dict)
    for (model, task, method, metric), cell in cells.items():
        by_table[model, task][method, metric] = cell
    return [replace(table, published=by_table.get((table.model, table.task), {})) for table in tables]


def sheet(tables: Sequence[Table], *, stats: bool = False, layout: str = "methods") -> Sheet:
    """The tables for every format.

    Args:
        tables: from `build`.
        stats: also intervals and the metrics beyond the paper's.
        layout: `methods`, one table for each model and task; or `models`, two models side by side.

    Raises:
        UserError: models can't stand side by side.
    """
    laid_out = grids.models(tables) if layout == "models" else grids.methods(tables, stats=stats)
    return Sheet(laid_out, partial(export.records, tables, stats=stats), partial(export.as_json, tables))


def render(tables: Sequence[Table], kind: str, *, width: int | None = None) -> str:
    """The tables as text.

    Args:
        tables: from `build`.
        kind: `terminal`, `md`, `csv`, `tex` or `json`.
        width: of a terminal, in columns; that of the real one by default.

    Raises:
        UserError: unknown kind.
    """
    return formats.render(sheet(tables), kind, width=width)


def print_terminal(tables: Sequence[Table], console: Console) -> None:
    """Print the tables on a rich console."""
    formats.print_terminal(sheet(tables).grids, console)


# --- one table --------------------------------------------------------------------------------------------------------


def table_of(group: Group, judge: Judge | None) -> Table:
    """One table; see `build`."""
    runs = lines_of(group.rows)
    standings = judge(runs) if judge else None
    first = group.rows[0]
    lines = sorted((_line(key, rows, standings) for key, rows in runs.items()), key=_place)
    return Table(
        model=plain(first.model),
        task=plain(first.task),
        preset=plain(first.preset),
        task_version=first.task_version,
        facts=facts_of(group),
        lines=tuple(_with_best(lines, standings)),
        standings=standings,
    )


def _place(line: Line) -> tuple[str, bool, float]:
    """Sorts lines, which come as in figures: by block, and in it by mean Brier; what isn't ok comes last."""
    brier = line.estimates[RANK_BY].mean if line.estimates else None
    return recalibration_of(line.key.method), brier is None, 0.0 if brier is None else brier


def _with_best(lines: Sequence[Line], standings: Standings | None) -> Iterator[Line]:
    means = {
        line.key: {name: e.mean for name, e in line.estimates.items() if e.mean is not None}
        for line in lines
        if line.estimates and not training.cut_short(line.training)
    }
    best = best_of(means, standings)
    for line in lines:
        of_line = best.get(line.key, {})
        estimates = {name: replace(e, best=of_line.get(name)) for name, e in line.estimates.items()}
        yield replace(line, estimates=estimates)


def _line(key: Key, rows: Sequence[ResultRow], standings: Standings | None) -> Line:
    """The line of one method from its seeds."""
    done = [row for row in rows if row.status == "ok"]
    standing = standings.lines.get(key) if standings else None
    notes = [f"with {key.variant}"] if key.variant else []
    if standing and standing.labels:
        notes.append(OTHER_LABELS)
    if standings and key in standings.left_out:
        notes.append(standings.left_out[key])
    trainings = tuple(row.training for row in done if row.training)
    rates = [row.base_rate for row in done]
    notes += [training.cut_short(trainings)] if training.cut_short(trainings) else []
    notes += [note for row in rows for note in row.notes]
    line = Line(
        key=key,
        method=plain(key.method),
        variant=plain(key.variant),
        status="ok" if done else rows[0].status,
        seeds=tuple(row.seed for row in done),
        runs=len(rows),
        n=next((row.n for row in [*done, *rows] if row.n is not None), None),
        labels=tuple(_distinct(row.labels_seen for row in done)),
        estimates={name: _estimate(done, name) for name in METRICS if _is_known(done, name)},
        reasons=_texts(_reason(row, several=len(rows) > 1) for row in rows if row.status != "ok"),
        notes=_texts(notes),
        standing=standing,
        training=trainings,
        base_rate=_mean(rates),
    )
    return _judged(line, standing) if standing else line


def _judged(line: Line, standing: LineStanding) -> Line:
    """With what is known of each metric."""
    found = {name: replace(e, standing=standing.metrics.get(name)) for name, e in line.estimates.items()}
    if "ece" in found and not line.orders_answers:
        said = f"calibrated, but {NO_ORDER}" if line.is_calibrated else NO_ORDER
        found["ece"] = replace(found["ece"], notes=(*found["ece"].notes, said))
    return replace(line, estimates=found)


def _is_known(rows: Sequence[ResultRow], name: str) -> bool:
    """The paper's metrics are always told, others where a run computed them."""
    return bool(rows) and (name in COLUMNS or any(name in row.metrics for row in rows))


def _reason(row: ResultRow, *, several: bool) -> str:
    seed = f" (seed {row.seed})" if several else ""
    return f"{row.status}{seed}: {row.reason or 'no reason given'}"


def _estimate(rows: Sequence[ResultRow], name: str) -> Estimate:
    """The mean over seeds of one metric."""
    summaries = [row.metrics.get(name, MetricSummary(None, None, None, 0)) for row in rows]
    left_out = max(summary.n_undefined for summary in summaries)
    mean = _mean(summary.mean for summary in summaries)
    notes = []
    if mean is None:
        notes.append(f"{METRICS[name].label} is undefined in every subject")
    elif left_out:
        total = len(rows[0].per_subject)
        notes.append(f"{METRICS[name].label} leaves out {left_out} of {total} subjects, where it is undefined")
    clipped = max((row.n_clipped or 0 for row in rows), default=0) if name == "nll" else 0
    if clipped:
        notes.append(f"{METRICS[name].label} takes p as 2^-24 where a mistake was surer than that: {clipped} times")
    return Estimate(mean, _mean(summary.std for summary in summaries), notes=_texts(notes))


def _texts(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(map(plain, texts)))


def _distinct(labels: Iterable[LabelsSeen]) -> list[LabelsSeen]:
    return list(dict.fromkeys(labels))


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
