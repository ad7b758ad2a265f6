"""Reliability at a glance: a panel for each model and task with the curves of all methods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bench.api import FloatArray
from bench.report.bins import BINS, FEW, Bins, bins_of, joined
from bench.report.figures.board import Board, RecordsOf, board_of
from bench.report.figures.grid import GAP, MARGIN, SPAN, TICKS
from bench.report.figures.notes import note_of
from bench.report.figures.panel import AXIS_X, AXIS_Y, Panel, percent
from bench.report.figures.reliability import X_LABEL, Y_LABEL, bin_boxes, upright
from bench.report.figures.sheet import EDGE, LINE, REFERENCE, Sheet, fitted, marker_settings, sheet, styled
from bench.report.style import COLUMN_WIDTH, FAINT, MAX_HEIGHT, NORMAL, TEXT_WIDTH
from bench.report.tables.model import Line, Table
from bench.report.text import plain

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RASTER_LINE = 0.045
"""Inches of a method's line in the raster of counts."""
RESERVE = 1.1
"""Inches kept for title, key and note where a figure is as high as a page."""
HIGHEST = 2.4
"""Inches of a panel."""
SMALLEST, LARGEST = 0.8, 3.4
"""Points of a marker, for a bin with next to no answers and for one with all."""


class Plan(NamedTuple):
    """Positions of panels, in inches."""

    width: float
    """Width of the figure."""
    left: float
    side: float
    """Width of a panel."""
    height: float
    raster: float
    """Height of the lower part."""
    heading: float

    @property
    def step(self) -> float:
        """Distance from one model to the next."""
        return self.height + self.raster + 0.04 + 2 * GAP


def reliability_overview(tables: Sequence[Table], records_of: RecordsOf, *, remark: str = "") -> Figure:
    """One panel for each model (down) and task (across) with the curves of all methods, and counts as a raster.

    Args:
        tables: of any models and tasks.
        records_of: gives the questions of a result.
        remark: a sentence for the note.

    Raises:
        UserError: as `board_of`.
    """
    with styled():
        board = board_of(tables)
        several = len(board.models) > 1
        plan = _plan(board)
        body = plan.heading + len(board.models) * plan.step - 2 * GAP + AXIS_X
        note = note_of(
            board,
            f"Curves: mean confidence and share of right answers in each of {BINS} equal bins, all subjects"
            f"{' and seeds' if board.n_seeds > 1 else ''} together; the larger a marker, the more answers. Vertical"
            f" lines: 95 % Wilson (binomial) intervals{' for one seed' if board.n_seeds > 1 else ''}. Bins with fewer"
            f" than {FEW} answers are not joined. Below, a line for each method in the order of the key: the darker,"
            " the more of its answers.",
            remark=remark,
        )
        title = "Reliability" if several else f"{board.models[0]}: reliability"
        page = sheet(plan.width, body, title=title, note=note, key=board.legend)
        for m, model in enumerate(board.models):
            y = plan.heading + m * plan.step
            if several:
                name = fitted(plain(model.rsplit("/", 1)[-1]), plan.step - GAP, NORMAL)
                page.text(EDGE, y + (plan.step - GAP) / 2, name, rotation=90, va="center", fontsize=NORMAL)
            page.text(plan.left - AXIS_Y + EDGE, y + plan.height / 2, Y_LABEL, rotation=90, va="center")
            for k, task in enumerate(board.tasks):
                _cell(page, plan, (m, k), board.column(model, task), records_of)
        for k, task in enumerate(board.tasks):
            middle = plan.left + k * (plan.side + GAP) + plan.side / 2
            page.text(middle, 0, fitted(plain(task), plan.side + GAP, NORMAL), ha="center", fontsize=NORMAL)
            page.text(middle, body - LINE, X_LABEL, ha="center")
        return page.figure


def _plan(board: Board) -> Plan:
    left = AXIS_Y + (0.15 if len(board.models) > 1 else 0.0)
    width = COLUMN_WIDTH if len(board.tasks) == 1 else TEXT_WIDTH
    side = (width - left - MARGIN + GAP) / len(board.tasks) - GAP
    raster, heading = RASTER_LINE * len(board.methods), LINE * 1.3
    room = (MAX_HEIGHT - RESERVE - heading - AXIS_X) / len(board.models) - raster - 0.04 - 2 * GAP
    return Plan(width, left, side, min(side, room, HIGHEST), raster, heading)


def _cell(page: Sheet, plan: Plan, at: tuple[int, int], column: Sequence[Line], records_of: RecordsOf) -> None:
    """One model and task: the curves, and the raster below."""
    m, k = at
    x, y = plan.left + k * (plan.side + GAP), plan.heading + m * plan.step
    name = f"{m}/{k}"
    panel = Panel(page, name, (x, y, plan.side, plan.height), SPAN, SPAN)
    counts = Panel(
        page, f"{name}/counts", (x, y + plan.height + 0.04, plan.side, plan.raster), SPAN, (float(len(column)), 0.0)
    )
    counts.x_axis(TICKS, percent(TICKS))
    drawn = [line for line in column if line.has_confidences]
    if not drawn:
        panel.absent(" / ".join(dict.fromkeys("only an order" if line.done else line.status for line in column)))
    panel.y_axis(TICKS, percent(TICKS) if k == 0 else ())
    panel.x_axis(())
    if not drawn:
        return
    panel.line([0, 1], [0, 1], "diagonal", **REFERENCE)
    all_bins = [bins_of([records_of(row) for row in line.done]) if line.has_confidences else None for line in column]
    for line, bins in zip(column, all_bins, strict=True):
        if bins is not None:
            _curve(panel, bins, line)
    _raster(counts, all_bins, column)


def _curve(panel: Panel, bins: Bins, line: Line) -> None:
    colour, label = line.style.colour, line.key.label
    filled = bins.answers > 0
    x, rate, share = bins.confidence[filled], bins.rate[filled], bins.answers[filled] / bins.answers.sum()
    settings = {"colors": colour, "linewidths": 0.4, "alpha": 0.45, "zorder": 1.0}
    panel.segments(upright(bins.confidence, bins.low, bins.high), f"{label}/interval", **settings)
    dashes = {"dashes": line.style.dash} if line.style.dash else {}
    panel.line(*joined(bins), f"{label}/rate", color=colour, linewidth=0.6, **dashes)
    for place, height, size in zip(x, rate, SMALLEST + (LARGEST - SMALLEST) * np.sqrt(share), strict=True):
        panel.line([place], [height], f"{label}/marker", **marker_settings(line.style, float(size)))


def _raster(panel: Panel, all_bins: Sequence[Bins | None], column: Sequence[Line]) -> None:
    """A line for each method; a cell's tint is its share of the answers, full at the fullest cell of all."""
    from matplotlib.colors import to_rgb

    most = max(float((bins.answers / bins.answers.sum()).max()) for bins in all_bins if bins is not None)
    for i, (bins, line) in enumerate(zip(all_bins, column, strict=True)):
        if bins is None:
            panel.segments([[(0, i + 0.5), (1, i + 0.5)]], f"{line.key.label}/missing", colors=FAINT, linewidths=0.3)
            continue
        weight = np.sqrt(bins.answers / bins.answers.sum() / most)
        tints: FloatArray = 1 - weight[weight > 0, None] * (1 - np.array(to_rgb(line.style.colour)))
        boxes = bin_boxes(weight)
        boxes[:, [1, 3]] = i + 0.07, i + 0.93
        panel.bars(boxes, f"{line.key.label}/share", facecolors=tints)
