"""Worst-case comparison: rank methods by their worst cell, and give an interval of that cell's true value.

A cell is one method on one task, or trained on one corpus, with the value of a metric. The observed worst value of
several cells tends to be worse than the true one, and the truly worst cell may be another one. So a method counts as
worse only if one of its cells is significantly worse than every cell of the other method. The critical value is the 95
% quantile, over simultaneous draws, of the largest difference in standard errors between cells of two methods.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import permutations
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bench.api import BoolArray, FloatArray
from bench.metrics import METRICS
from bench.stats.intervals import NO_SPREAD, TINY, Interval

LEVEL = 0.95


class MethodCells(NamedTuple):
    """One metric of k cells; a cell is one method on one task, or trained on one corpus."""

    metric: str
    method: npt.NDArray[np.str_]
    """Name of each cell's method, shape (k,)."""
    value: FloatArray
    """Value of the metric in each cell, shape (k,)."""
    covariance: FloatArray
    """Covariance of the k values, shape (k, k)."""
    freedom: FloatArray
    """Degrees of freedom of each value's standard error, shape (k,)."""
    draws: FloatArray
    """Simultaneous normal errors of all cells, shape (draws, k)."""
    alike: BoolArray = np.zeros(1, dtype=np.bool_)
    """Whether two cells have the same questions and differ on fewer than MIN_RARER of them, shape (k, k); (1,) if it is
    one for all."""

    @property
    def badness(self) -> FloatArray:
        """The metric in each cell, shape (k,), with a sign such that larger numbers are worse."""
        return -self.value if METRICS[self.metric].higher_is_better else self.value

    def worst(self, name: str) -> int:
        """Return the index of the cell in which a method is worst."""
        cells = np.flatnonzero(self.method == name)
        return int(cells[self.badness[cells].argmax()])

    def interval(self, name: str) -> Interval:
        """Return the interval of a method's true worst value; it may be in another cell than the observed worst.

        Each cell has a lower and an upper bound of its badness (see `badness`). The ends of the interval are the
        largest lower and the largest upper bound. Lower bounds hold simultaneously; an upper bound has to hold for the
        truly worst cell only.
        """
        from scipy.special import ndtr, stdtrit

        is_cell, tail = self.method == name, (1 + LEVEL) / 2
        error = np.sqrt(self.covariance.diagonal()[is_cell])
        if error.max() <= TINY:
            return Interval("fixed-subjects", reason=NO_SPREAD)
        largest = (self.draws[:, is_cell] / np.maximum(error, TINY)).max(axis=1)
        df = self.freedom[is_cell]
        t_values = -stdtrit(df, ndtr(np.quantile(largest, tail))), stdtrit(df, tail)
        sign = -1 if METRICS[self.metric].higher_is_better else 1
        ends = sorted(sign * float((self.badness[is_cell] + t * error).max()) for t in t_values)
        low, high = np.clip(ends, *METRICS[self.metric].bounds).tolist()
        return Interval("fixed-subjects", low, high, LEVEL, "t")

    def rank_by_worst_cell(self, names: Collection[str]) -> dict[str, int]:
        """Rank methods: the rank is 1 plus the number of methods that are significantly better by their worst cell.

        A method is worse than another if one of its cells is significantly worse than every cell of the other method.
        Cells that are `alike` are not. All pairs of cells are tested at one critical value. Such a claim is false only
        if the cell exceeds, by chance, the truly worst cell of the other method. So the family-wise error rate over all
        methods is at most 1 - LEVEL.
        """
        from scipy.special import ndtr, stdtrit

        ranked = np.flatnonzero(np.isin(self.method, [*names]))
        variance, largest = self.covariance.diagonal(), np.zeros(len(self.draws))
        errors = np.sqrt(np.maximum(0.0, variance[:, None] + variance - 2 * self.covariance))
        for j in ranked:
            others = ranked[(self.method[ranked] != self.method[j]) & (errors[ranked, j] > TINY)]
            t = (self.draws[:, others] - self.draws[:, [j]]) / errors[others, j]
            largest = np.maximum(largest, t.max(axis=1, initial=0.0))
        t_value = stdtrit(np.minimum.outer(self.freedom, self.freedom), ndtr(np.quantile(largest, LEVEL)))
        is_worse = (self.badness[:, None] - self.badness > np.maximum(TINY, t_value * errors)) & ~self.alike
        ranks = dict.fromkeys(names, 1)
        for better, worse in permutations(names, 2):
            ranks[worse] += int(is_worse[np.ix_(self.method == worse, self.method == better)].all(axis=1).any())
        return ranks
