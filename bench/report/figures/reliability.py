"""Reliability diagrams: how often answers are right that a method is so sure of, with intervals and counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from bench.api import FloatArray
from bench.metrics import ece
from bench.report.bins import BINS, Bins, bins_of
from bench.report.figures.board import RecordsOf, board_of
from bench.report.figures.grid import TICKS, Look, method_grid
from bench.report.figures.notes import note_of
from bench.report.figures.panel import Panel, percent
from bench.report.figures.sheet import REFERENCE, line_settings, styled
from bench.report.style import SMALL
from bench.report.tables.model import Line, Table
from bench.results.files import Records

if TYPE_CHECKING:
    from matplotlib.figure import Figure

X_LABEL, Y_LABEL = "confidence (%)", "right answers (%)"
STRIP = 0.2
"""Inches of the histogram of counts."""
CORNERS = ((0.04, 0.96, "left", "top"), (0.97, 0.04, "right", "bottom"), (0.04, 0.04, "left", "bottom"))
"""Corners where the ECE may stand, in order of preference."""
CORNER_SIZE = (0.52, 0.13)
"""Inches that it takes, with some room around."""


def reliability(tables: Sequence[Table], records_of: RecordsOf, *, remark: str = "") -> Figure:
    """One panel for each method and task of a model: ten bins, their intervals, and the counts below.

    Args:
        tables: of one model, one or more tasks.
        records_of: gives the questions of a result.
        remark: a sentence for the note.

    Raises:
        UserError: as `board_of`.
    """
    with styled():
        board = board_of(tables)
        seeds = board.n_seeds > 1
        note = note_of(
            board,
            f"Points: mean confidence and share of right answers in each of {BINS} equal bins, all subjects together"
            f"{', all seeds together; dashes: each seed' if seeds else ''}. Vertical lines: 95 % Wilson (binomial)"
            f" intervals{' for as many answers as one seed has' if seeds else ''}. Bars: answers in each bin, with the"
            " number in the fullest. ECE: percent, of all subjects together (tables: mean over subjects).",
            remark=remark,
        )
        look = Look(
            "reliability",
            X_LABEL,
            Y_LABEL,
            draw=lambda panel, line: _diagram(panel, line, [records_of(row) for row in line.done]),
            strip=STRIP,
            draw_strip=lambda panel, line: _counts(panel, line, [records_of(row) for row in line.done]),
        )
        return method_grid(board, look, note)


def _pooled_ece(records: Sequence[Records]) -> float:
    """Mean over seeds of the ECE of all subjects' answers together."""
    return sum(ece(run.confidence, run.correct, bins=BINS) for run in records) / len(records)


def upright(x: FloatArray, low: FloatArray, high: FloatArray) -> FloatArray:
    """Vertical lines, (k, 2, 2), from low to high at x, (b,) each; those that are NaN are left out."""
    ends = np.stack([np.column_stack([x, low]), np.column_stack([x, high])], axis=1)
    drawn: FloatArray = ends[~np.isnan(ends).any(axis=(1, 2))]
    return drawn


def _diagram(panel: Panel, line: Line, records: Sequence[Records]) -> None:
    bins, style = bins_of(records), line.style
    panel.y_axis(TICKS, percent(TICKS) if panel.labelled else ())
    panel.line([0, 1], [0, 1], "diagonal", **REFERENCE)
    panel.segments(upright(bins.confidence, bins.low, bins.high), "interval", colors=style.colour, linewidths=0.8)
    if len(records) > 1:
        dashes = {"marker": "_", "markersize": 2.6, "markeredgewidth": 0.5, "linestyle": "none"}
        for run, rates in enumerate(bins.by_seed):
            panel.line(bins.confidence, rates, f"seed {run}", color=style.colour, **dashes)
    filled = bins.answers > 0
    settings = {**line_settings(style, 2.4), "linewidth": 0.6}
    panel.line(bins.confidence[filled], bins.rate[filled], "rate", **settings)
    x, y, across, up = _free_corner(bins, CORNER_SIZE[0] / panel.place[2], CORNER_SIZE[1] / panel.place[3])
    panel.words(x, y, f"ECE {100 * _pooled_ece(records):.1f}", ha=across, va=up, zorder=1)


def _free_corner(bins: Bins, width: float, height: float) -> tuple[float, float, str, str]:
    """The corner of that size, in shares of the panel, in which least is drawn."""
    filled = bins.answers > 0
    x, low, rate, high = (values[filled] for values in (bins.confidence, bins.low, bins.rate, bins.high))
    along = np.linspace(0, 1, 21)
    places = np.linspace(x[0], x[-1], 101)
    drawn = np.concatenate(
        [
            np.column_stack([places, np.interp(places, x, rate)]),
            *(np.column_stack([np.full(21, a), b + (c - b) * along]) for a, b, c in zip(x, low, high, strict=True)),
        ]
    )

    def hidden(corner: tuple[float, float, str, str]) -> int:
        from_side = drawn[:, 0] if corner[2] == "left" else 1 - drawn[:, 0]
        from_end = 1 - drawn[:, 1] if corner[3] == "top" else drawn[:, 1]
        return int(np.count_nonzero((from_side < width) & (from_end < height)))

    return min(CORNERS, key=hidden)


def _counts(panel: Panel, line: Line, records: Sequence[Records]) -> None:
    count = bins_of(records).answers
    most = int(np.argmax(count))
    fitting = replace(panel, y=(0.0, 1.15 * count[most]))
    fitting.bars(bin_boxes(count), "counts", facecolors=line.style.colour, alpha=0.55)
    at_left = most >= BINS / 2
    panel.words(
        0.03 if at_left else 0.97, 0.9, f"{count[most]:,.0f}", ha="left" if at_left else "right", fontsize=SMALL
    )


def bin_boxes(heights: FloatArray, base: float = 0.0) -> FloatArray:
    """Bars over equal bins of [0, 1] for `Panel.bars`: heights (b,) -> (b, 4), without empty ones."""
    edges = np.arange(heights.size + 1) / heights.size
    boxes = np.column_stack([edges[:-1], np.full(heights.size, base), edges[1:], base + heights])
    filled: FloatArray = boxes[heights != 0]
    return filled
