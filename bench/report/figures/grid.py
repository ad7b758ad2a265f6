"""A grid of small axes, one for each method on each task of a model, as in reliability and confidence figures."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from bench.report.figures.drawing import drawing, fractions, no_data, short
from bench.report.figures.figure_data import FigureData, leaders_first
from bench.report.style import MAX_HEIGHT, TEXT_WIDTH
from bench.report.tables.model import Line

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SIDE = 1.6
"""Inches of a method's axes with their name, where there is room; lower ones share the name of an axis."""
RESERVE = 1.2
"""Inches kept for title, labels and note where a figure is as high as a page."""
ONE_TASK, SEVERAL_TASKS = 4, 6
"""Methods side by side on one task; axes side by side on several."""


def method_grid(
    data: FigureData, kind: str, axis_labels: tuple[str, str], draw: Callable[[Axes, Line], None], note: str
) -> Figure:
    """Axes for each method and task of a model; tasks stand side by side.

    Args:
        data: tables of one model.
        kind: of figure, for the title.
        axis_labels: below the lowest axes and beside the leftmost.
        draw: fills axes from 0 to 1 with a method that has confidences.
        note: below the figure.

    Raises:
        ValueError: rows of several models.
    """
    model, tasks = data.model, data.tasks
    per_task = min(len(data.methods), ONE_TASK if len(tasks) == 1 else max(1, SEVERAL_TASKS // len(tasks)))
    rows, across = -(-len(data.methods) // per_task), per_task * len(tasks)
    width = min(TEXT_WIDTH, 0.6 + SIDE * across)
    height = min(SIDE, (width - 0.6) / across + 0.25, (MAX_HEIGHT - RESERVE) / rows)
    figure, axes = drawing((rows, across), (width, height * rows + 0.3), title=f"{data.where}: {kind}", note=note)
    for k, task in enumerate(tasks):
        lines = data.column(model, task)
        if len(tasks) == 1:
            leading = [line.key for line in data.leading(model, task)]
            lines = leaders_first(data.sorted_column(model, task), leading)
        for i in range(rows * per_task):
            row, column = divmod(i, per_task)
            here = axes[row, k * per_task + column]
            if i >= len(lines):
                here.set_axis_off()
                continue
            line = lines[i]
            above = f"{short(task, 20)}\n" * (len(tasks) > 1 and not i)
            here.set_title(f"{above}{short(line.key.label, 24)}", pad=3)
            here.set_label(f"{task}/{line.key.label}")
            fractions(here)
            here.tick_params(labelleft=not (k or column), labelbottom=i + per_task >= len(lines))
            if line.has_confidences:
                draw(here, line)
            else:
                no_data(here, "only an order" if line.done else line.status)
            if i + per_task >= len(lines):
                here.set_xlabel(axis_labels[0])
            if not (k or column) and (row == rows // 2 or height >= SIDE):
                here.set_ylabel(axis_labels[1])
    return figure
