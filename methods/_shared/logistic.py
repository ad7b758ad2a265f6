"""Penalised logistic regression with the penalty selected on validation, and calibration of scores to probabilities.

See docs/methods.md §2.40.
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
    NumpyFormula,
    Preset,
    UntrainableError,
    UserError,
)
from methods._shared.training import check_finite, check_fitted

Arrays = dict[str, Any]
"""What a fit learned: name -> numpy array, or nested dict of arrays."""

Position = Literal["prompt_end", "answer_end", "query_end", "predicting_mean", "answer_mean"]
"""Where a hidden state is read. The first three are single tokens; `predicting_mean` and `answer_mean` average the
states before, or after, each token of the answer."""
_POSITIONS: Mapping[str, tuple[At, Literal["mean"] | None]] = {
    "prompt_end": (At.PROMPT_END, None),
    "answer_end": (At.ANSWER_END, None),
    "query_end": (At.QUERY_END, None),
    "predicting_mean": (At.ANSWER_PREDICTING, "mean"),
    "answer_mean": (At.ANSWER_END, "mean"),
}
_GRADIENT_TOLERANCE = 1e-7  # L-BFGS stops at this gradient of the mean loss
_MAX_ITERATIONS = 1_000  # of L-BFGS per penalty, started at the solution of the previous penalty
_MAP_PENALTY = 1.0  # on the slope of a calibration map, to keep it finite if the score separates the classes


@dataclass(kw_only=True, eq=False)
class PenalisedMethod(ConfidenceMethod):
    """Base class of methods whose only hyperparameter is a penalty, selected by the loss on validation."""

    presets: ClassVar[Mapping[str, Preset]] = {"paper": {}, "refcode": {}, "fixed": {}, "demo": {}}
    not_reproduced: ClassVar[Mapping[str, Sequence[str]]] = dict.fromkeys(
        ("paper", "refcode"), ("The paper has no such method: these are the values of `fixed`.",)
    )
    draws = False

    weakest: float = 1.0
    """Smallest penalty. CHOSEN: 1, about the weight of one training row (docs/methods.md §2.40)."""
    points: int = 14
    """Largest number of penalties that are tried, each half the one before. CHOSEN: 14, from 8,192 down to 1
    (docs/methods.md §2.40)."""

    @abstractmethod
    def confidence(self, arrays: Arrays, batch: Batch) -> FloatArray:
        """Return the confidences `(n,)`, within [0, 1], that the learned arrays give for the answers of a batch."""

    def select_penalty(self, ctx: Context, fit_at: Callable[[float], Arrays]) -> Self:
        """Fit with falling penalties, and store the arrays with the smallest validation loss in `weights_`.

        Without validation answers the weakest penalty is used. Fitting stops when two penalties in a row bring no
        improvement.

        Args:
            ctx: holds the validation answers.
            fit_at: function from a penalty to the arrays that a fit with this penalty learns.
        """
        limit = 1 << (self.points - 1)
        stopping = ctx.early_stopping(limit, name="1/penalty", points=self.points)
        for step in stopping:
            if stopping.due:
                arrays = fit_at(self.weakest * limit / step)
                stopping.record(partial(self.confidence, arrays), keep=partial(dict, arrays))
        self.weights_: Arrays = stopping.kept
        return self

    def predict(self, batch: Batch) -> FloatArray:
        """Probability that the answer is right, shape (n,), float64."""
        check_fitted(self)
        return self.confidence(self.weights_, batch)


@dataclass(kw_only=True, eq=False)
class HiddenStateMethod(PenalisedMethod):
    """A penalised method on a hidden state of any layer; its class attribute `needs` names the default state."""

    formula: ClassVar[tuple[Callable[..., FloatArray], ...]]
    """Functions of numpy alone (see `NumpyFormula`), which may use `regression`, `probability` and `apply_map`; the
    last one maps learned arrays and states `(n, d)` to confidences `(n,)`."""

    depth: float = 1.0
    """Layer as a fraction of the model's blocks. CHOSEN: that of `saplma-f` (docs/methods.md §2.40)."""
    position: Position = "answer_end"
    """Where the state is read. CHOSEN: as `saplma-f` (docs/methods.md §2.40)."""

    @property
    def state(self) -> Hidden:
        """Signal of the hidden state at `depth` and `position`.

        Raises:
            UserError: `depth` or `position` is invalid.
        """
        if not 0 <= self.depth <= 1:
            raise UserError(f"{self.name}.depth: expected a share of the blocks, from 0 to 1, got {self.depth}")
        if self.position not in _POSITIONS:
            known = ", ".join(_POSITIONS)
            raise UserError(f"{self.name}.position: expected one of {known}, got {self.position!r}")
        return Hidden(self.depth, *_POSITIONS[self.position])

    def reads(self) -> Needs:
        """Signals to read: the selected hidden state, and in `fit` also the other signals of the class's `needs`."""
        other_signals = {signal for signal in self.needs.fit if not isinstance(signal, Hidden)}
        return Needs(fit=frozenset({self.state, *other_signals}), predict=frozenset({self.state}))

    def confidence(self, arrays: Arrays, batch: Batch) -> FloatArray:
        """Probability that each answer is right, `(n,)`, by the method's formula.

        Raises:
            UserError: hidden states are not finite.
        """
        check_finite(self.name, batch[self.state])
        return self.formula[-1](arrays, batch[self.state])

    def export(self) -> NumpyFormula:
        """Return the formula with the learned arrays."""
        check_fitted(self)
        return NumpyFormula((regression, probability, apply_map, *self.formula), self.weights_)


