"""Small multiples: a panel for each method that learns, quality against labels, untrained methods behind it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from bench.metrics import METRICS
from bench.report.figures.drawing import drawing, quantity, scale, short, styled
from bench.report.labels.verdict import told_of
from bench.report.labels.views import basis, is_flat
from bench.report.style import DASHED, FAINT, INK, TEXT_WIDTH, Style, built_in
from bench.report.text import averaged, plain, with_arrow
from bench.stats.labels import METRICS_SHOWN, LabelCurves, Point
from bench.stats.variants import SeedMean

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ACROSS, HEIGHT = 5, 1.25
"""Axes beside one another, and inches of a row of them."""
DOT = 3.0
"""Points."""
BAND = 0.22
"""Opacity of an interval's band."""


def small_multiples(curves: LabelCurves) -> Figure:
    """Rows of axes for each metric, axes for each method that learns."""
    with styled():
        study = curves.study
        names = sorted(study.trained, key=built_in().place)
        rows = math.ceil(len(names) / ACROSS)
        across = max(3, math.ceil(len(names) / rows))
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
        figure, axes = drawing(
            (rows * len(METRICS_SHOWN), across), (TEXT_WIDTH, HEIGHT * rows * len(METRICS_SHOWN)),
            title=f"{study.model} on {study.task}: what labels buy", note=f"{note} {basis(curves)}",
            sharex=True, sharey=False,
        )  # fmt: skip
        few = 4  # sizes that can all be named below the axis; of more the outer ones, and every other one between
        at = study.sizes if len(study.sizes) <= few else (*study.sizes[:-1:2], study.sizes[-1])
        for i, metric in enumerate(METRICS_SHOWN):
            # ends of the y axis are the same in all panels; a band of few draws may be wider than all curves together,
            # and is cut at two such widths
            known = _known(point for point in curves.points if point.metric == metric)
            learned = [of for point, of in known if point.method not in study.untrained]
            bands = [end for of in learned for end in (of.low, of.high) if end is not None]
            values = [of.value for _, of in known]
            low, high = min(values, default=0.0), max(values, default=1.0)
            room = 0.05 * (high - low) or 0.01
            low, high = max(min([low, *bands]), low - 3 * room), min(max([high, *bands]), high + 3 * room)
            ahead = {(a.method, a.size) for a in curves.ahead if a.metric == metric and a.is_shown(study.level)}
            for k, here in enumerate(axes[i * rows : (i + 1) * rows].flat):
                if k >= len(names):
                    here.set_axis_off()
                    continue
                name = names[k]
                here.set_label(f"{metric}/{name}")
                here.set_title(short(name, 22))
                here.set_xscale("log")
                here.set(xlim=(study.sizes[0] / 1.2, study.sizes[-1] * 1.2), ylim=(low - room, high + room))
                here.set_xticks(at, [quantity(size) for size in at])
                here.set_xticks([], minor=True)
                here.tick_params(labelleft=not k % across, labelbottom=k + across >= len(names))
                scale(here.yaxis, metric, 4)
                here.set_ylabel(f"{with_arrow(metric)} (%)" if not k % across else "")
                _untrained(here, curves, metric)
                _curve(here, curves.of(name, metric), built_in().of(name), {s for each, s in ahead if each == name})
        axes[-1, 0].set_xlabel("labels, training and validation together")
        return figure


def _known(points: Iterable[Point]) -> list[tuple[Point, SeedMean]]:
    """Points that have a value."""
    return [(point, point.estimate) for point in points if point.estimate is not None]


def _untrained(axes: Axes, curves: LabelCurves, metric: str) -> None:
    """Grey lines, and the best of them at each size."""
    study, sign = curves.study, 1 if METRICS[metric].higher_is_better else -1
    best: dict[int, float] = {}
    for name in study.untrained:
        known = _known(curves.of(name, metric))
        values, where = [of.value for _, of in known], [float(point.size) for point, _ in known]
        if is_flat(curves, name, metric) and values:
            where, values = list(axes.get_xlim()), [values[0], values[0]]
        axes.plot(where, values, label=f"untrained/{name}", color=FAINT, linewidth=0.5, zorder=0.6)
        for point, of in known:
            best[point.size] = max(best.get(point.size, -math.inf), sign * of.value)
    sizes = sorted(best)
    axes.plot(sizes, [sign * best[size] for size in sizes], label="best untrained", color=INK, dashes=DASHED,
              linewidth=0.7, zorder=0.9)  # fmt: skip


def _curve(axes: Axes, points: Sequence[Point], style: Style, ahead: set[int]) -> None:
    """A method's curve with its band; dots are filled where it is ahead of all that is not trained."""
    known = _known(points)
    sure = [(p.size, of.low, of.high) for p, of in known if of.low is not None and of.high is not None]
    if len(sure) > 1:
        sizes, low, high = zip(*sure, strict=True)
        axes.fill_between(
            sizes, low, high, label="interval", facecolor=style.colour, alpha=BAND, linewidth=0, zorder=0.8
        )
    axes.plot([p.size for p, _ in known], [of.value for _, of in known], label="curve", color=style.colour,
              linewidth=1.1, zorder=2)  # fmt: skip
    certain = {size for size, _, _ in sure}
    for label, chosen, face in (
        ("ahead", [(p.size, of.value) for p, of in known if p.size in ahead & certain], style.colour),
        ("not ahead", [(p.size, of.value) for p, of in known if p.size not in ahead and not p.missing], "white"),
    ):
        axes.plot([x for x, _ in chosen], [y for _, y in chosen], "o", label=label, markersize=DOT, color=style.colour,
                  markeredgewidth=0.7, markerfacecolor=face, zorder=3)  # fmt: skip
