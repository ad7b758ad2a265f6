"""Draw an overview of reliability: axes for each model and task, with the reliability curves of all methods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.report.bins import BINS, FEW, bin_records, connected_bins
from bench.report.figures.drawing import (
    REFERENCE,
    draw_segments,
    marker_settings,
    new_figure,
    no_data,
    set_fraction_axes,
    shorten_name,
    use_style,
    vertical_lines,
)
from bench.report.figures.figure_data import RecordsOf, build_figure_data
from bench.report.figures.reliability import X_LABEL, Y_LABEL
from bench.report.style import MAX_HEIGHT, PANEL_WIDTH, TEXT_WIDTH
from bench.report.tables.model import Line, Table
from bench.results.question_records import QuestionRecords

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HIGHEST, RESERVE = 3.0, 1.4
"""Heights in inches: maximum for a row of axes; for title and note, if the figure is as high as a page."""
SMALLEST, LARGEST = 0.8, 3.4
"""Sizes of a bin's marker in points: if the bin has almost no answers, and if it has all answers."""


@use_style()
def reliability_overview(tables: Sequence[Table], records_of: RecordsOf) -> Figure:
    """Draw the reliability curves of all methods: rows of axes are models, columns are tasks.

    Args:
        tables: tables of any models and tasks, one for each pair of them.
        records_of: returns the answers and confidences, question by question, of a result.

    Raises:
        UserError: no method has a result, or two tables are of one model and task.
    """
    data = build_figure_data(tables)
    note = data.note(
        f"Curves: mean confidence and share of right answers in each of {BINS} equal bins, all subjects"
        f"{' and seeds' if data.n_seeds > 1 else ''} together; the larger a marker, the more answers. Vertical"
        f" lines: 95 % Wilson (binomial) intervals{' for one seed' if data.n_seeds > 1 else ''}. Bins with fewer"
        f" than {FEW} answers are not joined.",
    )
    several, shape = len(data.models) > 1, (len(data.models), len(data.tasks))
    width = PANEL_WIDTH if shape[1] == 1 else TEXT_WIDTH
    figure, axes = new_figure(
        shape, (width, min(HIGHEST, (MAX_HEIGHT - RESERVE) / shape[0], width / shape[1]) * shape[0]),
        title="Reliability" if several else f"{data.models[0]}: reliability", note=note, key=data.legend,
    )  # fmt: skip
    for m, model in enumerate(data.models):
        for k, task in enumerate(data.tasks):
            here = axes[m, k]
            here.set_label(f"{m}/{k}")
            set_fraction_axes(here)
            here.tick_params(labelleft=not k, labelbottom=m + 1 == shape[0])
            here.set_title(shorten_name(task, 24) if not m else "")
            here.set_xlabel(X_LABEL if m + 1 == shape[0] else "")
            name = f"{shorten_name(model.rsplit('/', 1)[-1], 24)}\n" if several else ""
            here.set_ylabel(f"{name}{Y_LABEL}" if not k else "")
            column = data.column(model, task)
            if not any(line.has_confidences for line in column):
                states = ["only an order" if line.ok_rows else line.status for line in column]
                no_data(here, " / ".join(dict.fromkeys(states)))
                continue
            here.plot([0, 1], [0, 1], label="diagonal", **REFERENCE)
            for line in column:
                if line.has_confidences:
                    _draw_curve(here, line, [records_of(row) for row in line.ok_rows])
    return figure


def _draw_curve(axes: Axes, line: Line, records: Sequence[QuestionRecords]) -> None:
    bins, colour, label = bin_records(records), line.style.colour, line.key.label
    filled = bins.answers > 0
    ends = vertical_lines(bins.confidence, bins.low, bins.high)
    draw_segments(axes, ends, f"{label}/interval", colors=colour, linewidths=0.4, alpha=0.45, zorder=1.0)
    dashes: dict[str, Any] = {"dashes": line.style.dash} if line.style.dash else {}
    axes.plot(*connected_bins(bins), label=f"{label}/rate", color=colour, linewidth=0.6, **dashes)
    sizes = SMALLEST + (LARGEST - SMALLEST) * np.sqrt(bins.answers[filled] / bins.answers.sum())
    for place, height, size in zip(bins.confidence[filled], bins.rate[filled], sizes, strict=True):
        axes.plot([place], [height], label=f"{label}/marker", **marker_settings(line.style, float(size)))
