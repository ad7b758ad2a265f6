"""Forest plot of an analysis: how far the reference is above each variant, with the interval of the difference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bench.metrics import METRICS
from bench.report.figures.intervals import rows
from bench.report.figures.panel import AXIS_X, Panel
from bench.report.figures.sheet import EDGE, LINE, Sheet, fitted, room_of, sheet, styled, text_width
from bench.report.figures.ticks import tick_names, ticks_between, with_room
from bench.report.style import INK, NORMAL, TEXT_WIDTH, Style, built_in
from bench.report.text import interval_text, plain, signed, with_arrow
from bench.report.variants import is_long, sorted_rows, tested, title
from bench.stats.influence import TESTED
from bench.stats.variants import VariantRow, Variants

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROW, GAP, DOT = 0.125, 0.14, 3.2
"""Inches of a variant and between panels; points of a dot."""
_NAME = 2.4
"""Inches of the longest name of a variant."""
_MOST = 70
"""Variants on one figure: as many as a page has room for."""
_ALPHA = 0.05


def differences_of_variants(found: Variants) -> Figure:
    """A row for each variant and a panel for each tested metric; long lists are sorted by the difference, and cut."""
    with styled():
        decides = found.metrics[-1]
        metrics = [name for name in found.metrics if name in TESTED] or found.metrics
        names = [row.variant for row in (sorted_rows(found, decides) if is_long(found) else found.of(decides))]
        half = _MOST // 2
        cut = len(names) > _MOST
        names = [*names[:half], *names[-half:]] if cut else names
        note = (
            f"{found.reference} minus the variant, on the same questions and seeds, with the {100 * found.level:g} %"
            " interval for other questions and other seeds. Filled: significantly different after Holm's correction for"
            f" {tested(found)}; hollow: not. Points are percentage points."
        )
        if cut:
            note += f" Shown: the {half} largest and the {half} smallest."
        left = room_of(names, _NAME)
        number = max(text_width(_numbers(row)) for metric in metrics for row in found.of(metric)) + 0.1
        each = (TEXT_WIDTH - left - EDGE - GAP * (len(metrics) - 1)) / len(metrics)
        height, heading = ROW * len(names), LINE * 1.4
        page = sheet(TEXT_WIDTH, heading + height + AXIS_X, title=title(found), note=note)
        rows(page, (left, heading, TEXT_WIDTH - left - EDGE, ROW), [plain(name) for name in names])
        style = built_in().of(found.method)
        for j, metric in enumerate(metrics):
            by_name = {row.variant: row for row in found.of(metric)}
            place = (left + j * (each + GAP), heading, each - number, height)
            _panel(page, place, metric, [by_name[name] for name in names], style)
        return page.figure


def _panel(
    page: Sheet, place: tuple[float, float, float, float], metric: str, shown: Sequence[VariantRow], style: Style
) -> None:
    x, y, width, _ = place
    page.text(x, 0, fitted(f"{with_arrow(metric)}, difference", width + 0.9, NORMAL), fontsize=NORMAL)
    panel = Panel(page, metric, place, _ends(shown), (float(len(shown)), 0.0))
    ticks = ticks_between(*panel.x, most=4)
    panel.verticals(ticks)
    panel.verticals([0.0], "zero", colors=INK, linewidths=0.6, zorder=0.6)
    panel.x_axis(ticks, tick_names(ticks, metric))
    for i, row in enumerate(shown):
        at = i + 0.5
        page.text(x + width + 0.06, y + at * ROW, _numbers(row), va="center_baseline")
        found = row.difference
        if found is None:
            continue
        if found.low is not None and found.high is not None:
            ends = [[(found.low, at), (found.high, at)]]
            panel.segments(ends, f"{row.variant}/interval", colors=style.colour, linewidths=1.0)
        decided = row.p_corrected is not None and row.p_corrected < _ALPHA
        panel.line(
            [found.value], [at], f"{row.variant}/difference", linestyle="none", marker="o", markersize=DOT,
            markeredgecolor=style.colour, markeredgewidth=0.6, markerfacecolor=style.colour if decided else "white",
            zorder=2,
        )  # fmt: skip


def _ends(shown: Sequence[VariantRow]) -> tuple[float, float]:
    known = [row.difference for row in shown if row.difference is not None]
    values = [0.0, *(end for of in known for end in (of.value, of.low, of.high) if end is not None)]
    return with_room(values)


def _numbers(row: VariantRow) -> str:
    metric, found = METRICS[row.metric], row.difference
    if found is None:
        return "undefined"
    ends = "" if found.low is None or found.high is None else f" ({interval_text(metric, found.low, found.high)})"
    return f"{signed(metric, found.value)}{ends}"
