"""Overview of many tables as a grid: who leads on each benchmark."""

from __future__ import annotations

from collections.abc import Sequence

from bench.report.competition import judged_by
from bench.report.tables.grid import Cell, Column, Grid, GridRow
from bench.report.tables.model import Table
from bench.report.text import metric_name
from bench.report.verdict import summary_of

_LEADS = (
    "A method leads where no ranked method is significantly better; it is sure where it is significantly better than"
    " every other ranked method, all pairs tested together at 95 %."
)
_MODELS = (
    "Where a benchmark has several models, counts are of models, and from ... to is the smallest and largest of them."
)
_BY = "By is how far the best mean is ahead of the second, with the 95 % interval of this pair alone."
_COST = (
    "Cost is the token positions fed to the model for the leader, of several for the cheapest, and the labels it read."
)


def grid(tables: Sequence[Table]) -> Grid:
    """A row for each benchmark."""
    found = summary_of(tables)
    rows = [
        GridRow([*map(Cell, (row.task, str(row.models), row.leads, row.sure, row.by, row.orders, row.cost))])
        for row in found.rows
    ]
    labels = ("benchmark", "models", "leads", "sure", "by", "orders answers best", "cost")
    columns = tuple(Column(label, is_left=label != "models") for label in labels)
    several = [_MODELS] * any(row.models > 1 for row in found.rows)
    title = f"Who leads, by {metric_name(judged_by(found.metric))}"
    return Grid((title,), columns, tuple(rows), (_LEADS, *several, _BY, _COST), is_folded=True)
