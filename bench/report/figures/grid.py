"""Draw a grid of small axes, one for each method and task of a model, for reliability and confidence figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from bench.report.figures.drawing import new_figure, no_data, set_fraction_axes, shorten_name
from bench.report.figures.figure_data import FigureData, RecordsOf, leaders_first
from bench.report.style import MAX_HEIGHT, TEXT_WIDTH
from bench.report.tables.model import Line
from bench.results.question_records import QuestionRecords

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    Draw = Callable[[Axes, Line, Sequence[QuestionRecords]], None]

SIDE = 1.6
"""Maximum side of one method's axes with their labels, in inches."""
RESERVE = 1.2
"""Height in inches that title, labels and note take on a figure as high as a page."""
ONE_TASK, SEVERAL_TASKS = 4, 6
"""Maximum number of axes side by side: on a figure of one task, and on a figure of several tasks."""


def method_grid(
    data: FigureData, records_of: RecordsOf, kind: str, axis_labels: tuple[str, str], draw: Draw, note: str
) -> Figure:
    """Draw axes for each method and task of a model; each task has its own columns of axes.

    Args:
        data: tables of one model.
        records_of: returns the answers and confidences, question by question, of a result.
        kind: kind of figure, for the title.
        axis_labels: x label below the lowest axes, and y label beside the leftmost.
        draw: function that draws a method, with the answers and confidences of each seed, on axes with the range
            [0, 1]; called only for methods with confidences.
        note: text below the figure.

    Raises:
        ValueError: the data are of several models.
    """
    model, tasks = data.model, data.tasks
    per_task = min(len(data.methods), ONE_TASK if len(tasks) == 1 else max(1, SEVERAL_TASKS // len(tasks)))
    rows, across = -(-len(data.methods) // per_task), per_task * len(tasks)
    width = min(TEXT_WIDTH, 0.6 + SIDE * across)
    height = min(SIDE, (width - 0.6) / across + 0.25, (MAX_HEIGHT - RESERVE) / rows)
    figure, axes = new_figure((rows, across), (width, height * rows + 0.3), title=f"{data.where}: {kind}", note=note)
    for k, task in enumerate(tasks):
        lines = data.column(model, task)
        if len(tasks) == 1:
            leading = [line.key for line in data.leaders(model, task)]
            lines = leaders_first(data.sorted_column(model, task), leading)
        for i in range(rows * per_task):
            row, column = divmod(i, per_task)
            here = axes[row, k * per_task + column]
            if i >= len(lines):
                here.set_axis_off()
                continue
            line = lines[i]
            above = f"{shorten_name(task, 20)}\n" * (len(tasks) > 1 and not i)
            here.set_title(f"{above}{shorten_name(line.key.label, 24)}", pad=3)
            here.set_label(f"{task}/{line.key.label}")
            set_fraction_axes(here)
            here.tick_params(labelleft=not (k or column), labelbottom=i + per_task >= len(lines))
            if line.has_confidences:
                draw(here, line, [records_of(row) for row in line.ok_rows])
            else:
                no_data(here, "only an order" if line.ok_rows else line.status)
            if i + per_task >= len(lines):
                here.set_xlabel(axis_labels[0])
            if not (k or column) and (row == rows // 2 or height >= SIDE):
                here.set_ylabel(axis_labels[1])
    return figure
