"""A grid of small panels, one for each method on each task of a model, as in reliability and confidence figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from bench.report.figures.board import Board
from bench.report.figures.panel import AXIS_X, AXIS_Y, Panel, percent
from bench.report.figures.sheet import EDGE, LINE, Sheet, fitted, sheet, text_width
from bench.report.style import COLUMN_WIDTH, MAX_HEIGHT, NORMAL, TEXT_WIDTH
from bench.report.tables.model import Line
from bench.report.text import plain

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NARROW, WIDE = 3, 6
"""Panels beside each other in a column, and across the text."""
GAP = 0.09
"""Inches between panels."""
MARGIN = 0.08
"""Inches at the right."""
RESERVE = 1.0
"""Inches kept for title, headings and note where a figure is as high as a page."""
NAME_WIDTH = 1.1
"""Inches at most for names at the left."""
TICKS = (0.0, 0.5, 1.0)
HIGHEST = 2.2
"""Inches of a panel."""
SPAN = (-0.03, 1.03)
"""Ends of an axis of fractions, so that markers at 0 and 1 are whole."""

Draw = Callable[[Panel, Line], None]


class Look(NamedTuple):
    """Contents of a grid of panels."""

    kind: str
    """Kind of figure, for the title."""
    x_label: str
    y_label: str
    draw: Draw
    """Fills a panel, its y axis included."""
    strip: float = 0.0
    """Inches of a lower part below each panel."""
    draw_strip: Draw | None = None
    """Fills that part."""


class Plan(NamedTuple):
    """Positions of panels, in inches."""

    width: float
    """Width of the figure."""
    per_task: int
    """Panels beside each other for one task."""
    rows: int
    names_left: bool
    """Methods are named at the left, and not above each panel."""
    left: float
    side: float
    """Width of a panel."""
    height: float
    """Height of a panel, without its lower part."""
    heading: float
    """Above each panel, for its name."""

    @property
    def block(self) -> float:
        """Distance from one task to the next."""
        return self.per_task * (self.side + GAP) + GAP


def _plan_of(names: Sequence[str], n_tasks: int, strip: float) -> Plan:
    """Panels as large and as square as the paper allows."""
    width, columns = (COLUMN_WIDTH, NARROW) if n_tasks == 1 else (TEXT_WIDTH, max(WIDE, n_tasks))
    names_left = columns // n_tasks == 1
    per_task = min(columns // n_tasks, len(names))
    left = AXIS_Y + (min(max(map(text_width, names)), NAME_WIDTH) + 0.06 if names_left else 0.0)
    across = per_task * n_tasks
    side = (width - left - MARGIN - GAP * (across + n_tasks - 2)) / across
    heading = 0.0 if names_left else LINE * 1.1
    rows = -(-len(names) // per_task)
    highest = (MAX_HEIGHT - RESERVE - AXIS_X) / rows - heading - strip - GAP
    return Plan(width, per_task, rows, names_left, left, side, min(side, highest, HIGHEST), heading)


def method_grid(board: Board, look: Look, note: str) -> Figure:
    """One panel for each method and task of a model; tasks stand side by side.

    Raises:
        ValueError: rows of several models.
    """
    model = board.model
    plan = _plan_of(board.labels, len(board.tasks), look.strip)
    tasks_height = LINE * 1.3 if len(board.tasks) > 1 else 0.0
    step = plan.heading + plan.height + look.strip + GAP
    body = tasks_height + plan.rows * step - GAP + AXIS_X
    where = f"{model} on {board.tasks[0]}" if len(board.tasks) == 1 else model
    page = sheet(plan.width, body, title=f"{where}: {look.kind}", note=note)
    for k, task in enumerate(board.tasks):
        x = plan.left + k * plan.block
        inner = plan.block - 2 * GAP
        if tasks_height:
            page.text(x + inner / 2, 0, fitted(plain(task), inner + GAP, NORMAL), ha="center", fontsize=NORMAL)
        page.text(x + inner / 2, body - LINE, fitted(look.x_label, inner + GAP), ha="center")
        for i, line in enumerate(_in_order(board, model, task)):
            row, column = divmod(i, plan.per_task)
            place = (x + column * (plan.side + GAP), tasks_height + row * step + plan.heading)
            last = i + plan.per_task >= len(board.methods)
            _panel(page, plan, look, place, (task, line), (k == 0 and column == 0, last))
    middle = tasks_height + (plan.rows * step - GAP) / 2
    page.text(plan.left - AXIS_Y + EDGE, middle, look.y_label, rotation=90, va="center")
    return page.figure


def _in_order(board: Board, model: str, task: str) -> list[Line]:
    """The leading group first and then by result on a single task; on several, methods stand in rows of their own."""
    if len(board.tasks) > 1:
        return board.column(model, task)
    column = board.sorted_column(model, task)
    leading = [leader.key for leader in board.leading(model, task)]
    return sorted(column, key=lambda line: leading.index(line.key) if line.key in leading else len(leading))


def _panel(
    page: Sheet,
    plan: Plan,
    look: Look,
    place: tuple[float, float],
    what: tuple[str, Line],
    ends: tuple[bool, bool],
) -> None:
    """One panel with its name and its lower part; `ends` says if it is at the left and if at the foot of its column."""
    (x, y), (task, line), (first, last) = place, what, ends
    name = f"{task}/{line.key.label}"
    if plan.names_left and first:
        right = plan.left - AXIS_Y - 0.05
        page.text(right, y + plan.height / 2, fitted(line.key.label, right), ha="right", va="center_baseline")
    elif not plan.names_left:
        page.text(x + plan.side / 2, y - plan.heading, fitted(line.key.label, plan.side + GAP), ha="center")
    panel = Panel(page, name, (x, y, plan.side, plan.height), SPAN, SPAN, labelled=first)
    strip = Panel(page, f"{name}/strip", (x, y + plan.height, plan.side, look.strip), SPAN)
    if line.has_confidences:
        look.draw(panel, line)
        if look.draw_strip is not None:
            look.draw_strip(strip, line)
    else:
        panel.absent("only an order" if line.done else line.status)
    if line.has_confidences or last:
        (strip if look.strip else panel).x_axis(TICKS, percent(TICKS) if last else ())
