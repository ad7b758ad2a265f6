"""Confidences in the answers of a split, those without text included; and reading through a method's adapter."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from bench.api import AdapterRef, ContractError, FloatArray
from bench.api.confidence import checked
from bench.api.protocol import EmptyRule
from bench.backbone.memory import give_back
from bench.data.splits import TaskSplit
from bench.progress import Progress
from bench.run.fitting import Fitted
from bench.run.inputs import AdaptedReading, Inputs
from bench.run.resolve import ResolvedRun
from bench.signals.batches import Batches
from bench.signals.reading import Reading


@dataclass(frozen=True, eq=False)
class Prediction:
    """A method's confidences in the answers of a split."""

    confidence: FloatArray
    """`(n,)`: one for each question of the split."""
    seconds: float


@dataclass(frozen=True)
class Skipped:
    """Why there is no prediction, though nothing failed."""

    reason: str


@dataclass(frozen=True)
class Predictor:
    """Predicts with the methods of a run."""

    resolved: ResolvedRun
    infeasible: Mapping[tuple[str, TaskSplit], str]
    """Method and test -> why the method can't run there."""
    batches: Batches
    progress: Progress

    def predict(self, name: str, inputs: Inputs) -> Prediction | Skipped:
        """Predict a test, unless the method can't run there or declines to.

        Args:
            name: of the method.
            inputs: of the test.

        Raises:
            Exception: whatever the method raises here, or raised when it was fitted.
        """
        reason = self.infeasible.get((name, inputs.predicted.where))
        if reason is None:
            reason = self.resolved.methods[name].skip(inputs.facts(self.batches.reader.backbone.facts))
        return self.confidences(name, inputs) if reason is None else Skipped(str(reason))

    def confidences(self, name: str, inputs: Inputs) -> Prediction:
        """Confidences in all answers of a split; where there is no answer, the protocol says how sure a method is.

        Raises:
            ContractError: they are no probabilities, or not one for each answer.
            Exception: whatever the method raises here, or raised when it was fitted.
        """
        if inputs.failure is not None:
            raise inputs.failure
        reading, signals = inputs.predicted, self.resolved.methods[name].reads().predict
        method = self.resolved.fresh(name) if inputs.fitted is None else inputs.fitted.method
        seconds = 0.0
        confidence = np.full(
            len(reading.questions), _confidence_in_no_answer(inputs, self.resolved.protocol.empty_rule)
        )
        with self.progress.stage(f"predict {name}", int(reading.usable.sum())) as advance:
            for rows, batch in self.batches.pieces(reading, signals, inputs.adapted):
                start = time.perf_counter()
                predicted = method.predict(batch)
                seconds += time.perf_counter() - start
                confidence[rows] = checked(f"{name}.predict", predicted, len(batch))
                advance(len(batch))
                del batch
                give_back()
        return Prediction(confidence, seconds)

    def read_through(self, name: str, reading: Reading, fitted: Fitted | BaseException) -> AdaptedReading | None:
        """A split read again through the adapter that a method trained.

        None for a validation split in which its confidences were kept while it was trained.

        Args:
            name: of the method.
            reading: the split as the frozen model read it.
            fitted: the method, or what fitting it raised, which is raised again.

        Raises:
            ContractError: `fit` left no adapter.
        """
        if isinstance(fitted, BaseException):
            raise fitted
        if reading.where.split == "validation" and fitted.curve is not None:
            return None
        adapter = fitted.method.fitted().get("adapter_")
        if not isinstance(adapter, AdapterRef):
            raise ContractError(f"{name} reads through an adapter of its own, and fit left none in `adapter_`")
        start = time.perf_counter()
        again = self.batches.reader.read_through(reading, adapter)
        return AdaptedReading(again, time.perf_counter() - start)


def _confidence_in_no_answer(inputs: Inputs, rule: EmptyRule) -> float:
    """Confidence where there is no answer: none, or the share of right answers that it learned from."""
    return 0.0 if rule is EmptyRule.ZERO or inputs.base_rate is None else inputs.base_rate
