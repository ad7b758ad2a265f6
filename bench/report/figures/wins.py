"""Draw which method beats which: a matrix of significance tests between all pairs of methods of a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from bench.metrics import METRICS
from bench.report.competition import ranked_by
from bench.report.figures.drawing import draw_boxes, name_rows, new_figure, shorten_name, use_style, write_beside
from bench.report.figures.figure_data import build_figure_data, mark_leaders, unranked_note
from bench.report.figures.forest import differences_by_metric
from bench.report.grouping import Key
from bench.report.standings.compute import Standings
from bench.report.style import FAINT, INK, LOSS, MUTED, PANEL_WIDTH, TEXT_WIDTH, TIE, WIN
from bench.report.tables.legend import LEADS
from bench.report.tables.model import Line, Table
from bench.report.text import EN_DASH, with_arrow

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

State = Literal["win", "tie", "loss"]
ROW, NAMES = 0.15, 1.0
"""Heights in inches: of a row, and of the names above the columns."""
SIGNS: Mapping[State, tuple[str, float, str]] = MappingProxyType(
    {"win": ("+", 4.0, WIN), "tie": ("o", 1.2, TIE), "loss": ("_", 4.0, LOSS)}
)
"""Outcome of a test -> marker, size of the marker in points, and colour of the cell."""


def pair_states(standings: Standings, metric: str) -> dict[tuple[Key, Key], State]:
    """Return (method, other method) -> win, tie or loss of the first; each tested pair stands in both orders."""
    states: dict[tuple[Key, Key], State] = {}
    for pair in standings.pairs:
        if pair.metric == metric and pair.p_corrected is not None:
            winner = pair.winner(1 - standings.level)
            for one, other in ((pair.first, pair.second), (pair.second, pair.first)):
                states[one, other] = "tie" if winner is None else "win" if winner == one else "loss"
    return states


def has_matrix(table: Table) -> bool:
    """Return whether two methods of the table that have results were tested against each other."""
    shown = {line.key for line in table.lines if line.ok_rows}
    pairs = table.standings.pairs if table.standings else ()
    return bool(differences_by_metric(table)) and any({pair.first, pair.second} <= shown for pair in pairs)


@use_style()
def win_matrix(tables: Sequence[Table], *, metrics: Sequence[str] = ()) -> Figure:
    """Draw a matrix for each metric, whose cell says whether the row's method beats the column's.

    Args:
        tables: one table, of one model and task, with tests between pairs of methods.
        metrics: metrics with tests; by default the headline metric and AUROC.

    Raises:
        UserError: no method has a result, or two tables are of one model and task.
        ValueError: the table has no tested pair.
    """
    data = build_figure_data(tables)
    model, task, table = data.single
    shown = [differences.metric for differences in differences_by_metric(table, metrics)]
    if not has_matrix(table) or table.standings is None:
        raise ValueError("expected a table with tested pairs, got none")
    column, leading = [line for line in data.sorted_column(model, task) if line.ok_rows], data.leaders(model, task)
    note = data.note(
        "Each row against each column, on the same questions: + the row is significantly better, \u2212 worse, dot:"
        " the two can't be distinguished, empty: no test, no verdict. P values are corrected for all pairs. Beside it:"
        f" wins{EN_DASH}ties{EN_DASH}losses. Rows and columns are sorted as in the table; {LEADS}: no ranked method is"
        f" significantly better by {METRICS[ranked_by(table.headline)].label}.",
        unranked_note(table, column),
    )
    width = TEXT_WIDTH
    if len(shown) == 1:
        width = min(width, max(PANEL_WIDTH, 1.9 + 0.8 * ROW * len(column)))
    figure, axes = new_figure(
        (1, len(shown)), (width, ROW * len(column) + NAMES), title=f"{model} on {task}: wins, ties and losses",
        note=note, sharey=True,
    )  # fmt: skip
    for here, metric in zip(axes.flat, shown, strict=True):
        here.set_label(metric)
        here.set_title(with_arrow(metric), loc="left")
        name_rows(here, mark_leaders(column, leading))
        _draw_matrix(here, column, pair_states(table.standings, metric))
    return figure


def _draw_matrix(axes: Axes, column: Sequence[Line], states: Mapping[tuple[Key, Key], State]) -> None:
    n = len(column)
    axes.set_xlim(-0.5, n - 0.5)
    axes.set_xticks(range(n), [shorten_name(line.key.label, 22) for line in column], rotation=90)
    axes.tick_params(length=0, labelbottom=False, labeltop=True)
    axes.grid(visible=False)
    for spine in axes.spines.values():
        spine.set_visible(False)
    for state, (marker, size, colour) in SIGNS.items():
        at = [
            (j, i)
            for i, one in enumerate(column)
            for j, other in enumerate(column)
            if states.get((one.key, other.key)) == state
        ]
        if at:
            cells = [(j - 0.46, i - 0.46, j + 0.46, i + 0.46) for j, i in at]
            draw_boxes(axes, cells, f"{state} cells", facecolor=colour, zorder=0.5)
            axes.plot(*zip(*at, strict=True), marker, color=INK, markersize=size, markeredgewidth=0.9, label=state)
    axes.plot([-0.5, n - 0.5], [-0.5, n - 0.5], color=FAINT, linewidth=0.5, zorder=0.4)
    for i, line in enumerate(column):
        counts = Counter(states[line.key, other.key] for other in column if (line.key, other.key) in states)
        words = EN_DASH.join(str(counts[state]) for state in SIGNS) if counts else "no test"
        write_beside(axes, i, words, color=INK if counts else MUTED)
