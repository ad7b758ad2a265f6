"""Guards drawn: the risk among kept answers at each threshold that was tested, and where the sequence stopped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.report.analysis import stem_of
from bench.report.figures.drawing import dot_settings, drawing, fractions, segments, short, styled
from bench.report.guard.model import Guarded, GuardedLine, GuardedTable
from bench.report.guard.verdict import share
from bench.report.style import INK, MUTED, TEXT_WIDTH
from bench.results.files import SEPARATOR

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ACROSS, DOWN, HEIGHT = 3, 4, 1.9
"""Axes of a figure, and inches of a row of them; more methods go to further figures."""
HIGHEST = 3.0
"""Multiple of the risk up to which the axis goes."""


def figures_of(tables: Sequence[GuardedTable]) -> Iterator[tuple[str, Figure]]:
    """Figures of all tables by the names of their files."""
    names: set[str] = set()
    for found in tables:
        stem = stem_of(found.table.model, found.table.task, "guard")
        figures = list(drawn(found))
        for k, figure in enumerate(figures, start=1):
            name = own = f"{stem}{SEPARATOR}{k}" if len(figures) > 1 else stem
            again = 2
            while name in names:  # of another table, e.g. of a partial run of the same task
                name, again = f"{own}-{again}", again + 1
            names.add(name)
            yield name, figure


def drawn(found: GuardedTable) -> Iterator[Figure]:
    """Figures of a table's methods, axes for each."""
    for start in range(0, len(found.tested), ACROSS * DOWN):
        lines = found.tested[start : start + ACROSS * DOWN]
        with styled():
            across, risk = min(ACROSS, len(lines)), found.request.risk
            note = (
                f"{found.source}. Solid: mistakes among the calibration answers that a threshold keeps, for each"
                " threshold that could be tested, the strictest on the left; dashed: the upper bound at a level of"
                f" {share(found.request.level)}; dotted: the risk asked for. Tests go from left to right and stop at"
                " the first bound above it. Filled: bound of the chosen threshold; hollow with its 95 % interval: what"
                " it came to on the other questions. Without a filled marker there is no threshold. A line for each"
                " seed."
            )
            rows = -(-len(lines) // across)
            figure, axes = drawing(
                (rows, across), (TEXT_WIDTH * (across / ACROSS) ** 0.5, HEIGHT * rows),
                title=f"{found.title}: {share(risk)} of mistakes at most", note=note,
            )  # fmt: skip
            for spare in axes.flat[len(lines) :]:
                spare.set_axis_off()
            for k, (here, line) in enumerate(zip(axes.flat, lines, strict=False)):
                here.set_label(line.line.key.label)
                here.set_title(short(line.line.key.label, 28))
                fractions(here)
                top = min(1.0, HIGHEST * risk)
                ticks = [tick for tick in (0.0, risk, 2 * risk, 3 * risk) if tick <= top + 1e-9]
                here.set(
                    xlim=(0, 1), ylim=(0, top), xlabel="answers kept (%)", ylabel="" if k % across else "mistakes (%)"
                )
                here.set_yticks(ticks, [f"{100 * tick:.3g}" for tick in ticks])
                here.axhline(risk, label="risk", color=INK, linewidth=0.6, dashes=(1, 2), zorder=0.5)
                for seed in line.seeds:
                    _curves(here, line, seed)
        yield figure


def _curves(axes: Axes, line: GuardedLine, seed: Guarded) -> None:
    made, style, name = seed.guard, line.line.style, f"seed {seed.row.seed}"
    shown, n = made.kept > 0, len(seed.calibration.values)
    coverage, rate = made.kept[shown] / n, made.mistakes[shown] / made.kept[shown]
    axes.plot(coverage, rate, label=f"{name}/calibration", color=style.colour, linewidth=0.8)
    axes.plot(coverage, made.bounds[shown], label=f"{name}/bound", color=style.colour, linewidth=0.6, dashes=(3, 2))
    realised = seed.realised
    over: dict[str, Any] = {"clip_on": False, "zorder": 4}
    if realised is None:
        return
    axes.plot([seed.kept / n], [seed.bound], label=f"{name}/chosen", **dot_settings(style, 3.4), **over)
    if realised.risk is None or realised.risk_interval is None:
        return
    top, at = axes.get_ylim()[1], realised.coverage
    low, high = np.clip(realised.risk_interval, 0.0, top)
    segments(axes, [[(at, low), (at, high)]], f"{name}/interval", colors=MUTED, linewidths=0.6, zorder=3)
    hollow = dot_settings(style, 3.4, hollow=True)
    axes.plot([at], [min(realised.risk, top)], label=f"{name}/realised", **hollow, **over)
