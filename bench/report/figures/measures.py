"""Dot plot of measures: a row for each, its value with its interval, and both as numbers beside it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from bench.api import MeasureColumn
from bench.api.analyses import Value
from bench.report.figures.drawing import (
    AXIS,
    absent,
    around,
    beside,
    dot_row,
    drawing,
    name_rows,
    styled,
    tick_in,
    vertical_zero,
)
from bench.report.measures import interval_text, title, value_text
from bench.report.style import TEXT_WIDTH, built_in
from bench.stats.measured import Measured

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROW = 0.13
"""Inches of a row."""
_MOST = 30
"""Rows on one figure: as many as can be read on a page; all are in the numbers."""


def dots_of_measures(found: Measured) -> Figure | None:
    """The drawn column of all rows that have a value in it, in their order; None where none is to be drawn."""
    column = found.drawn
    if column is None:
        return None
    with styled():
        values = [(row, value) for row in found.measures.rows if isinstance(value := row[column.key], int | float)]
        notes = ["Lines are intervals." if column.low else "", *found.measures.notes]
        if len(values) > _MOST:
            notes.append(f"Shown: the first {_MOST} of {len(values)} rows; the numbers have all.")
        shown = values[:_MOST]
        figure, ((axes,),) = drawing(
            (1, 1), (TEXT_WIDTH, ROW * max(len(shown), 1) + AXIS), title=title(found),
            note=" ".join(filter(None, notes)),
        )  # fmt: skip
        axes.set_label(column.key)
        axes.set_title(column.label, loc="left")
        if not shown:
            absent(axes, "not known")
            return figure
        name_rows(axes, [str(row[found.naming]) for row, _ in shown])
        intervals = [_interval(column, row) for row, _ in shown]
        axes.set_xlim(*around([0.0, *(value for _, value in shown), *(end for ends in intervals for end in ends)]))
        tick_in(axes.xaxis, 100 if column.kind in {"percent", "points"} else 1, 6)
        axes.grid(axis="x")
        vertical_zero(axes)
        style = built_in().of(found.method)._replace(marker="o", fill="full")
        for i, ((row, value), ends) in enumerate(zip(shown, intervals, strict=True)):
            dot_row(axes, i, value, ends or (None, None), (str(i), "value"), style)
            between = interval_text(column, row)
            beside(axes, i, value_text(column, value) + f" ({between})" * bool(between))
        return figure


def _interval(column: MeasureColumn, row: Mapping[str, Value]) -> tuple[float, ...]:
    """Both ends; none where there is no interval."""
    low, high = (row[column.low], row[column.high]) if column.low else (None, None)
    return (low, high) if isinstance(low, int | float) and isinstance(high, int | float) else ()
