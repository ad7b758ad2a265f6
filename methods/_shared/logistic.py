"""Logistic regression whose penalty validation chooses, and the map from a score to a probability.

They are those of docs/methods.md §2.40.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np

from bench.api import (
    At,
    Batch,
    BoolArray,
    ConfidenceMethod,
    Context,
    FloatArray,
    Hidden,
    Preset,
    UntrainableError,
    UserError,
)
from methods._shared.training import check_finite, check_fitted

Arrays = dict[str, Any]
"""Numpy arrays, or dicts of these."""

_POSITIONS = {at.value: at for at in (At.PROMPT_END, At.ANSWER_END, At.QUERY_END)}
_SLOPE = 1e-7  # of the loss per row, at which a descent ends
_ITERATIONS = 1_000  # of L-BFGS at one penalty; each begins where the penalty before it ended
_OF_MAP = 1.0  # penalty of a map's slope, which keeps it finite where a score separates right from wrong


@dataclass(kw_only=True, eq=False)
class Penalised(ConfidenceMethod):
    """A method whose one free number is a penalty: the one that is kept is chosen as other methods choose a step."""

    presets: ClassVar[Mapping[str, Preset]] = {"paper": {}, "refcode": {}, "fixed": {}, "demo": {}}
    not_reproduced: ClassVar[Mapping[str, Sequence[str]]] = dict.fromkeys(
        ("paper", "refcode"), ("The paper has no such method: these are the values of `fixed`.",)
    )
    draws: ClassVar[bool] = False

    weakest: float = 1.0
    """Smallest penalty. CHOSEN: as much as one row says of a standardised input (docs/methods.md §2.40)."""
    points: int = 14
    """Penalties that are tried, each half the one before it. CHOSEN: from 8,192 on (docs/methods.md §2.40)."""

    @abstractmethod
    def confidence(self, arrays: Arrays, batch: Batch) -> FloatArray:
        """Confidences `(n,)` within [0, 1] by what was learned."""

    def choose(self, ctx: Context, learned: Callable[[float], Arrays]) -> Self:
        """Keep what is learned at the penalty with the smallest loss on validation, without it at the weakest one.

        Args:
            ctx: has the validation answers.
            learned: penalty -> arrays; asked from the strongest one on, until two in a row bring nothing.
        """
        limit = 1 << (self.points - 1)
        stopping = ctx.early_stopping(limit, name="1/penalty", points=self.points)
        for step in stopping:
            if stopping.due:
                arrays = learned(self.weakest * limit / step)
                stopping.record(partial(self.confidence, arrays), keep=partial(dict, arrays))
        self.weights_: Arrays = stopping.kept
        return self

    def predict(self, batch: Batch) -> FloatArray:
        """Probability that the answer is right, shape (n,), float64."""
        check_fitted(self)
        return self.confidence(self.weights_, batch)


class Regression:
    """Penalised logistic regression of labels on standardised inputs, for falling penalties."""

    def __init__(self, who: str, inputs: FloatArray, labels: BoolArray) -> None:
        """Standardise the inputs.

        Args:
            who: name of the method, for errors.
            inputs: `(n, d)`; a constant one counts for nothing.
            labels: `(n,)`.

        Raises:
            UserError: inputs that are not finite.
        """
        check_finite(who, inputs)
        mean, scale = scaler(inputs)
        self._scaler = {"mean": mean, "scale": scale}
        self._x = (inputs - mean) / scale  # (n, d)
        self._sign = np.where(labels, 1.0, -1.0)
        self._found = np.zeros(self._x.shape[1] + 1)  # weights and bias at the penalty before, where the next begins

    def __call__(self, penalty: float) -> Arrays:
        """`mean`, `scale`, `weight` `(d,)`, `bias` `(1,)` of the least -log likelihood + penalty / 2 |weight|^2."""
        from scipy.optimize import minimize

        options = {"maxiter": _ITERATIONS, "maxfun": 2 * _ITERATIONS, "gtol": _SLOPE, "ftol": 0.0}
        self._found = minimize(self._loss, self._found, (penalty,), "L-BFGS-B", jac=True, options=options).x
        return {**self._scaler, "weight": self._found[:-1].copy(), "bias": self._found[-1:].copy()}

    def _loss(self, found: FloatArray, penalty: float) -> tuple[float, FloatArray]:
        """The loss over the number of rows, and its gradient `(d + 1,)`."""
        n, weight = len(self._x), found[:-1]
        margin = self._sign * (self._x @ weight + found[-1])
        loss = np.logaddexp(0.0, -margin).sum() + penalty / 2 * weight @ weight
        pull = -self._sign * probability(-margin)
        return float(loss / n), np.append(pull @ self._x + penalty * weight, pull.sum()) / n


def log_odds(who: str, arrays: Arrays, inputs: FloatArray) -> FloatArray:
    """Log odds `(n,)` float64 of a fitted regression for inputs `(n, d)`.

    Raises:
        UserError: inputs that are not finite.
    """
    check_finite(who, inputs)
    return np.asarray(((inputs - arrays["mean"]) / arrays["scale"]) @ arrays["weight"] + arrays["bias"][0])


def probability(odds: FloatArray) -> FloatArray:
    """Sigmoid of log odds, without overflow."""
    return np.asarray(np.exp(-np.logaddexp(0.0, -odds)))


def scaler(inputs: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mean and deviation `(d,)` of each input, float64; 1 where it is constant, whatever its rounding."""
    constant = inputs.max(axis=0) == inputs.min(axis=0)
    deviation = inputs.std(axis=0, dtype=np.float64)
    return inputs.mean(axis=0, dtype=np.float64), np.where(constant, 1.0, deviation)