def logistic_path(who: str, inputs: FloatArray, labels: BoolArray) -> Callable[[float], Arrays]:
    """Return a function that fits a penalised logistic regression of labels on standardised inputs.

    Call the function with falling penalties: each fit starts at the solution of the fit before.

    Args:
        who: name of the method, for errors.
        inputs: `(n, d)`; constant columns have no effect.
        labels: `(n,)` bool, the class to predict.

    Returns:
        Function from a penalty to arrays: the scaler's `mean` and `scale` `(d,)`, and the regression's `weight` `(d,)`
        and `bias` `(1,)`, which minimise -log likelihood + penalty / 2 |weight|^2.

    Raises:
        UserError: inputs are not finite.
    """
    from scipy.optimize import minimize

    scales = fit_scaler(who, inputs)
    x, sign = standardise(who, scales, inputs), np.where(labels, 1.0, -1.0)
    last = np.zeros(x.shape[1] + 1)  # weights and bias at the previous penalty: warm start of the next

    def loss(parameters: FloatArray, penalty: float) -> tuple[float, FloatArray]:
        """Penalised loss divided by the number of rows, and its gradient in weight and bias, `(d + 1,)`."""
        n, weight = len(x), parameters[:-1]
        margin = sign * (x @ weight + parameters[-1])
        loss = np.logaddexp(0.0, -margin).sum() + penalty / 2 * weight @ weight
        residual = -sign * probability(-margin)
        return float(loss / n), np.append(residual @ x + penalty * weight, residual.sum()) / n

    def fit_at(penalty: float) -> Arrays:
        nonlocal last
        options = {"maxiter": _MAX_ITERATIONS, "maxfun": 2 * _MAX_ITERATIONS, "gtol": _GRADIENT_TOLERANCE, "ftol": 0.0}
        last = minimize(loss, last, (penalty,), "L-BFGS-B", jac=True, options=options).x
        return {**scales, "weight": last[:-1].copy(), "bias": last[-1:].copy()}

    return fit_at


def log_odds(who: str, arrays: Arrays, inputs: FloatArray) -> FloatArray:
    """Return the log odds `(n,)`, float64, that a fitted regression gives for inputs `(n, d)`.

    Raises:
        UserError: inputs are not finite.
    """
    check_finite(who, inputs)
    return regression(arrays, inputs)


