"""Differences inside each subject: how far each method is from the leader there, all on one axis."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from bench.metrics import METRICS
from bench.report.competition import badness
from bench.report.figures.board import board_of
from bench.report.figures.notes import note_of
from bench.report.figures.panel import AXIS_X, Panel
from bench.report.figures.sheet import EDGE, LINE, Sheet, fitted, marker_settings, sheet, styled, text_width
from bench.report.figures.ticks import tick_names, ticks_between
from bench.report.style import BAND, COLUMN_WIDTH, INK, MAX_HEIGHT, MUTED, TEXT_WIDTH
from bench.report.tables.model import Line, Table
from bench.report.text import averaged, plain, shown, with_arrow

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROW = 0.24
"""Inches of a subject at most."""
RESERVE = 1.15
"""Inches kept for title, key and note where a figure is as high as a page."""
NAME_SHARE = 0.3
"""Largest share of the width for names of subjects."""
VALUES = 0.5
"""Inches of the leader's values."""
FEW = 4
"""Methods that fit into a column of a paper."""
HEADING = LINE * 2.2
DOT = 2.8
SPREAD = 0.7
"""Share of a row over which methods are spread, in the order of the key."""

Values = Mapping[str, float | None]
"""Subject -> mean over seeds; None where it is undefined."""


def subject_differences(tables: Sequence[Table], *, metric: str = "auroc", remark: str = "") -> Figure:
    """One row for each subject, one marker for each method: its value minus the leader's in that subject.

    The leader is the first of the leading group by this metric, or the method with the best mean where nothing was
    tested; its own values stand at the right. A method alone has its own values instead of differences.

    Args:
        tables: of one model and one task.
        metric: name in `bench.metrics.METRICS`.
        remark: a sentence for the note.

    Raises:
        UserError: as `board_of`.
    """
    with styled():
        board = board_of(tables)
        model, task = board.place
        column = [line for line in board.sorted_column(model, task) if line.done]
        label = METRICS[metric].label
        leader = leader_of(board.tables[model, task], metric)
        own = _by_subject(leader, metric) if leader else {}
        values = {line.key: _by_subject(line, metric) for line in column}
        subjects = _ordered(column, own)
        is_alone = leader is not None and [line.key for line in column] == [leader.key]
        blank = sum(own.get(subject) is None for subject in subjects)
        name = plain(leader.key.label) if leader else ""
        plan = _plan(column, subjects)
        lacking = [line.key.label for line in column if line.estimate(metric).mean is None]
        note = note_of(
            board,
            f"{label}{'' if is_alone else ' of each method'} in each subject"
            f"{'' if is_alone else f' minus that of {name}'}{', means over seeds' if board.n_seeds > 1 else ''}; at the"
            f" right, {'the number' if is_alone else f'the number of {name} itself'}."
            if leader
            else f"{label} is undefined for all methods.",
            f"Numbers of questions stand in brackets. Subjects in which {name}'s {label} is largest come first."
            if leader and len(subjects) > 1
            else "",
            f"One subject in {plan.every} is named." if plan.every > 1 else "",
            f"{label} of {name} is undefined in {blank} of {len(subjects)} subjects." if leader and blank else "",
            f"{label} is undefined for {', '.join(lacking)}." if leader and lacking else "",
            f"Row at the top: {averaged(tables[0].average)}. In a row, methods stand in the order of the key, top down."
            if len(column) > 1
            else "",
            metrics=[metric],
            remark=remark,
        )
        title = (
            f"{model} on {task}: {with_arrow(metric)} by subject, against {name}"
            if leader
            else (f"{model} on {task}: {with_arrow(metric)} by subject")
        )
        key = [(line.key.label, line.style) for line in column]
        page = sheet(plan.width, HEADING + plan.height + AXIS_X, title=title, note=note, key=key, lines=False)
        _subject_rows(page, plan, subjects, {s: _own_text(metric, own.get(s)) for s in subjects})
        place = (plan.left, HEADING, plan.side, plan.height)
        mean = leader.estimate(metric).mean if leader else None
        base, middle = (dict.fromkeys(own, 0.0), 0.0) if is_alone else (own, mean)
        differences = {line.key: [_minus(values[line.key].get(s), base.get(s)) for s in subjects] for line in column}
        means = {line.key: _minus(line.estimate(metric).mean, middle) for line in column}
        known = [d for row in (*differences.values(), list(means.values())) for d in row if d is not None]
        ends = _ends(known, has_zero=not is_alone)
        panel = Panel(page, "subjects", place, ends, (float(len(subjects)), 0.0))
        _axes(panel, metric, "" if is_alone else name)
        if leader is None:
            panel.words(0.5, 0.5, "undefined", ha="center", va="center", color=MUTED)
            return page.figure
        above = Panel(page, "means", (plan.left, HEADING - LINE * 1.3, plan.side, LINE * 1.2), ends, (1.0, 0.0))
        of = "mean" if tables[0].average == "subjects" else "all"
        _means_row(page, plan, of, name, _own_text(metric, mean))
        for k, line in enumerate(column):
            _dots(panel, line, differences[line.key], _shift(k, len(column)))
            _dots(above, line, [means[line.key]], _shift(k, len(column)))
        return page.figure