def mapped(
    who: str,
    kinds: BoolArray,
    correct: BoolArray,
    fit_on: Callable[[BoolArray], Callable[[float], Arrays]],
    score: Callable[[Arrays], FloatArray],
) -> Callable[[float], Arrays]:
    """Penalty -> what is learned of a score, and `map`, which turns it into a probability.

    The map is a logistic regression of the labels on scores of held-out rows: the training rows are halved, and each
    half is scored by what the other one teaches, since the scores of rows that were fitted on lie too far apart.

    Args:
        who: name of the method, for errors.
        kinds: `(n,)`, of which both halves get alike.
        correct: `(n,)` labels.
        fit_on: rows as a mask `(n,)` -> penalty -> what is learned from them.
        score: what is learned -> scores `(n,)` of all rows.

    Raises:
        UntrainableError: fewer than two rows of a kind.
    """
    first = np.zeros(len(kinds), dtype=np.bool_)
    for kind in (False, True):
        rows = np.flatnonzero(kinds == kind)
        if len(rows) < 2:  # noqa: PLR2004
            raise UntrainableError(f"{who}: expected two training answers of each kind at least; raise --limit")
        first[rows[::2]] = True
    on_all, on_first, on_second = (fit_on(rows) for rows in (np.ones_like(first), first, ~first))

    def learned(penalty: float) -> Arrays:
        held_out = np.where(first, score(on_second(penalty)), score(on_first(penalty)))
        of_map = Regression(who, held_out[:, None], correct)(_OF_MAP)
        return {**on_all(penalty), "map": of_map}

    return learned


def through_map(who: str, arrays: Arrays, score: FloatArray) -> FloatArray:
    """Probabilities `(n,)` of scores `(n,)`, by what `mapped` gave."""
    return probability(log_odds(who, arrays["map"], score[:, None]))


def state_at(who: str, depth: float, position: str) -> Hidden:
    """The signal of a state that a probe reads.

    Raises:
        UserError: it is none that has one row for each answer.
    """
    if not 0 <= depth <= 1:
        raise UserError(f"{who}.depth: expected a fraction of the model's blocks from 0 to 1, got {depth}")
    if position not in _POSITIONS:
        raise UserError(f"{who}.position: expected one of {', '.join(_POSITIONS)}, got {position!r}")
    return Hidden(depth, _POSITIONS[position])
