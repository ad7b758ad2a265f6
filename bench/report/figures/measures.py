"""Dot plot of measures: a row for each, its value with its interval, and both as numbers beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.report.figures.drawing import AXIS, absent, beside, difference_axis, dot_row, drawing, name_rows, styled
from bench.report.measures import interval_text, title, value_text
from bench.report.style import TEXT_WIDTH, built_in
from bench.stats.measured import Measured

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROW = 0.13
"""Inches of a row."""
_MOST = 30
"""Rows on one figure: as many as can be read on a page; all are in the numbers."""


@styled()
def dots_of_measures(found: Measured) -> Figure | None:
    """The drawn column of all rows that have a value in it, in their order; None where none is to be drawn."""
    column = found.drawn
    if column is None:
        return None
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
    known = (int, float)
    intervals = [(row[column.low], row[column.high]) if column.low else (None, None) for row, _ in shown]
    ends = [
        (low, high) if isinstance(low, known) and isinstance(high, known) else (None, None) for low, high in intervals
    ]
    every = [*(value for _, value in shown), *(end for both in ends for end in both)]
    difference_axis(axes, every, 6, percent=column.kind in {"percent", "points"})
    style = built_in().of(found.method)._replace(marker="o", fill="full")
    for i, ((row, value), both) in enumerate(zip(shown, ends, strict=True)):
        dot_row(axes, i, value, both, (str(i), "value"), style)
        between = interval_text(column, row)
        beside(axes, i, value_text(column, value) + f" ({between})" * bool(between))
    return figure
