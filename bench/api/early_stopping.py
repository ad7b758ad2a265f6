"""Early stopping: keep the weights of the training step with the smallest loss on the validation answers.

All methods that train in steps use this rule, so that no ranking depends on a step count tuned for one of them.
Example: `for step in stopping: ...; if stopping.due: stopping.record(predict, keep=weights)`, then `stopping.kept`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bench.api.batch import Batch
from bench.api.confidence import check_confidences
from bench.api.errors import UserError
from bench.api.protocol import NLL_CLIP

Array = npt.NDArray[Any]


PATIENCE = 2
"""Training ends when the validation loss has no new minimum at this many of its evaluations in a row (see `POINTS`)."""
POINTS = 8
"""Largest number of evaluations of the validation loss in one training: after limit / 128, limit / 64, ..., limit
steps."""


def points_of(limit: int, points: int = POINTS) -> tuple[int, ...]:
    """Return the step numbers after which the validation loss is computed, each twice the one before, up to the limit.

    >>> points_of(10_000)
    (78, 156, 312, 625, 1250, 2500, 5000, 10000)
    >>> points_of(40, points=3)
    (10, 20, 40)
    """
    return tuple(sorted({max(1, limit >> k) for k in range(points)}))


def validation_loss(confidence: Array, correct: npt.NDArray[np.bool_]) -> float:
    """Compute the mean negative log-likelihood, in nats, of labels `(n,)` under confidences `(n,)`.

    Probabilities are clipped as in `bench.metrics.nll`.
    """
    likelihood = np.where(correct, confidence, 1.0 - np.asarray(confidence, dtype=np.float64))
    return float(-np.log(np.maximum(likelihood, NLL_CLIP)).mean())


def best_point(losses: Sequence[float | None]) -> int:
    """Return the index of the smallest loss, the first one if several are equal; None and NaN count as infinite.

    >>> best_point([0.5, float("nan"), 0.4, 0.4])
    2
    """
    comparable = [math.inf if loss is None or math.isnan(loss) else loss for loss in losses]
    return comparable.index(min(comparable))


@dataclass(frozen=True, slots=True)
class TrainingStage:
    """Record of one training stage: steps, validation losses, and the step whose weights were kept."""

    name: str
    """Name of the stage, e.g. `contrastive`; empty if the method has only one."""
    limit: int
    """Maximum number of training steps."""
    taken: int
    """Number of steps that were run."""
    kept: int
    """Number of the step whose weights were kept."""
    epochs: float
    """Number of passes over the training rows up to the step whose weights were kept."""
    steps: tuple[int, ...] = ()
    """Step numbers after which the validation loss was computed; empty if the training had no validation answers, so
    that the weights of the last step were kept."""
    losses: tuple[float | None, ...] = ()
    """Validation loss after each step in `steps`; None where it was not finite."""
    cut_short: bool = False
    """Whether the validation loss was smallest at the last allowed step, and the published training has more steps."""


class EarlyStopping:
    """Iterator over the steps of one training; it ends early when the validation loss no longer falls.

    Without validation answers, all steps run, and the weights of the last step are kept.
    """

    def __init__(
        self,
        limit: int,
        validation: Batch | None = None,
        *,
        name: str = "",
        published: int = 0,
        points: int = POINTS,
        epochs_per_step: float = 0.0,
    ) -> None:
        """Prepare a training; no step has started yet.

        Args:
            limit: maximum number of steps.
            validation: labelled answers on which the validation loss is computed; None: the weights of the last step
                are kept.
            name: name of the training stage, where a method has several.
            published: number of steps of the published training, if `limit` is less; see `TrainingStage.cut_short`.
            points: largest number of evaluations of the validation loss.
            epochs_per_step: batch size divided by the number of training rows, for the record.

        Raises:
            UserError: `limit` or `points` is below 1.
        """
        if limit < 1 or points < 1:
            raise UserError(
                f"expected a training of at least 1 step and 1 point, got {limit} and {points}; correct it with --set"
            )
        self.limit = limit
        self.name = name
        self.published = published
        self.epochs_per_step = epochs_per_step
        self.step = 0
        """Number of steps started so far, including the current one."""
        self.kept: Any = None
        """What `keep` returned (usually the weights) at the smallest validation loss so far. Without validation
        answers, what it returned at the last call of `record`."""
        self.confidences: list[Array] = []
        """Confidences `(n,)` for the validation answers, one array for each call of `record`; `record_loss` adds none.
        Empty without validation answers."""
        self._validation = validation
        self._points = points_of(limit, points) if validation is not None else (limit,)
        self._steps: list[int] = []
        self._losses: list[float] = []

    def __iter__(self) -> Iterator[int]:
        """Yield the step numbers from 1 on, until the limit or until the validation loss no longer falls."""
        while self.step < self.limit and not self._is_exhausted:
            self.step += 1
            yield self.step

    @property
    def due(self) -> bool:
        """Whether `record` or `record_loss` must be called after the current step."""
        return self.step in self._points

    def record(self, predict: Callable[[Any], Array], *, keep: Callable[[], Any]) -> None:
        """Compute and record the validation loss; keep the current weights if the loss is the smallest so far.

        Without validation answers no loss is computed, and the current weights are kept.

        Args:
            predict: function that maps a batch to the method's confidences `(n,)` within [0, 1].
            keep: function that returns the current weights, for `kept`; called only if they are kept.

        Raises:
            ContractError: the confidences are invalid.
        """

        def loss(validation: Batch) -> float:
            batch = validation.own() if validation.is_own else validation
            confidence = check_confidences("validation confidences", predict(batch), len(validation), allow_nan=True)
            self.confidences.append(confidence)
            return validation_loss(confidence, validation.correct)

        self.record_loss(loss, keep=keep)

    def record_loss(self, loss: Callable[[Any], float], *, keep: Callable[[], Any]) -> None:
        """Record a validation loss as `record` does, for a training stage that has no confidences.

        Args:
            loss: function that maps the validation batch to its loss.
            keep: as for `record`.
        """
        if self._validation is not None:
            self._steps.append(self.step)
            self._losses.append(float(loss(self._validation)))
        if self._best == self.step:
            self.kept = keep()

    def resume(
        self, step: int, steps: Sequence[int], losses: Sequence[float | None], confidences: Sequence[Array], kept: Any
    ) -> None:
        """Continue an interrupted training after step `step`.

        Args:
            step: number of the last step that was run.
            steps: step numbers after which the validation loss was computed, from `stage`.
            losses: the validation losses, from `stage`.
            confidences: the validation confidences, from `confidences`.
            kept: the weights kept so far, from `kept`.
        """
        self.step, self.kept = step, kept
        self._steps, self.confidences = list(steps), list(confidences)
        self._losses = [math.nan if x is None else x for x in losses]

    @property
    def _best(self) -> int:
        """Number of the step with the smallest validation loss, where NaN counts as infinite.

        The current step if there is no loss.
        """
        return self._steps[best_point(self._losses)] if self._steps else self.step

    @property
    def _is_exhausted(self) -> bool:
        points_since_best = len(self._steps) - 1 - self._steps.index(self._best) if self._steps else 0
        return points_since_best >= PATIENCE

    def stage(self) -> TrainingStage:
        """Return the record of this training that the result stores."""
        return TrainingStage(
            name=self.name,
            limit=self.limit,
            taken=self.step,
            kept=self._best,
            epochs=self._best * self.epochs_per_step,
            steps=tuple(self._steps),
            losses=tuple(loss if math.isfinite(loss) else None for loss in self._losses),
            cut_short=bool(self._steps) and self._best == self.limit < self.published,
        )