def regression(arrays: Arrays, inputs: FloatArray) -> FloatArray:
    """Return the log odds `(n,)`, float64, of a logistic regression on standardised inputs `(n, d)`."""
    return np.asarray(((inputs - arrays["mean"]) / arrays["scale"]) @ arrays["weight"] + arrays["bias"][0])


def probability(odds: FloatArray) -> FloatArray:
    """Sigmoid of log odds, `(n,)`; it never overflows, and is accurate for tiny probabilities."""
    return np.asarray(np.exp(-np.logaddexp(0.0, -odds)))


def fit_scaler(who: str, inputs: FloatArray) -> Arrays:
    """Return the `mean` and `scale` `(d,)`, float64, by which inputs `(n, d)` are standardised.

    The scale is the standard deviation of a column, or 1 if the column is constant.

    Raises:
        UserError: inputs are not finite.
    """
    check_finite(who, inputs)
    constant = inputs.max(axis=0) == inputs.min(axis=0)  # the computed deviation of a constant may be 1e-16
    deviation = inputs.std(axis=0, dtype=np.float64)
    return {"mean": inputs.mean(axis=0, dtype=np.float64), "scale": np.where(constant, 1.0, deviation)}


def standardise(who: str, scales: Arrays, inputs: FloatArray) -> FloatArray:
    """Return inputs `(n, d)` standardised by the `mean` and `scale` of `fit_scaler`, float64.

    Raises:
        UserError: inputs are not finite.
    """
    check_finite(who, inputs)
    return np.asarray((inputs - scales["mean"]) / scales["scale"])


def calibrated(
    who: str,
    strata: BoolArray,
    correct: BoolArray,
    fit_on: Callable[[BoolArray], Callable[[float], Arrays]],
    score: Callable[[Arrays], FloatArray],
) -> Callable[[float], Arrays]:
    """Return a function that, given a penalty, fits a score and a map from scores to probabilities.

    The function returns a dict: the arrays of the score, fitted on all rows, and under `map` the arrays of the map. The
    map is a logistic regression of the labels on held-out scores: each half of the rows is scored by a fit on the other
    half. Scores of rows that took part in their own fit would separate right from wrong answers too well.

    Args:
        who: name of the method, for errors.
        strata: `(n,)` bool, the stratum of each row; both halves get the same share of each stratum.
        correct: `(n,)` labels.
        fit_on: function such that `fit_on(mask)(penalty)` fits the score on the rows in `mask` `(n,)` and returns its
            arrays.
        score: function from the arrays of a fit to the scores `(n,)` of all rows.

    Raises:
        UntrainableError: fewer than two rows in a stratum.
    """
    first_half = np.zeros(len(strata), dtype=np.bool_)
    for stratum in (False, True):
        rows = np.flatnonzero(strata == stratum)
        if len(rows) < 2:
            raise UntrainableError(
                f"{who}: expected at least two training answers of either kind, right and wrong or sure and unsure; got"
                f" {len(rows)} of {len(strata)}; raise --train-limit, if given, or name another task with --train-on"
            )
        first_half[rows[::2]] = True
    on_all, on_first, on_second = (fit_on(rows) for rows in (np.ones_like(first_half), first_half, ~first_half))

    def fit_at(penalty: float) -> Arrays:
        held_out = np.where(first_half, score(on_second(penalty)), score(on_first(penalty)))
        calibration = logistic_path(who, held_out[:, None], correct)(_MAP_PENALTY)
        return {**on_all(penalty), "map": calibration}

    return fit_at


def apply_map(arrays: Arrays, score: FloatArray) -> FloatArray:
    """Map scores `(n,)` to probabilities `(n,)` by the regression on scores that is learned under `map`."""
    return probability(regression(arrays["map"], score[:, None]))
