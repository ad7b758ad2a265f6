"""Pareto fronts of cost and quality: methods that no other method beats in one without being worse in the other.

Methods that a selection hides are compared, too, so that a selection can't change the front. Example:
`pareto_front(table, "brier", "tokens", {""})`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from bench.report.grouping import Key
from bench.report.tables.model import Line, Table
from bench.report.text import mean_of


def pareto_indices(points: Sequence[tuple[float, float]]) -> list[int]:
    """Return the indices of the points (cost, badness) that no other point dominates, the cheapest first.

    A point dominates another one if neither of its numbers is larger and one of them is smaller.

    >>> pareto_indices([(1.0, 0.3), (2.0, 0.2), (2.0, 0.25), (3.0, 0.2)])
    [0, 1]
    """
    indices = [
        i
        for i, (cost, bad) in enumerate(points)
        if not any(c <= cost and b <= bad and (c, b) != (cost, bad) for c, b in points)
    ]
    return sorted(indices, key=lambda i: points[i])


def pareto_front(table: Table, metric: str, cost: str, kinds: Collection[str]) -> list[Key]:
    """Return the keys of the lines (methods) on the Pareto front, including hidden lines, the cheapest first.

    Args:
        table: table of methods; its standings (intervals, tests and ranks) may be missing.
        metric: name in `bench.metrics.METRICS`.
        cost: name of an attribute of `Line` that has a cost for each seed, e.g. `tokens`.
        kinds: recalibrations of the methods that compete; an empty string stands for no recalibration.
    """
    points: dict[Key, tuple[float, float]] = {}
    for line in front_candidates(table, metric):
        bad, price = line.badness(metric), mean_of(getattr(line, cost))
        if line.key.recalibration in kinds and bad is not None and price is not None:
            points[line.key] = (price, bad)
    keys = list(points)
    return [keys[i] for i in pareto_indices(list(points.values()))]


def front_candidates(table: Table, metric: str) -> list[Line]:
    """Return the lines (methods) that may be on a Pareto front, including hidden lines.

    These are the methods that are ranked by the metric, if they have the same answers and labels as the methods in
    `table.competition(metric)`. If no method of a recalibration is ranked, all comparable methods of this
    recalibration are candidates.
    """
    by_recalibration = [competition.ranked or competition.comparable for competition in table.competitions(metric)]
    labels = {line.standing.labels for main in by_recalibration[:1] for line in main if line.standing}
    lines = (line for competitors in by_recalibration for line in competitors)
    return [line for line in lines if not labels or (line.standing and line.standing.labels in labels)]
