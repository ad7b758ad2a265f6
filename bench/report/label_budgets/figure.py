"""Plot learning curves: a metric against the number of labels, on axes for each trained method.

Untrained methods are drawn in grey on all axes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from bench.metrics import METRICS
from bench.report.figures.drawing import format_quantity, new_figure, set_metric_ticks, shorten_name, use_style
from bench.report.label_budgets.verdict import labels_used
from bench.report.label_budgets.views import describe_data, is_label_independent
from bench.report.style import DASHES, FAINT, INK, TEXT_WIDTH, Style, built_in
from bench.report.text import averaged, plain, with_arrow
from bench.stats.label_budgets import METRICS_SHOWN, LabelCurves, Point
from bench.stats.variants import SeedMean

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ACROSS, HEIGHT = 5, 1.25
"""Maximum number of axes side by side on a figure, and height of a row of axes in inches."""
DOT = 3.0
"""Size of a marker, in points."""
BAND = 0.22
"""Opacity of the band that shows a curve's interval."""


def small_multiples(curves: LabelCurves) -> Figure:
    """Plot a learning curve for each metric and trained method, each on its own axes.

    Each metric has its own rows of axes.
    """
    with use_style():
        study = curves.study
        names = sorted(study.trained, key=built_in().place)
        rows = math.ceil(len(names) / ACROSS)
        columns = max(3, math.ceil(len(names) / rows))
        most_labels = {name: max(labels_used(curves, name).values()) for name in names}
        fewer = [f"{plain(name)} {n:,} at most" for name, n in most_labels.items() if n < study.sizes[-1]]
        note = (
            f"Values, {averaged(curves.average)}, averaged over draws of labels, with the"
            f" {100 * study.level:g} % interval for other questions, draws and training seeds. Filled: better than"
            " every untrained method with as many labels, corrected by Holm's rule for all panels and sizes of a"
            " metric; hollow: not shown. Grey: untrained methods; dashed: the best of them at each number of labels."
            f" A curve that lacks draws has no dot there."
        )
        if fewer:
            note += f" Told fewer, as there are no more labels for them: {', '.join(fewer)}."
        figure, axes = new_figure(
            (rows * len(METRICS_SHOWN), columns), (TEXT_WIDTH, HEIGHT * rows * len(METRICS_SHOWN)),
            title=f"{study.model} on {study.task}: what labels buy", note=f"{note} {describe_data(curves)}",
            sharex=True, sharey=False,
        )  # fmt: skip
        max_ticks = 4  # if there are more sizes, every other one and the last have a tick
        tick_sizes = study.sizes if len(study.sizes) <= max_ticks else (*study.sizes[:-1:2], study.sizes[-1])
        for i, metric in enumerate(METRICS_SHOWN):
            # all panels share the y limits; bands that are far wider than the curves are clipped
            points = _defined_points(point for point in curves.points if point.metric == metric)
            trained = [estimate for point, estimate in points if point.method not in study.untrained]
            bands = [end for estimate in trained for end in estimate.ends or ()]
            values = [estimate.value for _, estimate in points]
            low, high = min(values, default=0.0), max(values, default=1.0)
            margin = 0.05 * (high - low) or 0.01
            low, high = max(min([low, *bands]), low - 3 * margin), min(max([high, *bands]), high + 3 * margin)
            ahead = {(t.method, t.size) for t in curves.ahead if t.metric == metric and t.is_shown(study.level)}
            for k, ax in enumerate(axes[i * rows : (i + 1) * rows].flat):
                if k >= len(names):
                    ax.set_axis_off()
                    continue
                name = names[k]
                ax.set_label(f"{metric}/{name}")
                ax.set_title(shorten_name(name, 22))
                ax.set_xscale("log")
                ax.set(xlim=(study.sizes[0] / 1.2, study.sizes[-1] * 1.2), ylim=(low - margin, high + margin))
                ax.set_xticks(tick_sizes, [format_quantity(size) for size in tick_sizes])
                ax.set_xticks([], minor=True)
                ax.tick_params(labelleft=not k % columns, labelbottom=k + columns >= len(names))
                set_metric_ticks(ax.yaxis, metric, 4)
                ax.set_ylabel(f"{with_arrow(metric)} (%)" if not k % columns else "")
                _untrained(ax, curves, metric)
                _curve(ax, curves.of(name, metric), built_in().of(name), {s for method, s in ahead if method == name})
        axes[-1, 0].set_xlabel("labels, training and validation together")
        return figure


def _defined_points(points: Iterable[Point]) -> list[tuple[Point, SeedMean]]:
    """Return the points of a curve whose metric could be estimated, each with the estimate."""
    return [(point, point.estimate) for point in points if point.estimate is not None]


def _untrained(axes: Axes, curves: LabelCurves, metric: str) -> None:
    """Plot a grey curve for each untrained method, and a dashed curve of the best one at each number of labels."""
    study, sign = curves.study, 1 if METRICS[metric].higher_is_better else -1
    best: dict[int, float] = {}
    for name in study.untrained:
        points = _defined_points(curves.of(name, metric))
        values, sizes = [e.value for _, e in points], [float(point.size) for point, _ in points]
        if is_label_independent(curves, name, metric) and values:
            sizes, values = list(axes.get_xlim()), [values[0], values[0]]
        axes.plot(sizes, values, label=f"untrained/{name}", color=FAINT, linewidth=0.5, zorder=0.6)
        for point, e in points:
            best[point.size] = max(best.get(point.size, -math.inf), sign * e.value)
    best_sizes = sorted(best)
    axes.plot(best_sizes, [sign * best[size] for size in best_sizes], label="best untrained", color=INK,
              dashes=DASHES["dashed"], linewidth=0.7, zorder=0.9)  # fmt: skip


def _curve(axes: Axes, points: Sequence[Point], style: Style, ahead: set[int]) -> None:
    """Plot the learning curve of a trained method, with its interval as a band.

    `ahead` holds the numbers of labels with which the method beats every untrained one; the dots there are filled.
    """
    defined = _defined_points(points)
    intervals = [(p.size, *e.ends) for p, e in defined if e.ends]
    if len(intervals) > 1:
        sizes, low, high = zip(*intervals, strict=True)
        axes.fill_between(
            sizes, low, high, label="interval", facecolor=style.colour, alpha=BAND, linewidth=0, zorder=0.8
        )
    axes.plot([p.size for p, _ in defined], [e.value for _, e in defined], label="curve", color=style.colour,
              linewidth=1.1, zorder=2)  # fmt: skip
    bounded = {size for size, _, _ in intervals}
    for label, dots, face in (
        ("ahead", [(p.size, e.value) for p, e in defined if p.size in ahead & bounded], style.colour),
        ("not ahead", [(p.size, e.value) for p, e in defined if p.size not in ahead and not p.missing], "white"),
    ):
        axes.plot([x for x, _ in dots], [y for _, y in dots], "o", label=label, markersize=DOT, color=style.colour,
                  markeredgewidth=0.7, markerfacecolor=face, zorder=3)  # fmt: skip
