"""Draw the quality of methods against their costs: tokens read, tokens generated, seconds, trained parameters."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from bench.metrics import METRICS
from bench.report.figures.drawing import (
    dot_settings,
    draw_seeds,
    draw_segments,
    format_quantity,
    new_figure,
    no_data,
    padded_limits,
    set_metric_ticks,
    use_style,
)
from bench.report.figures.figure_data import build_figure_data, unranked_note, unranked_reasons
from bench.report.front import pareto_front
from bench.report.style import MUTED, PANEL_WIDTH, TEXT_WIDTH, Style
from bench.report.tables.model import Line, Table
from bench.report.text import averaged, mean_of, with_arrow

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HEIGHT = 1.75
"""Height of a row of axes, in inches."""
MARKER = 4.4
"""Size of a marker, in points."""
QUALITY = ("auroc", "brier")
SEEDS = ", means over seeds; dashes: each seed, horizontal lines: cheapest to dearest"
COSTS: Mapping[str, str] = MappingProxyType(
    {
        "tokens": "token positions read",
        "generated": "tokens generated",
        "seconds": "seconds of its own stages",
        "parameters": "trained parameters",
    }
)
"""Attribute of a table's `Line` (method) that has a cost for each seed -> label of the axis for this cost."""


@use_style()
def cost_quality(
    tables: Sequence[Table], *, metrics: Sequence[str] = QUALITY, costs: Sequence[str] = tuple(COSTS)
) -> Figure:
    """Draw metrics against costs of methods: a marker for each method, and the Pareto front.

    Rows of axes are metrics, columns are costs.

    Args:
        tables: one table, of one model and task.
        metrics: names in `bench.metrics.METRICS`.
        costs: keys of `COSTS`.

    Raises:
        UserError: no method has a result, or two tables are of one model and task.
    """
    data = build_figure_data(tables)
    model, task, table = data.single
    column = [line for line in data.column(model, task) if line.ok_rows]
    unranked = {metric: unranked_reasons(table, column, metric) for metric in metrics}
    several = any(reasons != unranked[metrics[0]] for reasons in unranked.values())
    kinds = {line.key.recalibration for line in column}
    fronts = {(metric, cost): pareto_front(table, metric, cost, kinds) for metric in metrics for cost in costs}
    hidden = any({*keys} - {line.key for line in column} for keys in fronts.values())
    without_cost = [(COSTS[cost], [line.key.label for line in column if not getattr(line, cost)]) for cost in costs]
    unknown = [
        f"{name}: {'all methods' if len(labels) == len(column) else ', '.join(labels)}"
        for name, labels in without_cost
        if labels
    ]
    note = data.note(
        f"Values are {averaged(table.average)}{SEEDS if data.n_seeds > 1 else ''}. {data.on_whiskers(metrics)}",
        "Stepped line: the Pareto front, methods than which none is at once as cheap and better, or cheaper and as"
        f" good{'; methods that are not drawn count too' * hidden}.",
        *dict.fromkeys(
            unranked_note(table, column, f" by {METRICS[m].label}" * several + ", so hollow and not on the front", m)
            for m in metrics
        ),
        "Positions read: the least that the model must read for this method alone, training and test; many go"
        " through it in one pass. Generated: each token waits for the one before."
        + " Seconds: without the model's passes, on this run's machine."
        * ("seconds" in costs),
        f"Not known, and so not drawn: {'; '.join(unknown)}." if unknown else "",
        metrics=metrics,
    )

    def style(line: Line, *of: str) -> Style:
        is_hollow = all(line.key in unranked[metric] for metric in of)
        return line.style._replace(fill="none") if is_hollow else line.style

    figure, axes = new_figure(
        (len(metrics), len(costs)), (TEXT_WIDTH if len(costs) > 2 else PANEL_WIDTH, HEIGHT * len(metrics) + 0.3),
        title=f"{model} on {task}: cost and quality", note=note, lines=False, sharey="row",
        key=[(line.key.label, style(line, *metrics)) for line in column],
    )  # fmt: skip
    for i, metric in enumerate(metrics):
        whiskers = [data.whisker(line, metric) for line in column]
        values = [value for line in column for value in line.estimate(metric).by_seed]
        values += [end for ends in whiskers for end in ends or ()]
        for j, cost in enumerate(costs):
            here = axes[i, j]
            here.set_label(f"{cost}/{metric}")
            here.set_xlabel(COSTS[cost] if i + 1 == len(metrics) else "")
            here.set_ylabel("" if j else with_arrow(metric) + " (%)" * METRICS[metric].is_fraction)
            prices = [getattr(line, cost) for line in column]
            if not any(prices):
                no_data(here, "not known")
                continue
            _set_log_axis(here, [value for values in prices for value in values])
            here.set_ylim(*(padded_limits(values, 0.05) if values else METRICS[metric].bounds))
            set_metric_ticks(here.yaxis, metric)
            here.grid(axis="y")
            on_front = [line for key in fronts[metric, cost] for line in column if line.key == key]
            points = [(mean_of(getattr(line, cost)), line.estimate(metric).mean) for line in on_front]
            if points:  # steps between the drawn methods of the front, the cheapest first, and on to the right end
                x, y = zip(*points, (here.get_xlim()[1], points[-1][1]), strict=True)
                here.step(x, y, where="post", label="front", color=MUTED, linewidth=0.8, zorder=0.8)
            for line, price, ends in zip(column, prices, whiskers, strict=True):
                if price:
                    _draw_method(here, line, metric, price, ends, style(line, metric))
    return figure


