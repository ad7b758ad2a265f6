"""Forest plot: the difference of each method to the best, on the same questions, with the interval of the pair."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from bench.metrics import METRICS
from bench.report.competition import judged_by
from bench.report.figures.board import board_of, marked, on_unranked
from bench.report.figures.intervals import NAME_WIDTH, rows
from bench.report.figures.notes import note_of
from bench.report.figures.panel import AXIS_X, Panel
from bench.report.figures.sheet import EDGE, LINE, Sheet, fitted, marker_settings, room_of, sheet, styled, text_width
from bench.report.figures.ticks import tick_names, ticks_between, with_room
from bench.report.grouping import Key
from bench.report.standings.compute import ROUNDING, Pair
from bench.report.style import INK, MUTED, NORMAL, TEXT_WIDTH
from bench.report.tables.legend import LEADS
from bench.report.tables.model import Line, Table
from bench.report.text import interval_text, plain, precise, with_arrow

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROW = 0.135
"""Inches of a method."""
GAP = 0.14
DOT = 3.4
SECOND = "auroc"
"""Metric beside the headline."""


class Comparison(NamedTuple):
    """All lines of a table against its best, by one metric."""

    metric: str
    best: Line
    pairs: Mapping[Key, Pair]
    """Each other shown line minus the best; without those that were not compared with it."""
    alpha: float


def comparison_of(table: Table, metric: str) -> Comparison | None:
    """The lines of a table against the first of its leading group; None where nothing was tested."""
    leading = table.leaders(metric)
    if table.standings is None or not leading:
        return None
    best, shown = leading[0].key, {line.key for line in table.lines}
    pairs: dict[Key, Pair] = {}
    for pair in table.standings.pairs:
        if pair.metric == metric and best in {pair.first, pair.second}:
            turned = pair.reversed() if pair.first == best else pair
            if turned.first in shown:
                pairs[turned.first] = turned
    return Comparison(metric, leading[0], pairs, 1 - table.standings.level) if pairs else None


def comparisons_of(table: Table) -> list[Comparison]:
    """By the headline metric and by AUROC, where there are tests."""
    found = (comparison_of(table, judged) for judged in _judging(table))
    return [comparison for comparison in found if comparison is not None]


def _judging(table: Table) -> list[str]:
    return list(dict.fromkeys((judged_by(table.headline), SECOND)))


def differences_to_best(tables: Sequence[Table], *, remark: str = "") -> Figure:
    """One row for each method, sorted as the table; the difference to the best by the headline metric, and by AUROC.

    Args:
        tables: of one model and one task, with pairs in its standings.
        remark: a sentence for the note.

    Raises:
        UserError: as `board_of`.
        ValueError: the table has no tested pair.
    """
    with styled():
        board = board_of(tables)
        model, task = board.place
        comparisons = comparisons_of(board.tables[model, task])
        if not comparisons:
            raise ValueError("expected a table with tested pairs, got none")
        column, leading = board.sorted_column(model, task), board.leading(model, task)
        names = [plain(marked(line, leading)) for line in column]
        level = f"{100 * (1 - comparisons[0].alpha):g} %"
        note = note_of(
            board,
            f"Each method's value minus the best one's, on the same questions, with the {level} interval"
            " of this pair alone. Filled: significantly different, corrected for all pairs; hollow, and ≈: can't be"
            f" distinguished from the best. Rows are sorted as in the table; {LEADS}: no ranked method is significantly"
            f" better by {METRICS[board.tables[model, task].headline].label}.",
            on_unranked(board.tables[model, task], column),
            remark=remark,
        )
        left = room_of(names, NAME_WIDTH)
        numbers = _numbers_width(comparisons)
        each = (TEXT_WIDTH - left - EDGE - GAP * (len(comparisons) - 1)) / len(comparisons)
        height, heading = ROW * len(names), LINE * 1.4
        title = f"{model} on {task}: differences to the best method"
        page = sheet(TEXT_WIDTH, heading + height + AXIS_X, title=title, note=note)
        rows(page, (left, heading, TEXT_WIDTH - left - EDGE, ROW), names)
        for j, comparison in enumerate(comparisons):
            place = (left + j * (each + GAP), heading, each - numbers, height)
            _panel(page, place, comparison, column)
        return page.figure


def _panel(
    page: Sheet, place: tuple[float, float, float, float], comparison: Comparison, column: Sequence[Line]
) -> None:
    x, y, width, height = place
    metric = METRICS[comparison.metric]
    unit = ", points" if metric.is_fraction else ""
    best = plain(comparison.best.key.label)
    heading = f"{with_arrow(comparison.metric)} minus that of {best}{unit}"
    page.text(x, 0, fitted(heading, width + 0.9, NORMAL), fontsize=NORMAL)
    panel = Panel(page, comparison.metric, place, _ends(comparison, column), (float(len(column)), 0.0))
    ticks = ticks_between(*panel.x, most=5)
    panel.verticals(ticks)
    panel.verticals([0.0], "zero", colors=INK, linewidths=0.6, zorder=0.6)
    panel.x_axis(ticks, tick_names(ticks, comparison.metric))
    worse, better = ("worse", "better") if metric.higher_is_better else ("better", "worse")
    middle = -panel.x[0] / (panel.x[1] - panel.x[0])
    below = y + height + AXIS_X - LINE
    for words, share, across in ((f"\u2190 {worse}", middle, "right"), (f"{better} \u2192", middle, "left")):
        has_room = (share if across == "right" else 1 - share) * width > text_width(words) + 0.06
        if has_room:
            page.text(x + share * width + (-0.05 if across == "right" else 0.05), below, words, ha=across, color=MUTED)
    for i, line in enumerate(column):
        _row(panel, comparison, line, i + 0.5)


def _ends(comparison: Comparison, column: Sequence[Line]) -> tuple[float, float]:
    values = [0.0]
    for line in column:
        pair = comparison.pairs.get(line.key)
        if pair is not None:
            values += [pair.difference, *(end for end in (pair.fixed.low, pair.fixed.high) if end is not None)]
    return with_room(values)


def _row(panel: Panel, comparison: Comparison, line: Line, y: float) -> None:
    label, pair = line.key.label, comparison.pairs.get(line.key)
    x, top, width, height = panel.place
    at, beside = top + y / panel.y[0] * height, x + width + 0.06
    if line.key == comparison.best.key:
        dot = marker_settings(line.style._replace(fill="full"), DOT)
        panel.line([0], [y], f"{label}/best", linestyle="none", zorder=2, **dot)
        panel.page.text(beside, at, "best", va="center_baseline")
        return
    if pair is None:
        words = line.status if not line.done else "no test"
        panel.page.text(beside, at, words, va="center_baseline", color=MUTED)
        return
    if pair.fixed.low is not None and pair.fixed.high is not None:
        ends = [[(pair.fixed.low, y), (pair.fixed.high, y)]]
        panel.segments(ends, f"{label}/interval", colors=line.style.colour, linewidths=1.1)
    is_decided = pair.winner(comparison.alpha) is not None
    dot = marker_settings(line.style._replace(fill="full" if is_decided else "none"), DOT)
    if not is_decided:
        dot["markerfacecolor"] = "white"
        dot["fillstyle"] = "full"
    panel.line([pair.difference], [y], f"{label}/difference", linestyle="none", zorder=2, **dot)
    panel.page.text(beside, at, _numbers(pair, comparison.alpha), va="center_baseline")


def _numbers(pair: Pair, alpha: float) -> str:
    """A difference with its interval, and a sign where the two can't be distinguished."""
    metric, low, high = METRICS[pair.metric], pair.fixed.low, pair.fixed.high
    ends = "" if low is None or high is None else f" ({interval_text(metric, low, high)})"
    sign = "\u2248 " if pair.winner(alpha) is None else ""
    return f"{sign}{'+' * (pair.difference > ROUNDING)}{precise(metric, pair.difference)}{ends}"


def _numbers_width(comparisons: Sequence[Comparison]) -> float:
    """Inches of the widest of them, with its distance from the panel."""
    found = [_numbers(pair, comparison.alpha) for comparison in comparisons for pair in comparison.pairs.values()]
    return max(map(text_width, found)) + 0.1
