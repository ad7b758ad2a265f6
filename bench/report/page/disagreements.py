"""Find the questions on which two methods differ most in confidence, as many as fit on a page.

Example: `largest_disagreements(confidence, [(0, 1)], 10)` returns `[(0, 1, first, second)]`. `first` and `second` have
at most ten questions each. On those in `first`, method 0 is more confident than method 1; on those in `second`, less.
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
"""Maximum size in bytes of all questions with disagreements on one page, without the question texts."""
_BYTES, _BYTES_EACH = 60, 5
"""Approximate sizes in bytes: of a question's data without confidences, and of one method's confidence in a
question."""


class Depth(NamedTuple):
    """Limits on how many questions a page shows because two methods disagree in confidence."""

    each: int
    """Maximum number of questions for each pair of methods and each direction (the first or the second more
    confident)."""
    all_pairs: bool
    """True: all tested pairs of methods are shown. False: only the pairs that contain the best method."""


_DEPTHS = (Depth(10, all_pairs=True), Depth(10, all_pairs=False), Depth(5, all_pairs=False))
"""Limits to try, the largest first. If the questions are too large for the page with all of them, the last is used."""


def fit_depth(tables: Sequence[Table]) -> Depth:
    """Return the largest limits with which the questions with disagreements fit into the page's budget of bytes."""
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
    """Return pairs of indices into `table.ordered_lines`: the methods whose disagreements the page shows."""
    best = set(pairs.best_columns(table).values())
    return [pair for pair in combinations(pairs.tested_columns(table), 2) if depth.all_pairs or best & set(pair)]


def largest_disagreements(
    confidence: FloatArray, pairs_of_lines: Sequence[tuple[int, int]], each: int
) -> list[tuple[int, int, IntArray, IntArray]]:
    """Find the questions on which pairs of methods differ most in confidence.

    Args:
        confidence: shape (methods, n), a row for each method; NaN where a method has no confidence in a question.
        pairs_of_lines: pairs of row numbers of `confidence`.
        each: maximum number of questions in each direction.

    Returns:
        A tuple for each pair: both row numbers; the questions (<= each,) where the first method is more confident; the
            questions (<= each,) where the second is. Questions are column indices, by decreasing difference (stable
            sort). Pairs without a common question are left out.
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
