"""Dots of one metric: subjects down, methods across, so that it shows where a mean comes from."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from bench.metrics import METRICS
from bench.report.averages import mean_of
from bench.report.figures.bars import tick_names, ticks_between
from bench.report.figures.board import board_of, only
from bench.report.figures.notes import note_of
from bench.report.figures.panel import AXIS_X, Panel
from bench.report.figures.sheet import (
    EDGE,
    LINE,
    Sheet,
    arrow,
    fitted,
    marker_settings,
    sheet,
    styled,
    text_width,
)
from bench.report.style import COLUMN_WIDTH, INK, MAX_HEIGHT, MUTED, TEXT_WIDTH
from bench.report.tables.model import Line, Table
from bench.report.text import plain

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROW = 0.125
"""Inches of a subject at most."""
RESERVE = 0.85
"""Inches kept for title and note where a figure is as high as a page."""
NAME_SHARE = 0.27
"""Largest share of the width for names of subjects."""
MARGIN = 0.1
GAP = 0.1
FEW = 4
"""Methods that fit into a column of a paper."""
TILT = 40
"""Degrees by which the names of methods are turned where they are wider than their panel."""
WIDE = 0.8
"""Inches of a column that has room for larger dots and more ticks."""
BAND = "#f1f1f1"
"""Behind every other subject."""

ByLabel = Mapping[str, Mapping[str, float | None]]
"""Label of a line -> subject -> value."""


def subject_dots(tables: Sequence[Table], *, metric: str = "auroc", remark: str = "") -> Figure:
    """One column of dots for each method, one line for each subject of a task.

    Args:
        tables: of one model and one task.
        metric: name in `bench.metrics.METRICS`.
        remark: a sentence for the note.

    Raises:
        UserError: as `board_of`.
    """
    with styled():
        board = board_of(tables)
        model, task = only(board.models, "model"), only(board.tasks, "task")
        column = [line for line in board.column(model, task) if line.done]
        values = {line.key.label: _by_subject(line, metric) for line in column}
        subjects = _ordered(values, column)
        plan = _plan(column, subjects)
        label = METRICS[metric].label
        seeds = "; dots: means over seeds, bars: smallest to largest" if board.n_seeds > 1 else ""
        blank = sum(all(by_subject.get(s) is None for by_subject in values.values()) for s in subjects)
        note = note_of(
            board,
            f"{label} in each subject, with its number of questions{seeds}; vertical lines: means over subjects.",
            "Subjects with the largest mean over methods come first." if len(subjects) > 1 else "",
            f"One subject in {plan.every} is named." if plan.every > 1 else "",
            f"{label} is undefined for all methods in {blank} of {len(subjects)} subjects." if blank else "",
            metrics=[metric],
            remark=remark,
        )
        title = f"{model} on {task}: {label}{arrow(metric)} by subject"
        page = sheet(plan.width, plan.heading + plan.height + AXIS_X, title=title, note=note)
        _lines(page, plan, subjects)
        ends = _ends([each.get(metric) for row in board.rows for each in row.per_subject.values()], metric)
        for j, line in enumerate(column):
            place = (plan.left + j * (plan.side + GAP), plan.heading, plan.side, plan.height)
            _heading(page, plan, place[0], plan.labels[j])
            panel = Panel(page, line.key.label, place, ends, (float(len(subjects)), 0.0))
            _dots(panel, line, metric, list(subjects))
        unit = " (%)" if METRICS[metric].is_fraction else ""
        middle = (plan.left + plan.right) / 2
        page.text(middle, plan.heading + plan.height + AXIS_X - LINE, f"{label}{unit}", ha="center")
        return page.figure


class Plan(NamedTuple):
    """Positions of columns and lines, in inches."""

    width: float
    """Width of the figure."""
    left: float
    side: float
    """Width of a column."""
    right: float
    """End of the last column."""
    heading: float
    row: float
    """Height of a subject."""
    height: float
    """Height of all subjects."""
    labels: tuple[str, ...]
    """Names of methods as they fit."""
    tilted: bool
    """Names of methods are turned."""
    every: int
    """One of so many subjects has its name written, because lines are closer than type is high."""


def _plan(column: Sequence[Line], subjects: Mapping[str, str]) -> Plan:
    width = COLUMN_WIDTH if len(column) <= FEW else TEXT_WIDTH
    left = EDGE + 0.08 + min(max(map(text_width, subjects.values())), NAME_SHARE * width)
    labels = tuple(fitted(line.key.label, 1.1) for line in column)
    longest = max(map(text_width, labels))
    room = width - left - GAP * (len(column) - 1)
    side = (room - MARGIN) / len(column)
    tilted = longest > side + GAP - 0.03
    margin = max(MARGIN, text_width(labels[-1]) * math.cos(math.radians(TILT)) - side / 2) if tilted else MARGIN
    side = (room - margin) / len(column)
    heading = longest * math.sin(math.radians(TILT)) + LINE if tilted else LINE * 1.2
    row = min(ROW, (MAX_HEIGHT - RESERVE - heading - AXIS_X) / len(subjects))
    every = math.ceil(LINE / row - 1e-9)
    return Plan(width, left, side, width - margin, heading, row, row * len(subjects), labels, tilted, every)


def _by_subject(line: Line, metric: str) -> Mapping[str, float | None]:
    """Means over seeds; None where it is undefined."""
    subjects = dict.fromkeys(subject for row in line.done for subject in row.per_subject)
    return {s: mean_of(line.in_subject(s, metric)) for s in subjects}


def _ordered(values: ByLabel, column: Sequence[Line]) -> Mapping[str, str]:
    """Subjects and what is written at their lines; largest mean over methods first, those without any value last."""
    subjects = dict.fromkeys(subject for by_subject in values.values() for subject in by_subject)
    means = {s: mean_of(by_subject.get(s) for by_subject in values.values()) for s in subjects}
    ordered = sorted(subjects, key=lambda s: (means[s] is None, -(means[s] or 0.0), s))
    counts = {s: values.get("n") for line in column for row in line.done for s, values in row.per_subject.items()}
    return {s: f"{plain(s).replace('_', ' ')} ({counts[s] or 0:,.0f})" for s in ordered}


def _ends(values: Sequence[float | None], metric: str) -> tuple[float, float]:
    """The axis of all columns, wider than the values by a twentieth, within what is possible."""
    known = [value for value in values if value is not None] or [0.0, 1.0]
    low, high = METRICS[metric].bounds
    room = 0.05 * (max(known) - min(known)) or 0.05
    return max(low - 0.02, min(known) - room), min(high + 0.02, max(known) + room)


def _lines(page: Sheet, plan: Plan, subjects: Mapping[str, str]) -> None:
    """Bands behind every other subject, and names."""
    place = (plan.left, plan.heading, plan.right - plan.left, plan.height)
    bands = Panel(page, "bands", place, y=(float(len(subjects)), 0.0))
    bands.bars([(0, i, 1, i + 1) for i in range(0, len(subjects), 2)], "bands", facecolors=BAND, zorder=0)
    for i, name in enumerate(subjects.values()):
        if i % plan.every == 0:
            shown = fitted(name, plan.left - EDGE - 0.06)
            page.text(plan.left - 0.06, plan.heading + (i + 0.5) * plan.row, shown, ha="right", va="center_baseline")


def _heading(page: Sheet, plan: Plan, x: float, label: str) -> None:
    """Name of a method above its column."""
    if plan.tilted:
        settings = {"rotation": TILT, "rotation_mode": "anchor", "ha": "left", "va": "baseline"}
        page.text(x + plan.side / 2 - 0.03, plan.heading - 0.04, label, **settings)
    else:
        page.text(x + plan.side / 2, 0, label, ha="center")


def _dots(panel: Panel, line: Line, metric: str, subjects: Sequence[str]) -> None:
    ticks = ticks_between(*panel.x, most=4 if panel.place[2] > WIDE else 2)
    panel.x_axis(ticks, tick_names(ticks, metric))
    mean = line.estimate(metric).mean
    if mean is None:
        upright = 90 if panel.place[3] > text_width("undefined") else 0
        panel.words(0.5, 0.5, "undefined", rotation=upright, ha="center", va="center", color=MUTED)
        return
    panel.segments([[(mean, 0), (mean, len(subjects))]], "mean", colors=line.style.colour, linewidths=0.5, zorder=1)
    drawn = [(i + 0.5, known) for i, s in enumerate(subjects) if (known := line.in_subject(s, metric))]
    means = [sum(known) / len(known) for _, known in drawn]
    if len(line.done) > 1:
        spread = [[(min(known), y), (max(known), y)] for y, known in drawn]
        panel.segments(spread, "seeds", colors=INK, linewidths=0.5)
    settings = marker_settings(line.style, 2.6 if panel.place[2] > WIDE else 2.2)
    panel.line(means, [y for y, _ in drawn], "dots", linestyle="none", **settings)
