"""Draw metrics of a model's methods with intervals: columns of axes are metrics, rows are tasks.

Each axes have a row for each method, in the order of the table: blocks of recalibration, and in each block the best
method by the headline metric first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bench.metrics import METRICS
from bench.report.competition import ranked_by
from bench.report.figures.drawing import (
    LINE,
    dot_settings,
    draw_seeds,
    draw_segments,
    name_rows,
    new_figure,
    padded_limits,
    set_metric_ticks,
    shorten_name,
    use_style,
)
from bench.report.figures.figure_data import (
    FigureData,
    build_figure_data,
    mark_leaders,
    unranked_note,
    unranked_reasons,
)
from bench.report.style import INK, MAX_HEIGHT, MUTED, TEXT_WIDTH
from bench.report.tables.legend import LEADS
from bench.report.tables.model import COLUMNS, Table
from bench.report.text import averaged, plain, with_arrow

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ROW, AXIS, RESERVE = 0.13, 0.3, 1.1
"""Heights in inches: maximum for the row of a method; for headings and ticks; for title and note, if the figure is as
high as a page."""
DOT = 3.4
"""Size of a dot, in points."""
FLOOR = "ece_floor"
SEEDS = ", means over seeds; thin strokes: each seed"


@use_style()
def metric_intervals(tables: Sequence[Table], *, metrics: Sequence[str] = COLUMNS) -> Figure:
    """Draw axes for each metric and task of a model, with a dot and an interval for each method.

    Args:
        tables: tables of one model, one for each task.
        metrics: names in `bench.metrics.METRICS`.

    Raises:
        UserError: no method has a result, or two tables are of one model and task.
    """
    data = build_figure_data(tables)
    model, tasks, rows = data.model, data.tasks, len(data.methods)
    leads = f"; {LEADS}: no ranked method is significantly better" * any(data.leaders(model, t) for t in tasks)
    within = " within each recalibration" * any(line.key.recalibration for line in data.lines)
    floor = "ece" in metrics and any(FLOOR in row.metrics for line in data.lines for row in line.ok_rows)
    note = data.note(
        f"Dots: {averaged(tables[0].average)}{SEEDS if data.n_seeds > 1 else ''}. {data.on_whiskers(metrics)}",
        f"Rows are sorted by {METRICS[ranked_by(tables[0].headline)].label}{within}{leads}.",
        *_unranked_sentences(data),
        "Stroke in a row of ECE: what perfectly calibrated confidences like these would have." if floor else "",
        "Axes don't begin at 0.",
        metrics=metrics,
    )
    room = (MAX_HEIGHT - RESERVE) / len(tasks) - AXIS
    height = max(LINE, min(ROW, room / rows)) * rows + AXIS
    figure, axes = new_figure(
        (len(tasks), len(metrics)), (TEXT_WIDTH, height * len(tasks)), title=f"{data.where}: metrics of all methods",
        note=note, sharey="row", sharex="col",
    )  # fmt: skip
    for j, metric in enumerate(metrics):
        values: list[float] = []  # all tasks have the same x axis
        for line in data.lines:
            values += [*line.estimate(metric).by_seed, *(data.whisker(line, metric) or ())]
            floor_ = line.estimate(FLOOR).mean if metric == "ece" and line.ok_rows else None
            values += [] if floor_ is None else [floor_]
        low, high = METRICS[metric].bounds
        for i, task in enumerate(tasks):
            here = axes[i, j]
            here.set_label(f"{task}/{metric}")
            unit = " (%)" * METRICS[metric].is_fraction
            here.set_title(with_arrow(metric) + unit if not i else "", loc="left")
            here.set_ylabel(shorten_name(task, 24) if len(tasks) > 1 and not j else "")
            here.set_xlim(*(padded_limits(values, 0.02) if values else (max(low, 0.0), min(high, 1.0))))
            set_metric_ticks(here.xaxis, metric, 3)
            here.grid(axis="x")
            name_rows(here, mark_leaders(data.sorted_column(model, task), data.leaders(model, task)))
            _draw_dots(here, data, task, metric)
    return figure


def _unranked_sentences(data: FigureData) -> list[str]:
    """Return a sentence for each task that lists the methods without a rank.

    If these methods and the reasons are the same for all tasks, one sentence is enough, which names no task.
    """
    by_task = [(task, unranked_note(table, table.lines, ", so hollow")) for (_, task), table in data.tables.items()]
    sentences = [(task, sentence) for task, sentence in by_task if sentence]
    if len({sentence for _, sentence in sentences}) == 1 and len(sentences) == len(by_task):
        return [sentences[0][1]]
    return [f"On {plain(task)}: {sentence[0].lower()}{sentence[1:]}" for task, sentence in sentences]


def _draw_dots(axes: Axes, data: FigureData, task: str, metric: str) -> None:
    column, table = data.sorted_column(data.model, task), data.tables.get((data.model, task))
    hollow = unranked_reasons(table, column) if table else {}
    for i, line in enumerate(column):
        estimate, label = line.estimate(metric), line.key.label
        if estimate.mean is None:
            words: str = line.status
            if line.ok_rows:
                words = "undefined" if line.has_confidences else "only an order"
            axes.text(0.03, i, words, transform=axes.get_yaxis_transform(), va="center", color=MUTED)
            continue
        ends = data.whisker(line, metric)
        if ends is not None:
            across = [[(ends[0], i), (ends[1], i)]]
            draw_segments(axes, across, f"{label}/whisker", colors=line.style.colour, linewidths=1.1)
        if len(estimate.by_seed) > 1:
            at = [i] * len(estimate.by_seed)
            draw_seeds(axes, estimate.by_seed, at, f"{label}/seeds", colour=INK, marker="|")
        floor = line.estimate(FLOOR).mean if metric == "ece" else None
        if floor is not None:
            stroke = [[(floor, i - 0.35), (floor, i + 0.35)]]
            draw_segments(axes, stroke, f"{label}/floor", colors=MUTED, linewidths=0.9)
        style = line.style._replace(fill="none") if line.key in hollow else line.style
        axes.plot([estimate.mean], [i], label=f"{label}/mean", zorder=2.2, **dot_settings(style, DOT))
