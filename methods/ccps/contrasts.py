"""Impacts of tokens of two kinds compared: over all tokens, within answers, and with places taken out.

Tokens of one answer are not independent, so each answer is one observation. All estimates are linear in the impacts, so
that each is known by its influence: the share of an answer in its error. The squared error of questions is the sum of
the squared influences, times n / (n - 1) for n answers that have one (the linearised, cluster-robust variance; Liang
and Zeger, Biometrika 1986; of a mean of one number per answer it is the usual one). To it is added the variance between
seeds (ddof 1) over their number, since impacts are means over seeds. Intervals and tests are Student's t with degrees
of freedom after Satterthwaite; those of questions are the number of answers, each counted by its weight, less one.

Places: impact = answer + place + b * content, by least squares, with an effect for each answer and one for each place
in answers of the same length; b is then the difference between a content word and a function word in the same answer at
places that matter equally. It is known only as far as there are both kinds at some place: where one answer in hundreds
tells it, the number of answers, counted by their weight, is about one, and no value is given.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bench.api import BoolArray, FloatArray, IntArray

MIN_ANSWERS = 10
"""Answers from which on there is an interval."""
LEVEL = 0.95
_TINY = 1e-9
_STILL = 1e-7
"""Standard error below which networks in single precision show no spread."""


@dataclass(frozen=True, eq=False)
class Impacts:
    """Tokens of n answers, each with its impact in the networks of several seeds."""

    answer: IntArray
    """`(t,)` number of the answer, from 0."""
    place: IntArray
    """`(t,)` place in the answer, from 0."""
    length: IntArray
    """`(t,)` tokens of the answer, those of other kinds included."""
    content: BoolArray
    """`(t,)` a token of a content word; else one of a function word."""
    impact: FloatArray
    """`(seeds, t)`."""
    n: int
    """Answers, those without such tokens included."""

    def take(self, kept: BoolArray) -> Impacts:
        """Some of the tokens `(t,)`."""
        at = np.flatnonzero(kept)
        return Impacts(
            self.answer[at], self.place[at], self.length[at], self.content[at], self.impact[:, at], self.n
        )  # fmt: skip

    @property
    def has_both(self) -> BoolArray:
        """`(n,)` whether an answer has tokens of both kinds."""
        content = self.sums(self.content.astype(np.float64))
        return (content > 0) & (content < self.sums(np.ones(len(self.content))))

    def sums(self, values: FloatArray) -> FloatArray:
        """Sums of values `(t,)` by answer, `(n,)`."""
        return np.asarray(np.bincount(self.answer, weights=values, minlength=self.n), dtype=np.float64)


@dataclass(frozen=True, eq=False)
class Linear:
    """Estimate that is linear in the impacts."""

    by_seed: FloatArray
    """`(seeds,)`."""
    influence: FloatArray
    """`(n,)` share of each answer in the error of the mean over seeds; those that don't take part may be left out."""
    weight: FloatArray
    """`(n,)` its expected square where tokens vary equally and alone; 0 of answers that don't take part."""

    @property
    def value(self) -> float:
        """Mean over seeds."""
        return float(self.by_seed.mean())

    @property
    def answers(self) -> int:
        """Answers that take part."""
        return int(np.count_nonzero(self.weight))

    @property
    def counted(self) -> float:
        """Answers, counted by their weight: as many that weigh the same would tell as much."""
        return float(self.weight.sum() ** 2 / (self.weight**2).sum())


class Effect(NamedTuple):
    """A value with its interval and test."""

    value: float
    low: float | None
    """None with too few answers."""
    high: float | None
    p: float | None
    """Two-sided, of 0."""
    counted: int
    """Answers, counted by their weight."""


def mean_impact(tokens: Impacts) -> Linear | None:
    """Mean over tokens; None without tokens."""
    count = len(tokens.answer)
    if not count:
        return None
    by_seed = tokens.impact.mean(axis=1)
    influence = tokens.sums(tokens.impact.mean(axis=0) - by_seed.mean()) / count
    return Linear(by_seed, influence, tokens.sums(np.ones(count)) / count**2)


def over_all(tokens: Impacts) -> tuple[Linear, Linear] | None:
    """Mean over content tokens less that over function tokens, and the latter; None where there are not both."""
    content, function = (mean_impact(tokens.take(of)) for of in (tokens.content, ~tokens.content))
    return None if content is None or function is None else (_sum(content, function, -1.0), function)


