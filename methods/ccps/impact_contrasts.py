"""Compare the impacts of content and function tokens: over all tokens, within answers, and adjusted for position.

A token's impact is how far the confidence in its answer moves if the token is masked (`token_masking.py`). A token is a
content or a function token, as its word is.

Errors. Tokens of one answer are not independent, so answers are clusters. All estimates are linear in the impacts. An
answer's influence is its contribution to the error of an estimate. The variance from questions is the sum of squared
influences times n / (n - 1), for n answers with an influence: the linearised, cluster-robust variance (Liang and Zeger,
Biometrika 1986). For a mean of one number per answer it is the usual variance of a mean. Impacts are means over seeds,
so the variance between seeds (ddof 1), divided by their number, is added. Intervals and tests use Student's t, with
degrees of freedom after Satterthwaite; questions have the effective number of answers minus one.

Positions. By least squares, impact = answer + position + b * content. There is one effect for each answer, and one for
each token position in answers of the same length. So b is the difference between a content and a function token in one
answer at equivalent positions. Only positions that have both kinds in some answers identify b. If one answer in
hundreds has such a position, the effective number of answers is about one, and no value is given.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bench.api import BoolArray, FloatArray, IntArray

MIN_ANSWERS = 10
"""Smallest effective number of answers for which an interval is given."""
LEVEL = 0.95
_TOLERANCE = 1e-9
_MIN_STANDARD_ERROR = 1e-7
"""Standard error below which differences are attributed to rounding in float32."""


@dataclass(frozen=True, eq=False)
class TokenImpacts:
    """Content and function tokens of n answers, with the impact of masking each on the networks of several seeds."""

    answer: IntArray
    """`(t,)` index of each token's answer."""
    place: IntArray
    """`(t,)` position of each token in its answer, from 0."""
    length: IntArray
    """`(t,)` number of all tokens in the token's answer, whatever their words."""
    content: BoolArray
    """`(t,)` bool: whether the token is of a content word; if not, it is of a function word."""
    impact: FloatArray
    """`(seeds, t)` impact of each token on the network of each seed."""
    n: int
    """Number of answers, including answers none of whose tokens is selected."""

    def take(self, mask: BoolArray) -> TokenImpacts:
        """Return the tokens that a mask `(t,)` selects."""
        i = np.flatnonzero(mask)
        return TokenImpacts(
            self.answer[i], self.place[i], self.length[i], self.content[i], self.impact[:, i], self.n
        )  # fmt: skip

    @property
    def has_both(self) -> BoolArray:
        """`(n,)` bool: whether both a content and a function token of the answer are selected."""
        content = self.sums(self.content.astype(np.float64))
        return (content > 0) & (content < self.sums(np.ones(len(self.content))))

    def sums(self, values: FloatArray) -> FloatArray:
        """Return the sum of values `(t,)` over the tokens of each answer, `(n,)`."""
        return np.asarray(np.bincount(self.answer, weights=values, minlength=self.n), dtype=np.float64)


@dataclass(frozen=True, eq=False)
class LinearisedEstimate:
    """Estimate that is a linear function of the tokens' impacts."""

    by_seed: FloatArray
    """`(seeds,)` the estimate for the network of each seed."""
    influence: FloatArray
    """`(n,)` contribution of each answer to the error of the mean over seeds. Answers without tokens in the estimate
    may be left out."""
    weight: FloatArray
    """`(n,)` expected squared influence of each answer if tokens were independent with equal variance; 0 if not
    used."""

    @property
    def value(self) -> float:
        """Mean of the estimate over seeds."""
        return float(self.by_seed.mean())

    @property
    def answers(self) -> int:
        """Number of answers that contribute to the estimate."""
        return int(np.count_nonzero(self.weight))

    @property
    def effective_answers(self) -> float:
        """Effective number of answers (Kish): this many answers of equal weight would give the same precision."""
        return float(self.weight.sum() ** 2 / (self.weight**2).sum())


class Effect(NamedTuple):
    """Estimate with its confidence interval and test against 0."""

    value: float
    low: float | None
    """Lower end of the interval; None if there are too few answers or only one seed."""
    high: float | None
    p: float | None
    """Two-sided p value of the hypothesis that the estimate is 0."""
    counted: int
    """Effective number of answers (Kish); below `MIN_ANSWERS` there is no interval."""


def mean_impact(tokens: TokenImpacts) -> LinearisedEstimate | None:
    """Return the mean impact over all given tokens; None without tokens."""
    count = len(tokens.answer)
    if not count:
        return None
    by_seed = tokens.impact.mean(axis=1)
    influence = tokens.sums(tokens.impact.mean(axis=0) - by_seed.mean()) / count
    return LinearisedEstimate(by_seed, influence, tokens.sums(np.ones(count)) / count**2)


def over_all(tokens: TokenImpacts) -> tuple[LinearisedEstimate, LinearisedEstimate] | None:
    """Return the mean impact of content tokens minus that of function tokens, and the mean of function tokens.

    Each token counts once. None if there are no content tokens or no function tokens.
    """
    content, function = (mean_impact(tokens.take(mask)) for mask in (tokens.content, ~tokens.content))
    return None if content is None or function is None else (_combine(content, function, -1.0), function)


