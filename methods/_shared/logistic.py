"""Logistic regression whose penalty validation chooses, and the map from a score to a probability.

They are those of docs/methods.md §2.40.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal, Self

import numpy as np

from bench.api import (
    At,
    Batch,
    BoolArray,
    ConfidenceMethod,
    Context,
    FloatArray,
    Hidden,
    Needs,
    Preset,
    UntrainableError,
    UserError,
)
from methods._shared.training import check_finite, check_fitted

Arrays = dict[str, Any]
"""Numpy arrays, or dicts of these."""

Position = Literal["prompt_end", "answer_end", "query_end", "predicting_mean", "answer_mean"]
"""Where a state is read; the means are over the answer's tokens, of what predicts them or of what comes after each."""
_POSITIONS: Mapping[str, tuple[At, Literal["mean"] | None]] = {
    "prompt_end": (At.PROMPT_END, None),
    "answer_end": (At.ANSWER_END, None),
    "query_end": (At.QUERY_END, None),
    "predicting_mean": (At.ANSWER_PREDICTING, "mean"),
    "answer_mean": (At.ANSWER_END, "mean"),
}
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
    draws = False

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


@dataclass(kw_only=True, eq=False)
class OnState(Penalised):
    """One that reads a hidden state of any layer; its `needs` are those of the default one."""

    depth: float = 1.0
    """Layer as a fraction of the model's blocks. CHOSEN: that of `saplma-f` (docs/methods.md §2.40)."""
    position: Position = "answer_end"
    """Where the state is read. CHOSEN: as `saplma-f` (docs/methods.md §2.40)."""

    @property
    def state(self) -> Hidden:
        """The signal that the arguments ask for.

        Raises:
            UserError: it is none that has one row for each answer.
        """
        if not 0 <= self.depth <= 1:
            raise UserError(f"{self.name}.depth: expected a share of the blocks, from 0 to 1, got {self.depth}")
        if self.position not in _POSITIONS:
            known = ", ".join(_POSITIONS)
            raise UserError(f"{self.name}.position: expected one of {known}, got {self.position!r}")
        return Hidden(self.depth, *_POSITIONS[self.position])

    def reads(self) -> Needs:
        """That state, and in fit what else `needs` has."""
        others = {signal for signal in self.needs.fit if not isinstance(signal, Hidden)}
        return Needs(fit=frozenset({self.state, *others}), predict=frozenset({self.state}))


def regression(who: str, inputs: FloatArray, labels: BoolArray) -> Callable[[float], Arrays]:
    """Penalised logistic regression of labels on standardised inputs, to be asked for falling penalties.

    Args:
        who: name of the method, for errors.
        inputs: `(n, d)`; a constant one counts for nothing.
        labels: `(n,)`.

    Returns:
        Penalty -> `mean`, `scale`, `weight` `(d,)` and `bias` `(1,)` of the least
        -log likelihood + penalty / 2 |weight|^2.

    Raises:
        UserError: inputs that are not finite.
    """
    from scipy.optimize import minimize

    scales = scaler(who, inputs)
    x, sign = standardised(who, scales, inputs), np.where(labels, 1.0, -1.0)
    last = np.zeros(x.shape[1] + 1)  # weights and bias at the penalty before, where the next begins

    def loss(found: FloatArray, penalty: float) -> tuple[float, FloatArray]:
        """The loss over the number of rows, and its gradient `(d + 1,)`."""
        n, weight = len(x), found[:-1]
        margin = sign * (x @ weight + found[-1])
        loss = np.logaddexp(0.0, -margin).sum() + penalty / 2 * weight @ weight
        pull = -sign * probability(-margin)
        return float(loss / n), np.append(pull @ x + penalty * weight, pull.sum()) / n

    def learned(penalty: float) -> Arrays:
        nonlocal last
        options = {"maxiter": _ITERATIONS, "maxfun": 2 * _ITERATIONS, "gtol": _SLOPE, "ftol": 0.0}
        last = minimize(loss, last, (penalty,), "L-BFGS-B", jac=True, options=options).x
        return {**scales, "weight": last[:-1].copy(), "bias": last[-1:].copy()}

    return learned


def log_odds(who: str, arrays: Arrays, inputs: FloatArray) -> FloatArray:
    """Log odds `(n,)` float64 of a fitted regression for inputs `(n, d)`.

    Raises:
        UserError: inputs that are not finite.
    """
    return np.asarray(standardised(who, arrays, inputs) @ arrays["weight"] + arrays["bias"][0])


def probability(odds: FloatArray) -> FloatArray:
    """Sigmoid of log odds, without overflow and exact in its lower tail."""
    return np.asarray(np.exp(-np.logaddexp(0.0, -odds)))


def scaler(who: str, inputs: FloatArray) -> Arrays:
    """`mean` and `scale` `(d,)` of inputs, float64: the deviation, or 1 where they are constant.

    Raises:
        UserError: inputs that are not finite.
    """
    check_finite(who, inputs)
    constant = inputs.max(axis=0) == inputs.min(axis=0)  # the deviation of a constant may be 1e-16
    deviation = inputs.std(axis=0, dtype=np.float64)
    return {"mean": inputs.mean(axis=0, dtype=np.float64), "scale": np.where(constant, 1.0, deviation)}


def standardised(who: str, scales: Arrays, inputs: FloatArray) -> FloatArray:
    """Inputs `(n, d)` by the scales of others, float64.

    Raises:
        UserError: inputs that are not finite.
    """
    check_finite(who, inputs)
    return np.asarray((inputs - scales["mean"]) / scales["scale"])


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
            raise UntrainableError(
                f"{who}: expected at least two training answers of either kind, right and wrong or sure and unsure; got"
                f" {len(rows)} of {len(kinds)}; raise --limit or name another task with --train-on"
            )
        first[rows[::2]] = True
    on_all, on_first, on_second = (fit_on(rows) for rows in (np.ones_like(first), first, ~first))

    def learned(penalty: float) -> Arrays:
        held_out = np.where(first, score(on_second(penalty)), score(on_first(penalty)))
        of_map = regression(who, held_out[:, None], correct)(_OF_MAP)
        return {**on_all(penalty), "map": of_map}

    return learned


def through_map(who: str, arrays: Arrays, score: FloatArray) -> FloatArray:
    """Probabilities `(n,)` of scores `(n,)`, by what `mapped` gave."""
    return probability(log_odds(who, arrays["map"], score[:, None]))