def within_answers(tokens: Impacts) -> tuple[Linear, Linear] | None:
    """Mean over answers of the content tokens' mean less the function tokens', and mean of the latter.

    Each answer with both kinds counts once: but for the seeds, the test of the difference is the paired t test.
    """
    both = tokens.has_both
    if not both.any():
        return None
    content, function = (
        np.stack([tokens.sums(of * row) for row in tokens.impact])[:, both] / tokens.sums(of.astype(np.float64))[both]
        for of in (tokens.content, ~tokens.content)
    )
    return mean_of_answers(content - function), mean_of_answers(function)


def mean_of_answers(values: FloatArray) -> Linear:
    """Mean of one number per answer, `(seeds, n)`."""
    by_answer = values.mean(axis=0)
    n = len(by_answer)
    return Linear(values.mean(axis=1), (by_answer - by_answer.mean()) / n, np.full(n, n**-2.0))


def within_places(tokens: Impacts) -> tuple[Linear, Linear] | None:
    """Difference in the same answer with the effect of places taken out, and the mean over function tokens.

    None where it can't be known: no place has both kinds, or too few answers tell it.
    """
    from scipy.sparse import csr_array

    floor = mean_impact(tokens.take(~tokens.content))
    if floor is None:
        return None
    count = len(tokens.answer)
    _, place = np.unique(np.stack([tokens.length, tokens.place]), axis=1, return_inverse=True)
    _, answer = np.unique(tokens.answer, return_inverse=True)
    places, answers = (
        csr_array((np.ones(count), (np.arange(count), of.reshape(-1))), shape=(count, int(of.max(initial=-1)) + 1))
        for of in (place, answer)
    )
    # Frisch-Waugh-Lovell: places are taken out of what is left within answers, by the normal equations
    each = np.asarray(answers.sum(axis=0)).reshape(-1)
    shared = answers.T @ places
    normal = (places.T @ places - shared.T @ (shared / each[:, None])).toarray()
    rank = int(np.linalg.matrix_rank(normal))

    def within(values: FloatArray) -> FloatArray:
        return np.asarray(values - answers @ ((answers.T @ values) / each))

    def residual(values: FloatArray) -> FloatArray:
        effects, *_ = np.linalg.lstsq(normal, places.T @ within(values), rcond=None)
        return within(values - places @ effects)

    content = residual(tokens.content.astype(np.float64))
    content[np.abs(content) < _TINY] = 0.0
    total = float(content @ content)
    free = len(content) - len(np.unique(tokens.answer)) - rank - 1
    if total < _TINY or free < 1:
        return None
    by_seed = tokens.impact @ content / total
    error = residual(tokens.impact.mean(axis=0)) - by_seed.mean() * content
    spent = (free + rank + 1) / free  # residuals are too small by what places have taken
    influence = np.sqrt(spent) * tokens.sums(content * error) / total
    found = Linear(by_seed, influence, tokens.sums(content**2) / total**2)
    return (found, floor) if found.counted >= MIN_ANSWERS else None


def _sum(one: Linear, other: Linear, times: float) -> Linear:
    return Linear(
        one.by_seed + times * other.by_seed,
        one.influence + times * other.influence,
        one.weight + times**2 * other.weight,
    )


def lift(difference: Linear, floor: Linear) -> Linear | None:
    """Difference over the mean of function words, linearised in answers and seeds alike; None where that is 0."""
    if floor.value <= 0:
        return None
    ratio = difference.value / floor.value
    error = _sum(difference, floor, -ratio)
    return Linear(ratio + error.by_seed / floor.value, error.influence / floor.value, difference.weight)


def estimate(linear: Linear) -> Effect:
    """Value with interval and test."""
    from scipy.special import stdtr, stdtrit

    n, seeds, value, counted = linear.answers, len(linear.by_seed), linear.value, int(linear.counted + _TINY)
    if counted < MIN_ANSWERS or seeds < 2:  # noqa: PLR2004
        return Effect(value, None, None, None, counted)
    of_questions = float(n / (n - 1) * (linear.influence**2).sum())
    of_seeds = float(linear.by_seed.var(ddof=1)) / seeds
    square = of_questions + of_seeds
    if square < _STILL**2:
        value = value if abs(value) > _STILL else 0.0
        return Effect(value, value, value, float(value == 0), counted)
    df = square**2 / (of_questions**2 / (linear.counted - 1) + of_seeds**2 / (seeds - 1))
    half = float(stdtrit(df, (1 + LEVEL) / 2) * np.sqrt(square))
    p = float(2 * stdtr(df, -abs(value) / np.sqrt(square)))
    return Effect(value, value - half, value + half, p, counted)
