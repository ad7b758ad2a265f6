"""Round values for axes, and their names."""

from __future__ import annotations

import math
from collections.abc import Sequence

from bench.metrics import METRICS
from bench.report.figures.sheet import short
from bench.report.text import MINUS

STEPS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.25, 0.5, 1.0, 2.0, 5.0)


def ticks_between(low: float, high: float, most: int = 2) -> list[float]:
    """Round values within two ends, at most so many; the outer two of more where a wider step would leave one.

    >>> ticks_between(0.43, 1.02), ticks_between(0.61, 0.88), ticks_between(0.45, 0.55)
    ([0.5, 1.0], [0.7, 0.8], [0.45, 0.55])
    """
    finer: list[float] = []
    for step in STEPS:
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        if last - first < most:
            ticks = [round(k * step, 3) for k in range(first, last + 1)]
            return ticks if len(ticks) > 1 else finer or ticks
        # The outer two alone: of a fine step there are millions.
        finer = [round(first * step, 3), round(last * step, 3)]
    return finer


def tick_names(ticks: Sequence[float], metric: str) -> list[str]:
    """Names of ticks, in percent where the metric is a fraction.

    >>> tick_names([0.0, 0.05], "brier"), tick_names([0.05], "nll")
    (['0', '5'], ['0.05'])
    """
    values = [round(100 * tick, 6) if METRICS[metric].is_fraction else tick for tick in ticks]
    return [short(value).replace("-", MINUS) for value in values]


def with_room(values: Sequence[float], least: float = 0.01) -> tuple[float, float]:
    """Ends of an axis around all values, with some room; `least` where they are all the same."""
    room = 0.06 * (max(values) - min(values)) or least
    return min(values) - room, max(values) + room
