"""Dot plot of measures: a row for each, its value with its interval, and both as numbers beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from bench.api import MeasureColumn
from bench.api.analyses import Value
from bench.report.figures.intervals import rows
from bench.report.figures.panel import AXIS_X, Panel
from bench.report.figures.sheet import EDGE, LINE, fitted, room_of, sheet, short, styled, text_width
from bench.report.figures.ticks import ticks_between, with_room
from bench.report.measures import interval_text, title, value_text
from bench.report.style import INK, MUTED, NORMAL, TEXT_WIDTH, Style, built_in
from bench.report.text import MINUS, plain
from bench.stats.measured import Measured

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROW, DOT = 0.125, 3.2
"""Inches of a row; points of a dot."""
_NAME = 2.4
"""Inches of the longest name of a row."""
_MOST = 30
"""Rows on one figure: as many as can be read on a page; all are in the numbers."""
_MISSING = "not known"

Row = Mapping[str, Value]


def dots_of_measures(found: Measured) -> Figure | None:
    """The drawn column of all rows that have a value in it, in their order; None where none is to be drawn."""
    column = found.drawn
    if column is None:
        return None
    with styled():
        every = [row for row in found.measures.rows if row[column.key] is not None]
        shown, name = every[:_MOST], found.naming
        notes = ["Lines are intervals." if column.low else "", *found.measures.notes]
        if len(shown) < len(every):
            notes.append(f"Shown: the first {_MOST} of {len(every)} rows; the numbers have all.")
        names = [plain(str(row[name])) for row in shown]
        left = room_of(names, _NAME)
        number = max((text_width(_numbers(column, row)) for row in shown), default=0.0) + 0.1
        height, heading = ROW * max(len(names), 1), LINE * 1.4
        page = sheet(TEXT_WIDTH, heading + height + AXIS_X, title=title(found), note=" ".join(filter(None, notes)))
        rows(page, (left, heading, TEXT_WIDTH - left - EDGE, ROW), names)
        page.text(left, 0, fitted(column.label, TEXT_WIDTH - left - EDGE, NORMAL), fontsize=NORMAL)
        place = (left, heading, TEXT_WIDTH - left - EDGE - number, height)
        panel = Panel(page, column.key, place, _ends(column, shown), (float(max(len(shown), 1)), 0.0))
        _dots(panel, column, shown, built_in().of(found.method))
        for i, row in enumerate(shown):
            words = _numbers(column, row)
            page.text(TEXT_WIDTH - EDGE - number + 0.06, heading + (i + 0.5) * ROW, words, va="center_baseline")
        if not shown:
            panel.words(0.03, 0.5, _MISSING, va="center_baseline", color=MUTED)
        return page.figure


def _dots(panel: Panel, column: MeasureColumn, shown: Sequence[Row], style: Style) -> None:
    scale = 100 if column.kind in {"percent", "points"} else 1
    ticks = [tick / scale for tick in ticks_between(scale * panel.x[0], scale * panel.x[1], most=6)]
    panel.verticals(ticks)
    panel.verticals([0.0], "zero", colors=INK, linewidths=0.6, zorder=0.6)
    panel.x_axis(ticks, [short(round(scale * tick, 9)).replace("-", MINUS) for tick in ticks])
    for i, row in enumerate(shown):
        at, name = i + 0.5, f"{i}"
        value, ends = row[column.key], _interval(column, row)
        assert isinstance(value, int | float)  # noqa: S101  # for the type checker
        if ends:
            panel.segments([[(ends[0], at), (ends[1], at)]], f"{name}/interval", colors=style.colour, linewidths=1.0)
        panel.line(
            [value], [at], f"{name}/value", linestyle="none", marker="o", markersize=DOT, zorder=2,
            markeredgecolor=style.colour, markerfacecolor=style.colour, markeredgewidth=0.6,
        )  # fmt: skip


def _interval(column: MeasureColumn, row: Row) -> tuple[float, float] | None:
    low, high = (row[column.low], row[column.high]) if column.low else (None, None)
    return (low, high) if isinstance(low, int | float) and isinstance(high, int | float) else None


def _ends(column: MeasureColumn, shown: Sequence[Row]) -> tuple[float, float]:
    """Ends of the axis, which has 0 on it."""
    known = [0.0]
    for row in shown:
        value = row[column.key]
        known += [value] if isinstance(value, int | float) else []
        known += _interval(column, row) or ()
    return with_room(known)


def _numbers(column: MeasureColumn, row: Row) -> str:
    value, ends = value_text(column, row[column.key]), interval_text(column, row)
    return f"{value} ({ends})" if ends else value
