"""Questions on which two methods disagree most: which pairs a page has room for, and the questions of a pair.

Example: `most(confidence, [(0, 1)], 10)` has the ten questions of which the first method is the surest beside the
second, and the ten of which the second is.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np

from bench.api import FloatArray, IntArray
from bench.report.page import pairs
from bench.report.tables.model import Table

_BUDGET = 1_000_000
"""Bytes of these questions on one page, without their texts."""
_BYTES, _BYTES_EACH = 60, 5
"""Bytes of a question, and of a line's confidence in it."""


class Depth(NamedTuple):
    """Number of disagreements that a page has."""

    each: int
    """Questions of a pair, each way."""
    all_pairs: bool
    """Whether of all pairs, or only of those with the best line."""


_DEPTHS = (Depth(10, all_pairs=True), Depth(10, all_pairs=False), Depth(5, all_pairs=False))
"""The first that fits into the budget, or the last."""


def depth_of(tables: Sequence[Table]) -> Depth:
    """The depth for which a page with these tables has room."""
    for depth in _DEPTHS:
        total = 0
        for table in tables:
            n = max((line.n or 0 for line in table.lines), default=0)
            rows = min(n, 2 * depth.each * len(wanted(table, depth)))
            total += rows * (_BYTES + _BYTES_EACH * len(table.lines))
        if total <= _BUDGET:
            return depth
    return _DEPTHS[-1]


def wanted(table: Table, depth: Depth) -> list[tuple[int, int]]:
    """Pairs of columns, as places in `table.placed`, whose disagreements a page has."""
    best = set(pairs.best_of(table).values())
    return [pair for pair in combinations(pairs.columns_of(table), 2) if depth.all_pairs or best & set(pair)]


def most(
    confidence: FloatArray, pairs_of_lines: Sequence[tuple[int, int]], each: int
) -> list[tuple[int, int, IntArray, IntArray]]:
    """The questions on which pairs of lines disagree most.

    Args:
        confidence: shape (lines, n), NaN where unknown.
        pairs_of_lines: pairs of row numbers of `confidence`.
        each: at most so many questions each way.

    Returns:
        For each pair its lines, then rows (<= each,) of questions of which the first is surer and of which the second
        is, the largest difference first, equal ones as they come. Pairs without a question in common are left out.
    """
    disagreements = []
    for first, second in pairs_of_lines:
        difference = confidence[first] - confidence[second]
        if not np.isnan(difference).all():
            disagreements.append((first, second, _largest(difference, each), _largest(-difference, each)))
    return disagreements


def _largest(difference: FloatArray, each: int) -> IntArray:
    above = np.flatnonzero(difference > 0)  # NaN is not
    rows: IntArray = above[np.argsort(-difference[above], kind="stable")][:each]
    return rows
