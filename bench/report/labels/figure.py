"""Small multiples: a panel for each method that learns, quality against labels, untrained methods behind it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from bench.metrics import METRICS
from bench.report.figures.panel import AXIS_X, AXIS_Y, LABELS_X, Panel
from bench.report.figures.sheet import LINE, Sheet, fitted, sheet, short, styled
from bench.report.figures.ticks import tick_names, ticks_between
from bench.report.labels.verdict import told_of
from bench.report.labels.views import basis, is_flat
from bench.report.style import DASHED, FAINT, INK, MUTED, NORMAL, TEXT_WIDTH, Style, built_in
from bench.report.text import averaged, plain, with_arrow
from bench.stats.labels import METRICS_SHOWN, LabelCurves, Point
from bench.stats.variants import SeedMean

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ACROSS = 5
"""Panels beside one another."""
HEIGHT, GAP = 0.92, 0.12
"""Inches of a panel, and between two."""
ROW = LINE * 1.3 + HEIGHT + LABELS_X + 0.16
"""Inches of a row of panels with their names and ticks."""
BETWEEN = 0.12
"""Inches between the blocks of two metrics."""
BEST = Style(INK, "", DASHED)
"""Line of the best untrained method of each size."""
DOT = 3.0
"""Points."""
BAND = 0.22
"""Opacity of an interval's band."""


def small_multiples(curves: LabelCurves) -> Figure:
    """A block for each metric, a panel for each method that learns."""
    with styled():
        study = curves.study
        names = sorted(study.trained, key=built_in().place)
        rows = math.ceil(len(names) / ACROSS)
        across = max(3, math.ceil(len(names) / rows))
        block = LINE * 1.7 + rows * ROW + AXIS_X - LABELS_X
        told = {name: max(told_of(curves, name).values()) for name in names}
        fewer = [f"{plain(name)} {own:,} at most" for name, own in told.items() if own < study.sizes[-1]]
        note = (
            f"Values, {averaged(curves.average)}, averaged over draws of labels, with the"
            f" {100 * study.level:g} % interval for other questions, draws and training seeds. Filled: better than"
            " every untrained method with as many labels, corrected by Holm's rule for all panels and sizes of a"
            " metric; hollow: not shown. Grey: untrained methods; dashed: the best of them at each number of labels."
            f" A curve that lacks draws has no dot there."
        )
        if fewer:
            note += f" Told fewer, as there are no more labels for them: {', '.join(fewer)}."
        title = f"{study.model} on {study.task}: what labels buy"
        page = sheet(TEXT_WIDTH, len(METRICS_SHOWN) * block + BETWEEN, title=title, note=f"{note} {basis(curves)}")
        for i, metric in enumerate(METRICS_SHOWN):
            _block(page, curves, metric, names, i * (block + BETWEEN), across)
        return page.figure


def _block(page: Sheet, curves: LabelCurves, metric: str, names: Sequence[str], top: float, across: int) -> None:
    study = curves.study
    page.text(0.03, top, f"{with_arrow(metric)}, percent", fontsize=NORMAL)
    x = (math.log10(study.sizes[0]) - 0.08, math.log10(study.sizes[-1]) + 0.08)
    y = _ends(curves, metric)
    width = (TEXT_WIDTH - AXIS_Y - 0.05 - GAP * (across - 1)) / across
    ahead = {(a.method, a.size) for a in curves.ahead if a.metric == metric and a.is_shown(study.level)}
    ticks = ticks_between(*y, most=4)
    few = 4  # sizes that can all be named below the axis; of more the outer ones, and every other one between
    at = study.sizes if len(study.sizes) <= few else (*study.sizes[:-1:2], study.sizes[-1])
    for i, name in enumerate(names):
        row, column = divmod(i, across)
        left = AXIS_Y + column * (width + GAP)
        above = top + LINE * 1.7 + row * ROW
        page.text(left, above, fitted(plain(name), width))
        panel = Panel(page, f"{metric}/{name}", (left, above + LINE * 1.3, width, HEIGHT), x, y)
        _untrained(panel, curves, metric)
        _curve(panel, curves.of(name, metric), built_in().of(name), {size for each, size in ahead if each == name})
        panel.x_axis([math.log10(size) for size in at], [short(size) for size in at])
        panel.y_axis(ticks, [] if column else tick_names(ticks, metric))
    bottom = top + LINE * 1.7 + math.ceil(len(names) / across) * ROW
    page.text(AXIS_Y, bottom - 0.14, "labels, training and validation together (logarithmic)", color=MUTED)


