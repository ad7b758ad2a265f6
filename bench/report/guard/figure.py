"""Guards drawn: the risk among kept answers at each threshold that was tested, and where the sequence stopped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from bench.report.analysis import stem_of
from bench.report.figures.panel import AXIS_X, AXIS_Y, Panel, percent
from bench.report.figures.sheet import EDGE, LINE, fitted, marker_settings, sheet, styled
from bench.report.guard.model import Guarded, GuardedLine, GuardedTable
from bench.report.guard.verdict import share
from bench.report.style import INK, MUTED, NORMAL, TEXT_WIDTH
from bench.report.text import plain
from bench.results.files import SEPARATOR

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ACROSS, DOWN = 3, 4
"""Panels of a figure; more methods go to further figures."""
GAP = 0.12
"""Inches between rows of panels."""
HIGHEST = 3.0
"""Multiple of the risk up to which the axis goes."""
COVERAGES = (0.0, 0.5, 1.0)


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
    """Figures of a table's methods, a panel for each."""
    lines = [line for line in found.lines if line.seeds]
    for start in range(0, len(lines), ACROSS * DOWN):
        yield _page(found, lines[start : start + ACROSS * DOWN])


def _page(found: GuardedTable, lines: Sequence[GuardedLine]) -> Figure:
    with styled():
        across = min(ACROSS, len(lines))
        width = TEXT_WIDTH * (across / ACROSS) ** 0.5
        side = (width - EDGE - across * AXIS_Y - (across - 1) * EDGE) / across
        height = min(side, 1.5)
        heading = LINE * 1.3
        step = heading + height + AXIS_X + GAP
        note = (
            f"{found.source}. Solid: mistakes among the calibration answers that a threshold keeps, for each threshold"
            " that could be tested, the strictest on the left; dashed: the upper bound at a level of"
            f" {share(found.terms.level)}; dotted: the risk asked for. Tests go from left to right and stop at the"
            " first bound above it. Filled: bound of the chosen threshold; hollow with its 95 % interval: what it came"
            " to on the other questions. Without a filled marker there is no threshold. A line for each seed."
        )
        page = sheet(
            width, -(-len(lines) // across) * step - GAP,
            title=f"{found.title}: {share(found.terms.risk)} of mistakes at most", note=note,
        )  # fmt: skip
        for k, line in enumerate(lines):
            row, column = divmod(k, across)
            x, y = AXIS_Y + column * (side + AXIS_Y + EDGE), row * step + heading
            name = line.line.key.label
            page.text(x + side / 2, y - heading, fitted(name, side, NORMAL), ha="center", fontsize=NORMAL)
            if column == 0:
                page.text(EDGE, y + height / 2, "mistakes (%)", rotation=90, va="center")
            page.text(x + side / 2, y + height + AXIS_X - LINE, "answers kept (%)", ha="center")
            top = min(1.0, HIGHEST * found.terms.risk)
            _panel(Panel(page, plain(name), (x, y, side, height), (0.0, 1.0), (0.0, top)), line)
        return page.figure


def _panel(panel: Panel, line: GuardedLine) -> None:
    risk = line.seeds[0].terms.risk
    top = panel.y[1]
    panel.x_axis(COVERAGES, percent(COVERAGES))
    ticks = [tick for tick in (0.0, risk, 2 * risk, 3 * risk) if tick <= top + 1e-9]
    panel.y_axis(ticks, [f"{100 * tick:.3g}" for tick in ticks])
    panel.line([0, 1], [risk, risk], "risk", color=INK, linewidth=0.6, dashes=(1, 2), zorder=0.5)
    for seed in line.seeds:
        _curves(panel, line, seed)


def _curves(panel: Panel, line: GuardedLine, seed: Guarded) -> None:
    made, style, name = seed.guard, line.line.style, f"seed {seed.row.seed}"
    shown = made.kept > 0
    coverage = made.kept[shown] / len(seed.calibration.values)
    thin = {"color": style.colour, "linewidth": 0.8, "clip_box": panel.inside}
    panel.line(coverage, made.mistakes[shown] / made.kept[shown], f"{name}/calibration", **thin)
    panel.line(coverage, made.bounds[shown], f"{name}/bound", **{**thin, "linewidth": 0.6}, dashes=(3, 2))
    realised = seed.realised
    if realised is None:
        return
    marker = {**marker_settings(style, 3.4), "linestyle": "none"}
    panel.line([seed.kept / len(seed.calibration.values)], [seed.bound], f"{name}/chosen", **marker, zorder=4)
    interval = realised.risk_interval
    if realised.risk is None or interval is None:
        return
    ends = np.clip(interval, 0.0, panel.y[1])
    at = realised.coverage
    panel.segments([[(at, ends[0]), (at, ends[1])]], f"{name}/interval", colors=MUTED, linewidths=0.6, zorder=3)
    hollow = {**marker, "markerfacecolor": "white", "fillstyle": "full"}
    panel.line([at], [min(realised.risk, panel.y[1])], f"{name}/realised", **hollow, zorder=4)
