"""Build one comparison table per model and task from result rows; all output formats are made from this table.

A line of the table is a method. Its cells have the metrics with half the width of their intervals, or "skipped" or
"failed" with a footnote. Lines are sorted by the mean of the headline metric. Example:
`print(formats.render(table_views(build(read_all(Path("results")))), "md"))`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from bench import registry
from bench.metrics import METRICS
from bench.metrics.summary import Average, MetricSummary
from bench.report import style, training
from bench.report.competition import NEEDS_ORDER, displayed_value, find_best
from bench.report.grouping import Key, group_rows, rows_by_line
from bench.report.standings.compute import Standings
from bench.report.style import Styles
from bench.report.tables import export, layout
from bench.report.tables.caption import WARNINGS, build_facts
from bench.report.tables.grid import TableViews
from bench.report.tables.legend import brief
from bench.report.tables.model import COLUMNS, HEADLINE, Line, MetricValue, Table, unique
from bench.report.tables.origins import Origins
from bench.report.tables.published import Published
from bench.report.text import join, mean_of, omitted_subjects, plain
from bench.results.files import base_of
from bench.results.row import ResultRow

StandingsOf = Callable[[Mapping[Key, Sequence[ResultRow]]], Standings]
"""Function that computes intervals, tests and ranks of a table from the result rows of each line (method)."""

_FEW = 2
"""Maximum number of tables that are shown without an overview before them."""
_OTHER_LABELS = "rests on other answers or labels than the lines that are judged"
_NOT_BUILT_IN = "not built in: a plugin's method, which this package neither contains nor checks"


def build(
    rows: Sequence[ResultRow],
    *,
    average: Average = "questions",
    preset: str | None = None,
    deviations: bool = False,
    partial: bool = False,
    standings_of: StandingsOf | None = None,
    styles: Styles | None = None,
    marks_plugins: bool = False,
) -> list[Table]:
    """Build tables sorted by model and task; partial and tuned runs, among others, get separate tables.

    `bench.report.grouping.group_rows` says which rows get a table of their own. If a method ran with several settings,
    each of them is a line of the table, with a footnote. The caption has what is noted of every method.

    Args:
        rows: rows from `bench.results.cells.read_all`.
        average: what metrics average over; `standings_of` must use the same average.
        preset: show this preset only.
        deviations: include rows with overridden constants.
        partial: include runs with `--limit`.
        standings_of: function that computes intervals, tests and ranks. By default nothing is tested, and the best
            numbers are marked as not tested.
        styles: styles and order of methods; by default those of the built-in methods.
        marks_plugins: add a footnote at each method that is not built in.

    Raises:
        UserError: nothing to show, or a malformed file. Also if the rows of a model and task differ in schema, preset
            or task version, if rows without overridden constants differ in protocol, or if two rows of one method and
            settings have the same seed.
    """
    tables, styles = [], styles or style.built_in()
    for group in group_rows(rows, preset=preset, deviations=deviations, partial=partial):
        runs, first = rows_by_line(group.rows, styles), group.rows[0]
        standings, origins = standings_of(runs) if standings_of else None, Origins(runs)
        plain_lines = [_build_line(key, seeds, average, standings, origins, styles) for key, seeds in runs.items()]
        shared = set.intersection(*(set(line.notes) for line in plain_lines)) if len(plain_lines) > 1 else set()
        facts = [f"{note[0].upper()}{note[1:]}." for note in plain_lines[0].notes if note in shared]
        plain_lines = [
            replace(line, notes=tuple(note for note in line.notes if note not in shared)) for line in plain_lines
        ]
        best, lines = find_best(plain_lines, standings), []
        for line in plain_lines:
            notes = line.notes
            if marks_plugins and base_of(line.key.method) not in registry.groups_built_in():
                notes = (_NOT_BUILT_IN, *notes)
            if line.standing and line.standing.labels:  # a footnote names the only lines that it is compared with
                labels = line.standing.labels
                peers = [
                    peer.key.label for peer in plain_lines
                    if peer.key != line.key and peer.standing and peer.standing.labels == labels
                ]  # fmt: skip
                ranked_with = f"ranked and compared only with {join(peers)}" if peers else "compared with none"
                notes = unique((*notes, f"{_OTHER_LABELS}: {ranked_with}"))
            estimates = {name: replace(e, best=best[line.key].get(name)) for name, e in line.estimates.items()}
            lines.append(replace(line, notes=notes, estimates=estimates))
        table = Table(
            model=plain(first.model), task=plain(first.task), preset=plain(first.preset),
            task_version=first.task_version, facts=(*build_facts(group, origins), *facts), lines=tuple(lines),
            warnings={name: warn(group.rows) for name, warn in WARNINGS.items()}, standings=standings, average=average,
        )  # fmt: skip
        tables.append(table.ordered_by(HEADLINE))
    return tables


def add_published(tables: Sequence[Table], cells: Mapping[tuple[str, str, str, str], Published]) -> list[Table]:
    """Return the tables with the published numbers of their models and tasks.

    Args:
        tables: from `build`.
        cells: published numbers from `bench.report.tables.published.read`.
    """
    by_table: dict[tuple[str, str], dict[tuple[str, str], Published]] = defaultdict(dict)
    for (model, task, method, metric), cell in cells.items():
        by_table[model, task][method, metric] = cell
    return [replace(table, published=by_table.get((table.model, table.task), {})) for table in tables]


def table_views(tables: Sequence[Table], *, stats: bool = False, legend: bool = False) -> TableViews:
    """Lay out tables as grids, CSV records and JSON data, from which all output formats are made.

    Args:
        tables: from `build`.
        stats: include intervals, and metrics that the paper does not have.
        legend: print the whole legend in a terminal too, not its two lines; so does `stats`, unless the table is long.
    """
    grids = layout.method_grids(tables, stats=stats)
    if len(tables) > _FEW:
        grids = [layout.overview_grid([table.with_hidden_lines() for table in tables]), *grids]
    if not legend and (not stats or any(grid.hides_spreads for grid in grids)):
        grids = [replace(grid, brief=brief(tables)) for grid in grids]
    return TableViews(grids, partial(export.csv_records, tables, stats=stats), partial(export.json_records, tables))


# --- one line ---------------------------------------------------------------------------------------------------------


def _build_line(
    key: Key, rows: Sequence[ResultRow], average: Average, standings: Standings | None, origins: Origins, styles: Styles
) -> Line:
    """Build a line of a table, i.e. one method with one set of settings, from the result rows of its seeds."""
    # the group of a plugin's method follows from whether it was trained
    is_trained = any(row.train_on is not None for row in rows)
    line = Line(
        key=key,
        style=styles.of(key.method),
        place=(*styles.place(key.method), key.variant),
        group=registry.groups_built_in().get(base_of(key.method), "trained" if is_trained else "untrained"),
        rows=tuple(rows),
        standing=standings.lines.get(key) if standings else None,
    )
    computed = {name for row in line.ok_rows for name in row.metrics}  # metrics of COLUMNS are included in any case
    names = [name for name in METRICS if line.ok_rows and (name in COLUMNS or name in computed)]
    notes = [f"with {key.variant}"] if key.variant else []
    if standings and key in standings.left_out:
        notes.append(standings.left_out[key])
    if training.cut_short_note(line.training):
        notes.append(training.cut_short_note(line.training, training.published_training(base_of(key.method))))
    notes += [*origins.notes(key), *(note for row in rows for note in row.notes)]
    return replace(line, estimates={name: _value(line, name, average) for name in names}, notes=unique(notes))


def _value(line: Line, name: str, average: Average) -> MetricValue:
    """Compute one metric of a method from the result rows of its line: the mean over seeds, with footnotes."""
    summaries = [row.metrics.get(name, MetricSummary(None, None, None, 0)) for row in line.ok_rows]
    by_seed = tuple(value for summary in summaries if (value := summary.of(average)) is not None)
    mean = METRICS[name].mean(by_seed)
    undefined = max(summary.n_undefined for summary in summaries) if average == "subjects" else 0
    label, notes = METRICS[name].label, list[str]()
    if mean is None:
        computed = any(name in row.metrics for row in line.ok_rows)
        where = " in every subject" * (average == "subjects")
        undefined_why = f"undefined{where}: too few answers, or all of them right or all wrong"
        notes.append(undefined_why if computed else "it takes probabilities, and these are scores")
    elif undefined:
        notes.append(omitted_subjects(label, [undefined], len(line.ok_rows[0].per_subject)))
    clipped = max((row.n_clipped or 0 for row in line.ok_rows), default=0) if name == "nll" else 0
    if clipped:
        notes.append(f"{label} takes p as 2^-24 where a mistake was surer than that: {clipped} times")
    if name in NEEDS_ORDER and mean is not None and line.standing and line.standing.unordered:
        notes.append(f"{line.standing.unordered}; neither mark nor rank")
    return MetricValue(
        mean=None if mean is None else displayed_value(name, mean),
        std=mean_of(row.std_over_subjects(name) for row in line.ok_rows),
        by_seed=tuple(displayed_value(name, value) for value in by_seed),
        n_undefined=undefined,
        standing=line.standing.metrics.get(name) if line.standing else None,
        notes=unique(notes),
    )
