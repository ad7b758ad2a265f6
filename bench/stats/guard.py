"""Risk control: find the lowest confidence threshold above which the error rate is certified, by Learn-then-Test.

Fixed-sequence testing (Angelopoulos et al., 2021): a grid of thresholds is fixed before any label is read. They are
tested from the strictest down, each at the full level, until one fails; the last one that passed is certified. A wrong
certificate requires that the first threshold with too high an error rate passes. So the family-wise error is at most 1
- level, even if the error rate is not monotone in the threshold.

The p value is that of the binomial test: among m selected answers with error rate R, mistakes are binomial(m, R). The
test is exact for independent, identically distributed answers. Example: `guard(grid, values, correct, risk=0.05,
level=0.9).threshold`.
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
"""Largest number of steps between the thresholds of a grid: each step but the last adds at least 2 % of the unlabelled
answers."""
FORGIVEN = 3
"""Number of mistakes that the strictest threshold of a grid tolerates, if there are enough answers. With 0, one mistake
by chance would end the sequence of tests."""
_MOST = 10**9
"""Upper limit of the search for the number of answers that a certificate needs."""


# --- the split --------------------------------------------------------------------------------------------------------


def held_out_mask(ids: Iterable[str], *, share: float, seed: int) -> BoolArray:
    """Return a mask (n,) of the questions that are held out for calibration, given the ids of n questions.

    A question is held out with probability `share`, by a hash of its id and the seed. So the choice depends neither on
    the method, nor on other questions, nor on the subject. Subjects are not balanced, on purpose: in a sample
    stratified by subject the number of mistakes is not binomial.

    >>> held_out_mask(["a", "b", "c", "d"], share=0.5, seed=0).tolist()
    [False, False, False, True]
    """
    bound = int(share * 2**64)
    is_calibration = [int.from_bytes(hashlib.sha256(f"{seed}:{key}".encode()).digest()[:8]) < bound for key in ids]
    return np.asarray(is_calibration, dtype=np.bool_)


# --- binomial numbers -------------------------------------------------------------------------------------------------


def p_value(mistakes: npt.ArrayLike, n: npt.ArrayLike, risk: float) -> FloatArray:
    """Return the p value of the null "the error rate exceeds `risk`" for each number of mistakes among n answers.

    The p value is the binomial probability of at most this many mistakes if the error rate is exactly `risk`.

    Args:
        mistakes: numbers of mistakes, an array of any shape.
        n: numbers of answers, right and wrong, of the same shape; where n is 0 the p value is 1.
        risk: error rate, inside (0, 1).
    """
    from scipy.special import bdtr

    k, m = np.asarray(mistakes, dtype=np.float64), np.asarray(n, dtype=np.int64)
    p: FloatArray = np.asarray(bdtr(k, m, risk), dtype=np.float64)
    return p


def upper_bound(mistakes: npt.ArrayLike, n: npt.ArrayLike, level: float) -> FloatArray:
    """Return the upper confidence bound of the error rate for each number of mistakes among n answers.

    The bound is that of Clopper and Pearson (1934) at confidence `level`. It is 1 if all n are mistakes or n is 0.

    >>> float(upper_bound(0, 45, 0.9).round(4))
    0.0499
    """
    from scipy.special import betaincinv

    k, m = np.asarray(mistakes, dtype=np.float64), np.asarray(n, dtype=np.float64)
    bound: FloatArray = np.where(k < m, betaincinv(k + 1, np.maximum(m - k, 1.0), level), 1.0)
    return bound


def share_interval(hits: int, n: int) -> tuple[float, float] | None:
    """Return the two-sided 95 % confidence interval of a share, given `hits` among n trials; None where n is 0.

    The interval is that of Clopper and Pearson (1934).

    >>> [round(end, 3) for end in share_interval(1, 20)]
    [0.001, 0.249]
    """
    if not n:
        return None
    return 1 - float(upper_bound(n - hits, n, 0.975)), float(upper_bound(hits, n, 0.975))


@cache
def min_answers(risk: float, level: float, mistakes: int = 0) -> int:
    """Return the fewest answers, `mistakes` of them wrong, that certify an error rate of at most `risk` at a level.

    Without a mistake the result is log(1 - level) / log(1 - risk), rounded up. The result is 10^9 if the search finds
    no number below that.

    >>> min_answers(0.05, 0.9), min_answers(0.05, 0.9, 1), min_answers(0.01, 0.95)
    (45, 77, 299)
    """
    return _smallest(lambda m: bool(p_value(mistakes, m, risk) <= 1 - level), mistakes + 1) or _MOST


def answers_needed(wrong: float, risk: float, level: float) -> int | None:
    """Return how many answers certify an error rate of at most `risk` if exactly a share `wrong` of them are mistakes.

    None if `wrong` is not below `risk`, or if more than 10^9 answers would be needed.

    >>> answers_needed(0.03, 0.05, 0.9), answers_needed(0.06, 0.05, 0.9)
    (282, None)
    """
    if wrong >= risk:
        return None
    return _smallest(lambda m: bool(p_value(np.ceil(wrong * m), m, risk) <= 1 - level), 1)


def _smallest(holds: Callable[[int], bool], start: int) -> int | None:
    """Return the smallest number from `start` on for which `holds` is true, by doubling and bisection.

    If `holds` is not monotone, the result may be slightly larger than the smallest. None if the search exceeds `_MOST`.
    """
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
    """Limits of what n labelled calibration answers can certify, whatever method gives the confidences."""

    n: int
    """Number of calibration answers."""
    right: int
    """Number of right answers among the calibration answers."""
    fewest: int
    """Number of answers above the threshold needed to certify the requested error rate if none of them is a mistake."""
    fewest_with_one: int
    """Number of answers above the threshold needed to certify the requested error rate if one of them is a mistake."""
    least_risk: float
    """Smallest error rate that could be certified if confidences ranked all right answers before all wrong ones."""
    most: int
    """Largest number of calibration answers above any threshold that passes, in the best case: if all right answers had
    higher confidences than all wrong ones. 0 if no threshold could pass."""


def feasible(n: int, right: int, *, risk: float, level: float) -> Feasible:
    """Compute what n labelled calibration answers, `right` of them right, can certify at best.

    >>> limits = feasible(100, 60, risk=0.05, level=0.9)
    >>> round(limits.least_risk, 3), limits.most
    (0.038, 60)
    """
    mistakes = np.arange(n - right + 1)
    passes = np.flatnonzero(p_value(mistakes, right + mistakes, risk) <= 1 - level) if right else mistakes[:0]
    return Feasible(
        n, right, min_answers(risk, level), min_answers(risk, level, 1), float(upper_bound(0, right, level)),
        right + int(passes[-1]) if passes.size else 0,
    )  # fmt: skip


# --- the sequence -----------------------------------------------------------------------------------------------------


def grid(values: npt.ArrayLike, n: int, *, risk: float, level: float, floor: float | None = None) -> FloatArray:
    """Return the thresholds (k,) to test, strictest first: quantiles of the confidences of other, unlabelled answers.

    The calibration answers must not be among `values`, so that the grid is independent of the tests. The strictest
    threshold is chosen for a certificate despite `FORGIVEN` mistakes: it is expected to select just the number of
    calibration answers that is needed. If more than half of the calibration answers would be needed, fewer mistakes are
    planned for. Each threshold lies half-way between two neighbouring values, so that answers with equal values are
    selected together. The last threshold is the floor, if that is finite. It selects all of `values`. Without a given
    floor, calibration answers and new answers may lie below it.

    Args:
        values: shape (r,), r > 0: confidences or scores of unlabelled answers; infinite scores are no thresholds.
        n: number of calibration answers.
        risk: error rate to certify, inside (0, 1).
        level: confidence level of the certificate, inside (0, 1).
        floor: smallest possible confidence or score, 0 for confidences; None: the smallest of `values`.

    >>> grid([0.9, 0.9, 0.6, 0.2], 270, risk=0.05, level=0.9, floor=0.0).tolist()
    [0.75, 0.4, 0.0]
    """
    ordered = np.sort(np.asarray(values, dtype=np.float64))[::-1]
    r = ordered.size
    certifying = [min_answers(risk, level, mistakes) for mistakes in range(FORGIVEN, -1, -1)]
    n_first = min(n, next((m for m in certifying if 2 * m <= n), certifying[-1]))
    first = min(r, -(-n_first * r // max(n, 1)))
    ranks = np.append(np.arange(first, r, -(-r // STEPS)), r)  # from 1
    lowest = np.unique(ordered[ranks - 1])[::-1]
    distinct = np.unique(ordered)
    below = distinct[np.maximum(np.searchsorted(distinct, lowest) - 1, 0)]
    at = np.where(np.isfinite(below), lowest / 2 + below / 2, lowest)
    at[-1] = at[-1] if floor is None else floor
    return at[np.isfinite(at)]


def count_selected(
    values: npt.ArrayLike, correct: npt.ArrayLike, thresholds: npt.ArrayLike
) -> tuple[IntArray, IntArray]:
    """For each of k thresholds, count the answers at or above the threshold, and the mistakes among them, both (k,).

    >>> count_selected([0.9, 0.5, 0.5, 0.1], [True, True, False, False], [0.7, 0.5])[1].tolist()
    [0, 1]
    """
    v, o, at = np.asarray(values, dtype=np.float64), np.asarray(correct, dtype=np.bool_), np.asarray(thresholds)
    n_selected = v.size - np.searchsorted(np.sort(v), at, side="left")
    mistakes = np.sort(v[~o])
    return n_selected, mistakes.size - np.searchsorted(mistakes, at, side="left")


@dataclass(frozen=True, eq=False)
class Guard:
    """Result of testing k thresholds in sequence on labelled calibration answers."""

    grid: FloatArray
    """The tested thresholds, strictest first, shape (k,)."""
    kept: IntArray
    """Number of calibration answers at or above each threshold, shape (k,)."""
    mistakes: IntArray
    """Number of wrong answers among those at or above each threshold, shape (k,)."""
    bounds: FloatArray
    """Upper confidence bound of the error rate at each threshold alone, shape (k,). The bounds don't hold
    simultaneously."""
    passed: int
    """Number of thresholds that passed their test before the first one failed."""

    @property
    def threshold(self) -> float | None:
        """Lowest threshold that passed; None if the strictest one failed."""
        return float(self.grid[self.passed - 1]) if self.passed else None

    @property
    def place(self) -> int:
        """Index of `threshold` in the grid; 0, the index of the strictest one, if none passed."""
        return max(self.passed - 1, 0)


def guard(grid: FloatArray, values: npt.ArrayLike, correct: npt.ArrayLike, *, risk: float, level: float) -> Guard:
    """Test thresholds on labelled answers, strictest first, until one fails.

    The certificate is for new answers drawn from the same distribution as the labelled ones: with probability at least
    `level`, their error rate at or above the chosen threshold is at most `risk`.

    Args:
        grid: thresholds, shape (k,), descending; chosen without the labelled answers.
        values: shape (n,), confidences or scores of n labelled answers.
        correct: shape (n,), bool.
        risk: error rate to certify, inside (0, 1).
        level: confidence level of the certificate, inside (0, 1).
    """
    n_selected, mistakes = count_selected(values, correct, grid)
    passes = p_value(mistakes, n_selected, risk) <= 1 - level
    passed = int(np.logical_and.accumulate(passes).sum())
    return Guard(grid, n_selected, mistakes, upper_bound(mistakes, n_selected, level), passed)
