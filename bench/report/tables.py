"""Result rows -> one comparison table per model and task, and from there to terminal, Markdown, CSV, LaTeX and JSON.

A line is a method; its cells are macro means ± standard deviations over subjects, or "skipped" / "failed" with a
footnote that says why. Example: `print(render(build(read_all(Path("results"))), "md"))`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from bench.metrics import METRICS
from bench.records import LabelsSeen, MetricSummary, ResultRow
from bench.report import data, formats, grids
from bench.report.caption import facts_of
from bench.report.grids import COLUMNS
from bench.report.groups import Group, Key, grouped, lines_of
from bench.report.model import Estimate, Line, Sheet, Table
from bench.report.published import Published
from bench.report.standings import Standings
from bench.report.text import REASON_LENGTH, plain

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["COLUMNS", "REASON_LENGTH", "Judge", "against", "build", "plain", "print_terminal", "render", "sheet"]

Judge = Callable[[Mapping[Key, Sequence[ResultRow]]], Standings]
"""Lines of a table -> how sure its numbers are, e.g. `bench.report.kept.Reader`."""

OTHER_LABELS = "rests on other answers or labels than most lines: ranked and compared only with lines marked like it"


def build(
    rows: Sequence[ResultRow],
    *,
    preset: str | None = None,
    order: Sequence[str] | None = None,
    deviations: bool = False,
    partial: bool = False,
    judge: Judge | None = None,
) -> list[Table]:
    """Tables in the order of model and task; partial runs, and runs of another protocol, get tables of their own.

    Runs of a method with different settings are lines of one table, told apart by a footnote.

    Args:
        rows: what `bench.results.read_all` gives.
        preset: shows this preset only.
        order: methods that come first, in this order; the others follow as in figures, recalibrated ones last.
        deviations: also shows rows with overridden constants.
        partial: also shows rows of runs with `--limit`.
        judge: computes intervals, tests and ranks; without it no number is marked as best.

    Raises:
        UserError: nothing to show, the rows of a model and task differ in schema, preset, task version or protocol, or
            a file that `judge` reads is not as it must be.
    """
    groups = grouped(rows, preset=preset, deviations=deviations, partial=partial)
    return [_table(group, order or (), judge) for group in groups]


def against(tables: Sequence[Table], cells: Mapping[tuple[str, str, str, str], Published]) -> list[Table]:
    """The tables with the published cells beside ours.

    Args:
        tables: from `build`.
        cells: `bench.report.published.read`.
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
    return Sheet(laid_out, partial(data.records, tables, stats=stats), partial(data.as_json, tables))


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


def _table(group: Group, order: Sequence[str], judge: Judge | None) -> Table:
    lines = lines_of(group.rows, order)
    standings = judge(lines) if judge else None
    first = group.rows[0]
    return Table(
        model=plain(first.model),
        task=plain(first.task),
        preset=plain(first.preset),
        task_version=first.task_version,
        facts=facts_of(group),
        lines=tuple(_line(key, rows, standings) for key, rows in lines.items()),
        standings=standings,
    )


def _line(key: Key, rows: Sequence[ResultRow], standings: Standings | None) -> Line:
    """The line of one method from its seeds."""
    done = [row for row in rows if row.status == "ok"]
    standing = standings.lines.get(key) if standings else None
    notes = [f"with {key.variant}"] if key.variant else []
    if standing and standing.labels:
        notes.append(OTHER_LABELS)
    if standings and key in standings.left_out:
        notes.append(standings.left_out[key])
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
    )
    return _judged(line, standings) if standings and standing else line


def _judged(line: Line, standings: Standings) -> Line:
    """With what is known of each metric."""
    assert line.standing is not None  # noqa: S101 - for the type checker
    metrics = line.standing.metrics
    best = {name for name, keys in standings.leaders.items() if line.key in keys}
    return replace(
        line,
        estimates={
            name: replace(estimate, best=name in best, standing=metrics.get(name))
            for name, estimate in line.estimates.items()
        },
    )


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
        notes.append(f"{METRICS[name].label} counts {clipped} mistakes that were all but sure as if p were 2^-24")
    return Estimate(mean, _mean(summary.std for summary in summaries), notes=_texts(notes))


def _texts(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(map(plain, texts)))


def _distinct(labels: Iterable[LabelsSeen]) -> list[LabelsSeen]:
    return list(dict.fromkeys(labels))


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
