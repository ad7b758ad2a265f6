"""Tables of an audit beside the comparison: where confidences are off, models compared, and limits for CI."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from bench.metrics import METRICS
from bench.report.audit.compute import AuditTables, Gap, Gate, not_compared
from bench.report.tables import build, comparison
from bench.report.tables.grid import Cell, Column, Grid, GridRow, TableViews
from bench.report.text import EN_DASH, count, interval_text, percent, precise
from bench.report.verdict.audit import off_by
from bench.report.verdict.phrases import name_first_few
from bench.stats import Overconfidence

MOST = 20
"""Rows that a table of `--by` shows; CSV and JSON have all."""
_METRIC = METRICS["brier"]
_BY_LEGEND = (
    "Sure is the mean confidence, right the share of right answers, off the first minus the second, in percentage"
    " points. Intervals hold together at 95 % for all rows of the table (Bonferroni). Worst first: by the nearer end."
)


def views_of(audit: AuditTables) -> TableViews:
    """Return all tables of an audit as grids for people, CSV records and JSON data."""
    main = build.table_views(audit.tables, stats=audit.request.stats, legend=audit.request.legend)
    pairs = _pair_views(audit)
    grids = [*main.grids, *(grid for view in pairs for grid in view.grids), *_gap_grids(audit.gaps)]
    return TableViews(
        grids,
        main.records,
        lambda: {
            "tables": main.data(),
            "groups": [part for view in pairs for part in view.data()],
            "not_compared": not_compared(audit.tables, audit.compared),
            "by": [_gap_record(gap) for gap in audit.gaps],
            "overconfidence": [
                {"table": table.facts[0], "confidence": key.label, **_off_record(off)}
                for table in audit.tables
                for key, off in table.overconfidence.items()
            ],
            "fail_above": [
                {
                    "table": gate.table, "confidence": gate.confidence, "limit": gate.limit, "rmsce": gate.error,
                    "low": gate.low, "high": gate.high, "reason": gate.reason, "failed": gate.failed,
                }
                for gate in audit.gates
            ],
        },
    )  # fmt: skip


def gate_sentence(gate: Gate) -> str:
    """Return what a limit of `--fail-above` came to, as a sentence."""
    limit, where = percent(gate.limit), f"{gate.confidence} ({gate.table})"
    if gate.low is None or gate.high is None or gate.error is None:
        return f"not tested: {where} against a calibration error of {limit} points: {gate.reason}"
    ends = interval_text(_METRIC, max(0.0, gate.low), gate.high)
    found = f"calibration error {precise(_METRIC, max(0.0, gate.error))} points ({ends})"
    if gate.failed:
        return f"failed: {where} has a {found}, above {limit} beyond chance"
    return f"passed: {where} has a {found}, not above {limit} beyond chance"


def _pair_views(audit: AuditTables) -> list[TableViews]:
    return [comparison.views_of([table], [line.key.method for line in table.lines]) for table in audit.compared]


def _gap_grids(gaps: Sequence[Gap]) -> list[Grid]:
    grids = []
    for by, parts in groupby(gaps, key=lambda gap: gap.by):
        found = list(parts)
        tables = len({gap.table for gap in found})
        names = [by, *["table"] * (tables > 1), "confidence"]
        columns = [*(Column(name, is_left=True) for name in names), *map(Column, ("n", "sure", "right", "off"))]
        columns += [Column("95 % together"), Column("", is_left=True)]
        rows = []
        for gap in found[:MOST]:
            off, ends = gap.off, gap.off.interval.ends
            interval = Cell(interval_text(_METRIC, *ends)) if ends else Cell(EN_DASH, notes=(off.interval.reason,))
            texts = [gap.value or "(none)", *[gap.table] * (tables > 1), gap.confidence, count(off.n)]
            texts += [percent(off.confidence), percent(off.accuracy)]
            sign = "+" * (off.value > 0)
            rows.append(
                GridRow([*map(Cell, texts), Cell(sign + precise(_METRIC, off.value)), interval, Cell(off.word)])
            )
        remarks = [f"{len(found) - MOST:,} further rows are in CSV and JSON (--out, --json)."] * (len(found) > MOST)
        grids.append(
            Grid((f"Off by {by}",), tuple(columns), tuple(rows), (_BY_LEGEND,), tuple(remarks), (_gap_verdict(found),),
                 is_folded=True)
        )  # fmt: skip
    return grids


def _gap_verdict(gaps: Sequence[Gap]) -> str:
    sure = [gap for gap in gaps if gap.off.least]
    if not sure:
        return "Nowhere shown to be over- or underconfident."
    texts = [f"{gap.confidence} for {gap.value or '(none)'} {gap.off.word} by {off_by(gap.off)}" for gap in sure]
    return f"Worst: {name_first_few(texts, most=3)}."


def _gap_record(gap: Gap) -> dict[str, Any]:
    return {
        "table": gap.table, "by": gap.by, "value": gap.value, "confidence": gap.confidence, **_off_record(gap.off)
    }  # fmt: skip


def _off_record(off: Overconfidence) -> dict[str, Any]:
    return {
        "n": off.n, "mean_confidence": off.confidence, "accuracy": off.accuracy, "overconfidence": off.value,
        "low": off.interval.low, "high": off.interval.high, "reason": off.interval.reason, "verdict": off.word,
    }  # fmt: skip
