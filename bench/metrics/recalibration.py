"""Recalibrators (isotonic, Platt, beta, temperature): monotone maps of confidences, fitted on labelled answers.

All are non-decreasing, so that they change calibration but not ranking, except for ties; each class says which ties it
makes. Example: `recalibrator("platt").fit(confidence, correct).apply(confidence_on_test)`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Self

import numpy as np
import numpy.typing as npt

from bench.api import BoolArray, FloatArray, IntArray, UserError
from bench.api.protocol import NLL_CLIP
from bench.metrics import isotonic
from bench.metrics.validation import checked, distinct

_TEMPERATURES = (0.05, 100.0)
"""Smallest and largest temperature (docs/methods.md §0.10)."""
_NEWTON_STEPS = 100
"""Largest number of Newton steps of a logistic fit, which needs about ten."""
_CONVERGED = 1e-9
"""Largest gradient component, per answer, at convergence of a logistic fit."""


class Recalibrator(ABC):
    """Base class of recalibrators, maps from confidence to confidence: `fit` learns the map, `apply` applies it."""

    @abstractmethod
    def fit(self, confidence: npt.ArrayLike, correct: npt.ArrayLike) -> Self:
        """Learn the map from n labelled answers.

        Args:
            confidence: shape (n,), float in [0, 1].
            correct: shape (n,), bool; one class is enough.

        Raises:
            ValueError: as `bench.metrics.accuracy`.
        """

    def apply(self, confidence: npt.ArrayLike) -> FloatArray:
        """Recalibrated confidences, shape (n,), float64 in [0, 1].

        Raises:
            ValueError: values outside [0, 1], NaN, not one-dimensional; not fitted yet.
        """
        if not vars(self):
            raise ValueError(f"{type(self).__name__} was not fitted; call fit first")
        return rising(confidence, self.transform)

    @abstractmethod
    def transform(self, p: FloatArray) -> FloatArray:
        """Apply the learned map to ascending confidences in [0, 1]."""

    @property
    @abstractmethod
    def parameters(self) -> Mapping[str, float]:
        """Learned parameters, by name; for a step function the number of steps."""


class Isotonic(Recalibrator):
    """Isotonic regression (Zadrozny and Elkan, 2002), interpolated linearly between its steps.

    Below and above the fitted confidences it is constant. All confidences within a step become equal, so AUROC
    and AUCPR may change. Where all confidences are equal, it returns the rate of right answers.
    """

    at_: FloatArray
    value_: FloatArray

    def fit(self, confidence: npt.ArrayLike, correct: npt.ArrayLike) -> Self:
        """See `Recalibrator.fit`."""
        self.at_, size, hits = distinct(*checked(confidence, correct))
        self.value_ = isotonic(hits, size)
        return self

    def transform(self, p: FloatArray) -> FloatArray:
        """See `Recalibrator.transform`."""
        return np.interp(p, self.at_, self.value_)

    @property
    def parameters(self) -> Mapping[str, float]:
        """The number of steps."""
        return {"steps": float(np.unique(self.value_).size)}


class _Logistic(Recalibrator):
    """Logistic regression on features that increase with the confidence, with non-negative slopes.

    Labels are smoothed as by Platt (1999): (N+ + 1) / (N+ + 2) for right answers and 1 / (N- + 2) for wrong ones, so
    that the fit is finite for separable classes, or for one class. Slopes below 0 would reverse the order and are set
    to 0; if all are, the map is constant. Where all confidences are equal, slopes are not identified and set to 1:
    only the intercept is fitted.
    """

    names: tuple[str, ...]
    weights_: FloatArray

    @staticmethod
    @abstractmethod
    def features(p: FloatArray) -> FloatArray:
        """Features (n, k) of confidences (n,) in (0, 1), each increasing in them; their sum is the logit."""

    def fit(self, confidence: npt.ArrayLike, correct: npt.ArrayLike) -> Self:
        """See `Recalibrator.fit`."""
        p, o = checked(confidence, correct)
        target = smoothed(o)
        p = _clip(p)
        features = self.features(p)
        if np.ptp(p) == 0.0:
            rate = float(target.mean())
            level = np.log(rate / (1 - rate)) - features[0].sum()
            self.weights_ = np.append(np.ones(features.shape[1]), level)
        else:
            self.weights_ = fit_logistic(features, target)
        return self

    def transform(self, p: FloatArray) -> FloatArray:
        """See `Recalibrator.transform`."""
        return sigmoid(self.features(_clip(p)) @ self.weights_[:-1] + self.weights_[-1])

    @property
    def parameters(self) -> Mapping[str, float]:
        """Slopes and intercept."""
        return dict(zip(self.names, map(float, self.weights_), strict=False))


class Platt(_Logistic):
    """q = sigmoid(a * logit(p) + b) with a >= 0 (Platt, 1999).

    Strictly increasing unless a is 0; confidences are clipped to [2^-24, 1 - 2^-24], where they become equal.
    """

    names = ("a", "b")

    @staticmethod
    def features(p: FloatArray) -> FloatArray:
        """The logit: (n, 1)."""
        return (np.log(p) - np.log1p(-p))[:, None]


class Beta(_Logistic):
    """q = sigmoid(a * ln p - b * ln(1 - p) + c) with a, b >= 0 (Kull, Silva Filho and Flach, 2017).

    The three-parameter map of the paper, but with Platt's smoothed labels. Strictly increasing unless a and b
    are 0; confidences are clipped to [2^-24, 1 - 2^-24], where they become equal.
    """

    names = ("a", "b", "c")

    @staticmethod
    def features(p: FloatArray) -> FloatArray:
        """The terms ln p and -ln(1 - p): (n, 2)."""
        return np.stack([np.log(p), -np.log1p(-p)], axis=1)


class Temperature(Recalibrator):
    """Temperature scaling q = sigmoid(logit(p) / t), t minimising the negative log-likelihood (Guo et al., 2017).

    t stays within [0.05, 100] (docs/methods.md §0.10): the optimum is infinite for anticorrelated confidences, and 0
    where 0.5 separates right from wrong. Increasing; confidences are clipped to [2^-24, 1 - 2^-24], where they become
    equal, and with a small t large ones round to 1. Where all are 0.5, t is not identified and set to 1.
    """

    temperature_: float

    def fit(self, confidence: npt.ArrayLike, correct: npt.ArrayLike) -> Self:
        """See `Recalibrator.fit`."""
        p, o = checked(confidence, correct)
        logit = Platt.features(_clip(p))[:, 0]
        if not logit.any():
            self.temperature_ = 1.0
            return self
        low, high = (1 / bound for bound in reversed(_TEMPERATURES))
        for _ in range(60):  # bisection: the gradient is increasing in 1/t
            middle = (low + high) / 2
            if float(logit @ (sigmoid(middle * logit) - o)) < 0:
                low = middle
            else:
                high = middle
        self.temperature_ = float(np.clip(2 / (low + high), *_TEMPERATURES))
        return self

    def transform(self, p: FloatArray) -> FloatArray:
        """See `Recalibrator.transform`."""
        return sigmoid(Platt.features(_clip(p))[:, 0] / self.temperature_)

    @property
    def parameters(self) -> Mapping[str, float]:
        """The temperature."""
        return {"temperature": self.temperature_}


RECALIBRATORS: Mapping[str, type[Recalibrator]] = MappingProxyType(
    {"isotonic": Isotonic, "platt": Platt, "beta": Beta, "temperature": Temperature}
)


def recalibrator(kind: str) -> Recalibrator:
    """Create an unfitted recalibrator by its name in RECALIBRATORS.

    Raises:
        UserError: there is none of that name.
    """
    if kind not in RECALIBRATORS:
        raise UserError(f"unknown recalibration {kind!r}; expected one of {', '.join(RECALIBRATORS)}")
    return RECALIBRATORS[kind]()


# --- cross-fitting ----------------------------------------------------------------------------------------------------


def stratified_folds(correct: npt.ArrayLike, *, folds: int = 5, seed: int = 0) -> IntArray:
    """Stratified folds: fold of each answer, shape (n,), int from 0, balanced in size and in rate of right answers.

    Cross-fitting: a method that was fitted on these answers is fitted again without each fold, to predict that fold's
    confidences; else a recalibrator would be fitted on confidences in training data.

    Args:
        correct: shape (n,), bool.
        folds: number of folds; n where there are fewer answers.
        seed: of the shuffle.

    Raises:
        ValueError: fewer than two answers or folds.
    """
    o = np.asarray(correct, dtype=bool)
    folds = min(folds, o.size)
    if folds < 2:  # noqa: PLR2004 - one to fit on, one to hold out
        raise ValueError(f"expected at least two answers in at least two folds, got {o.size} in {folds}")
    order = np.lexsort((np.random.default_rng(seed).random(o.size), o))  # shuffled within each class
    fold = np.empty(o.size, dtype=np.int64)
    fold[order] = np.arange(o.size) % folds
    return fold


# --- fitting ----------------------------------------------------------------------------------------------------------


def smoothed(correct: BoolArray) -> FloatArray:
    """Smoothed labels (n,) (Platt, 1999): (N+ + 1) / (N+ + 2) for right answers, 1 / (N- + 2) for wrong ones."""
    right = int(np.count_nonzero(correct))
    return np.where(correct, (right + 1) / (right + 2), 1 / (correct.size - right + 2))


def fit_logistic(features: FloatArray, target: FloatArray) -> FloatArray:
    """Logistic regression with non-negative slopes: slopes and intercept (k + 1,) for targets in (0, 1).

    The loss is convex, so the solution is the unconstrained optimum over the slopes that are not 0 in it: among the
    unconstrained optima over all subsets of slopes, the best one without a negative slope.
    """
    k = features.shape[1]
    candidates = []
    for chosen in range(1 << k):
        columns = [j for j in range(k) if chosen >> j & 1]
        weights = np.zeros(k + 1)
        weights[[*columns, k]] = _newton(features[:, columns], target)
        if (weights[:k] >= 0).all():
            candidates.append((_cross_entropy(features @ weights[:k] + weights[k], target), chosen, weights))
    return min(candidates, key=lambda candidate: candidate[:2])[2]


def _newton(features: FloatArray, target: FloatArray) -> FloatArray:
    """Unconstrained logistic regression (k + 1,) by damped Newton steps; the intercept comes last."""
    design = np.column_stack([features, np.ones(len(target))])
    weights = np.zeros(design.shape[1])
    loss = _cross_entropy(design @ weights, target)
    for _ in range(_NEWTON_STEPS):
        q = sigmoid(design @ weights)
        gradient = design.T @ (q - target) / len(target)
        if np.abs(gradient).max() < _CONVERGED:
            break
        hessian = (design * (q * (1 - q))[:, None]).T @ design / len(target)
        step = np.linalg.lstsq(hessian, gradient, rcond=None)[0]  # features may be collinear: two distinct values
        for halving in range(40):
            candidate = weights - step / 2**halving
            new_loss = _cross_entropy(design @ candidate, target)
            if new_loss < loss:
                break
        else:
            break
        weights, loss = candidate, new_loss
    return weights


def _cross_entropy(logit: FloatArray, target: FloatArray) -> float:
    return float(np.mean(np.logaddexp(0.0, logit) - target * logit))


def sigmoid(x: FloatArray) -> FloatArray:
    """1 / (1 + exp(-x)), of any shape, without overflow."""
    small = np.exp(-np.abs(x))  # the exponent is at most 0, so no overflow
    return np.where(x >= 0, 1.0, small) / (1.0 + small)


def _clip(p: FloatArray) -> FloatArray:
    """Clip confidences away from 0 and 1, where the logit is infinite."""
    clipped: FloatArray = np.clip(p, NLL_CLIP, 1.0 - NLL_CLIP)
    return clipped


def rising(confidence: npt.ArrayLike, transform: Callable[[FloatArray], FloatArray]) -> FloatArray:
    """Apply a non-decreasing function to confidences (n,), exactly: ties stay ties, and rounding reverses no pair."""
    p = np.asarray(confidence, dtype=np.float64)
    if not p.size:
        return np.empty(0)
    values, inverse = np.unique(checked(p, np.zeros(p.shape, dtype=bool))[0], return_inverse=True)
    return np.maximum.accumulate(transform(values))[inverse]
