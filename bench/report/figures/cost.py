"""Cost against quality: what a method takes (parameters, forward tokens, seconds) and what one gets (AUROC, Brier)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bench.metrics import METRICS
from bench.report.averages import mean_of
from bench.report.figures.bars import tick_names, ticks_between
from bench.report.figures.board import board_of, only
from bench.report.figures.notes import note_of
from bench.report.figures.panel import AXIS_X, AXIS_Y, Panel
from bench.report.figures.sheet import EDGE, LINE, arrow, marker_settings, sheet, short, styled
from bench.report.figures.whiskers import Whiskers
from bench.report.style import FAINT, TEXT_WIDTH
from bench.report.tables.model import Line, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HEIGHT = 1.35
"""Inches of a panel."""
GAP = 0.12
MARGIN = 0.1
MARKER = 4.4
"""Points."""
DODGE = 0.06
"""Inches between markers of equal cost."""
WIDEST = 0.4
"""Inches from the first to the last of them."""
MOST_TICKS = 5
QUALITY = ("auroc", "brier")
SEEDS = " and seeds; dashes: each seed, horizontal lines: cheapest to dearest"


class _CostAxis(NamedTuple):
    """Axis of something that a method takes."""

    name: str
    """The attribute of `Line`, by seed."""
    label: str


COSTS = (
    _CostAxis("parameters", "trained parameters"),
    _CostAxis("tokens", "forward tokens"),
    _CostAxis("seconds", "seconds of fitting and predicting"),
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
    """AUROC and Brier (down) against trained parameters, forward tokens and seconds (across), a marker for each method.

    Args:
        tables: of one model and one task.
        remark: a sentence for the note.

    Raises:
        UserError: as `board_of`.
    """
    with styled():
        board = board_of(tables)
        model, task = only(board.models, "model"), only(board.tasks, "task")
        column = [line for line in board.column(model, task) if line.done]
        whiskers = Whiskers(board, QUALITY)
        note = note_of(
            board,
            f"Means over subjects{SEEDS if board.n_seeds > 1 else ''}. {whiskers.sentence}",
            "Grey lines: several methods of this cost, side by side. Forward tokens: the least that the model must read"
            " for this method alone, training and test, its own passes of training included; a run shares them between"
            " methods. Seconds: the method's own, without the model's passes, on this run's machine.",
            _unknown(column),
            metrics=QUALITY,
            remark=remark,
        )
        side = (TEXT_WIDTH - AXIS_Y - EDGE - MARGIN - GAP * (len(COSTS) - 1)) / len(COSTS)
        body = len(QUALITY) * HEIGHT + (len(QUALITY) - 1) * GAP + AXIS_X
        key = [(line.key.label, line.style) for line in column]
        title = f"{model} on {task}: cost and quality"
        page = sheet(TEXT_WIDTH, body, title=title, note=note, key=key, lines=False)
        for j, cost in enumerate(COSTS):
            x = AXIS_Y + EDGE + j * (side + GAP)
            page.text(x + side / 2, body - LINE, cost.label, ha="center")
            costs = [getattr(line, cost.name) for line in column]
            across = _across(costs, side)
            for i, metric in enumerate(QUALITY):
                place = (x, i * (HEIGHT + GAP), side, HEIGHT)
                panel = Panel(page, f"{cost.name}/{metric}", place, across.ends, _ends(column, metric, whiskers))
                _axes(panel, across, metric, left=j == 0, bottom=i == len(QUALITY) - 1)
                for k, line in enumerate(column):
                    whisker = _within(metric, whiskers.around(line, metric))
                    _point(panel, across, line, (costs[k], across.shifts[k]), whisker)
        return page.figure


class _Across(NamedTuple):
    """The horizontal axis of a cost."""

    scale: Scale
    ends: tuple[float, float]
    """Ends in decades, as places of `scale`."""
    shifts: tuple[float, ...]
    """Shift of each method, in decades, so that those of equal cost stand side by side."""
    shared: tuple[float, ...]
    """Places where several methods stand."""


def _across(costs: Sequence[Sequence[float]], inches: float) -> _Across:
    scale = scale_of([value for values in costs for value in values])
    left, right = scale.ends
    unit = (right - left) / inches
    means = [mean_of(values) for values in costs]
    places = [None if mean is None else scale.place(mean) for mean in means]
    shifts = []
    for i, place in enumerate(places):
        equal = [k for k, other in enumerate(places) if other is not None and other == place]
        step = min(DODGE, WIDEST / max(1, len(equal) - 1)) * unit
        shifts.append((equal.index(i) - (len(equal) - 1) / 2) * step if equal else 0.0)
    drawn = [place + shift for place, shift in zip(places, shifts, strict=True) if place is not None]
    ends = min([left, *(x - DODGE * unit for x in drawn)]), max([right, *(x + DODGE * unit for x in drawn)])
    known = [place for place in places if place is not None]
    shared = sorted({place for place in known if known.count(place) > 1})
    return _Across(scale, ends, tuple(shifts), tuple(shared))


def _unknown(column: Sequence[Line]) -> str:
    """Methods without a marker in some panel."""
    parts = [
        f"{cost.label}: {', '.join(lacking)}"
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


def _axes(panel: Panel, across: _Across, metric: str, *, left: bool, bottom: bool) -> None:
    scale = across.scale
    lines = [[(x, panel.y[0]), (x, panel.y[1])] for x in across.shared]
    panel.segments(np.reshape(lines, (-1, 2, 2)), "shared", colors=FAINT, linewidths=0.5, zorder=0.5)
    panel.x_axis([scale.place(tick) for tick in scale.ticks], [short(tick) for tick in scale.ticks] if bottom else ())
    ticks = ticks_between(*panel.y, most=5)
    panel.y_axis(ticks, tick_names(ticks, metric) if left else ())
    if scale.has_zero:
        between = scale.lowest - scale.zero_gap / 2
        line = [[(between, panel.y[0]), (between, panel.y[1])]]
        panel.segments(line, "zero", colors=FAINT, linewidths=0.5, linestyles=(0, (1, 2)), zorder=0.5)
    if left:
        x, y, _, height = panel.place
        label = f"{METRICS[metric].label}{arrow(metric)} (%)"
        panel.page.text(x - AXIS_Y, y + height / 2, label, rotation=90, va="center")


def _point(
    panel: Panel,
    across: _Across,
    line: Line,
    at: tuple[Sequence[float], float],
    whisker: tuple[float, float] | None,
) -> None:
    """The marker of a method; `at` is its cost with each seed, and how far it is moved, in decades."""
    costs, shift = at
    value = line.estimate(panel.name.rsplit("/", 1)[-1])
    if value.mean is None or not costs:
        return
    place = across.scale.place
    x = place(sum(costs) / len(costs)) + shift
    colour = line.style.colour
    if whisker is not None:
        panel.segments([[(x, whisker[0]), (x, whisker[1])]], f"{line.key.label}/whisker", colors=colour, linewidths=0.6)
    if len(set(costs)) > 1:
        ends = [[(place(min(costs)), value.mean), (place(max(costs)), value.mean)]]
        panel.segments(ends, f"{line.key.label}/costs", colors=colour, linewidths=0.6)
    if len(value.by_seed) > 1:
        dashes = {"marker": "_", "markersize": 3.0, "markeredgewidth": 0.5, "linestyle": "none", "color": colour}
        panel.line([x] * len(value.by_seed), value.by_seed, f"{line.key.label}/seeds", **dashes)
    panel.line([x], [value.mean], f"{line.key.label}/mean", linestyle="none", **marker_settings(line.style, MARKER))
