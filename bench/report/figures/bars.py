"""Bars of a model's macro means: metrics across, tasks down, one bar for each method."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bench.metrics import METRICS
from bench.report.figures.board import Board, board_of, only
from bench.report.figures.notes import note_of
from bench.report.figures.panel import LABELS_X, Panel
from bench.report.figures.sheet import EDGE, LINE, Sheet, arrow, fitted, sheet, short, styled, text_width
from bench.report.figures.whiskers import Whiskers
from bench.report.style import INK, MUTED, NORMAL, TEXT_WIDTH
from bench.report.tables.model import COLUMNS, Line, Table
from bench.report.text import plain

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BAR = 0.112
"""Inches from one bar to the next."""
THICK = 0.74
"""Thickness of a bar, as a share of that."""
GAP = 0.13
NAME_WIDTH = 1.2
STEPS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.25, 0.5, 1.0, 2.0, 5.0)
FLOOR = "ece_floor"


def metric_bars(tables: Sequence[Table], *, metrics: Sequence[str] = COLUMNS, remark: str = "") -> Figure:
    """One panel for each metric and task of a model, one bar for each method.

    Args:
        tables: of one model, one or more tasks.
        metrics: names in `bench.metrics.METRICS`.
        remark: a sentence for the note.

    Raises:
        UserError: as `board_of`.
    """
    with styled():
        board = board_of(tables)
        model = only(board.models, "model")
        whiskers = Whiskers(board, metrics)
        floor = "ece" in metrics and any(FLOOR in row.metrics for row in board.rows)
        note = note_of(
            board,
            f"Means over subjects{' and seeds; dots: each seed' if board.n_seeds > 1 else ''}. {whiskers.sentence}",
            "Line across an ECE bar: what perfectly calibrated confidences like these would have." if floor else "",
            metrics=metrics,
            remark=remark,
        )
        names = board.labels
        left = min(max(map(text_width, names)), NAME_WIDTH) + EDGE + 0.06
        width = (TEXT_WIDTH - left - 0.1 - GAP * (len(metrics) - 1)) / len(metrics)
        height, heading = BAR * len(names), LINE * 1.3
        task_heading = LINE * 1.2 if len(board.tasks) > 1 else 0.0
        step = task_heading + height + LABELS_X + 0.04
        where = f"{model} on {board.tasks[0]}" if len(board.tasks) == 1 else model
        page = sheet(TEXT_WIDTH, heading + len(board.tasks) * step, title=f"{where}: means of all methods", note=note)
        for j, metric in enumerate(metrics):
            unit = " (%)" if METRICS[metric].is_fraction else ""
            name = f"{METRICS[metric].label}{arrow(metric)}{unit}"
            x = left + j * (width + GAP)
            page.text(x, 0, fitted(name, width + GAP, NORMAL), fontsize=NORMAL)
            ends = _ends(board, metric, whiskers)
            for k, task in enumerate(board.tasks):
                y = heading + k * step + task_heading
                if j == 0:
                    _names(page, (left, y), names, plain(task) if task_heading else "")
                panel = Panel(page, f"{task}/{metric}", (x, y, width, height), ends, (float(len(names)), 0.0))
                _panel(panel, board.column(model, task), metric, whiskers)
        return page.figure


def ticks_up_to(highest: float, most: int = 4) -> list[float]:
    """Round values from 0, with at most so many steps.

    >>> ticks_up_to(0.43)
    [0.0, 0.2, 0.4]
    """
    step = next((step for step in STEPS if highest / step < most + 1e-9), STEPS[-1])
    return [round(k * step, 2) for k in range(int(highest / step + 1e-9) + 1)]


def ticks_between(low: float, high: float, most: int = 2) -> list[float]:
    """Round values within two ends, at most so many; the outer two of more where a wider step would leave one.

    >>> ticks_between(0.43, 1.02), ticks_between(0.61, 0.88), ticks_between(0.45, 0.55)
    ([0.5, 1.0], [0.7, 0.8], [0.45, 0.55])
    """
    finer: list[float] = []
    for step in STEPS:
        ticks = [round(k * step, 2) for k in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]
        if len(ticks) <= most:
            return ticks if len(ticks) > 1 else [*finer[:1], *finer[-1:]] or ticks
        finer = ticks
    return [finer[0], finer[-1]]


def tick_names(ticks: Sequence[float], metric: str) -> list[str]:
    """Names of ticks, in percent where the metric is a fraction."""
    return [short(round(100 * tick, 6) if METRICS[metric].is_fraction else tick) for tick in ticks]


def _ends(board: Board, metric: str, whiskers: Whiskers) -> tuple[float, float]:
    """The axis of a metric, the same for all tasks: from 0, or from the smallest end where there are values below."""
    values = [0.0]
    for _, _, line in board.everything():
        values += [*line.estimate(metric).by_seed, *(whiskers.around(line, metric) or ())]
    low, high = METRICS[metric].bounds
    lowest, highest = max(low, min(values)), min(high, 1.03 * max(values))
    return lowest, max(highest, lowest + 0.01)


def _names(page: Sheet, corner: tuple[float, float], names: Sequence[str], task: str) -> None:
    left, y = corner
    if task:
        page.text(EDGE, y - LINE * 1.15, fitted(task, TEXT_WIDTH / 2), color=MUTED)
    for i, name in enumerate(names):
        page.text(left - 0.06, y + (i + 0.5) * BAR, fitted(name, left - 0.06), ha="right", va="center_baseline")


def _panel(panel: Panel, column: Sequence[Line], metric: str, whiskers: Whiskers) -> None:
    ticks = ticks_up_to(panel.x[1])
    panel.x_axis(ticks, tick_names(ticks, metric))
    panel.y_axis(())
    for i, line in enumerate(column):
        estimate, label = line.estimate(metric), line.key.label
        if estimate.mean is None:
            words = "undefined" if line.done else line.status
            panel.words(0.03, 1 - (i + 0.5) / len(column), words, va="center_baseline", color=MUTED)
            continue
        box = (0.0, i + 0.5 - THICK / 2, estimate.mean, i + 0.5 + THICK / 2)
        hollow = line.style.fill != "full"
        panel.bars([box], f"{label}/mean", facecolors=line.style.colour, alpha=0.55 if hollow else 1.0)
        ends = whiskers.around(line, metric)
        if ends is not None:
            low, high = max(panel.x[0], ends[0]), min(panel.x[1], ends[1])
            _cased(panel, [(low, i + 0.5), (high, i + 0.5)], f"{label}/whisker")
        if len(estimate.by_seed) > 1:
            dots = {"marker": "o", "markersize": 1.8, "color": INK, "markeredgewidth": 0.3, "markeredgecolor": "white"}
            places = [i + 0.5] * len(estimate.by_seed)
            panel.line(estimate.by_seed, places, f"{label}/seeds", linestyle="none", zorder=3, **dots)
        floor = line.estimate(FLOOR).mean if metric == "ece" else None
        if floor is not None:
            _cased(panel, [(floor, box[1]), (floor, box[3])], f"{label}/floor")


def _cased(panel: Panel, ends: Sequence[tuple[float, float]], label: str) -> None:
    """A dark line with a light edge, so that it can be seen on a bar of any colour."""
    panel.segments([ends], f"{label}/edge", colors="white", linewidths=1.7, zorder=2)
    panel.segments([ends], label, colors=INK, linewidths=0.7, zorder=2.1)
