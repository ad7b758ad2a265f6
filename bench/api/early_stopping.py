"""Choice of the step of a training that is kept: the one whose loss on the validation answers is smallest.

One rule for every method that learns in steps, so that no ranking rests on a number of steps that suited one of them.
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
from bench.api.confidence import checked
from bench.api.errors import UserError
from bench.api.protocol import NLL_CLIP

Array = npt.NDArray[Any]


PATIENCE = 2
"""Points in a row that bring no smaller loss, after which training ends."""
POINTS = 8
"""Points at which the loss is taken: after limit / 128, limit / 64, ..., limit steps."""


def points_of(limit: int, points: int = POINTS) -> tuple[int, ...]:
    """Steps after which the loss is taken, each twice the one before, the last being the limit.

    >>> points_of(10_000)
    (78, 156, 312, 625, 1250, 2500, 5000, 10000)
    >>> points_of(40, points=3)
    (10, 20, 40)
    """
    return tuple(sorted({max(1, limit >> k) for k in range(points)}))


def validation_loss(confidence: Array, correct: npt.NDArray[np.bool_]) -> float:
    """Mean negative log-likelihood in nats, clipped as `bench.metrics.nll` clips; arrays `(n,)`."""
    likelihood = np.where(correct, confidence, 1.0 - np.asarray(confidence, dtype=np.float64))
    return float(-np.log(np.maximum(likelihood, NLL_CLIP)).mean())


def best_point(losses: Sequence[float | None]) -> int:
    """The first of the smallest losses; what is no number is never the best.

    >>> best_point([0.5, float("nan"), 0.4, 0.4])
    2
    """
    known = [math.inf if loss is None or math.isnan(loss) else loss for loss in losses]
    return known.index(min(known))


@dataclass(frozen=True, slots=True)
class TrainingStage:
    """One training in steps, and the step whose weights were kept."""

    name: str
    """E.g. `contrastive`; empty where the method has one stage."""
    limit: int
    """Steps that it might take."""
    taken: int
    """Steps that it took."""
    kept: int
    """Step whose weights were kept."""
    epochs: float
    """Passes over the training rows up to the kept step."""
    steps: tuple[int, ...] = ()
    """Steps after which the loss on validation was taken; empty where the last step is kept."""
    losses: tuple[float | None, ...] = ()
    """That loss at each of them; None where it was no number."""
    cut_short: bool = False
    """Whether the loss was still falling at the limit, and the method's published training is longer."""


class EarlyStopping:
    """An iterator over the steps of one training, which ends when validation says so.

    Without validation answers (presets that keep the last step) it goes on to the limit and keeps that.
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
        """Begin before the first step.

        Args:
            limit: steps at most.
            validation: labelled answers to choose the step by; None: the last step is kept.
            name: of the stage, where a method has several.
            published: steps of the published training, where the limit is below them.
            points: at which the loss is taken.
            epochs_per_step: batch size over training rows, for the record.

        Raises:
            UserError: no step at all is allowed, or no point.
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
        """Steps begun so far, the current one included."""
        self.kept: Any = None
        """Result of `keep` at the best point."""
        self.confidences: list[Array] = []
        """Confidences at each point so far, `(n,)` for the validation answers; empty where the loss is another one."""
        self._validation = validation
        self._points = points_of(limit, points) if validation is not None else (limit,)
        self._steps: list[int] = []
        self._losses: list[float] = []

    def __iter__(self) -> Iterator[int]:
        """The steps from 1 on."""
        while self.step < self.limit and not self._ended:
            self.step += 1
            yield self.step

    @property
    def due(self) -> bool:
        """Whether a `record` belongs after this step."""
        return self.step in self._points

    def record(self, predict: Callable[[Any], Array], *, keep: Callable[[], Any]) -> None:
        """Take the loss of the method as it is now, and keep it if there was no better one.

        Args:
            predict: the method's confidences `(n,)` in the answers of a batch, within [0, 1].
            keep: gives what `kept` is to be; called only where this point is the best so far.
        """

        def loss(validation: Batch) -> float:
            asked = validation.own() if validation.is_own else validation
            confidence = checked("validation confidences", predict(asked), len(validation), allow_nan=True)
            self.confidences.append(confidence)
            return validation_loss(confidence, validation.correct)

        self.record_loss(loss, keep=keep)

    def record_loss(self, loss: Callable[[Any], float], *, keep: Callable[[], Any]) -> None:
        """Record like `record`, for a stage that has no confidences: by a loss of its own on the validation answers."""
        if self._validation is not None:
            self._steps.append(self.step)
            self._losses.append(float(loss(self._validation)))
        if self._best == self.step:
            self.kept = keep()

    def resume(
        self, step: int, steps: Sequence[int], losses: Sequence[float | None], confidences: Sequence[Array], kept: Any
    ) -> None:
        """Go on after a step, with what was recorded until then (`stage`, `confidences`, `kept`)."""
        self.step, self.kept = step, kept
        self._steps, self._losses, self.confidences = (
            list(steps),
            [math.nan if x is None else x for x in losses],
            list(confidences),
        )

    @property
    def _best(self) -> int:
        """The step to keep; a loss that is not a number is never the best."""
        return self._steps[best_point(self._losses)] if self._steps else self.step

    @property
    def _ended(self) -> bool:
        since = len(self._steps) - 1 - self._steps.index(self._best) if self._steps else 0
        return since >= PATIENCE

    def stage(self) -> TrainingStage:
        """Account of the stage, for the result."""
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
