"""LTS, logit temperature scaling: P(True) with its two logits divided by one temperature, fitted on validation.

As Kapoor et al. apply it to the self-check query, 2024, "Large Language Models Must Be Taught to Know What They Don't
Know", arXiv:2406.08391; the technique is Guo et al.'s, arXiv:1706.04599; methods.md §2.2. Dividing by a temperature
keeps the order, so every rank metric is P(True)'s.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from types import MappingProxyType
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from bench.api import (
    Batch,
    BoolArray,
    ConfidenceMethod,
    Context,
    ContractError,
    FloatArray,
    Needs,
    Preset,
    QueryLogits,
    RunFacts,
    Split,
    UntrainableError,
    UserError,
    method,
)

_HALVINGS = 100  # of the interval; after about 60 float64 can't tell its ends apart


@dataclass(frozen=True)
class Settings:
    """The constants; "paper" is arXiv:2505.21772, whose baseline this is."""

    lowest: float = 0.05
    """CHOSEN: the paper says only that the temperature is positive; at 0.01 the softmax ties (methods.md §0.10)."""
    highest: float = 100.0
    """CHOSEN: by then all confidences are near a half (methods.md §0.10)."""


PAPER = Settings()
REFCODE = replace(PAPER)  # Kapoor et al. descend on log temperature towards the same minimum (methods.md §2.2)
FIXED = replace(PAPER)
DEMO = replace(FIXED)


@method("lts")
class LTS(ConfidenceMethod):
    """P(True) with one temperature, fitted to the validation answers by maximum likelihood."""

    reference: ClassVar[str] = "arXiv:2406.08391"
    needs: ClassVar[Needs] = Needs(fit=frozenset({QueryLogits()}), predict=frozenset({QueryLogits()}))
    fit_on: ClassVar[Split] = "validation"
    draws: ClassVar[bool] = False
    presets: ClassVar[Mapping[str, Preset]] = MappingProxyType(
        {"paper": asdict(PAPER), "refcode": asdict(REFCODE), "fixed": asdict(FIXED), "demo": asdict(DEMO)}
    )

    def __init__(self, *, lowest: float = FIXED.lowest, highest: float = FIXED.highest) -> None:
        self.lowest = lowest
        self.highest = highest

    def fit(self, train: Batch, ctx: Context) -> LTS:
        """Find the temperature with the smallest log loss; sets `temperature_` and `at_bound_`.

        `at_bound_` is empty where the minimum lies between the bounds. Otherwise the bound is used and `at_bound_` says
        which and why: that is a finding about the self-check, not an error.

        Raises:
            UserError: the bounds are not 0 < lowest < highest, all labels are equal, or logits are not finite.
        """
        del ctx
        if not 0 < self.lowest < self.highest < math.inf:
            raise UserError(f"lts: expected 0 < lowest < highest, got lowest={self.lowest}, highest={self.highest}")
        _check_labels(train.correct)
        odds = _odds(train)
        if not np.isfinite(odds).all():
            raise UserError(
                f"lts: expected finite logits of no and yes; {(~np.isfinite(odds)).sum()} of {len(odds)} answers have"
                " others; load the model in another precision, e.g. --dtype float32"
            )
        self.temperature_, self.at_bound_ = _best_temperature(odds, train.correct, self.lowest, self.highest)
        return self

    def predict(self, batch: Batch) -> FloatArray:
        """Probability of yes at the fitted temperature, shape (n,), float64."""
        if not hasattr(self, "temperature_"):
            raise ContractError("lts: predict needs a fitted method, and fit was not called")
        return _sigmoid(_odds(batch) / self.temperature_)

    def n_parameters(self, facts: RunFacts) -> int:
        """The temperature."""
        del facts
        return 1


def _odds(batch: Batch) -> npt.NDArray[np.float64]:
    """Log odds of yes against no, `(n,)`."""
    logits = batch[QueryLogits()].astype(np.float64)  # (n, 2): no, yes
    return np.asarray(logits[:, 1] - logits[:, 0])


def _sigmoid(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return np.asarray(np.exp(-np.logaddexp(0.0, -x)))  # without overflow, and exact in its lower tail


def _best_temperature(
    odds: npt.NDArray[np.float64], correct: BoolArray, lowest: float, highest: float
) -> tuple[float, str]:
    """Temperature within the bounds that minimises the log loss of `(n,)` labels, and why it is at a bound.

    The loss is convex in b = 1 / temperature, so its slope, mean of (sigmoid(b odds) - correct) odds, rises with b and
    its zero can be bracketed.
    """

    def slope(inverse: float) -> float:
        return float(((_sigmoid(inverse * odds) - correct) * odds).mean())

    low, high = 1 / highest, 1 / lowest
    if slope(low) >= 0:
        return highest, (
            f"the temperature is at its upper bound {highest:g}: on the validation answers the self-check says nothing"
            " about what is right, or the opposite"
        )
    if slope(high) <= 0:
        return lowest, (
            f"the temperature is at its lower bound {lowest:g}: on the validation answers the self-check is right"
            " whenever it is sure"
        )
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if slope(middle) < 0 else (low, middle)
    return 2 / (low + high), ""


def _check_labels(correct: BoolArray) -> None:
    if correct.all() or not correct.any():
        raise UntrainableError(
            "lts: expected right and wrong answers to fit the temperature to; all"
            f" {len(correct)} validation answers are {'right' if correct.all() else 'wrong'};"
            " raise --limit or name another task with --train-on"
        )