def _known(points: Iterable[Point]) -> list[tuple[Point, SeedMean]]:
    """Points that have a value."""
    return [(point, point.estimate) for point in points if point.estimate is not None]


def _ends(curves: LabelCurves, metric: str) -> tuple[float, float]:
    """Ends of the y axis, the same in all panels of a metric."""
    known = _known(point for point in curves.points if point.metric == metric)
    learned = [of for point, of in known if point.method not in curves.study.untrained]
    bands = [end for of in learned for end in (of.low, of.high) if end is not None]
    values = [of.value for _, of in known]
    room = 0.05 * (max(values, default=1.0) - min(values, default=0.0)) or 0.01
    # a band of few draws may be wider than all curves together; it is cut at two such widths
    low, high = min(values, default=0.0), max(values, default=1.0)
    low, high = max(min([low, *bands]), low - 3 * room), min(max([high, *bands]), high + 3 * room)
    return low - room, high + room


def _untrained(panel: Panel, curves: LabelCurves, metric: str) -> None:
    """Grey lines, and the best of them at each size."""
    study, sign = curves.study, 1 if METRICS[metric].higher_is_better else -1
    best: dict[int, float] = {}
    for name in study.untrained:
        known = _known(curves.of(name, metric))
        values, where = [of.value for _, of in known], [math.log10(point.size) for point, _ in known]
        if is_flat(curves, name, metric) and values:
            where, values = [panel.x[0], panel.x[1]], [values[0], values[0]]
        panel.line(where, values, f"untrained/{name}", color=FAINT, linewidth=0.5, zorder=0.6,
                   clip_box=panel.inside, clip_on=True)  # fmt: skip
        for point, of in known:
            best[point.size] = max(best.get(point.size, -math.inf), sign * of.value)
    sizes = sorted(best)
    panel.line([math.log10(size) for size in sizes], [sign * best[size] for size in sizes], "best untrained",
               color=BEST.colour, dashes=BEST.dash, linewidth=0.7, zorder=0.9)  # fmt: skip


def _curve(panel: Panel, points: Sequence[Point], style: Style, ahead: set[int]) -> None:
    """A method's curve with its band; dots are filled where it is ahead of all that is not trained."""
    known = _known(points)
    sure = [(p, of.low, of.high) for p, of in known if of.low is not None and of.high is not None]
    if len(sure) > 1:
        panel.area(
            [math.log10(p.size) for p, _, _ in sure], [max(panel.y[0], low) for _, low, _ in sure],
            [min(panel.y[1], high) for _, _, high in sure], "interval", facecolors=style.colour, alpha=BAND, zorder=0.8,
        )  # fmt: skip
    panel.line([math.log10(p.size) for p, _ in known], [of.value for _, of in known], "curve",
               color=style.colour, linewidth=1.1, zorder=2)  # fmt: skip
    certain = {p.size for p, _, _ in sure}
    for label, chosen, face in (
        ("ahead", [(p, of) for p, of in known if p.size in ahead & certain], style.colour),
        ("not ahead", [(p, of) for p, of in known if p.size not in ahead and not p.missing], "white"),
    ):
        panel.line([math.log10(p.size) for p, _ in chosen], [of.value for _, of in chosen], label,
                   linestyle="none", marker="o", markersize=DOT, markeredgecolor=style.colour, markeredgewidth=0.7,
                   markerfacecolor=face, zorder=3)  # fmt: skip
