"""Summary of many tables: a row for each benchmark over its models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bench.report.tables.model import Table
from bench.report.verdict.verdicts import verdict_of


@dataclass(frozen=True)
class SummaryRow:
    """One benchmark over the models that were tested on it."""

    task: str
    """Benchmark, with its preset where others have another one."""
    models: int
    """Number of models."""
    leads: str
    """Who leads, e.g. `ccps with 4 of 4 models, surely with 3`."""
    sure: str
    by: str
    orders: str
    cost: str


@dataclass(frozen=True)
class Summary:
    """Summary of some tables by one metric."""

    metric: str
    rows: tuple[SummaryRow, ...]


def summary_of(tables: Sequence[Table], metric: str | None = None) -> Summary:
    """Summary of tables, one row for each benchmark.

    Args:
        tables: from `bench.report.tables.build.build`, at least one.
        metric: in `bench.metrics.METRICS`; that of the tables by default.
    """
    metric = metric or tables[0].headline
    rows = []
    for table in tables:
        brief = verdict_of(table, metric).brief
        rows.append(SummaryRow(table.task, 1, brief.leads, brief.sure, brief.by, brief.orders, brief.cost))
    return Summary(metric, tuple(rows))
