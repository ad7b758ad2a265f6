"""Draw confidence histograms: right answers of a method as bars upwards, wrong answers as bars downwards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from bench.report.figures.drawing import draw_boxes, draw_segments, use_style, vertical_lines
from bench.report.figures.figure_data import RecordsOf, build_figure_data
from bench.report.figures.grid import method_grid
from bench.report.figures.numbers import HISTOGRAM_BINS, bin_boxes, compute_histogram
from bench.report.style import FAINT, INK, WRONG
from bench.report.tables.model import Line, Table
from bench.results.question_records import QuestionRecords

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HEADROOM = 1.08
SEEDS = ", means over seeds; lines: smallest to largest seed"


@use_style()
def confidence_histograms(tables: Sequence[Table], records_of: RecordsOf) -> Figure:
    """Draw axes for each method and task of a model: right answers by confidence above the line, wrong ones below.

    Args:
        tables: tables of one model, one for each task.
        records_of: returns the answers and confidences, question by question, of a result.

    Raises:
        UserError: no method has a result, or two tables are of one model and task.
    """
    data = build_figure_data(tables)
    note = data.note(
        f"Shares of all answers in {HISTOGRAM_BINS} equal bins of confidence: right answers upwards in the method's"
        f" colour, wrong ones downwards in grey{SEEDS if data.n_seeds > 1 else ''}. Each panel has its own scale;"
        " the number is the share in the fullest bin. Dashed: a confidence of 50 %.",
    )
    return method_grid(data, records_of, "confidence", ("confidence (%)", "answers"), _draw_histogram, note)


def _draw_histogram(axes: Axes, line: Line, records: Sequence[QuestionRecords]) -> None:
    shares = compute_histogram(records)
    right, wrong = shares.right.mean(axis=0), shares.wrong.mean(axis=0)
    up, down = HEADROOM * float(shares.right.max()), HEADROOM * float(shares.wrong.max())
    axes.set(ylim=(-max(down, 0.12 * up), max(up, 0.12 * down)), yticks=())
    axes.axvline(0.5, color=FAINT, linewidth=0.5, dashes=(3, 2), zorder=0.5)
    axes.axhline(0, color=INK, linewidth=0.4)
    draw_boxes(axes, bin_boxes(right), "right", facecolor=line.style.colour)
    draw_boxes(axes, bin_boxes(-wrong), "wrong", facecolor=WRONG)
    if len(records) > 1:
        middles = (np.arange(HISTOGRAM_BINS) + 0.5) / HISTOGRAM_BINS
        for label, values in (("right", shares.right), ("wrong", -shares.wrong)):
            low, high = values.min(axis=0), values.max(axis=0)
            ends = vertical_lines(middles, low, high)[low != high]
            draw_segments(axes, ends, f"{label} seeds", colors=INK, linewidths=0.4)
    both = np.concatenate([right, wrong])
    most = int(np.argmax(both))
    is_right, at_left = most < HISTOGRAM_BINS, most % HISTOGRAM_BINS >= HISTOGRAM_BINS / 2
    axes.text(
        0.04 if at_left else 0.96, 0.97 if is_right else 0.03, f"{100 * both[most]:.0f} %", transform=axes.transAxes,
        ha="left" if at_left else "right", va="top" if is_right else "bottom",
    )  # fmt: skip
