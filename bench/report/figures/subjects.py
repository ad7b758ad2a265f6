"""Draw each method's difference to the leading method in each subject of a task, on one x axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from bench.metrics import METRICS
from bench.report.competition import badness
from bench.report.figures.drawing import (
    AXIS,
    dot_settings,
    draw_zero_line,
    name_rows,
    new_figure,
    padded_limits,
    set_metric_ticks,
    shorten_name,
    use_style,
    write_beside,
)
from bench.report.figures.figure_data import build_figure_data
from bench.report.style import MAX_HEIGHT, MUTED, TEXT_WIDTH
from bench.report.tables.model import Line, Table
from bench.report.text import averaged, plain, value_text, with_arrow

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROW, RESERVE = 0.24, 1.6
"""Heights in inches: maximum for the row of a subject; for title and note, if the figure is as high as a page."""
DOT = 2.8
SPREAD = 0.7
"""Share of a row's height over which the methods' markers are spread, in the order of the legend."""

Values = Mapping[str, float | None]
"""Subject -> mean over seeds of a metric in that subject; None if undefined."""


@use_style()
def subject_differences(tables: Sequence[Table], *, metric: str = "auroc") -> Figure:
    """Draw a row for each subject, with a marker for each method: its value minus that of the leading method.

    `reference_line` selects the leading method. The values of the leading method are written at the right. If it is
    the only method, its values are drawn instead of differences.

    Args:
        tables: one table, of one model and task.
        metric: name in `bench.metrics.METRICS`.

    Raises:
        UserError: no method has a result, or two tables are of one model and task.
    """
    data = build_figure_data(tables)
    model, task, table = data.single
    column = [line for line in data.sorted_column(model, task) if line.ok_rows]
    label = METRICS[metric].label
    leader = reference_line(table, metric)
    by_subject = _by_subject(leader, metric) if leader else {}
    counts = {
        s: values.get("n") or 0 for line in column for row in line.ok_rows for s, values in row.per_subject.items()
    }
    ordered = sorted(counts, key=lambda s: (by_subject.get(s) is None, -(by_subject.get(s) or 0.0), s))
    subjects = {s: f"{shorten_name(s.replace('_', ' '), 27)} ({counts[s]:,.0f})" for s in ordered}
    is_alone = leader is not None and [line.key for line in column] == [leader.key]
    blank = sum(by_subject.get(subject) is None for subject in subjects)
    name = plain(leader.key.label) if leader else ""
    undefined_labels = [line.key.label for line in column if line.estimate(metric).mean is None]
    top_row = "mean" if table.average == "subjects" else "all"
    rows = (top_row, *subjects)
    minus_leader = "" if is_alone else f" minus that of {name}"
    note = data.note(
        f"{label}{' of each method' * (not is_alone)} in each subject{minus_leader}"
        f"{', means over seeds' if data.n_seeds > 1 else ''}; at the right,"
        f" {'the number' if is_alone else f'the number of {name} itself'}."
        if leader
        else f"{label} is undefined for all methods.",
        f"Numbers of questions stand in brackets. Subjects in which {name}'s {label} is largest come first."
        if leader and len(subjects) > 1
        else "",
        f"{label} of {name} is undefined in {blank} of {len(subjects)} subjects." if leader and blank else "",
        f"{label} is undefined for {', '.join(undefined_labels)}." if leader and undefined_labels else "",
        f"Row at the top: {averaged(table.average)}. In a row, methods stand in the order of the key, top down."
        if len(column) > 1
        else "",
        metrics=[metric],
    )
    against = f", against {name}" if leader else ""
    height = min(ROW * len(rows) + AXIS, MAX_HEIGHT - RESERVE)
    figure, ((axes,),) = new_figure(
        (1, 1), (TEXT_WIDTH, height), title=f"{model} on {task}: {with_arrow(metric)} by subject{against}",
        note=note, key=[(line.key.label, line.style) for line in column], lines=False,
    )  # fmt: skip
    axes.set_label("subjects")
    name_rows(axes, [top_row, *subjects.values()])
    points_unit, percent = (" (points)", " (%)") if METRICS[metric].is_fraction else ("", "")
    axes.set_xlabel(with_arrow(metric) + (percent if is_alone or not leader else minus_leader + points_unit))
    if leader is None:
        axes.text(0.5, 0.5, "undefined", transform=axes.transAxes, ha="center", va="center", color=MUTED)
        return figure
    values: dict[str, float | None] = {top_row: leader.estimate(metric).mean, **by_subject}
    base = dict.fromkeys(rows, 0.0) if is_alone else values
    differences = []
    for line in column:
        by_subject = {top_row: line.estimate(metric).mean, **_by_subject(line, metric)}
        pairs = enumerate((by_subject.get(row), base.get(row)) for row in rows)
        differences.append([(i, a - b) for i, (a, b) in pairs if a is not None and b is not None])
    known = [difference for points in differences for _, difference in points]
    axes.set_xlim(*padded_limits([*known, *[0.0] * (not is_alone or not known)], 0.05))
    set_metric_ticks(axes.xaxis, metric, 7)
    axes.grid(axis="x")
    if not is_alone:
        draw_zero_line(axes)
    for k, (line, points) in enumerate(zip(column, differences, strict=True)):
        shift = 0.0 if len(column) == 1 else SPREAD * (k / (len(column) - 1) - 0.5)
        x, y = [difference for _, difference in points], [i + shift for i, _ in points]
        axes.plot(x, y, label=f"{line.key.label}/dots", zorder=2, **dot_settings(line.style, DOT))
    for i, row in enumerate(rows):
        value = values.get(row)
        write_beside(axes, i, "undefined" if value is None else value_text(METRICS[metric], value), color=MUTED)
    return figure


def reference_line(table: Table, metric: str) -> Line | None:
    """Return the method that the others are compared with; None if the metric is undefined for all methods.

    It is the first leading method: no ranked method is significantly better. If no method leads, e.g. because nothing
    was tested, it is the method with the best mean.
    """
    leading = table.leaders(metric)
    if leading:
        return leading[0]
    known = [(mean, line) for line in (*table.lines, *table.others) if (mean := line.estimate(metric).mean) is not None]
    return min(known, key=lambda pair: badness(metric, pair[0]))[1] if known else None


def _by_subject(line: Line, metric: str) -> Values:
    """Return a method's metric by subject, as the mean over seeds; None in a subject where the metric is undefined."""
    subjects = dict.fromkeys(subject for row in line.ok_rows for subject in row.per_subject)
    return {s: line.in_subject(s, metric) for s in subjects}
