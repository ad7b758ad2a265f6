"""Figures of guards: the error rate of accepted answers at each tested threshold, and where testing stopped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.report.analysis import file_stem
from bench.report.figures.drawing import (
    dot_settings,
    draw_segments,
    new_figure,
    set_fraction_axes,
    shorten_name,
    use_style,
)
from bench.report.guard.model import GuardedCell, GuardedLine, GuardedTable
from bench.report.guard.verdict import format_share
from bench.report.style import INK, MUTED, TEXT_WIDTH
from bench.results.files import SEPARATOR

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ACROSS, DOWN, HEIGHT = 3, 4, 1.9
"""Maximum numbers of columns and rows of axes on a figure, and height of a row in inches. If there are more methods,
several figures are drawn."""
HIGHEST = 3.0
"""Upper end of the y axis, as a multiple of the requested risk (allowed share of mistakes)."""


def figures_of(tables: Sequence[GuardedTable]) -> Iterator[tuple[str, Figure]]:
    """Yield (file name without suffix, figure) for the figures of all tables."""
    names: set[str] = set()
    for guards in tables:
        stem = file_stem(guards.table.model, guards.table.task, "guard")
        figures = list(plot_guards(guards))
        for k, figure in enumerate(figures, start=1):
            name = base = f"{stem}{SEPARATOR}{k}" if len(figures) > 1 else stem
            suffix = 2
            while name in names:  # a figure of another table has it, e.g. of a partial run of the same task
                name, suffix = f"{base}-{suffix}", suffix + 1
            names.add(name)
            yield name, figure


def plot_guards(guards: GuardedTable) -> Iterator[Figure]:
    """Yield the figures of one table, with axes for each method that has a result."""
    for start in range(0, len(guards.evaluated), ACROSS * DOWN):
        lines = guards.evaluated[start : start + ACROSS * DOWN]
        with use_style():
            columns, risk = min(ACROSS, len(lines)), guards.request.risk
            note = (
                f"{guards.source}. Solid: mistakes among the calibration answers that a threshold keeps, for each"
                " threshold that could be tested, the strictest on the left; dashed: the upper bound at a level of"
                f" {format_share(guards.request.level)}; dotted: the risk asked for. Tests go from left to right"
                " and stop at the first bound above it. Filled: bound of the chosen threshold; hollow with its 95 %"
                " interval: what it came to on the other questions. Without a filled marker there is no"
                " threshold. A line for each seed."
            )
            rows = -(-len(lines) // columns)
            figure, axes = new_figure(
                (rows, columns), (TEXT_WIDTH * (columns / ACROSS) ** 0.5, HEIGHT * rows),
                title=f"{guards.title}: {format_share(risk)} of mistakes at most", note=note,
            )  # fmt: skip
            for ax in axes.flat[len(lines) :]:
                ax.set_axis_off()
            for k, (ax, line) in enumerate(zip(axes.flat, lines, strict=False)):
                ax.set_label(line.line.key.label)
                ax.set_title(shorten_name(line.line.key.label, 28))
                set_fraction_axes(ax)
                top = min(1.0, HIGHEST * risk)
                ticks = [tick for tick in (0.0, risk, 2 * risk, 3 * risk) if tick <= top + 1e-9]
                ax.set(
                    xlim=(0, 1), ylim=(0, top), xlabel="answers kept (%)", ylabel="" if k % columns else "mistakes (%)"
                )
                ax.set_yticks(ticks, [f"{100 * tick:.3g}" for tick in ticks])
                ax.axhline(risk, label="risk", color=INK, linewidth=0.6, dashes=(1, 2), zorder=0.5)
                for seed in line.seeds:
                    _curves(ax, line, seed)
        yield figure


def _curves(axes: Axes, line: GuardedLine, seed: GuardedCell) -> None:
    fitted, style, name = seed.guard, line.line.style, f"seed {seed.row.seed}"
    shown, n = fitted.kept > 0, len(seed.calibration.values)
    coverage, rate = fitted.kept[shown] / n, fitted.mistakes[shown] / fitted.kept[shown]
    axes.plot(coverage, rate, label=f"{name}/calibration", color=style.colour, linewidth=0.8)
    axes.plot(coverage, fitted.bounds[shown], label=f"{name}/bound", color=style.colour, linewidth=0.6, dashes=(3, 2))
    realised = seed.realised
    on_top: dict[str, Any] = {"clip_on": False, "zorder": 4}
    if realised is None:
        return
    axes.plot([seed.accepted / n], [seed.bound], label=f"{name}/chosen", **dot_settings(style, 3.4), **on_top)
    if realised.risk is None or realised.risk_interval is None:
        return
    top, x = axes.get_ylim()[1], realised.coverage
    low, high = np.clip(realised.risk_interval, 0.0, top)
    draw_segments(axes, [[(x, low), (x, high)]], f"{name}/interval", colors=MUTED, linewidths=0.6, zorder=3)
    hollow = dot_settings(style, 3.4, hollow=True)
    axes.plot([x], [min(realised.risk, top)], label=f"{name}/realised", **hollow, **on_top)
