"""Risk-coverage curves: how many mistakes are left when only the answers with most confidence are kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from bench.report.figures.board import RecordsOf, board_of
from bench.report.figures.grid import GAP, MARGIN, TICKS
from bench.report.figures.notes import note_of
from bench.report.figures.numbers import Curve, curve_of
from bench.report.figures.panel import AXIS_X, AXIS_Y, Panel, percent
from bench.report.figures.sheet import EDGE, LINE, fitted, line_settings, sheet, styled
from bench.report.style import COLUMN_WIDTH, INK, MUTED, NORMAL, TEXT_WIDTH
from bench.report.tables.model import Line, Table
from bench.report.text import plain

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ACROSS = 3
"""Panels beside each other."""
MARKS = 5
"""Markers on each curve."""
LEAST = 0.05
"""Risk up to which an axis goes at least, as without any mistake."""
FIRST = 0.05
"""Coverage from which on the axis holds all curves; before it a few answers make them jump."""
STEPS = (0.02, 0.05, 0.1, 0.2, 0.25, 0.5)
"""Between ticks of the risk."""


def risk_coverage(tables: Sequence[Table], records_of: RecordsOf, *, remark: str = "") -> Figure:
    """One panel for each task of a model: the share of mistakes among the most confident answers, for all methods.

    Args:
        tables: of one model, one or more tasks.
        records_of: gives the questions of a result.
        remark: a sentence for the note.

    Raises:
        UserError: as `board_of`.
    """
    with styled():
        board = board_of(tables)
        model = board.model
        n_tasks = len(board.tasks)
        width = COLUMN_WIDTH if n_tasks == 1 else TEXT_WIDTH
        across = min(ACROSS, n_tasks)
        side = (width - across * (AXIS_Y + EDGE) - MARGIN) / across
        height = min(side, 2.3)
        heading = LINE * 1.3 if n_tasks > 1 else 0.0
        step = heading + height + AXIS_X + GAP
        body = -(-n_tasks // across) * step - GAP
        note = note_of(
            board,
            "Share of mistakes among the most confident answers, all subjects together; within equal confidences the"
            " expected share."
            f"{' Means over seeds; shaded: smallest to largest seed.' if board.n_seeds > 1 else ''}"
            " Grey line: the best order possible; dotted: all answers kept. The area below a curve is AURC.",
            f"Curves may begin above the panel: it holds them from a coverage of {100 * FIRST:g} % on.",
            remark=remark,
        )
        where = f"{model} on {board.tasks[0]}" if n_tasks == 1 else model
        page = sheet(width, body, title=f"{where}: risk and coverage", note=note, key=board.legend)
        for k, task in enumerate(board.tasks):
            row, column = divmod(k, across)
            x = AXIS_Y + EDGE + column * (side + AXIS_Y + EDGE)
            y = row * step + heading
            if heading:
                page.text(x + side / 2, y - heading, fitted(plain(task), side, NORMAL), ha="center", fontsize=NORMAL)
            if column == 0:
                page.text(EDGE, y + height / 2, "mistakes (%)", rotation=90, va="center")
            page.text(x + side / 2, y + height + AXIS_X - LINE, "coverage: answers kept (%)", ha="center")
            drawn = [
                (line, curve_of([records_of(row) for row in line.done]))
                for line in board.column(model, task)
                if line.done
            ]
            _panel(Panel(page, task, (x, y, side, height)), drawn)
        return page.figure


def _panel(panel: Panel, drawn: Sequence[tuple[Line, Curve]]) -> None:
    if not drawn:
        panel.absent("no result")
        return
    highest = max(
        LEAST,
        *(float(curve.risk.mean(axis=0)[curve.coverage >= min(FIRST, curve.coverage[-1])].max()) for _, curve in drawn),
    )
    ticks = _ticks(highest)
    fitting = Panel(panel.page, panel.name, panel.place, (0.0, 1.0), (0.0, max(1.04 * highest, ticks[-1])))
    fitting.x_axis(TICKS, percent(TICKS))
    fitting.y_axis(ticks, percent(ticks))
    some = drawn[0][1]
    total = float(some.risk[0, -1])
    fitting.line([0, 1], [total, total], "all kept", color=INK, linewidth=0.5, dashes=(1, 2), zorder=0.5)
    fitting.line(some.coverage, some.best, "best order", color=MUTED, linewidth=0.6, zorder=0.5)
    for i, (line, curve) in enumerate(drawn):
        low, high = curve.risk.min(axis=0), curve.risk.max(axis=0)
        if len(curve.risk) > 1:
            label = f"{line.key.label}/seeds"
            fitting.area(
                curve.coverage,
                low,
                high,
                label,
                facecolors=line.style.colour,
                alpha=0.12,
                zorder=1,
                clip_box=fitting.inside,
            )
        points = curve.coverage.size
        first = round(points * (0.15 + 0.1 * i / len(drawn)))  # not all at the same place
        at = [k for k in np.linspace(first, points - 1, MARKS, endpoint=False).round().astype(int) if k < points]
        fitting.line(
            curve.coverage, curve.risk.mean(axis=0), f"{line.key.label}/risk", markevery=sorted(set(map(int, at))),
            clip_box=fitting.inside, **line_settings(line.style, 3.0),
        )  # fmt: skip


def _ticks(highest: float) -> list[float]:
    step = next((step for step in STEPS if highest / step <= 5), STEPS[-1])  # noqa: PLR2004 - labels that fit
    return [round(k * step, 2) for k in range(int(highest / step + 1e-9) + 1)]
