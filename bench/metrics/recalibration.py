"""Recalibrators (isotonic, Platt, beta, temperature): monotone maps of confidences, fitted on labelled answers.

All maps are non-decreasing: they change calibration, but not ranking, except that some confidences become equal. Each
class says which. Example: `create_recalibrator("platt").fit(confidence, correct).apply(confidence_on_test)`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt

from bench.api import BoolArray, FloatArray, IntArray, UntrainableError, UserError
from bench.api.protocol import NLL_CLIP
from bench.metrics import isotonic
from bench.metrics.validation import count_distinct, validate

_TEMPERATURES = (0.05, 100.0)
"""Smallest and largest temperature that a fit may give (docs/methods.md §0.10)."""
_NEWTON_STEPS = 100
"""Largest number of Newton steps of a logistic fit; about ten are needed."""
_CONVERGED = 1e-9
"""A logistic fit has converged if no gradient component of the mean loss is larger than this."""


class Recalibrator(ABC):
    """Base class of recalibrators, which map confidences to confidences: `fit` learns the map, `apply` applies it."""

    formula: ClassVar[str]
    """The map as an expression of numpy, for `bench head export`, of confidences `p`, the logarithms `log_p` and
    `log_rest` of p and 1 - p after the limits of `_clip`, the dict `fitted` of fitted attributes, and `sigmoid`."""

    @abstractmethod
    def fit(self, confidence: npt.ArrayLike, correct: npt.ArrayLike) -> Self:
        """Learn the map from n labelled answers; return self.

        Args:
            confidence: shape (n,), float in [0, 1].
            correct: shape (n,), bool; all may be equal.

        Raises:
            ValueError: an input is empty, lengths differ, or a confidence is NaN or outside [0, 1].
        """

    def apply(self, confidence: npt.ArrayLike) -> FloatArray:
        """Return the recalibrated confidences, shape (n,), float64 in [0, 1].

        Raises:
            ValueError: confidences are outside [0, 1], NaN, or not one-dimensional; or `fit` was not called.
        """
        if not vars(self):
            raise ValueError(f"{type(self).__name__} was not fitted; call fit first")
        return apply_monotone(confidence, self.transform)

    @abstractmethod
    def transform(self, p: FloatArray) -> FloatArray:
        """Apply the learned map to ascending, distinct confidences in [0, 1]."""

    @property
    @abstractmethod
    def parameters(self) -> Mapping[str, float]:
        """Learned parameters of the map, name -> value; of a step function only the number of steps."""


class Isotonic(Recalibrator):
    """Isotonic regression (Zadrozny and Elkan, 2002), interpolated linearly between its steps.

    The map is constant below and above the confidences that it was fitted on. All confidences within a step become
    equal, so AUROC and AUCPR may change. If all fitted confidences are equal, the map returns the rate of right
    answers.
    """

    formula = 'np.interp(p, fitted["at_"], fitted["value_"])'
    at_: FloatArray
    value_: FloatArray

    def fit(self, confidence: npt.ArrayLike, correct: npt.ArrayLike) -> Self:
        """Fit the isotonic regression to n labelled answers; see `Recalibrator.fit`."""
        self.at_, size, hits = count_distinct(*validate(confidence, correct))
        self.value_ = isotonic(hits, size)
        return self

    def transform(self, p: FloatArray) -> FloatArray:
        """Apply the fitted regression to ascending, distinct confidences; see `Recalibrator.transform`."""
        return np.interp(p, self.at_, self.value_)

    @property
    def parameters(self) -> Mapping[str, float]:
        """Number of steps of the fitted regression."""
        return {"steps": float(np.unique(self.value_).size)}


class _Logistic(Recalibrator):
    """Recalibrator by logistic regression on features that increase with the confidence, with non-negative slopes.

    Labels are smoothed as by Platt (1999): with N+ right and N- wrong answers, (N+ + 1) / (N+ + 2) for right answers
    and 1 / (N- + 2) for wrong ones. So the fit is finite even if a threshold separates right from wrong answers, or all
    labels are equal. Slopes below 0 would reverse the order and are set to 0; if all slopes are 0, the map is constant.
    If all confidences are equal, slopes can't be estimated: they are set to 1, and only the intercept is fitted.
    """

    names: tuple[str, ...]
    weights_: FloatArray

    @staticmethod
    @abstractmethod
    def features(p: FloatArray) -> FloatArray:
        """Return k features of each confidence in (0, 1), shape (n, k).

        Each feature rises with the confidence, and the features sum to its logit.
        """

    def fit(self, confidence: npt.ArrayLike, correct: npt.ArrayLike) -> Self:
        """Fit the logistic regression to n labelled answers; see `Recalibrator.fit`."""
        p, o = validate(confidence, correct)
        target = smooth_labels(o)
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
        """Apply the fitted regression to ascending, distinct confidences; see `Recalibrator.transform`."""
        return sigmoid(self.features(_clip(p)) @ self.weights_[:-1] + self.weights_[-1])

    @property
    def parameters(self) -> Mapping[str, float]:
        """Slopes and intercept of the logistic regression."""
        return dict(zip(self.names, map(float, self.weights_), strict=False))


class Platt(_Logistic):
    """Platt scaling of a confidence p to q = sigmoid(a * logit(p) + b) with a >= 0 (Platt, 1999).

    The map is strictly increasing unless a is 0. Before that, confidences below 2^-24 are set to 2^-24, and those above
    1 - 2^-24 to 1 - 2^-24.
    """

    names = ("a", "b")
    formula = 'sigmoid(fitted["weights_"][0] * (log_p - log_rest) + fitted["weights_"][1])'

    @staticmethod
    def features(p: FloatArray) -> FloatArray:
        """Return the logit of each confidence, shape (n, 1)."""
        return (np.log(p) - np.log1p(-p))[:, None]


class Beta(_Logistic):
    """Beta calibration of a confidence p to q = sigmoid(a * ln p - b * ln(1 - p) + c) with a, b >= 0.

    This is the three-parameter map of Kull, Silva Filho and Flach (2017), but with Platt's smoothed labels. The map is
    strictly increasing unless a and b are 0. Before that, confidences below 2^-24 are set to 2^-24, and those above 1 -
    2^-24 to 1 - 2^-24.
    """

    names = ("a", "b", "c")
    formula = 'sigmoid(fitted["weights_"] @ [log_p, -log_rest, np.ones_like(p)])'

    @staticmethod
    def features(p: FloatArray) -> FloatArray:
        """Return ln p and -ln(1 - p) of each confidence p, shape (n, 2)."""
        return np.stack([np.log(p), -np.log1p(-p)], axis=1)


class Temperature(Recalibrator):
    """Temperature scaling of a confidence p to q = sigmoid(logit(p) / t) (Guo et al., 2017).

    The temperature t minimises the negative log-likelihood within [0.05, 100] (docs/methods.md §0.10). Without these
    limits t would be infinite if wrong answers have the higher confidences, and 0 if the threshold 0.5 separates right
    from wrong answers. If all confidences are 0.5, t can't be estimated and is set to 1.

    The map is increasing with two exceptions. Before scaling, confidences below 2^-24 are set to 2^-24, and those above
    1 - 2^-24 to 1 - 2^-24. With a small t, large confidences round to 1.
    """

    formula = 'sigmoid((log_p - log_rest) / fitted["temperature_"])'
    temperature_: float

    def fit(self, confidence: npt.ArrayLike, correct: npt.ArrayLike) -> Self:
        """Fit the temperature to n labelled answers; see `Recalibrator.fit`."""
        p, o = validate(confidence, correct)
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
        """Scale ascending, distinct confidences by the fitted temperature; see `Recalibrator.transform`."""
        return sigmoid(Platt.features(_clip(p))[:, 0] / self.temperature_)

    @property
    def parameters(self) -> Mapping[str, float]:
        """The fitted temperature."""
        return {"temperature": self.temperature_}


RECALIBRATORS: Mapping[str, type[Recalibrator]] = MappingProxyType(
    {"isotonic": Isotonic, "platt": Platt, "beta": Beta, "temperature": Temperature}
)


def create_recalibrator(kind: str) -> Recalibrator:
    """Create an unfitted recalibrator by its name in RECALIBRATORS.

    Raises:
        UserError: no recalibrator has that name.
    """
    if kind not in RECALIBRATORS:
        raise UserError(f"unknown recalibration {kind!r}; expected one of {', '.join(RECALIBRATORS)}")
    return RECALIBRATORS[kind]()


# --- cross-fitting ----------------------------------------------------------------------------------------------------


def stratified_folds(correct: npt.ArrayLike, *, folds: int = 5, seed: int = 0) -> IntArray:
    """Assign each answer to a fold, shape (n,), int from 0; folds have similar sizes and rates of right answers.

    Folds are for cross-fitting of recalibrators. A method that was fitted on these answers is fitted again without each
    fold, and then predicts that fold. So a recalibrator is never fitted on confidences in the method's own training
    data.

    Args:
        correct: shape (n,), bool.
        folds: number of folds; n if there are fewer answers than folds.
        seed: seed of the shuffle.

    Raises:
        ValueError: fewer than two answers or folds.
    """
    o = np.asarray(correct, dtype=bool)
    folds = min(folds, o.size)
    if folds < 2:  # one to fit on, one to hold out
        raise ValueError(f"expected at least two answers in at least two folds, got {o.size} in {folds}")
    order = np.lexsort((np.random.default_rng(seed).random(o.size), o))  # shuffled within each class
    fold = np.empty(o.size, dtype=np.int64)
    fold[order] = np.arange(o.size) % folds
    return fold


def by_folds(correct: BoolArray, seed: int, fit: Callable[[BoolArray, BoolArray], FloatArray]) -> FloatArray:
    """Return confidences `(n,)` in answers, predicted fold by fold.

    Args:
        correct: `(n,)` labels of the answers, by which the folds are stratified.
        seed: seed of the division into folds.
        fit: returns the confidences in one fold; it gets masks `(n,)` of the answers in all other folds, and in this
            one.

    Raises:
        UntrainableError: there is one answer alone.
    """
    if len(correct) == 1:
        raise UntrainableError("one labelled answer can't be divided into folds; raise --train-limit, if given")
    fold = stratified_folds(correct, seed=seed)
    confidence = np.empty(len(correct))
    for k in range(int(fold.max()) + 1):
        confidence[fold == k] = fit(fold != k, fold == k)
    return confidence


# --- fitting ----------------------------------------------------------------------------------------------------------


def smooth_labels(correct: BoolArray) -> FloatArray:
    """Return smoothed labels (n,) (Platt, 1999), given N+ right and N- wrong answers.

    The label is (N+ + 1) / (N+ + 2) for right answers and 1 / (N- + 2) for wrong ones.
    """
    right = int(np.count_nonzero(correct))
    return np.where(correct, (right + 1) / (right + 2), 1 / (correct.size - right + 2))


def fit_logistic(features: FloatArray, target: FloatArray) -> FloatArray:
    """Fit a logistic regression with non-negative slopes to features (n, k) and targets (n,) in (0, 1).

    Returns the k slopes and the intercept, shape (k + 1,). As the loss is convex, the constraint is solved by trying
    subsets: each subset of slopes is fitted without constraint, with all other slopes 0. The best fit without a
    negative slope is the solution.
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
    """Fit an unconstrained logistic regression by damped Newton steps; return slopes, then the intercept, (k + 1,)."""
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
    """Return 1 / (1 + exp(-x)) for an array of any shape, without overflow."""
    small = np.exp(-np.abs(x))  # the exponent is at most 0, so no overflow
    return np.where(x >= 0, 1.0, small) / (1.0 + small)


def _clip(p: FloatArray) -> FloatArray:
    """Clip confidences to [2^-24, 1 - 2^-24], because 0 and 1 have infinite logits."""
    clipped: FloatArray = np.clip(p, NLL_CLIP, 1.0 - NLL_CLIP)
    return clipped


def apply_monotone(confidence: npt.ArrayLike, transform: Callable[[FloatArray], FloatArray]) -> FloatArray:
    """Apply a non-decreasing function to confidences (n,).

    Equal confidences stay equal, and rounding reverses the order of no pair.
    """
    p = np.asarray(confidence, dtype=np.float64)
    if not p.size:
        return np.empty(0)
    values, inverse = np.unique(validate(p, np.zeros(p.shape, dtype=bool))[0], return_inverse=True)
    return np.maximum.accumulate(transform(values))[inverse]
