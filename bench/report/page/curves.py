"""Reliability curves of the page's lines, as JSON-ready dicts.

    {"place": 0, "leads": bool,                       place among the lines of its block, the leading group first
     "ece": "7.5", "mcb": "0.6",                      of the answers of all subjects and seeds together
     "confidence": [], "rate": [], "low": [], "high": []}    the curve and its band, see `bench.report.corp`

A line without a result has none. One that only orders answers has its place, and null and empty lists.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bench.metrics import METRICS
from bench.report import corp
from bench.report.grouping import ece_bins_of
from bench.report.page.lines import PARTS
from bench.report.tables.model import Line, Table
from bench.report.text import shown
from bench.results.records import Records


def of(table: Table, line: Line, records: Sequence[Records]) -> dict[str, Any] | None:
    """The curve of one line.

    Args:
        table: that the line is of.
        line: with or without results.
        records: of its seeds that are ok.
    """
    if not line.done:
        return None
    leaders = [leader.key for leader in table.leaders()]
    leading = [key for key in leaders if any(other.key == key for other in table.lines)]
    order = [*leading, *(other.key for other in table.lines if other.key not in leading)]
    head = {"place": order.index(line.key), "leads": line.key in leading}
    if not line.has_confidences:
        return {**head, "ece": None, "mcb": None, **{name: [] for name in corp.Curve._fields}}
    pooled = corp.pooled(records, ece_bins_of(line.done[0]))
    curve = corp.curve_of(records)._asdict()
    return {
        **head,
        "ece": shown(METRICS["ece"], pooled.ece),
        "mcb": shown(METRICS["brier_mcb"], pooled.mcb),
        **{name: np.round(values * PARTS).astype(int).tolist() for name, values in curve.items()},
    }
