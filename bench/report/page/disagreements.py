"""Find the questions on which two methods differ most in confidence, as many as fit on a page.

Example: `largest_disagreements(confidence, [(0, 1)], 10)` has the ten questions with the largest lead of the first
method's confidence over the second's, and the ten with the largest lead the other way.
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
"""Maximum size of these questions on one page in bytes, without their texts."""
_BYTES, _BYTES_EACH = 60, 5
"""Approximate size in bytes of a question, and of a line's confidence in it."""


class Depth(NamedTuple):
    """How many disagreements a page shows."""

    each: int
    """Maximum number of questions of a pair of lines in each direction, i.e. with either line more confident."""
    all_pairs: bool
    """Whether all pairs of lines are shown, or only those with the best line."""


_DEPTHS = (Depth(10, all_pairs=True), Depth(10, all_pairs=False), Depth(5, all_pairs=False))
"""Candidates, the largest first; the last is used if none fits into the budget."""


def fit_depth(tables: Sequence[Table]) -> Depth:
    """Return the largest depth whose questions fit into the page's budget of bytes."""
    for depth in _DEPTHS:
        total = 0
        for table in tables:
            n = max((line.n or 0 for line in table.lines), default=0)
            rows = min(n, 2 * depth.each * len(select_pairs(table, depth)))
            total += rows * (_BYTES + _BYTES_EACH * len(table.lines))
        if total <= _BUDGET:
            return depth
    return _DEPTHS[-1]


def select_pairs(table: Table, depth: Depth) -> list[tuple[int, int]]:
    """Return the pairs of indices into `table.placed` whose disagreements the page shows."""
    best = set(pairs.best_columns(table).values())
    return [pair for pair in combinations(pairs.tested_columns(table), 2) if depth.all_pairs or best & set(pair)]


def largest_disagreements(
    confidence: FloatArray, pairs_of_lines: Sequence[tuple[int, int]], each: int
) -> list[tuple[int, int, IntArray, IntArray]]:
    """Find the questions on which pairs of lines differ most in confidence.

    Args:
        confidence: shape (lines, n), NaN where unknown.
        pairs_of_lines: pairs of row numbers of `confidence`.
        each: maximum number of questions in each direction.

    Returns:
        For each pair: both lines, then question indices (<= each,) where the first line is more confident, and where
        the second is, by decreasing difference (stable). Pairs without a common question are left out.
    """
    disagreements = []
    for first, second in pairs_of_lines:
        difference = confidence[first] - confidence[second]
        if not np.isnan(difference).all():
            disagreements.append((first, second, _largest(difference, each), _largest(-difference, each)))
    return disagreements


def _largest(difference: FloatArray, each: int) -> IntArray:
    above = np.flatnonzero(difference > 0)  # False for NaN
    rows: IntArray = above[np.argsort(-difference[above], kind="stable")][:each]
    return rows
