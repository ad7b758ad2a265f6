"""Paired differences between named methods on the same questions, with intervals and tests (`--compare`).

Example: `build(tables, ["ccps", "litcab"])` has, for each model and task, the differences in every metric with a test.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

from bench.api import UserError
from bench.api.errors import match_name
from bench.metrics import METRICS
from bench.report.competition import ranked_by
from bench.report.standings.compute import Pair
from bench.report.tables.choice import refuse_unknown
from bench.report.tables.export import pair_record
from bench.report.tables.grid import Cell, Column, Grid, GridRow, TableViews, with_breaks
from bench.report.tables.model import Table
from bench.report.text import EN_DASH, averaged, interval_text, join, p_text, plain, precise_difference, with_arrow
from bench.stats import TESTED

COLUMNS = (
    Column("first", is_left=True), Column("second", is_left=True), Column("metric", is_left=True), Column("difference"),
    Column("95 % interval"), Column("p alone"), Column("p corrected"), Column("verdict", is_left=True),
)  # fmt: skip
_LEGEND = (
    "The difference is the first method's value minus the second's, on the same questions; values are {of}.",
    "It is in percentage points, of NLL in nats; ↑ says that more is better, ↓ that less is.",
    "Of an RMSCE, less than 0 counts as 0.",
    "The 95 % interval is for other questions of these subjects.",
    "The interval and p alone hold for a pair that was chosen beforehand.",
    "{correction}",
    "By the verdict a method is better where p corrected is below 0.05.",
)
_CORRECTION = "p corrected is corrected for all pairs of the block, or of the table if the blocks differ."
_UNDECIDED = "can't be distinguished"
_NO_VERDICT = "no verdict"
"""Verdict on a pair if the better method has no rank by this metric, because its AUROC is not above chance."""
_ALPHA = 0.05


def build(tables: Sequence[Table], names: Sequence[str]) -> TableViews:
    """Lay out the paired differences between all pairs of the named methods, for each table.

    Args:
        tables: from `bench.report.tables.build.build`, with standings (intervals, tests and ranks).
        names: names of at least two methods; a difference is the value of the earlier name minus that of the later
            name.

    Raises:
        UserError: fewer than two names, a repeated or unknown name, or a metric without test.
    """
    known = sorted({line.key.method for table in tables for line in table.lines})
    names = [match_name(name, known) for name in names]
    for name in names:
        refuse_unknown("--compare", "method", name, known, of="result of ")
    if len(set(names)) <= 1 or len(set(names)) < len(names):
        raise UserError(f"--compare: expected at least two different methods, got {join(names) or 'none'}")
    for metric in next((table.metrics for table in tables if table.metrics), ()):
        # `--metrics all` stands for all metrics that have a test
        if ranked_by(metric) not in TESTED and set(tables[0].metrics or ()) != set(METRICS):
            raise UserError(f"--compare: {metric} has no test; there are tests of ece, {join(TESTED)}")
    return views_of(tables, names)


def views_of(tables: Sequence[Table], names: Sequence[str], correction: str = _CORRECTION) -> TableViews:
    """Lay out the paired differences between all pairs of methods whose names are known; see `build`.

    Args:
        tables: as for `build`.
        names: as for `build`.
        correction: sentence of the legend that says for which pairs p values are corrected.
    """
    selected = [(table, _select_pairs(table, names), _missing_reasons(table, names)) for table in tables]
    return TableViews(
        [_grid(table, pairs, missing, correction) for table, pairs, missing in selected],
        lambda: [record for part in selected for record in _records(*part)],
        lambda: [
            table.head
            | {
                "facts": list(table.facts),
                "comparisons": [pair_record(pair) | {"verdict": verdict(pair)} for pair in pairs],
                "missing": missing,
            }
            for table, pairs, missing in selected
        ],
    )


def _records(table: Table, pairs: Sequence[Pair], missing: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield the CSV records: one for each pair, or one of what is missing if there is no pair."""
    about = {"caption": table.caption, "missing": "; ".join(missing)}
    if missing and not pairs:
        yield table.head | about
    for pair in pairs:
        yield table.head | {
            "metric": pair.metric, "first": pair.first.label, "second": pair.second.label,
            "difference": pair.difference, "low": pair.fixed.low, "high": pair.fixed.high,
            "clustered_low": pair.clustered.low, "clustered_high": pair.clustered.high, "p": pair.p,
            "p_corrected": pair.p_corrected, "verdict": verdict(pair), **about,
        }  # fmt: skip


