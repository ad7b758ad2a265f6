"""Forest plot: the difference of each method to the best, on the same questions, with the interval of the pair."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from bench.metrics import METRICS
from bench.report.competition import judged_by
from bench.report.figures.board import board_of, marked, on_unranked
from bench.report.figures.drawing import (
    AXIS,
    around,
    beside,
    dot_row,
    dot_settings,
    drawing,
    name_rows,
    scale,
    short,
    styled,
    vertical_zero,
)
from bench.report.figures.notes import note_of
from bench.report.grouping import Key
from bench.report.standings.compute import ROUNDING, Pair
from bench.report.style import MUTED, PANEL_WIDTH, TEXT_WIDTH
from bench.report.tables.legend import LEADS
from bench.report.tables.model import Line, Table
from bench.report.text import interval_text, precise, with_arrow

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ROW = 0.14
"""Inches of a method."""
SECOND = "auroc"
"""Metric beside the headline."""


class Comparison(NamedTuple):
    """All lines of a table against its best, by one metric."""

    metric: str
    best: Line
    pairs: Mapping[Key, Pair]
    """Each other shown line minus the best; without those that were not compared with it."""
    alpha: float


def comparison_of(table: Table, metric: str) -> Comparison | None:
    """The lines of a table against the first of its leading group; None where nothing was tested."""
    leading = table.leaders(metric)
    if table.standings is None or not leading:
        return None
    best, shown = leading[0].key, {line.key for line in table.lines}
    pairs: dict[Key, Pair] = {}
    for pair in table.standings.pairs:
        if pair.metric == metric and best in {pair.first, pair.second}:
            turned = pair.reversed() if pair.first == best else pair
            if turned.first in shown:
                pairs[turned.first] = turned
    return Comparison(metric, leading[0], pairs, 1 - table.standings.level) if pairs else None


def comparisons_of(table: Table, metrics: Sequence[str] = ()) -> list[Comparison]:
    """By some metrics, or by the headline metric and by AUROC, where there are tests."""
    judging = metrics or dict.fromkeys((judged_by(table.headline), SECOND))
    found = (comparison_of(table, metric) for metric in judging)
    return [comparison for comparison in found if comparison is not None]


def differences_to_best(tables: Sequence[Table], *, metrics: Sequence[str] = (), remark: str = "") -> Figure:
    """One row for each method, sorted as the table; the difference to the best by each metric.

    Args:
        tables: of one model and one task, with pairs in its standings.
        metrics: with tests; by default the headline metric and AUROC.
        remark: a sentence for the note.

    Raises:
        UserError: as `board_of`.
        ValueError: the table has no tested pair.
    """
    with styled():
        board = board_of(tables)
        model, task = board.place
        table = board.tables[model, task]
        comparisons = comparisons_of(table, metrics)
        if not comparisons:
            raise ValueError("expected a table with tested pairs, got none")
        column, leading = board.sorted_column(model, task), board.leading(model, task)
        note = note_of(
            board,
            f"Each method's value minus the best one's, on the same questions, with the"
            f" {100 * (1 - comparisons[0].alpha):g} % interval of this pair alone. Filled: significantly different,"
            " corrected for all pairs; hollow, and ≈: can't be distinguished from the best. Rows are sorted as in the"
            f" table; {LEADS}: no ranked method is significantly better by {METRICS[table.headline].label}.",
            on_unranked(table, column),
            remark=remark,
        )
        figure, axes = drawing(
            (1, len(comparisons)), (TEXT_WIDTH if len(comparisons) > 1 else PANEL_WIDTH, ROW * len(column) + AXIS),
            title=f"{model} on {task}: differences to the best method", note=note, sharey=True,
        )  # fmt: skip
        for here, comparison in zip(axes.flat, comparisons, strict=True):
            _compared(here, comparison, column)
            name_rows(here, [marked(line, leading) for line in column])
        return figure


def _compared(axes: Axes, comparison: Comparison, column: Sequence[Line]) -> None:
    metric = METRICS[comparison.metric]
    best = short(comparison.best.key.label, 20)
    axes.set_label(comparison.metric)
    axes.set_title(f"{with_arrow(comparison.metric)} minus that of {best}{', points' * metric.is_fraction}", loc="left")
    axes.set_xlabel("\u2190 worse      better \u2192" if metric.higher_is_better else "\u2190 better      worse \u2192")
    pairs = list(comparison.pairs.values())
    ends = [end for pair in pairs for end in (pair.fixed.low, pair.fixed.high) if end is not None]
    axes.set_xlim(*around([0.0, *(pair.difference for pair in pairs), *ends]))
    scale(axes.xaxis, comparison.metric)
    axes.grid(axis="x")
    vertical_zero(axes)
    for i, line in enumerate(column):
        label, pair = line.key.label, comparison.pairs.get(line.key)
        style = line.style._replace(fill="full")
        if line.key == comparison.best.key:
            axes.plot([0], [i], label=f"{label}/best", zorder=2, **dot_settings(style))
            beside(axes, i, "best")
        elif pair is None:
            beside(axes, i, line.status if not line.done else "no test", color=MUTED)
        else:
            hollow, ends_ = pair.winner(comparison.alpha) is None, (pair.fixed.low, pair.fixed.high)
            dot_row(axes, i, pair.difference, ends_, (label, "difference"), style, hollow=hollow)
            beside(axes, i, _numbers(pair, is_tie=hollow))


def _numbers(pair: Pair, *, is_tie: bool) -> str:
    """A difference with its interval, and a sign where the two can't be distinguished."""
    metric, low, high = METRICS[pair.metric], pair.fixed.low, pair.fixed.high
    ends = "" if low is None or high is None else f" ({interval_text(metric, low, high)})"
    return f"{'≈ ' * is_tie}{'+' * (pair.difference > ROUNDING)}{precise(metric, pair.difference)}{ends}"