def _means_row(page: Sheet, plan: Plan, of: str, leader: str, value: str) -> None:
    y, right = HEADING - LINE * 0.7, plan.left + plan.side + 0.06
    page.text(plan.left - 0.06, y, of, ha="right", va="center_baseline")
    page.text(right, y, value, va="center_baseline")
    page.text(right, 0, fitted(leader, VALUES + 0.02), color=MUTED)


def _shift(k: int, n: int) -> float:
    """Distance of the k-th method from the middle of a row, as a share of it, so that equal ones are told apart."""
    return 0.0 if n == 1 else SPREAD * (k / (n - 1) - 0.5)


def _dots(panel: Panel, line: Line, differences: Sequence[float | None], shift: float) -> None:
    """The markers of a method, one row for each difference."""
    dots = [(d, i + 0.5 + shift) for i, d in enumerate(differences) if d is not None]
    x, y = [x for x, _ in dots], [y for _, y in dots]
    panel.line(x, y, f"{line.key.label}/dots", linestyle="none", zorder=2, **marker_settings(line.style, DOT))


def leader_of(table: Table, metric: str) -> Line | None:
    """The line that others are compared with: the first leader, else the best mean; None where none has a value."""
    leading = table.leaders(metric)
    if leading:
        return leading[0]
    known = [(mean, line) for line in (*table.lines, *table.others) if (mean := line.estimate(metric).mean) is not None]
    return min(known, key=lambda pair: badness(metric, pair[0]))[1] if known else None


class Plan(NamedTuple):
    """Positions of rows, in inches."""

    width: float
    """Width of the figure."""
    left: float
    side: float
    """Width of the panel."""
    row: float
    """Height of a subject."""
    height: float
    """Height of all subjects."""
    every: int
    """One of so many subjects has its name written, because rows are closer than type is high."""


def _plan(column: Sequence[Line], subjects: Mapping[str, str]) -> Plan:
    width = COLUMN_WIDTH if len(column) <= FEW else TEXT_WIDTH
    left = EDGE + 0.08 + min(max(map(text_width, [*subjects.values(), "mean"])), NAME_SHARE * width)
    row = min(ROW, (MAX_HEIGHT - RESERVE - HEADING - AXIS_X) / len(subjects))
    every = math.ceil(LINE / row - 1e-9)
    return Plan(width, left, width - left - VALUES - 0.1, row, row * len(subjects), every)


def _by_subject(line: Line, metric: str) -> Values:
    """Means over seeds; None where it is undefined."""
    subjects = dict.fromkeys(subject for row in line.done for subject in row.per_subject)
    return {s: line.in_subject(s, metric) for s in subjects}


def _ordered(column: Sequence[Line], own: Values) -> Mapping[str, str]:
    """Subjects and what is written at their rows; the leader's largest value first, those without one last."""
    counts = {s: values.get("n") for line in column for row in line.done for s, values in row.per_subject.items()}

    def place(subject: str) -> tuple[bool, float, str]:
        value = own.get(subject)
        return value is None, -(value or 0.0), subject

    return {s: f"{plain(s).replace('_', ' ')} ({counts[s] or 0:,.0f})" for s in sorted(counts, key=place)}


def _minus(value: float | None, other: float | None) -> float | None:
    return None if value is None or other is None else value - other


def _own_text(metric: str, value: float | None) -> str:
    return "undefined" if value is None else shown(METRICS[metric], value)


def _ends(known: Sequence[float], *, has_zero: bool) -> tuple[float, float]:
    """The axis, wider than the values by a twentieth, for differences with 0 on it."""
    values = [*known, 0.0] if has_zero or not known else known
    low, high = min(values), max(values)
    room = 0.05 * (high - low) or 0.05
    return low - room, high + room


def _subject_rows(page: Sheet, plan: Plan, subjects: Mapping[str, str], own: Mapping[str, str]) -> None:
    """Bands behind every other subject, names at the left, and the leader's values at the right."""
    right = plan.left + plan.side
    bands = Panel(page, "bands", (plan.left, HEADING, plan.side, plan.height), y=(float(len(subjects)), 0.0))
    bands.bars([(0, i, 1, i + 1) for i in range(0, len(subjects), 2)], "bands", facecolors=BAND, zorder=0)
    for i, (subject, name) in enumerate(subjects.items()):
        if i % plan.every == 0:
            y = HEADING + (i + 0.5) * plan.row
            page.text(plan.left - 0.06, y, fitted(name, plan.left - EDGE - 0.06), ha="right", va="center_baseline")
            page.text(right + 0.06, y, own[subject], va="center_baseline", color=MUTED)


def _axes(panel: Panel, metric: str, leader: str) -> None:
    ticks = ticks_between(*panel.x, most=7 if panel.place[2] > COLUMN_WIDTH else 4)
    panel.verticals(ticks)
    if leader:
        panel.verticals([0.0], "zero", colors=INK, linewidths=0.6, zorder=0.6)
    panel.x_axis(ticks, tick_names(ticks, metric))
    x, y, width, height = panel.place
    label = with_arrow(metric)
    points, percent = (" (points)", " (%)") if METRICS[metric].is_fraction else ("", "")
    words = f"{label} minus that of {leader}{points}" if leader else f"{label}{percent}"
    panel.page.text(x + width / 2, y + height + AXIS_X - LINE, fitted(words, width), ha="center")
