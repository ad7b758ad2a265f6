"""Cost against quality: what a method takes (tokens read, written, seconds, parameters), and what one gets for it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from bench.metrics import METRICS
from bench.report.averages import mean_of
from bench.report.figures.board import board_of, is_unranked, on_unranked
from bench.report.figures.notes import note_of
from bench.report.figures.panel import AXIS_X, AXIS_Y, Panel
from bench.report.figures.sheet import EDGE, LINE, marker_settings, sheet, short, styled
from bench.report.figures.ticks import tick_names, ticks_between
from bench.report.figures.whiskers import Whiskers
from bench.report.front import front
from bench.report.grouping import Key
from bench.report.style import FAINT, MUTED, TEXT_WIDTH, Style
from bench.report.tables.model import Line, Table
from bench.report.text import averaged, with_arrow

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HEIGHT = 1.5
"""Inches of a panel."""
GAP = 0.12
MARGIN = 0.1
MARKER = 4.4
"""Points."""
MOST_TICKS = 4
QUALITY = ("auroc", "brier")
SEEDS = ", means over seeds; dashes: each seed, horizontal lines: cheapest to dearest"


class _CostAxis(NamedTuple):
    """Axis of something that a method takes."""

    name: str
    """The attribute of `Line`, by seed."""
    label: str


COSTS = (
    _CostAxis("tokens", "token positions read"),
    _CostAxis("generated", "tokens generated"),
    _CostAxis("seconds", "seconds of its own stages"),
    _CostAxis("parameters", "trained parameters"),
)


class Scale(NamedTuple):
    """A logarithmic axis that also has a place for 0, left of the smallest decade."""

    lowest: int
    """Exponent of 10 at the left end of the logarithmic part."""
    highest: int
    """Highest value, at its right end."""
    has_zero: bool

    def place(self, value: float) -> float:
        """Place of a value, in decades."""
        return math.log10(value) if value > 0 else self.lowest - self.zero_gap

    @property
    def zero_gap(self) -> float:
        """Decades between 0 and the rest."""
        return max(0.12 * (self.highest - self.lowest), 0.3)

    @property
    def ends(self) -> tuple[float, float]:
        """Ends of the axis, with room for markers."""
        room = 0.05 * (self.highest - self.lowest)
        return (self.place(0) if self.has_zero else self.lowest) - room, self.highest + room

    @property
    def ticks(self) -> list[float]:
        """Values to label."""
        decades = self.highest - self.lowest
        step = -(-decades // (MOST_TICKS - 1))
        between = (1.0, 2.0, 5.0) if decades == 1 else (1.0,)
        values = [factor * 10.0**k for k in range(self.lowest, self.highest + 1, step) for factor in between]
        values = [value for value in values if value <= 10.0**self.highest]
        return [0.0, *values] if self.has_zero else values


def scale_of(values: Sequence[float]) -> Scale:
    """The decades that hold all values; one at least."""
    positive = [value for value in values if value > 0] or [1.0]
    lowest = math.floor(math.log10(min(positive)) + 1e-9)
    highest = max(math.ceil(math.log10(max(positive)) - 1e-9), lowest + 1)
    return Scale(lowest, highest, has_zero=any(value <= 0 for value in values))


def cost_quality(tables: Sequence[Table], *, remark: str = "") -> Figure:
    """AUROC and Brier (down) against four costs (across), a marker for each method, and the Pareto front.

    Args:
        tables: of one model and one task.
        remark: a sentence for the note.

    Raises:
        UserError: as `board_of`.
    """
    with styled():
        board = board_of(tables)
        model, task = board.place
        table = board.tables[model, task]
        column = [line for line in board.column(model, task) if line.done]
        unranked = {line.key for line in column if is_unranked(table, line)}
        whiskers = Whiskers(board, QUALITY)
        kinds = {line.key.recalibration for line in column}
        fronts = {(metric, cost.name): front(table, metric, cost.name, kinds) for metric in QUALITY for cost in COSTS}
        note = note_of(
            board,
            f"Values are {averaged(table.average)}{SEEDS if board.n_seeds > 1 else ''}. {whiskers.sentence}",
            "Stepped line: the Pareto front, methods than which none is at once as cheap and better, or cheaper and as"
            f" good{_undrawn(column, fronts)}.",
            on_unranked(table, column, ", so hollow and not on the front"),
            "Positions read: the least that the model must read for this method alone, training and test; many go"
            " through it in one pass. Generated: each token waits for the one before. Seconds: without the model's"
            " passes, on this run's machine.",
            _unknown(column),
            metrics=QUALITY,
            remark=remark,
        )
        side = (TEXT_WIDTH - AXIS_Y - EDGE - MARGIN - GAP * (len(COSTS) - 1)) / len(COSTS)
        body = len(QUALITY) * HEIGHT + (len(QUALITY) - 1) * GAP + AXIS_X
        key = [(line.key.label, _looks(line, unranked)) for line in column]
        title = f"{model} on {task}: cost and quality"
        page = sheet(TEXT_WIDTH, body, title=title, note=note, key=key, lines=False)
        for j, cost in enumerate(COSTS):
            x = AXIS_Y + EDGE + j * (side + GAP)
            page.text(x + side / 2, body - LINE, cost.label, ha="center")
            costs = [getattr(line, cost.name) for line in column]
            scale = scale_of([value for values in costs for value in values])
            for i, metric in enumerate(QUALITY):
                place = (x, i * (HEIGHT + GAP), side, HEIGHT)
                panel = Panel(page, f"{cost.name}/{metric}", place, scale.ends, _ends(column, metric, whiskers))
                if not any(costs):
                    panel.absent("not known")
                    continue
                _axes(panel, scale, metric, left=j == 0, bottom=i == len(QUALITY) - 1)
                _front(panel, scale, metric, column, fronts[metric, cost.name])
                for k, line in enumerate(column):
                    whisker = _within(metric, whiskers.around(line, metric))
                    _point(panel, scale, (line, _looks(line, unranked)), costs[k], whisker)
        return page.figure


def _front(panel: Panel, scale: Scale, metric: str, column: Sequence[Line], chosen: Sequence[Key]) -> None:
    """The Pareto front, as steps between those of its methods that are drawn."""
    drawn = {line.key: line for line in column}
    points = [
        (mean_of(getattr(line, panel.name.partition("/")[0])), line.estimate(metric).mean)
        for line in (drawn[key] for key in chosen if key in drawn)
    ]
    x: list[float] = []
    y: list[float] = []
    for price, mean in points:
        if price is None or mean is None:
            continue
        if x:
            x.append(scale.place(price))
            y.append(y[-1])
        x.append(scale.place(price))
        y.append(mean)
    if x:
        x.append(panel.x[1])
        y.append(y[-1])
        panel.line(x, y, "front", color=MUTED, linewidth=0.8, zorder=0.8)


def _looks(line: Line, unranked: set[Key]) -> Style:
    """Style of a method here: hollow where it is not ranked."""
    return line.style._replace(fill="none") if line.key in unranked else line.style


def _undrawn(column: Sequence[Line], fronts: Mapping[tuple[str, str], Sequence[Key]]) -> str:
    """The words for methods of a front that are not drawn; empty where there are none."""
    drawn = {line.key for line in column}
    return "; methods that are not drawn count too" if any({*keys} - drawn for keys in fronts.values()) else ""


def _unknown(column: Sequence[Line]) -> str:
    """Methods without a marker in some panel."""
    parts = [
        f"{cost.label}: {'all methods' if len(lacking) == len(column) else ', '.join(lacking)}"
        for cost in COSTS
        if (lacking := [line.key.label for line in column if not getattr(line, cost.name)])
    ]
    return f"Not known, and so not drawn: {'; '.join(parts)}." if parts else ""


def _ends(column: Sequence[Line], metric: str, whiskers: Whiskers) -> tuple[float, float]:
    """The axis of a metric, around all values and whiskers."""
    values = [value for line in column for value in line.estimate(metric).by_seed]
    values += [end for line in column for end in _within(metric, whiskers.around(line, metric)) or ()]
    if not values:
        return METRICS[metric].bounds
    room = 0.07 * (max(values) - min(values)) or 0.05
    return min(values) - room, max(values) + room


def _within(metric: str, whisker: tuple[float, float] | None) -> tuple[float, float] | None:
    """Part of a whisker that lies within possible values."""
    low, high = METRICS[metric].bounds
    return None if whisker is None else (max(low, whisker[0]), min(high, whisker[1]))


def _axes(panel: Panel, scale: Scale, metric: str, *, left: bool, bottom: bool) -> None:
    panel.x_axis([scale.place(tick) for tick in scale.ticks], [short(tick) for tick in scale.ticks] if bottom else ())
    ticks = ticks_between(*panel.y, most=5)
    grid = [[(panel.x[0], tick), (panel.x[1], tick)] for tick in ticks]
    panel.segments(grid, "grid", colors=FAINT, linewidths=0.4, zorder=0.3)
    panel.y_axis(ticks, tick_names(ticks, metric) if left else ())
    if scale.has_zero:
        between = scale.lowest - scale.zero_gap / 2
        panel.verticals([between], "zero", linewidths=0.5, linestyles=(0, (1, 2)), zorder=0.5)
    if left:
        x, y, _, height = panel.place
        label = f"{with_arrow(metric)} (%)"
        panel.page.text(x - AXIS_Y, y + height / 2, label, rotation=90, va="center")


def _point(
    panel: Panel,
    scale: Scale,
    drawn: tuple[Line, Style],
    costs: Sequence[float],
    whisker: tuple[float, float] | None,
) -> None:
    """The marker of a method, at its mean cost."""
    line, style = drawn
    value = line.estimate(panel.name.rsplit("/", 1)[-1])
    if value.mean is None or not costs:
        return
    x = scale.place(sum(costs) / len(costs))
    if whisker is not None:
        ends = [[(x, whisker[0]), (x, whisker[1])]]
        panel.segments(ends, f"{line.key.label}/whisker", colors=style.colour, linewidths=0.6)
    if len(set(costs)) > 1:
        ends = [[(scale.place(min(costs)), value.mean), (scale.place(max(costs)), value.mean)]]
        panel.segments(ends, f"{line.key.label}/costs", colors=style.colour, linewidths=0.6)
    if len(value.by_seed) > 1:
        dashes = {"marker": "_", "markersize": 3.0, "markeredgewidth": 0.5, "linestyle": "none", "color": style.colour}
        panel.line([x] * len(value.by_seed), value.by_seed, f"{line.key.label}/seeds", **dashes)
    panel.line([x], [value.mean], f"{line.key.label}/mean", linestyle="none", **marker_settings(style, MARKER))
