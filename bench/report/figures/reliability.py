"""Draw reliability diagrams: isotonic curve with consistency band, ten bins with intervals, and the bins' counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from bench.report import corp
from bench.report.bins import BINS, FEW, bin_records, connected_bins
from bench.report.figures.drawing import (
    REFERENCE,
    dot_settings,
    draw_boxes,
    draw_seeds,
    draw_segments,
    use_style,
    vertical_lines,
)
from bench.report.figures.figure_data import RecordsOf, build_figure_data
from bench.report.figures.grid import method_grid
from bench.report.figures.numbers import bin_boxes
from bench.report.grouping import ece_bins_of
from bench.report.style import BAND_COLOUR, MUTED
from bench.report.tables.model import Line, Table
from bench.results.question_records import QuestionRecords

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

X_LABEL, Y_LABEL = "confidence (%)", "right answers (%)"
PALE = 0.35
"""Opacity of bins that have too few answers to be reliable."""
COUNTS = 0.16
"""Height of the bar that counts the answers of the fullest bin, as a share of the axes' height."""


@use_style()
def reliability(tables: Sequence[Table], records_of: RecordsOf) -> Figure:
    """Draw a reliability diagram for each method and task of a model.

    A diagram has an isotonic curve with its consistency band, ten bins with intervals, and the bins' counts at the
    bottom.

    Args:
        tables: tables of one model, one for each task.
        records_of: returns the answers and confidences, question by question, of a result.

    Raises:
        UserError: no method has a result, or two tables are of one model and task.
    """
    data = build_figure_data(tables)
    alone = sorted({line.key.label for line in data.lines if line.ok_rows and not line.has_confidences})
    order = f"Only an order, so no diagram: {', '.join(alone)} (scores without a scale)." if alone else ""
    note = data.note(diagram_note(seeds=data.n_seeds > 1), order)
    return method_grid(data, records_of, "reliability", (X_LABEL, Y_LABEL), _draw_diagram, note)


def diagram_note(*, seeds: bool) -> str:
    """Return the sentences that explain a reliability diagram; with `seeds`, a diagram that pools several seeds."""
    together = f"of all subjects{' and seeds' if seeds else ''} together"
    of_one = " for as many answers as one seed has; dashes: each seed" if seeds else ""
    return (
        f"Line: isotonic (CORP) curve {together}; grey: the 95 % of such curves, at each confidence, that calibrated"
        " confidences would have. A curve outside it speaks against calibration there."
        f" Points: the same in {BINS} equal bins, with 95 % Wilson (binomial) intervals{of_one}; pale, and not joined:"
        f" fewer than {FEW} answers. Bars at the foot: answers in each bin, with the number in the fullest. ECE and"
        f" MCB, the miscalibration part of Brier, in percent: of the answers {together}."
    )


def _draw_diagram(axes: Axes, line: Line, records: Sequence[QuestionRecords]) -> None:
    bins, style = bin_records(records), line.style
    curve, (ece, mcb) = corp.reliability_curve(records), corp.pooled_errors(records, ece_bins_of(line.ok_rows[0]))
    if curve.confidence.size == 1:  # all confidences are the same, so draw a short stroke
        curve = corp.ReliabilityCurve(*(np.repeat(values, 2) for values in curve))
        curve = curve._replace(confidence=curve.confidence + np.array([-0.02, 0.02]))
    axes.fill_between(
        curve.confidence, curve.low, curve.high, facecolor=BAND_COLOUR, linewidth=0, zorder=0.4, label="band"
    )
    axes.plot([0, 1], [0, 1], label="diagonal", **{**REFERENCE, "color": MUTED, "dashes": (3, 2)})
    height = COUNTS * bins.answers / bins.answers.max()
    draw_boxes(
        axes, bin_boxes(height), "counts", facecolor=style.colour, alpha=0.4, transform=axes.get_xaxis_transform()
    )
    few = bins.answers < FEW
    for name, selected, alpha in (("interval", ~few, 1.0), ("few interval", few, PALE)):
        ends = vertical_lines(bins.confidence[selected], bins.low[selected], bins.high[selected])
        draw_segments(axes, ends, name, colors=style.colour, linewidths=0.6, alpha=alpha)
    if len(records) > 1:
        for run, rates in enumerate(bins.by_seed):
            draw_seeds(axes, bins.confidence[~few], rates[~few], f"seed {run}", colour=style.colour)
    axes.plot(*connected_bins(bins), label="joined", color=style.colour, linewidth=0.4, dashes=(1.5, 1.5))
    axes.plot(curve.confidence, curve.rate, label="curve", color=style.colour, linewidth=1.1, zorder=1.9)
    pale = few & (bins.answers > 0)
    axes.plot(bins.confidence[~few], bins.rate[~few], label="rate", **dot_settings(style, 2.2))
    axes.plot(bins.confidence[pale], bins.rate[pale], label="few", alpha=PALE, **dot_settings(style, 2.2))
    axes.set_title(f"{axes.get_title()}\nECE {100 * ece:.1f}, MCB {100 * mcb:.1f}", pad=3)
    most = int(np.argmax(bins.answers))
    axes.text(
        (most + 0.5) / BINS, COUNTS, f"{bins.answers[most]:,.0f}", transform=axes.get_xaxis_transform(), va="bottom",
        ha="right" if most + 1 == BINS else "center" if most else "left",
    )  # fmt: skip
