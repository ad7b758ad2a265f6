"""Pareto fronts of a table: methods than which no other one is both better and cheaper.

Methods that are not shown count too: otherwise one could choose one's rivals. Example:
`pareto_front(table, "brier", "tokens", {""})`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from bench.report.averages import mean_of
from bench.report.grouping import Key
from bench.report.tables.model import Line, Table


def pareto_indices(points: Sequence[tuple[float, float]]) -> list[int]:
    """Points of (cost, badness) than which no other is at least as good in both and better in one, the cheapest first.

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
    """Lines on the front, shown or not, the cheapest first.

    Args:
        table: with or without standings.
        metric: in `bench.metrics.METRICS`.
        cost: attribute of `Line`, by seed.
        kinds: recalibrations of the lines that compete; empty for none.
    """
    points: dict[Key, tuple[float, float]] = {}
    for line in front_candidates(table, metric):
        bad, price = line.badness(metric), mean_of(getattr(line, cost))
        if line.key.recalibration in kinds and bad is not None and price is not None:
            points[line.key] = (price, bad)
    keys = list(points)
    return [keys[i] for i in pareto_indices(list(points.values()))]


def front_candidates(table: Table, metric: str) -> list[Line]:
    """Lines that can be on a front, shown or not: the ranked ones of each recalibration, on the labels of the leaders.

    Where the metric has no ranks, all that can be compared.
    """
    kinds = sorted({line.key.recalibration for line in (*table.lines, *table.others)})
    competitions = [table.competition(metric, kind) for kind in (None, *kinds)]
    main, *by_recalibration = (competition.ranked or competition.comparable for competition in competitions)
    labels = {line.standing.labels for line in main if line.standing}
    lines = (line for competitors in by_recalibration for line in competitors)
    return [line for line in lines if not labels or (line.standing and line.standing.labels in labels)]
