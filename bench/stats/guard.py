"""Thresholds above which answers can be trusted: fixed-sequence testing of the risk among the answers that are kept.

Learn-then-Test (Angelopoulos et al., 2021): thresholds are chosen before any label is seen, and tested from the
strictest down, each at the full level, until one fails; the last one that passed keeps the risk. The first threshold
that breaks the risk has to pass for anything false to be said, so the chance of that is at most 1 - level, whatever the
risk does in between. The p value is that of the binomial test, exact for answers drawn alike: among m kept answers of
which a share R is wrong in the long run, mistakes are binomial(m, R). Example:
`guard(grid, values, correct, risk=0.05, level=0.9).threshold`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from bench.api import BoolArray, FloatArray, IntArray

STEPS = 50
"""Steps of a grid, each of 2 % of the unlabelled answers."""
FORGIVEN = 3
"""Mistakes that the strictest threshold of a grid may keep, where there are answers enough: with none, the first chance
mistake would end the sequence."""
_MOST = 10**9
"""Answers up to which a number that would be enough is looked for."""


# --- the split --------------------------------------------------------------------------------------------------------


def set_aside(ids: Iterable[str], *, share: float, seed: int) -> BoolArray:
    """Questions (n,) that are set aside for calibration.

    Each is decided by the hash of its own id and the seed, with this share for its chance. So the side of a question
    depends neither on the method, nor on the order or the number of the others, nor on its subject. Strata are not kept
    equal on purpose: a sample drawn within strata has no binomial number of mistakes.

    >>> set_aside(["a", "b", "c", "d"], share=0.5, seed=0).tolist()
    [False, False, False, True]
    """
    below = int(share * 2**64)
    sides = [int.from_bytes(hashlib.sha256(f"{seed}:{key}".encode()).digest()[:8]) < below for key in ids]
    return np.asarray(sides, dtype=np.bool_)


# --- binomial numbers -------------------------------------------------------------------------------------------------


def p_value(mistakes: npt.ArrayLike, kept: npt.ArrayLike, risk: float) -> FloatArray:
    """P values of "more than `risk` of such answers are wrong": the chance of so few mistakes at exactly that risk.

    Args:
        mistakes: of any shape.
        kept: answers that they are among, of the same shape; without any the p value is 1.
        risk: inside (0, 1).
    """
    from scipy.special import bdtr

    k, m = np.asarray(mistakes, dtype=np.float64), np.asarray(kept, dtype=np.int64)
    p: FloatArray = np.asarray(bdtr(k, m, risk), dtype=np.float64)
    return p


def upper_bound(mistakes: npt.ArrayLike, kept: npt.ArrayLike, level: float) -> FloatArray:
    """Upper bounds of a risk at a level, by Clopper and Pearson (1934); 1 where all are mistakes, or nothing is kept.

    >>> float(upper_bound(0, 45, 0.9).round(4))
    0.0499
    """
    from scipy.special import betaincinv

    k, m = np.asarray(mistakes, dtype=np.float64), np.asarray(kept, dtype=np.float64)
    bound: FloatArray = np.where(k < m, betaincinv(k + 1, np.maximum(m - k, 1.0), level), 1.0)
    return bound


def share_interval(hits: int, n: int) -> tuple[float, float] | None:
    """Two-sided 95 % interval of a share, by Clopper and Pearson (1934); None where n is 0.

    >>> [round(end, 3) for end in share_interval(1, 20)]
    [0.001, 0.249]
    """
    if not n:
        return None
    return 1 - float(upper_bound(n - hits, n, 0.975)), float(upper_bound(hits, n, 0.975))


@cache
def fewest(risk: float, level: float, mistakes: int = 0) -> int:
    """Fewest answers that certify a risk at a level with so many mistakes among them.

    Without a mistake that is log(1 - level) / log(1 - risk), rounded up.

    >>> fewest(0.05, 0.9), fewest(0.05, 0.9, 1), fewest(0.01, 0.95)
    (45, 77, 299)
    """
    return _least(lambda m: bool(p_value(mistakes, m, risk) <= 1 - level), mistakes + 1) or _MOST


def enough(wrong: float, risk: float, level: float) -> int | None:
    """Answers that certify a risk where this share of them is wrong; None where the share is not below the risk.

    >>> enough(0.03, 0.05, 0.9), enough(0.06, 0.05, 0.9)
    (282, None)
    """
    if wrong >= risk:
        return None
    return _least(lambda m: bool(p_value(np.ceil(wrong * m), m, risk) <= 1 - level), 1)


def _least(holds: Callable[[int], bool], start: int) -> int | None:
    """About the least number from which on something holds: doubled, then halved; None beyond `_MOST`."""
    high = start
    while not holds(high):
        high *= 2
        if high > _MOST:
            return None
    low = max(start - 1, high // 2)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


@dataclass(frozen=True)
class Feasible:
    """Limits that so many labelled answers set to any method."""

    n: int
    """Calibration answers."""
    right: int
    """Right ones among them."""
    fewest: int
    """Answers without a mistake that the risk asks for."""
    fewest_with_one: int
    """Answers with one mistake that the risk asks for."""
    least_risk: float
    """Least risk that an order with all right answers first could certify: none is wrong among the right ones."""
    most: int
    """Most answers that such an order could keep at the risk asked for; 0 where it could keep none."""


def feasible(n: int, right: int, *, risk: float, level: float) -> Feasible:
    """Limits that n calibration answers set, of which so many are right.

    >>> found = feasible(100, 60, risk=0.05, level=0.9)
    >>> round(found.least_risk, 3), found.most
    (0.038, 60)
    """
    mistakes = np.arange(n - right + 1)
    passes = np.flatnonzero(p_value(mistakes, right + mistakes, risk) <= 1 - level) if right else mistakes[:0]
    return Feasible(
        n, right, fewest(risk, level), fewest(risk, level, 1), float(upper_bound(0, right, level)),
        right + int(passes[-1]) if passes.size else 0,
    )  # fmt: skip


# --- the sequence -----------------------------------------------------------------------------------------------------


def grid(values: npt.ArrayLike, n: int, *, risk: float, level: float, floor: float | None = None) -> FloatArray:
    """Thresholds (k,) to be tested, the strictest first: quantiles of confidences of other answers, without labels.

    Values come from answers that are not those of the calibration, so that the grid is fixed before it is tested: had
    it been made of the same answers, their number above a threshold and the threshold would depend on one another. The
    first one is where as many calibration answers are expected as the risk asks for with `FORGIVEN` mistakes; with
    fewer where that were more than half of them. A threshold lies half-way between two neighbouring values, so that
    ties stay together and rounding of the last bit turns no answer; the last one is the floor, and keeps all answers.

    Args:
        values: shape (r,), r > 0: confidences or scores of unlabelled answers; infinite scores are no thresholds.
        n: calibration answers to come.
        risk: inside (0, 1).
        level: inside (0, 1).
        floor: least value that there can be, 0 for confidences; None where there is none, then the least one here.

    >>> grid([0.9, 0.9, 0.6, 0.2], 270, risk=0.05, level=0.9, floor=0.0).tolist()
    [0.75, 0.4, 0.0]
    """
    ordered = np.sort(np.asarray(values, dtype=np.float64))[::-1]
    r = ordered.size
    asked = [fewest(risk, level, mistakes) for mistakes in range(FORGIVEN, -1, -1)]
    wanted = min(n, next((m for m in asked if 2 * m <= n), asked[-1]))
    first = min(r, -(-wanted * r // max(n, 1)))
    ranks = np.append(np.arange(first, r, -(-r // STEPS)), r)  # from 1
    lowest = np.unique(ordered[ranks - 1])[::-1]
    distinct = np.unique(ordered)
    below = distinct[np.maximum(np.searchsorted(distinct, lowest) - 1, 0)]
    at = np.where(np.isfinite(below), lowest / 2 + below / 2, lowest)
    at[-1] = at[-1] if floor is None else floor
    return at[np.isfinite(at)]


def counted(values: npt.ArrayLike, correct: npt.ArrayLike, thresholds: npt.ArrayLike) -> tuple[IntArray, IntArray]:
    """Answers kept, and mistakes among them, at each threshold: (k,) each. Kept is what lies at a threshold or above.

    >>> counted([0.9, 0.5, 0.5, 0.1], [True, True, False, False], [0.7, 0.5])[1].tolist()
    [0, 1]
    """
    v, o, at = np.asarray(values, dtype=np.float64), np.asarray(correct, dtype=np.bool_), np.asarray(thresholds)
    kept = v.size - np.searchsorted(np.sort(v), at, side="left")
    wrong = np.sort(v[~o])
    return kept, wrong.size - np.searchsorted(wrong, at, side="left")


@dataclass(frozen=True, eq=False)
class Guard:
    """A sequence of tests and where it ended."""

    grid: FloatArray
    """(k,) thresholds, the strictest first."""
    kept: IntArray
    """(k,) calibration answers at or above each."""
    mistakes: IntArray
    """(k,) wrong ones among them."""
    bounds: FloatArray
    """(k,) upper bound of the risk at each threshold, for that one by itself."""
    passed: int
    """Thresholds that passed before one failed."""

    @property
    def threshold(self) -> float | None:
        """The loosest one that passed; None where the strictest failed."""
        return float(self.grid[self.passed - 1]) if self.passed else None

    @property
    def place(self) -> int:
        """Place in the grid of the threshold, or of the strictest where none passed."""
        return max(self.passed - 1, 0)


def guard(grid: FloatArray, values: npt.ArrayLike, correct: npt.ArrayLike, *, risk: float, level: float) -> Guard:
    """Test thresholds on labelled answers, from the strictest down, until one fails.

    With a chance of at least `level` over the draw of the labelled answers, at most a share `risk` of further answers
    like them is wrong among those at or above the threshold, its choice included.

    Args:
        grid: shape (k,), falling; chosen without these answers.
        values: shape (n,), confidences or scores of n answers.
        correct: shape (n,), bool.
        risk: inside (0, 1).
        level: inside (0, 1).
    """
    kept, mistakes = counted(values, correct, grid)
    passes = p_value(mistakes, kept, risk) <= 1 - level
    passed = int(np.logical_and.accumulate(passes).sum())
    return Guard(grid, kept, mistakes, upper_bound(mistakes, kept, level), passed)
