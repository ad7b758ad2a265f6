"""A model's metrics with their intervals: metrics across, tasks down, one row for each method, the best first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bench.metrics import METRICS
from bench.report.competition import counted
from bench.report.figures.board import Board, board_of, is_unranked, marked, on_unranked
from bench.report.figures.notes import note_of
from bench.report.figures.panel import LABELS_X, Panel
from bench.report.figures.sheet import EDGE, LINE, Sheet, fitted, marker_settings, room_of, sheet, styled
from bench.report.figures.ticks import tick_names, ticks_between
from bench.report.figures.whiskers import Whiskers
from bench.report.style import BAND, INK, MAX_HEIGHT, MUTED, NORMAL, TEXT_WIDTH
from bench.report.tables.legend import LEADS
from bench.report.tables.model import COLUMNS, Line, Table
from bench.report.text import averaged, plain, with_arrow

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROW = 0.125
"""Inches of a method at most; at least a line of type."""
RESERVE = 1.0
"""Inches kept for title and note where a figure is as high as a page."""
GAP = 0.13
NAME_WIDTH = 1.5
"""Inches of a name at most."""
DOT = 3.4
"""Points."""
FLOOR = "ece_floor"
SEEDS = ", means over seeds; thin strokes: each seed"


def metric_intervals(tables: Sequence[Table], *, metrics: Sequence[str] = COLUMNS, remark: str = "") -> Figure:
    """One panel for each metric and task of a model, one dot and its interval for each method.

    Args:
        tables: of one model, one or more tasks.
        metrics: names in `bench.metrics.METRICS`.
        remark: a sentence for the note.

    Raises:
        UserError: as `board_of`.
    """
    with styled():
        board = board_of(tables)
        model = board.model
        whiskers = Whiskers(board, metrics)
        names = {task: _names_of(board, model, task) for task in board.tasks}
        floor = "ece" in metrics and any(FLOOR in row.metrics for row in board.rows)
        note = note_of(
            board,
            f"Dots: {averaged(tables[0].average)}{SEEDS if board.n_seeds > 1 else ''}. {whiskers.sentence}",
            _on_order(tables[0], has_leaders=any(LEADS in name for of_task in names.values() for name in of_task)),
            *_hollow(board),
            "Stroke in a row of ECE: what perfectly calibrated confidences like these would have." if floor else "",
            "Axes don't begin at 0.",
            metrics=metrics,
            remark=remark,
        )
        left = room_of((name for of_task in names.values() for name in of_task), NAME_WIDTH)
        width = (TEXT_WIDTH - left - 0.1 - GAP * (len(metrics) - 1)) / len(metrics)
        heading = LINE * 1.3
        task_heading = LINE * 1.2 if len(board.tasks) > 1 else 0.0
        around = task_heading + LABELS_X + 0.04
        room = (MAX_HEIGHT - RESERVE - heading) / len(board.tasks) - around
        row = max(LINE, min(ROW, room / len(board.methods)))
        height = row * len(board.methods)
        step = height + around
        where = f"{model} on {board.tasks[0]}" if len(board.tasks) == 1 else model
        page = sheet(TEXT_WIDTH, heading + len(board.tasks) * step, title=f"{where}: metrics of all methods", note=note)
        for k, task in enumerate(board.tasks):
            y = heading + k * step + task_heading
            rows(page, (left, y, TEXT_WIDTH - left - 0.1, row), names[task], plain(task) if task_heading else "")
        for j, metric in enumerate(metrics):
            unit = " (%)" if METRICS[metric].is_fraction else ""
            name = f"{with_arrow(metric)}{unit}"
            x = left + j * (width + GAP)
            page.text(x, 0, fitted(name, width + GAP, NORMAL), fontsize=NORMAL)
            ends = _ends(board, metric, whiskers)
            for k, task in enumerate(board.tasks):
                y = heading + k * step + task_heading
                panel = Panel(page, f"{task}/{metric}", (x, y, width, height), ends, (float(len(board.methods)), 0.0))
                _panel(panel, board, (model, task), metric, whiskers)
        return page.figure


def rows(page: Sheet, place: tuple[float, float, float, float], names: Sequence[str], task: str = "") -> None:
    """Names of rows at the left, bands behind every other row, and the task's name above.

    Args:
        page: to draw on.
        place: left end of the panels, top of the first row, width of all panels and height of a row, in inches.
        names: of the rows.
        task: written above; empty for none.
    """
    left, y, width, row = place
    if task:
        page.text(EDGE, y - LINE * 1.15, fitted(task, TEXT_WIDTH / 2), color=MUTED)
    bands = Panel(page, "bands", (left, y, width, row * len(names)), y=(float(len(names)), 0.0))
    boxes = [(0, i, 1, i + 1) for i in range(0, len(names), 2)]
    bands.bars(boxes, f"bands/{task}" if task else "bands", facecolors=BAND, zorder=0)
    for i, name in enumerate(names):
        page.name(left, y + (i + 0.5) * row, name)


def _names_of(board: Board, model: str, task: str) -> list[str]:
    leading = board.leading(model, task)
    return [plain(marked(line, leading)) for line in board.sorted_column(model, task)]


def _on_order(table: Table, *, has_leaders: bool) -> str:
    """Sentence on the order of rows and on their sign."""
    leads = f"; {LEADS}: no ranked method is significantly better" if has_leaders else ""
    return f"Rows are sorted by {METRICS[table.headline].label} within each group of methods{leads}."


def _hollow(board: Board) -> list[str]:
    """Sentences on lines outside the ranks, each once and with its task where there are several."""
    found = [
        (task, on_unranked(board.tables[place], list(board.cells[place].values()), ", so hollow"))
        for place, task in ((place, place[1]) for place in board.tables)
    ]
    told = [(task, sentence) for task, sentence in found if sentence]
    if len({sentence for _, sentence in told}) == 1 and len(told) == len(found):
        return [told[0][1]]
    return [f"On {plain(task)}: {sentence[0].lower()}{sentence[1:]}" for task, sentence in told]


def _ends(board: Board, metric: str, whiskers: Whiskers) -> tuple[float, float]:
    """The axis of a metric, the same for all tasks: around all values, whiskers and floors."""
    values: list[float] = []
    for _, _, line in board.everything():
        values += [*line.estimate(metric).by_seed, *(whiskers.around(line, metric) or ())]
        floor = line.estimate(FLOOR).mean if metric == "ece" and line.done else None
        values += [] if floor is None else [floor]
    low, high = (counted(metric, end) for end in METRICS[metric].bounds)
    if not values:
        return (low, high) if high < float("inf") else (0.0, 1.0)
    room = 0.06 * (max(values) - min(values)) or 0.02
    return max(low, min(values)) - room, min(high, max(values)) + room


def _panel(panel: Panel, board: Board, where: tuple[str, str], metric: str, whiskers: Whiskers) -> None:
    ticks = ticks_between(*panel.x, most=4)
    panel.verticals(ticks)
    panel.x_axis(ticks, tick_names(ticks, metric))
    column = board.sorted_column(*where)
    low, high = (counted(metric, end) for end in METRICS[metric].bounds)
    for i, line in enumerate(column):
        estimate, label, y = line.estimate(metric), line.key.label, i + 0.5
        if estimate.mean is None:
            words: str = line.status
            if line.done:
                words = "undefined" if line.has_confidences else "only an order"
            panel.words(0.03, 1 - y / len(column), words, va="center_baseline", color=MUTED)
            continue
        ends = whiskers.around(line, metric)
        if ends is not None:
            within = [(max(low, ends[0]), y), (min(high, ends[1]), y)]
            panel.segments([within], f"{label}/whisker", colors=line.style.colour, linewidths=1.1)
        if len(estimate.by_seed) > 1:
            strokes = {"marker": "|", "markersize": 4.5, "markeredgewidth": 0.45, "linestyle": "none", "color": INK}
            panel.line(estimate.by_seed, [y] * len(estimate.by_seed), f"{label}/seeds", zorder=2.1, **strokes)
        floor = line.estimate(FLOOR).mean if metric == "ece" else None
        if floor is not None:
            panel.segments([[(floor, i + 0.15), (floor, i + 0.85)]], f"{label}/floor", colors=MUTED, linewidths=0.9)
        panel.line([estimate.mean], [y], f"{label}/mean", linestyle="none", zorder=2.2, **_dot(board, where, line))


def _dot(board: Board, where: tuple[str, str], line: Line) -> dict[str, object]:
    """The marker of a mean, hollow where the line stands outside the ranks."""
    hollow = is_unranked(board.tables[where], line)
    return marker_settings(line.style._replace(fill="none") if hollow else line.style, DOT)
