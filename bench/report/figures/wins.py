"""Who beats whom: a matrix of the tested differences between all pairs of methods of a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from bench.metrics import METRICS
from bench.report.figures.board import board_of, marked, on_unranked
from bench.report.figures.forest import comparisons_of
from bench.report.figures.intervals import NAME_WIDTH
from bench.report.figures.notes import note_of
from bench.report.figures.panel import Panel
from bench.report.figures.sheet import EDGE, LINE, Sheet, fitted, room_of, sheet, styled, text_width
from bench.report.grouping import Key
from bench.report.standings.compute import Standings
from bench.report.style import FAINT, INK, MUTED, NORMAL, TEXT_WIDTH
from bench.report.tables.legend import LEADS
from bench.report.tables.model import Line, Table
from bench.report.text import EN_DASH, plain, with_arrow

if TYPE_CHECKING:
    from matplotlib.figure import Figure

State = Literal["win", "tie", "loss"]
ROW = 0.15
"""Inches of a row, and at most of a column."""
TOTALS = 0.62
"""Inches of the sums beside a matrix."""
NAME_HEIGHT = 0.95
"""Inches at most for the names of columns."""
TINTS = {"win": "#9ec5e8", "tie": "#f0f0f0", "loss": "#f3c79b"}
"""Blue and orange are told apart with any kind of colour vision; the signs say it without colour."""
SIGNS: dict[State, tuple[str, float, str]] = {
    "win": ("+", 4.0, "#12436d"),
    "tie": ("o", 1.2, "#8c8c8c"),
    "loss": ("_", 4.0, "#7a3b00"),
}
"""Marker, its size in points, and its colour."""


def states_of(standings: Standings, metric: str) -> dict[tuple[Key, Key], State]:
    """State of the first of two lines against the second, for all tested pairs, both ways round."""
    found: dict[tuple[Key, Key], State] = {}
    for pair in standings.pairs:
        if pair.metric == metric and pair.p_corrected is not None:
            winner = pair.winner(1 - standings.level)
            for one, other in ((pair.first, pair.second), (pair.second, pair.first)):
                found[one, other] = "tie" if winner is None else "win" if winner == one else "loss"
    return found


def has_matrix(table: Table) -> bool:
    """Whether two of its lines were tested against each other."""
    shown = {line.key for line in table.lines if line.done}
    pairs = table.standings.pairs if table.standings else ()
    return bool(comparisons_of(table)) and any({pair.first, pair.second} <= shown for pair in pairs)


def win_matrix(tables: Sequence[Table], *, remark: str = "") -> Figure:
    """One matrix by the headline metric and one by AUROC: each row's method against each column's.

    Args:
        tables: of one model and one task, with pairs in its standings.
        remark: a sentence for the note.

    Raises:
        UserError: as `board_of`.
        ValueError: the table has no tested pair.
    """
    with styled():
        board = board_of(tables)
        model, task = board.place
        table = board.tables[model, task]
        metrics = [comparison.metric for comparison in comparisons_of(table)]
        if not has_matrix(table) or table.standings is None:
            raise ValueError("expected a table with tested pairs, got none")
        column, leading = [line for line in board.sorted_column(model, task) if line.done], board.leading(model, task)
        names = [plain(marked(line, leading)) for line in column]
        note = note_of(
            board,
            "Each row against each column, on the same questions: + the row is significantly better, \u2212 worse, dot:"
            " the two can't be distinguished, empty: not tested. P values are corrected for all pairs. Beside it: wins"
            f"{EN_DASH}ties{EN_DASH}losses. Rows and columns are sorted as in the table; {LEADS}: no ranked method is"
            f" significantly better by {METRICS[table.headline].label}.",
            on_unranked(table, column),
            remark=remark,
        )
        left = room_of(names, NAME_WIDTH)
        labels = [fitted(name, NAME_HEIGHT) for name in names]
        above = LINE * 1.4 + max(map(text_width, labels)) + 0.06
        room = (TEXT_WIDTH - left - EDGE) / len(metrics) - TOTALS
        cell = min(ROW * 1.2, room / len(names))
        title = f"{model} on {task}: wins, ties and losses"
        page = sheet(TEXT_WIDTH, above + ROW * len(names) + 0.04, title=title, note=note)
        for i, name in enumerate(names):
            page.name(left, above + (i + 0.5) * ROW, name)
        for j, metric in enumerate(metrics):
            x = left + j * (room + TOTALS)
            page.text(x, 0, fitted(with_arrow(metric), cell * len(names) + TOTALS, NORMAL), fontsize=NORMAL)
            place = (x, above, cell * len(names), ROW * len(names))
            _matrix(page, place, labels, column, states_of(table.standings, metric), metric)
        return page.figure


def _matrix(
    page: Sheet,
    place: tuple[float, float, float, float],
    labels: Sequence[str],
    column: Sequence[Line],
    states: dict[tuple[Key, Key], State],
    metric: str,
) -> None:
    n = len(column)
    x, y, width, _ = place
    panel = Panel(page, metric, place, (0.0, float(n)), (float(n), 0.0))
    for k, label in enumerate(labels):
        page.text(x + (k + 0.5) * width / n, y - 0.04, label, rotation=90, ha="center", va="bottom")
    for state, (marker, size, colour) in SIGNS.items():
        at = [
            (j, i)
            for i, one in enumerate(column)
            for j, other in enumerate(column)
            if states.get((one.key, other.key)) == state
        ]
        if at:
            panel.bars([(j, i, j + 1, i + 1) for j, i in at], f"{state} cells", facecolors=TINTS[state], zorder=0.5)
            strokes: dict[str, Any] = {"marker": marker, "markersize": size, "color": colour, "markeredgewidth": 0.9}
            x_, y_ = [j + 0.5 for j, _ in at], [i + 0.5 for _, i in at]
            panel.line(x_, y_, state, linestyle="none", zorder=2, **strokes)
    panel.cell_borders()
    panel.segments([[(0, 0), (n, n)]], "diagonal", colors=FAINT, linewidths=0.5, zorder=1.5)
    for i, line in enumerate(column):
        counts = Counter(states[line.key, other.key] for other in column if (line.key, other.key) in states)
        words = EN_DASH.join(str(counts[state]) for state in SIGNS) if counts else "no test"
        page.text(x + width + 0.05, y + (i + 0.5) * ROW, words, va="center_baseline", color=INK if counts else MUTED)
