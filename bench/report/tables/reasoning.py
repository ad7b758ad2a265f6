"""What reasoning changes: answers and confidences with traces against those without, paired by question."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from bench import stats
from bench.report.grouping import Key, common_corpus, tuning_budget
from bench.report.standings.compute import Standings, compare_on_shared, withhold
from bench.report.tables import comparison
from bench.report.tables.caption import distinguishing_labels
from bench.report.tables.grid import TableViews
from bench.report.tables.model import Line, Table
from bench.report.text import count
from bench.results.files import records_of
from bench.results.question_records import QuestionRecords
from bench.results.row import AFTER_TRACES
from bench.stats.holm import with_holm

_METRICS = ("acc", "rmsce", "auroc")
"""Metrics that are compared, the accuracy of answers alone. Brier scores move with the share of right answers."""
_SIDES = ("with", "without")
_SETTINGS = {"think_budget", "thinking", "enable_thinking"}
"""Settings in which the two runs of a pair differ."""


def paired_views(tables: Sequence[Table], results: Path) -> Iterator[TableViews]:
    """Yield paired differences for each table of answers with traces, and the one of those without.

    All methods of the tables are tested, but differences are of those that the tables show.

    Args:
        tables: tables with standings.
        results: folder of their results.
    """
    by_group: dict[tuple[object, ...], Table] = {}
    shown = {line.key.method for table in tables for line in table.lines}
    for table in (table.with_hidden_lines() for table in tables):
        row = table.rows[0]
        judges = frozenset(row.judge for row in table.rows)  # grades of different ones can't be compared
        run = row.model, row.task, row.preset, row.limit, row.protocol, tuning_budget(row)
        by_group[*run, common_corpus(table.rows), judges, table.answers_source] = table
    for (*same, source), table in by_group.items():
        plain, traced, _ = str(source).partition(AFTER_TRACES)
        twin = by_group.get((*same, plain)) if traced else None
        others = {_run(line): line for line in twin.ordered_lines if line.standing} if twin else {}
        lines = [line for line in table.ordered_lines if line.standing and _run(line) in others]
        if names := [line.key.label for line in lines if line.key.method in shown]:
            pairs = {line.key.label: (line, others[_run(line)]) for line in lines}
            sides = {Key(k, side): pair[i] for k, pair in pairs.items() for i, side in enumerate(_SIDES)}
            yield _paired(table, sides, names, results)


def _run(line: Line) -> tuple[str, str]:
    """Return method and settings of a line, all of them: its label leaves out those that its table shares."""
    row = line.rows[0]
    settings = {k: v for k, v in {**row.config, **row.deviations}.items() if k not in _SETTINGS}
    return row.method, json.dumps(settings, sort_keys=True)


def _paired(table: Table, lines: dict[Key, Line], names: Sequence[str], results: Path) -> TableViews:
    """Compare the methods of `lines`, each of which is there with traces and without; show those of `names`."""
    methods = list(dict.fromkeys(key.method for key in lines))
    runs: dict[Key, list[QuestionRecords]] = {
        key: [records_of(row, results).by_id() for row in line.ok_rows] for key, line in lines.items()
    }
    rows = [[row for key, line in lines.items() if key.variant == side for row in line.ok_rows] for side in _SIDES]
    for side in _SIDES:  # sure of every answer, so that the accuracy is the share of right ones
        first, key = Key(methods[0], side), Key("answers", side)
        lines[key] = lines[first]
        runs[key] = [replace(run, confidence=np.ones(len(run.id)), score=None) for run in runs[first]]
    settings = stats.Settings()
    both = {method: [Key(method, side) for side in _SIDES] for method in ("answers", *methods)}
    tests = [(metric, both[name]) for metric in _METRICS for name in (["answers"] if metric == "acc" else methods)]
    n, compared = compare_on_shared(runs, tests, settings)
    pairs = [p for metric in _METRICS for p in with_holm([c for c in compared if c.metric == metric], "p_corrected")]
    # as in tables, confidences that don't order answers aren't better calibrated
    pairs = list(withhold(pairs, [key for key in lines if lines[key].orders_answers], 1 - settings.level))
    written = [min((row.test_generated_tokens or 0) / max(1, row.n or 0) for row in of) for of in rows]
    unread = [count(max(row.n_unparsed or 0 for row in of)) for of in rows]
    shared = set.intersection(*(set(run.id) for own in runs.values() for run in own))
    answers = [runs[key][0] for key in both["answers"]]
    constants = [f"{100 * np.var(run.correct[[i in shared for i in run.id]]):.1f}" for run in answers]
    counts = rows[0][0].counts.items()
    odd = [
        f"{what.partition(': ')[2]}: {count(k)}"
        for what, k in counts
        if re.search("/test: .*(trace|end marker|redacted)", what)
    ]
    limit = table.answers_source.partition(AFTER_TRACES)[2]
    unreadable = f"answers that could not be read: {unread[0]} with, {unread[1]} without"
    (label,) = distinguishing_labels([table.rows])
    facts = (
        f"{table.model} on {table.task}{f' ({label})' * bool(label)}, with traces of at most {limit} against without",
        f"n = {count(n)} questions that both have.",
        f"An answer takes {written[0]:,.0f} written tokens with traces, {written[1]:,.0f} without.",
        f"{'; '.join((*odd, unreadable)).capitalize()}.",
        "ACC of `answers` is the share of right ones.",
        f"Brier scores move with it: a constant has {constants[0]} with traces, {constants[1]} without.",
    )
    standing = {key: line.standing for key, line in lines.items() if line.standing}
    shown = tuple(replace(line, key=key) for key, line in lines.items())
    paired = replace(
        table, facts=facts, metrics=_METRICS, lines=shown, others=(), average=settings.average,
        standings=Standings(settings.level, standing, tuple(pairs), {}),
    )  # fmt: skip
    return comparison.views_of([paired], ["answers", *names], "p corrected is corrected for all methods of a metric.")
