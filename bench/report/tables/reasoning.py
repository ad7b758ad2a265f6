"""What reasoning changes: answers and confidences with traces against those without, paired by question."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from bench import stats
from bench.report.grouping import Key, common_corpus
from bench.report.standings.compute import Standings, compare_on_shared
from bench.report.tables import comparison
from bench.report.tables.grid import TableViews
from bench.report.tables.model import Line, Table
from bench.report.text import count
from bench.results.files import records_of
from bench.results.question_records import QuestionRecords
from bench.results.row import AFTER_TRACES
from bench.stats.holm import with_holm

_METRICS = ("brier", "rmsce", "auroc")
_WITH, _WITHOUT = "with", "without"


def paired_views(tables: Sequence[Table], results: Path) -> Iterator[TableViews]:
    """Yield paired differences for each table of answers with traces, and the one of those without.

    Args:
        tables: tables with standings.
        results: folder of their results.
    """
    by_group: dict[tuple[object, ...], Table] = {}
    for table in (table for table in tables if table.rows):
        row = table.rows[0]
        judges = frozenset(row.judge for row in table.rows)  # grades of different ones can't be compared
        group = row.model, row.task, row.preset, row.limit, row.protocol, common_corpus(table.rows), judges
        by_group[*group, table.answers_source] = table
    for (*same, source), table in by_group.items():
        plain, traced, _ = str(source).partition(AFTER_TRACES)
        twin = by_group.get((*same, plain)) if traced else None
        lines = {Key(line.key.label, _WITH): line for line in table.ordered_lines if line.standing}
        others = {Key(line.key.label, _WITHOUT): line for line in twin.ordered_lines if line.standing} if twin else {}
        if methods := [key.method for key in lines if Key(key.method, _WITHOUT) in others]:
            yield _paired(table, {k: line for k, line in (lines | others).items() if k.method in methods}, results)


def _paired(table: Table, lines: dict[Key, Line], results: Path) -> TableViews:
    """Compare the methods of `lines`, each of which is there with traces and without."""
    methods = list(dict.fromkeys(key.method for key in lines))
    runs: dict[Key, list[QuestionRecords]] = {
        key: [records_of(row, results).by_id() for row in line.ok_rows] for key, line in lines.items()
    }
    for name in (_WITH, _WITHOUT):  # sure of every answer, so that the accuracy is the share of right ones
        first, key = Key(methods[0], name), Key("answers", name)
        lines[key] = lines[first]
        runs[key] = [replace(run, confidence=np.ones(len(run.id)), score=None) for run in runs[first]]
    limit = table.answers_source.partition(AFTER_TRACES)[2]
    settings, metrics = stats.Settings(), ("acc", *_METRICS)
    both = {method: [Key(method, _WITH), Key(method, _WITHOUT)] for method in ("answers", *methods)}
    tests = [(metric, both[name]) for metric in metrics for name in (["answers"] if metric == "acc" else methods)]
    n, compared = compare_on_shared(runs, tests, settings)
    pairs = [p for metric in metrics for p in with_holm([c for c in compared if c.metric == metric], "p_corrected")]
    written = [
        min(
            row.test_generated_tokens or 0 for key, line in lines.items() if key.variant == name for row in line.ok_rows
        )
        for name in (_WITH, _WITHOUT)
    ]
    costs = " written tokens with traces, ".join(f"{tokens / n:,.0f}" for tokens in written)
    facts = (
        f"{table.model} on {table.task}, with traces of at most {limit} against without",
        f"n = {count(n)} questions that both have.", f"An answer takes {costs} without.",
    )  # fmt: skip
    standing = {key: line.standing for key, line in lines.items() if line.standing}
    shown = tuple(replace(line, key=key) for key, line in lines.items())
    paired = replace(
        table, facts=facts, metrics=metrics, lines=shown, others=(), average=settings.average,
        standings=Standings(settings.level, standing, tuple(pairs), {}),
    )  # fmt: skip
    return comparison.views_of([paired], ["answers", *methods])
