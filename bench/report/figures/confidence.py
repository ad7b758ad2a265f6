"""Confidence histograms: how sure a method is of right answers (upwards) and of wrong ones (downwards)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from bench.report.figures.board import RecordsOf, board_of
from bench.report.figures.grid import Look, method_grid
from bench.report.figures.notes import note_of
from bench.report.figures.numbers import HISTOGRAM_BINS, Histogram, histogram_of
from bench.report.figures.panel import Panel
from bench.report.figures.reliability import bin_boxes, upright
from bench.report.figures.sheet import styled
from bench.report.style import FAINT, INK, WRONG
from bench.report.tables.model import Line, Table
from bench.results.records import Records

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HEADROOM = 1.08
SEEDS = ", means over seeds; lines: smallest to largest seed"


def confidence_histograms(tables: Sequence[Table], records_of: RecordsOf, *, remark: str = "") -> Figure:
    """One panel for each method and task of a model: confidences of right answers above the line, of wrong ones below.

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
            f"Shares of all answers in {HISTOGRAM_BINS} equal bins of confidence: right answers upwards in the method's"
            f" colour, wrong ones downwards in grey{SEEDS if seeds else ''}. Each panel has its own scale; the"
            " number is the share in the fullest bin. Dashed: a confidence of 50 %.",
            remark=remark,
        )
        look = Look(
            "confidence",
            "confidence (%)",
            "answers",
            draw=lambda panel, line: _histogram(panel, line, [records_of(row) for row in line.done]),
        )
        return method_grid(board, look, note)


def _histogram(panel: Panel, line: Line, records: Sequence[Records]) -> None:
    shares = histogram_of(records)
    right, wrong = shares.right.mean(axis=0), shares.wrong.mean(axis=0)
    up, down = HEADROOM * float(shares.right.max()), HEADROOM * float(shares.wrong.max())
    fitting = replace(panel, y=(-max(down, 0.12 * up), max(up, 0.12 * down)))
    fitting.line([0.5, 0.5], fitting.y, "half", color=FAINT, linewidth=0.5, dashes=(3, 2), zorder=0.5)
    fitting.bars(bin_boxes(right), "right", facecolors=line.style.colour)
    fitting.bars(bin_boxes(-wrong), "wrong", facecolors=WRONG)
    fitting.line(panel.x, [0, 0], "zero", color=INK, linewidth=0.4)
    fitting.y_axis(())
    if len(records) > 1:
        _spread(fitting, shares)
    _fullest(panel, right, wrong)


def _spread(panel: Panel, shares: Histogram) -> None:
    middles = (np.arange(HISTOGRAM_BINS) + 0.5) / HISTOGRAM_BINS
    for label, values in (("right", shares.right), ("wrong", -shares.wrong)):
        low, high = values.min(axis=0), values.max(axis=0)
        some = low != high
        if some.any():
            lines = upright(middles[some], low[some], high[some])
            panel.segments(lines, f"{label} seeds", colors=INK, linewidths=0.4)


def _fullest(panel: Panel, right: np.ndarray, wrong: np.ndarray) -> None:
    """The largest share, written on the side of the panel where there is room."""
    both = np.concatenate([right, wrong])
    most = int(np.argmax(both))
    above, bin_ = most < HISTOGRAM_BINS, most % HISTOGRAM_BINS
    x, across = (0.04, "left") if bin_ >= HISTOGRAM_BINS / 2 else (0.96, "right")
    y, up = (0.97, "top") if above else (0.03, "bottom")
    panel.words(x, y, f"{100 * both[most]:.0f} %", ha=across, va=up)