def within_answers(tokens: TokenImpacts) -> tuple[LinearisedEstimate, LinearisedEstimate] | None:
    """Return the mean over answers of (content minus function tokens), and of function tokens.

    Both numbers are computed from the mean impacts within each answer. Each answer with both kinds of tokens counts
    once, so that the test of the difference is a paired t test, apart from seeds. None if no answer has both kinds.
    """
    both = tokens.has_both
    if not both.any():
        return None
    content, function = (
        np.stack([tokens.sums(w * row) for row in tokens.impact])[:, both] / tokens.sums(w.astype(np.float64))[both]
        for w in (tokens.content, ~tokens.content)
    )
    return mean_of_answers(content - function), mean_of_answers(function)


def mean_of_answers(values: FloatArray) -> LinearisedEstimate:
    """Return the mean over answers of values `(seeds, n)`, one number per seed and answer."""
    by_answer = values.mean(axis=0)
    n = len(by_answer)
    return LinearisedEstimate(values.mean(axis=1), (by_answer - by_answer.mean()) / n, np.full(n, n**-2.0))


def within_places(tokens: TokenImpacts) -> tuple[LinearisedEstimate, LinearisedEstimate] | None:
    """Return content minus function tokens within answers at equal positions, and the mean of function tokens.

    The difference is the coefficient b of the module's docstring. None if there are no function tokens, if b is not
    identified (e.g. no position has tokens of both kinds, or there are too few tokens), or if the effective number of
    answers is too small.
    """
    from scipy.sparse import csr_array

    floor = mean_impact(tokens.take(~tokens.content))
    if floor is None:
        return None
    count = len(tokens.answer)
    _, place = np.unique(np.stack([tokens.length, tokens.place]), axis=1, return_inverse=True)
    _, answer = np.unique(tokens.answer, return_inverse=True)
    places, answers = (
        csr_array((np.ones(count), (np.arange(count), ids.reshape(-1))), shape=(count, int(ids.max(initial=-1)) + 1))
        for ids in (place, answer)
    )
    # Frisch-Waugh-Lovell: project out answers, then places by the normal equations
    answer_sizes = np.asarray(answers.sum(axis=0)).reshape(-1)
    shared = answers.T @ places
    normal = (places.T @ places - shared.T @ (shared / answer_sizes[:, None])).toarray()
    rank = int(np.linalg.matrix_rank(normal))

    def within(values: FloatArray) -> FloatArray:
        return np.asarray(values - answers @ ((answers.T @ values) / answer_sizes))

    def residual(values: FloatArray) -> FloatArray:
        effects, *_ = np.linalg.lstsq(normal, places.T @ within(values), rcond=None)
        return within(values - places @ effects)

    content = residual(tokens.content.astype(np.float64))
    content[np.abs(content) < _TOLERANCE] = 0.0
    total = float(content @ content)
    df = len(content) - len(np.unique(tokens.answer)) - rank - 1
    if total < _TOLERANCE or df < 1:
        return None
    by_seed = tokens.impact @ content / total
    error = residual(tokens.impact.mean(axis=0)) - by_seed.mean() * content
    df_correction = (df + rank + 1) / df  # residuals are too small by the degrees of freedom of places
    influence = np.sqrt(df_correction) * tokens.sums(content * error) / total
    difference = LinearisedEstimate(by_seed, influence, tokens.sums(content**2) / total**2)
    return (difference, floor) if difference.effective_answers >= MIN_ANSWERS else None


def _combine(one: LinearisedEstimate, other: LinearisedEstimate, times: float) -> LinearisedEstimate:
    return LinearisedEstimate(
        one.by_seed + times * other.by_seed,
        one.influence + times * other.influence,
        one.weight + times**2 * other.weight,
    )


def lift(difference: LinearisedEstimate, floor: LinearisedEstimate) -> LinearisedEstimate | None:
    """Return a difference divided by the mean impact of function tokens, `floor`; None if that mean is not positive.

    The ratio is linearised in answers and seeds, so that its error takes both into account.
    """
    if floor.value <= 0:
        return None
    ratio = difference.value / floor.value
    error = _combine(difference, floor, -ratio)
    return LinearisedEstimate(ratio + error.by_seed / floor.value, error.influence / floor.value, difference.weight)


def estimate(linear: LinearisedEstimate) -> Effect:
    """Return an estimate's value with its confidence interval and test against 0."""
    from scipy.special import stdtr, stdtrit

    n, seeds, value = linear.answers, len(linear.by_seed), linear.value
    counted = int(linear.effective_answers + _TOLERANCE)
    if counted < MIN_ANSWERS or seeds < 2:
        return Effect(value, None, None, None, counted)
    of_questions = float(n / (n - 1) * (linear.influence**2).sum())
    of_seeds = float(linear.by_seed.var(ddof=1)) / seeds
    square = of_questions + of_seeds
    if square < _MIN_STANDARD_ERROR**2:
        value = value if abs(value) > _MIN_STANDARD_ERROR else 0.0
        return Effect(value, value, value, float(value == 0), counted)
    df = square**2 / (of_questions**2 / (linear.effective_answers - 1) + of_seeds**2 / (seeds - 1))
    half = float(stdtrit(df, (1 + LEVEL) / 2) * np.sqrt(square))
    p = float(2 * stdtr(df, -abs(value) / np.sqrt(square)))
    return Effect(value, value - half, value + half, p, counted)
