"""Reliability diagrams: isotonic curves with consistency bands, ten bins with intervals, and counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from bench.api import FloatArray
from bench.report import corp
from bench.report.bins import BINS, FEW, Bins, bins_of, joined
from bench.report.figures.board import Board, RecordsOf, board_of
from bench.report.figures.grid import TICKS, Look, method_grid
from bench.report.figures.notes import note_of
from bench.report.figures.panel import Panel, percent
from bench.report.figures.sheet import LINE, REFERENCE, marker_settings, styled
from bench.report.grouping import ece_bins_of
from bench.report.style import MUTED, SMALL
from bench.report.tables.model import Line, Table
from bench.results.records import Records

if TYPE_CHECKING:
    from matplotlib.figure import Figure

X_LABEL, Y_LABEL = "confidence (%)", "right answers (%)"
STRIP = 0.2
"""Inches of the histogram of counts."""
BAND_COLOUR = "#dcdcdc"
PALE = 0.35
"""Opacity of bins with few answers."""
CORNERS = ((0.04, 0.96, "left", "top"), (0.97, 0.04, "right", "bottom"), (0.04, 0.04, "left", "bottom"))
"""Corners where ECE and MCB may stand, in order of preference."""
CORNER_SIZE = (0.54, 0.24)
"""Inches that it takes, with some room around."""


def reliability(tables: Sequence[Table], records_of: RecordsOf, *, remark: str = "") -> Figure:
    """One panel for each method and task of a model: curve and band, ten bins with intervals, and the counts below.

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
            "Line: isotonic (CORP) curve of all subjects"
            f"{' and seeds' if seeds else ''} together; grey: the 95 % of such curves, at each confidence, that"
            " calibrated confidences would have. A curve outside it speaks against calibration there.",
            f"Points: the same in {BINS} equal bins, with 95 % Wilson (binomial) intervals"
            f"{' for as many answers as one seed has; dashes: each seed' if seeds else ''}; pale, and not joined: fewer"
            f" than {FEW} answers. Bars: answers in each bin, with the number in the fullest.",
            f"ECE and MCB, the miscalibration part of Brier, in percent: of the answers of all subjects"
            f"{' and seeds' if seeds else ''} together.",
            _on_order_alone(board),
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


def _on_order_alone(board: Board) -> str:
    """The methods that have no curve because their scores have no scale."""
    names = sorted({line.key.label for _, _, line in board.everything() if line.done and not line.has_confidences})
    return f"Only an order, so no diagram: {', '.join(names)} (scores without a scale)." if names else ""


def upright(x: FloatArray, low: FloatArray, high: FloatArray) -> FloatArray:
    """Vertical lines, (k, 2, 2), from low to high at x, (b,) each; those that are NaN are left out."""
    ends = np.stack([np.column_stack([x, low]), np.column_stack([x, high])], axis=1)
    drawn: FloatArray = ends[~np.isnan(ends).any(axis=(1, 2))]
    return drawn


def _diagram(panel: Panel, line: Line, records: Sequence[Records]) -> None:
    bins, style = bins_of(records), line.style
    curve, pooled = corp.curve_of(records), corp.pooled(records, ece_bins_of(line.done[0]))
    panel.y_axis(TICKS, percent(TICKS) if panel.labelled else ())
    if curve.confidence.size == 1:  # a stroke, where all confidences are the same
        curve = corp.Curve(*(np.repeat(values, 2) for values in curve))
        curve = curve._replace(confidence=curve.confidence + np.array([-0.02, 0.02]))
    panel.area(curve.confidence, curve.low, curve.high, "band", facecolors=BAND_COLOUR, zorder=0.4)
    panel.line([0, 1], [0, 1], "diagonal", **{**REFERENCE, "color": MUTED, "dashes": (3, 2)})
    few = bins.answers < FEW
    for name, some, alpha in (("interval", ~few, 1.0), ("few interval", few, PALE)):
        ends = upright(bins.confidence[some], bins.low[some], bins.high[some])
        panel.segments(ends, name, colors=style.colour, linewidths=0.6, alpha=alpha)
    if len(records) > 1:
        dashes = {"marker": "_", "markersize": 2.6, "markeredgewidth": 0.5, "linestyle": "none"}
        for run, rates in enumerate(bins.by_seed):
            panel.line(bins.confidence[~few], rates[~few], f"seed {run}", color=style.colour, **dashes)
    panel.line(*joined(bins), "joined", color=style.colour, linewidth=0.4, dashes=(1.5, 1.5))
    panel.line(curve.confidence, curve.rate, "curve", color=style.colour, linewidth=1.1, zorder=1.9)
    markers = marker_settings(style, 2.2)
    panel.line(bins.confidence[~few], bins.rate[~few], "rate", linestyle="none", zorder=2, **markers)
    pale = few & (bins.answers > 0)
    panel.line(bins.confidence[pale], bins.rate[pale], "few", linestyle="none", alpha=PALE, **markers)
    size = CORNER_SIZE[0] / panel.place[2], CORNER_SIZE[1] / panel.place[3]
    x, y, across, up = _free_corner(bins, curve, *size)
    line_height = LINE / panel.place[3]
    for k, words in enumerate((f"ECE {100 * pooled.ece:.1f}", f"MCB {100 * pooled.mcb:.1f}")):
        down = k if up == "top" else k - 1
        panel.words(x, y - down * line_height, words, ha=across, va=up, zorder=2.5)


def _free_corner(bins: Bins, curve: corp.Curve, width: float, height: float) -> tuple[float, float, str, str]:
    """The corner of that size, in shares of the panel, in which least is drawn."""
    filled = bins.answers > 0
    along = np.linspace(0, 1, 21)
    places = np.linspace(curve.confidence[0], curve.confidence[-1], 101)
    whiskers = zip(bins.confidence[filled], bins.low[filled], bins.high[filled], strict=True)
    drawn = np.concatenate(
        [
            np.column_stack([places, np.interp(places, curve.confidence, curve.rate)]),
            *(np.column_stack([np.full(21, a), b + (c - b) * along]) for a, b, c in whiskers),
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
