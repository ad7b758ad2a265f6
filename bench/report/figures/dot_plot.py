"""Draw a dot plot of numbers that an analysis measured: a row for each, with the value and its interval.

The value and the interval are also written as numbers at the right.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.report.figures.drawing import (
    AXIS,
    difference_axis,
    draw_dot,
    name_rows,
    new_figure,
    no_data,
    use_style,
    write_beside,
)
from bench.report.measures_table import interval_text, title, value_text
from bench.report.style import TEXT_WIDTH, built_in
from bench.stats.analysis_measures import AnalysisMeasures

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROW = 0.13
"""Height of a row, in inches."""
_MOST = 30
"""Maximum number of rows on one figure, for which a printed page has room; the tables have all rows."""


@use_style()
def dots_of_measures(measured: AnalysisMeasures) -> Figure | None:
    """Draw the numbers that an analysis chose for its figure, a column of its table: a row with a dot for each number.

    Returns None if the analysis chose no column.
    """
    column = next((c for c in measured.measures.columns if c.key == measured.measures.drawn), None)
    if column is None:
        return None
    values = [(row, value) for row in measured.measures.rows if isinstance(value := row[column.key], int | float)]
    notes = ["Lines are intervals." if column.low else "", *measured.measures.notes]
    if len(values) > _MOST:
        notes.append(f"Shown: the first {_MOST} of {len(values)} rows; the numbers have all.")
    shown = values[:_MOST]
    figure, ((axes,),) = new_figure(
        (1, 1), (TEXT_WIDTH, ROW * max(len(shown), 1) + AXIS), title=title(measured),
        note=" ".join(filter(None, notes)),
    )  # fmt: skip
    axes.set_label(column.key)
    axes.set_title(column.label, loc="left")
    if not shown:
        no_data(axes, "not known")
        return figure
    name_rows(axes, [str(row[measured.name_key]) for row, _ in shown])
    types = (int, float)
    intervals = [(row[column.low], row[column.high]) if column.low else (None, None) for row, _ in shown]
    ends = [(low, high) if isinstance(low, types) and isinstance(high, types) else None for low, high in intervals]
    all_values = [*(value for _, value in shown), *(end for interval in ends for end in interval or ())]
    difference_axis(axes, all_values, 6, percent=column.kind in {"percent", "points"})
    style = built_in().of(measured.method)._replace(marker="o", fill="full")
    for i, ((row, value), interval) in enumerate(zip(shown, ends, strict=True)):
        draw_dot(axes, i, value, interval, (str(i), "value"), style)
        interval_label = interval_text(column, row)
        write_beside(axes, i, value_text(column, value) + f" ({interval_label})" * bool(interval_label))
    return figure
