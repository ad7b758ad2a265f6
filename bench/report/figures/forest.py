"""Draw a forest plot: the difference of each method to the best method on the same questions, with its interval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from bench.metrics import METRICS
from bench.report.competition import ranked_by
from bench.report.figures.drawing import (
    AXIS,
    difference_axis,
    dot_settings,
    draw_dot,
    name_rows,
    new_figure,
    shorten_name,
    use_style,
    write_beside,
)
from bench.report.figures.figure_data import build_figure_data, mark_leaders, unranked_note
from bench.report.grouping import Key
from bench.report.standings.compute import Pair
from bench.report.style import MUTED, PANEL_WIDTH, TEXT_WIDTH
from bench.report.tables.legend import LEADS
from bench.report.tables.model import Line, Table
from bench.report.text import interval_text, precise_difference, with_arrow

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ROW = 0.14
"""Height of a method's row, in inches."""
SECOND = "auroc"
"""Metric that is drawn beside the headline metric."""


class Differences(NamedTuple):
    """Differences of a table's methods to the best method, by one metric."""

    metric: str
    best: Line
    pairs: Mapping[Key, Pair]
    """Method -> its tested difference to the best method, for shown methods. In each pair the best method is the
    second."""
    alpha: float


def differences_by_metric(table: Table, metrics: Sequence[str] = ()) -> list[Differences]:
    """Return the differences of a table's methods to the best one, for each metric in which pairs were tested.

    The best method is the leader with the best mean; where none leads, it has the best mean of those that no ranked
    method significantly beats. By default the metrics are the headline metric and AUROC.
    """
    differences, shown = [], {line.key for line in table.lines}
    for metric in metrics or dict.fromkeys((ranked_by(table.headline), SECOND)):
        competition = table.competition(metric)
        best, pairs = next(iter((*competition.leaders, *competition.first)), None), {}
        for pair in table.standings.pairs if table.standings else ():
            if best and pair.metric == metric and best.key in {pair.first, pair.second}:
                to_best = pair.reversed() if pair.first == best.key else pair
                if to_best.first in shown:
                    pairs[to_best.first] = to_best
        if table.standings and best and pairs:
            differences.append(Differences(metric, best, pairs, 1 - table.standings.level))
    return differences


@use_style()
def differences_to_best(tables: Sequence[Table], *, metrics: Sequence[str] = ()) -> Figure:
    """Draw the difference of each method to the best one, by each metric: a row for each method, sorted as the table.

    Args:
        tables: one table, of one model and task, with tests between pairs of methods.
        metrics: metrics with tests; by default the headline metric and AUROC.

    Raises:
        UserError: no method has a result, or two tables are of one model and task.
        ValueError: the table has no tested pair.
    """
    data = build_figure_data(tables)
    model, task, table = data.single
    all_metrics = differences_by_metric(table, metrics)
    if not all_metrics:
        raise ValueError("expected a table with tested pairs, got none")
    column, leading = data.sorted_column(model, task), data.leaders(model, task)
    note = data.note(
        f"Each method's value minus the best one's, on the same questions, with the"
        f" {100 * (1 - all_metrics[0].alpha):g} % interval of this pair alone. Filled: significantly different,"
        " corrected for all pairs; hollow, and ≈: can't be distinguished from the best;"
        " no verdict: the AUROC of the better one is not above chance. Rows are sorted as in the"
        f" table; {LEADS}: no ranked method is significantly better by {METRICS[ranked_by(table.headline)].label}.",
        unranked_note(table, column),
    )
    figure, axes = new_figure(
        (1, len(all_metrics)), (TEXT_WIDTH if len(all_metrics) > 1 else PANEL_WIDTH, ROW * len(column) + AXIS),
        title=f"{model} on {task}: differences to the best method", note=note, sharey=True,
    )  # fmt: skip
    for here, differences in zip(axes.flat, all_metrics, strict=True):
        _draw_differences(here, differences, column)
        name_rows(here, mark_leaders(column, leading))
    return figure


def _draw_differences(axes: Axes, differences: Differences, column: Sequence[Line]) -> None:
    name, best, pairs, alpha = differences
    metric = METRICS[name]
    axes.set_label(name)
    best_label = shorten_name(best.key.label, 20)
    axes.set_title(f"{with_arrow(name)} minus that of {best_label}{', points' * metric.is_fraction}", loc="left")
    axes.set_xlabel("\u2190 worse      better \u2192" if metric.higher_is_better else "\u2190 better      worse \u2192")
    all_ends = [end for pair in pairs.values() for end in (pair.difference, *(pair.fixed.ends or ()))]
    difference_axis(axes, all_ends, percent=metric.is_fraction)
    for i, line in enumerate(column):
        label, pair, style = line.key.label, pairs.get(line.key), line.style._replace(fill="full")
        if line.key == best.key:
            axes.plot([0], [i], label=f"{label}/best", zorder=2, **dot_settings(style))
            write_beside(axes, i, "best")
        elif pair is None:
            write_beside(axes, i, line.status if not line.ok_rows else "no test", color=MUTED)
        else:
            ends, is_tie = pair.fixed.ends, pair.winner(alpha) is None
            if pair.p_corrected is not None:
                draw_dot(axes, i, pair.difference, ends, (label, "difference"), style, hollow=is_tie)
            interval = f" ({interval_text(metric, *ends)})" if ends else ""
            words = "≈ " * is_tie + precise_difference(metric, pair.difference) + interval
            write_beside(axes, i, "no verdict" if pair.p_corrected is None else words)