def verdict(pair: Pair) -> str:
    """Return in words which method of a pair is better, by the corrected p value."""
    if pair.p_corrected is None:
        return "no test" if pair.p is None else _NO_VERDICT
    winner = pair.winner(_ALPHA)
    return _UNDECIDED if winner is None else f"{winner.label} is better"


def _select_pairs(table: Table, names: Sequence[str]) -> list[Pair]:
    """Return the tested pairs of the named methods in a table, in the order of the names."""
    pairs = table.standings.pairs if table.standings else ()
    metrics = TESTED if table.metrics is None else tuple(dict.fromkeys(map(ranked_by, table.metrics)))
    selected = [
        pair if names.index(pair.first.method) <= names.index(pair.second.method) else pair.reversed()
        for pair in pairs
        if {pair.first.method, pair.second.method} <= set(names) and pair.metric in metrics
    ]
    return sorted(
        selected,
        key=lambda pair: (
            names.index(pair.first.method), names.index(pair.second.method), pair.first.variant, pair.second.variant,
            metrics.index(pair.metric),
        ),
    )  # fmt: skip


def _missing_reasons(table: Table, names: Sequence[str]) -> list[str]:
    """Return the reasons why named methods, or pairs of them, have no row in the table."""
    pairs = [{pair.first.method, pair.second.method} for pair in (table.standings.pairs if table.standings else ())]
    compared, left_out = [p for p in pairs if p <= set(names)], table.standings.left_out if table.standings else {}
    able = {line.key.method for line in table.lines if line.status == "ok" and line.key not in left_out} & set(names)
    reasons = []
    for name in names:
        lines = [line for line in table.lines if line.key.method == name]
        done = [line for line in lines if line.status == "ok"]
        if not lines:
            reasons.append(table.no_result_of(name))
        elif not done:
            reasons += [f"{plain(name)} {reason}" for reason in lines[0].reasons]
        elif not any(name in pair for pair in compared) and (done[0].key in left_out or able - {name}):
            alone = "it shares its answers and labels with no other method here"
            reasons.append(f"{plain(name)} is not compared: {plain(left_out.get(done[0].key, alone))}")
        reasons += [f"{line.key.label} {reason}" for line in done for reason in line.reasons]  # of single seeds
    with_others = set[str]().union(*(pair for pair in compared if len(pair) > 1))
    for one, other in combinations((name for name in dict.fromkeys(names) if name in with_others), 2):
        if {one, other} not in compared:
            reasons.append(f"{plain(one)} is not compared with {plain(other)}: their answers or labels differ")
    return reasons


def _grid(table: Table, pairs: Sequence[Pair], missing: Sequence[str], correction: str) -> Grid:
    rows: list[GridRow] = []
    for pair, begins_block in with_breaks(pairs, lambda pair: (pair.first, pair.second)):
        keys = pair.first, pair.second
        metric, interval = METRICS[pair.metric], pair.fixed
        interval_cell = Cell(EN_DASH, notes=(f"no interval: {interval.reason}",))
        if interval.ends is not None:
            interval_cell = Cell(interval_text(metric, *interval.ends))
        verdict_text, standings = verdict(pair), table.standings.lines if table.standings else {}
        notes = (f"{key.label}: {reason}" for key in keys if (reason := standings[key].unordered))
        p = [Cell(p_text(value) or EN_DASH) for value in (pair.p, pair.p_corrected)]
        cells = [
            *(Cell(key.label) for key in keys), Cell(with_arrow(pair.metric)),
            Cell(precise_difference(metric, pair.difference)), interval_cell, *p,
            Cell(verdict_text, notes=tuple(notes) if verdict_text == _NO_VERDICT else ()),
        ]  # fmt: skip
        rows.append(GridRow(cells, begins_block=begins_block))
    title, *facts = table.facts
    legend = tuple(sentence.format(of=averaged(table.average), correction=correction) for sentence in _LEGEND)
    return Grid(
        (f"{title}: paired differences", *facts), COLUMNS, tuple(rows), legend, tuple(missing),
        label=f"{table.model}-{table.task}-differences", is_folded=True,
    )  # fmt: skip
