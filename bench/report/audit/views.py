"""Tables of an audit beside the comparison: where confidences are off, models compared, and limits for CI."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from bench.report.audit.compute import AuditTables, Gap, Gate
from bench.report.tables import build, comparison
from bench.report.tables.grid import Cell, Column, Grid, GridRow, TableViews
from bench.report.tables.model import Table
from bench.report.text import EN_DASH, count, interval_text, percent, signed
from bench.report.verdict.audit import METRIC, off_by, points
from bench.report.verdict.phrases import name_first_few
from bench.stats import Overconfidence

MOST = 20
"""Rows that a table of `--by` shows; JSON has all."""
_FACT = (
    "Sure is the mean confidence, right the share of right answers, off the first minus the second, in percentage"
    " points. Intervals hold together at 95 % for all rows (Bonferroni). Worst first: by the nearer end."
)


def views_of(audit: AuditTables, tables: Sequence[Table]) -> TableViews:
    """Return all tables of an audit, those of groups as they were selected, as grids, CSV records and JSON data."""
    main = build.table_views(tables, stats=audit.request.stats, legend=audit.request.legend)
    pairs = [comparison.views_of([table], [line.key.method for line in table.lines]) for table in audit.compared]
    by = [_gap_grid(name, list(gaps)) for name, gaps in groupby(audit.gaps, key=lambda gap: gap.by)]
    grids = [*main.grids, *(grid for view in pairs for grid in view.grids), *by]

    def data() -> dict[str, Any]:
        offs = [(table, key, off) for table in tables for key, off in table.overconfidence.items()]
        return {
            "tables": main.data(),
            "overconfidence": [_record(off, group=table.model, confidence=key.label) for table, key, off in offs],
            "groups": [part for view in pairs for part in view.data()],
            "by": [_record(g.off, group=g.group, by=g.by, value=g.value, confidence=g.confidence) for g in audit.gaps],
            "fail_above": [g._asdict() | {"failed": g.failed, "sentence": gate_sentence(g)} for g in audit.gates],
        }

    return TableViews(grids, main.records, data)


def gate_sentence(gate: Gate) -> str:
    """Return what a limit of `--fail-above` came to, as a sentence."""
    limit, where = percent(gate.limit), f"{gate.confidence} ({gate.group})"
    if gate.ends is None:
        against = f"not tested: {where} against a calibration error of {limit} points"
        return f"{against}: {gate.reason}; a limit that can't be tested is not kept"
    error = points(max(gate.rmsce or 0.0, gate.ends[0]), *gate.ends)  # RMSCE may be estimated below what is sure
    word, verdict = ("failed", "above") if gate.failed else ("passed", "not above")
    return f"{word}: {where} has a calibration error of {error}, {verdict} {limit} beyond chance"


def _gap_grid(by: str, gaps: Sequence[Gap]) -> Grid:
    several, rows = len({gap.group for gap in gaps}) > 1, []
    names = (by, *["group"] * several, "confidence", "n", "sure", "right", "off", "95 % together", "")
    columns = tuple(Column(name, is_left=k <= 1 + several or not name) for k, name in enumerate(names))
    for gap in gaps[:MOST]:
        off, ends = gap.off, gap.off.interval.ends
        texts = [gap.value, *[gap.group] * several, gap.confidence, count(off.n), percent(off.confidence)]
        texts += [percent(off.accuracy), signed(METRIC, off.value)]
        cell = Cell(interval_text(METRIC, *ends)) if ends else Cell(EN_DASH, notes=(off.interval.reason,))
        rows.append(GridRow([*map(Cell, texts), cell, Cell(off.word)]))
    shown = [f"{g.confidence} for {g.value} is {g.off.word} by {off_by(g.off)}" for g in gaps if g.off.least]
    verdict = f"Worst: {name_first_few(shown, most=3)}." if shown else "Nowhere shown to be over- or underconfident."
    remarks = (f"{len(gaps) - MOST:,} further rows are in JSON (--out, --json).",) * (len(gaps) > MOST)
    return Grid((f"Off by {by}", _FACT), columns, tuple(rows), (), remarks, (verdict,), is_folded=True)


def _record(off: Overconfidence, **place: str) -> dict[str, Any]:
    return place | {
        "n": off.n, "mean_confidence": off.confidence, "accuracy": off.accuracy, "overconfidence": off.value,
        "low": off.interval.low, "high": off.interval.high, "reason": off.interval.reason, "verdict": off.word,
    }  # fmt: skip