def _set_log_axis(axes: Axes, prices: Sequence[float]) -> None:
    """Make the x axis logarithmic; if a price is 0, a linear section at the left of the axis shows it."""
    positive = [price for price in prices if price > 0] or [1.0]
    low, high = math.floor(math.log10(min(positive)) + 1e-9), math.ceil(math.log10(max(positive)) - 1e-9)
    high = max(high, low + 1)
    step = -(-(high - low) // 3)
    ticks = [10.0**k for k in range(low, high + 1, step)]
    if min(prices) <= 0:
        axes.set_xscale("symlog", linthresh=10.0**low, linscale=max(0.3, 0.12 * (high - low)))
        axes.set_xlim(-0.3 * 10.0**low, 10.0**high * 1.3)
        axes.axvline(0.5 * 10.0**low, color=MUTED, linewidth=0.5, linestyle=(0, (1, 2)), zorder=0.5)
        ticks = [0.0, *ticks]
    else:
        axes.set_xscale("log")
        axes.set_xlim(10.0**low / 1.3, 10.0**high * 1.3)
    axes.set_xticks(ticks, map(format_quantity, ticks))
    axes.set_xticks([], minor=True)


def _draw_method(
    axes: Axes, line: Line, metric: str, prices: Sequence[float], ends: tuple[float, float] | None, style: Style
) -> None:
    """Draw one method: a marker, a whisker, the range of its costs, and a dash for each seed.

    Nothing is drawn if the metric is undefined for the method.
    """
    value, label, colour, x = line.estimate(metric), line.key.label, line.style.colour, sum(prices) / len(prices)
    if value.mean is None:
        return
    if ends is not None:
        draw_segments(axes, [[(x, ends[0]), (x, ends[1])]], f"{label}/whisker", colors=colour, linewidths=0.6)
    if len(set(prices)) > 1:
        range_line = [[(min(prices), value.mean), (max(prices), value.mean)]]
        draw_segments(axes, range_line, f"{label}/costs", colors=colour, linewidths=0.6)
    if len(value.by_seed) > 1:
        draw_seeds(axes, [x] * len(value.by_seed), value.by_seed, f"{label}/seeds", colour=colour)
    axes.plot([x], [value.mean], label=f"{label}/mean", **dot_settings(style, MARKER))
