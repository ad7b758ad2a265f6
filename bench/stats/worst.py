"""Methods by their worst cell: which ones are shown to be worse by it than others, and how bad it is in truth.

The worst of several cells is worse than in truth by chance, the more so the more cells there are. So the worst cells of
two methods differ significantly only where their difference is larger, in standard errors, than the largest of all
differences is by chance that any cell of a method has to the worst one of another: 95 % of draws, of all cells at once.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import permutations
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bench.api import FloatArray
from bench.metrics import METRICS
from bench.stats.intervals import TINY, Interval

LEVEL = 0.95


class Cells(NamedTuple):
    """One metric of k cells."""

    metric: str
    method: npt.NDArray[np.str_]
    """Method of each, shape (k,)."""
    value: FloatArray
    """Shape (k,)."""
    covariance: FloatArray
    """Of the values, shape (k, k)."""
    freedom: FloatArray
    """Degrees of freedom of each one's error, shape (k,)."""
    draws: FloatArray
    """Normal errors of all cells at once, shape (draws, k)."""

    @property
    def badness(self) -> FloatArray:
        """Values that are larger where they are worse, shape (k,)."""
        return -self.value if METRICS[self.metric].higher_is_better else self.value

    def worst(self, name: str) -> int:
        """Number of a method's worst cell."""
        own = np.flatnonzero(self.method == name)
        return int(own[self.badness[own].argmax()])

    def interval(self, name: str) -> Interval:
        """Interval for the cell of a method that is worst in truth, which may be another than the observed one.

        Each cell has a lower and an upper bound of how bad it is, and the ends are the largest of these. Lower bounds
        hold for all cells at once; an upper one need hold for the worst cell alone.
        """
        from scipy.special import ndtr, stdtrit

        own, tail = self.method == name, (1 + LEVEL) / 2
        error = np.sqrt(self.covariance.diagonal()[own])
        if error.max() <= TINY:
            return Interval("fixed-subjects", reason="nothing varies between these questions")
        largest = (self.draws[:, own] / np.maximum(error, TINY)).max(axis=1)
        steps = -stdtrit(self.freedom[own], ndtr(np.quantile(largest, tail))), stdtrit(self.freedom[own], tail)
        sign = -1 if METRICS[self.metric].higher_is_better else 1
        ends = sorted(sign * float((self.badness[own] + step * error).max()) for step in steps)
        low, high = np.clip(ends, *METRICS[self.metric].bounds).tolist()
        return Interval("fixed-subjects", low, high, LEVEL, "t")

    def ranks(self, names: Collection[str]) -> dict[str, int]:
        """1 plus the number of these methods whose worst cell is significantly better; all are tested together."""
        from scipy.special import ndtr, stdtrit

        worst = {name: self.worst(name) for name in names}
        ranked = np.isin(self.method, [*names])
        own, errors, largest = self.covariance.diagonal(), {}, np.zeros(len(self.draws))
        for name, j in worst.items():
            errors[name] = np.sqrt(np.maximum(0.0, own + own[j] - 2 * self.covariance[j]))
            others = ranked & (self.method != name) & (errors[name] > TINY)
            apart = (self.draws[:, others] - self.draws[:, [j]]) / errors[name][others]
            largest = np.maximum(largest, apart.max(axis=1, initial=0.0))
        critical = ndtr(np.quantile(largest, LEVEL))
        ranks = dict.fromkeys(names, 1)
        for (better, j), (name, i) in permutations(worst.items(), 2):
            reach = stdtrit(min(self.freedom[i], self.freedom[j]), critical) * errors[better][i]
            ranks[name] += int(self.badness[i] - self.badness[j] > max(TINY, reach))
        return ranks
