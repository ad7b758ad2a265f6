"""Draw risk-coverage curves: the share of mistakes among the most confident answers, as more of them are kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from bench.report.figures.drawing import line_settings, new_figure, no_data, set_ticks, shorten_name, use_style
from bench.report.figures.figure_data import RecordsOf, build_figure_data
from bench.report.figures.numbers import RiskCurve, risk_curve
from bench.report.style import INK, MUTED, PANEL_WIDTH, TEXT_WIDTH
from bench.report.tables.model import Line, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ACROSS = 3
"""Maximum number of axes side by side."""
HEIGHT = 2.6
"""Height of a row of axes, in inches."""
MARKS = 5
"""Number of markers on each curve."""
LEAST = 0.05
"""Smallest upper limit of the y axis; the axis shows the risk, i.e. the share of mistakes."""
FIRST = 0.05
"""The y axis is high enough for all curves from this coverage on; at lower coverages, risks rest on too few answers."""


@use_style()
def risk_coverage(tables: Sequence[Table], records_of: RecordsOf) -> Figure:
    """Draw risk-coverage curves of all methods: axes for each task of a model.

    A curve is the share of mistakes among the most confident answers, as more answers are kept.

    Args:
        tables: tables of one model, one for each task.
        records_of: returns the answers and confidences, question by question, of a result.

    Raises:
        UserError: no method has a result, or two tables are of one model and task.
    """
    data = build_figure_data(tables)
    model, n_tasks = data.model, len(data.tasks)
    note = data.note(
        "Share of mistakes among the most confident answers, all subjects together; within equal confidences the"
        " expected share."
        f"{' Means over seeds; shaded: smallest to largest seed.' if data.n_seeds > 1 else ''}"
        " Grey line: the best order possible; dotted: all answers kept. The area below a curve is AURC.",
        f"Curves may begin above the panel: it holds them from a coverage of {100 * FIRST:g} % on.",
    )
    shape = -(-n_tasks // ACROSS), min(ACROSS, n_tasks)
    figure, axes = new_figure(
        shape, (PANEL_WIDTH if n_tasks == 1 else TEXT_WIDTH, HEIGHT * shape[0]),
        title=f"{data.where}: risk and coverage", note=note, key=data.legend,
    )  # fmt: skip
    for spare in axes.flat[n_tasks:]:
        spare.set_axis_off()
    for here, task in zip(axes.flat, data.tasks, strict=False):
        here.set_label(task)
        here.set(xlabel="coverage: answers kept (%)", ylabel="mistakes (%)")
        if n_tasks > 1:
            here.set_title(shorten_name(task, 24))
        lines = [line for line in data.column(model, task) if line.ok_rows]
        _draw_curves(here, [(line, risk_curve([records_of(row) for row in line.ok_rows])) for line in lines])
    return figure


def _draw_curves(axes: Axes, lines: Sequence[tuple[Line, RiskCurve]]) -> None:
    if not lines:
        no_data(axes, "no result")
        return
    highest = max(
        LEAST,
        *(float(curve.risk.mean(axis=0)[curve.coverage >= min(FIRST, curve.coverage[-1])].max()) for _, curve in lines),
    )
    axes.set(xlim=(0, 1), ylim=(0, 1.04 * highest))
    set_ticks(axes.xaxis)
    set_ticks(axes.yaxis)
    first_curve = lines[0][1]
    total = float(first_curve.risk[0, -1])
    axes.plot([0, 1], [total, total], label="all kept", color=INK, linewidth=0.5, dashes=(1, 2), zorder=0.5)
    axes.plot(first_curve.coverage, first_curve.best, label="best order", color=MUTED, linewidth=0.6, zorder=0.5)
    for i, (line, curve) in enumerate(lines):
        if len(curve.risk) > 1:
            low, high = curve.risk.min(axis=0), curve.risk.max(axis=0)
            axes.fill_between(
                curve.coverage, low, high, label=f"{line.key.label}/seeds", facecolor=line.style.colour, alpha=0.12,
                linewidth=0, zorder=1,
            )  # fmt: skip
        points = curve.coverage.size
        first = round(points * (0.15 + 0.1 * i / len(lines)))  # markers of two curves don't coincide
        at = [k for k in np.linspace(first, points - 1, MARKS, endpoint=False).round().astype(int) if k < points]
        axes.plot(
            curve.coverage, curve.risk.mean(axis=0), label=f"{line.key.label}/risk",
            markevery=sorted(set(map(int, at))), **line_settings(line.style, 3.0),
        )  # fmt: skip
