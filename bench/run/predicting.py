"""Confidences in the answers of a split, those without text included; and reading through a method's adapter."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from bench.api import AdapterRef, BoolArray, ContractError, FloatArray
from bench.api.methods import given
from bench.api.protocol import EmptyRule
from bench.data.splits import TaskSplit
from bench.metrics.scaling import Scale
from bench.model.memory import give_back
from bench.progress import Progress
from bench.run.fitting import Fitted
from bench.run.inputs import AdaptedSplit, Inputs
from bench.run.resolve import ResolvedRun
from bench.signals.batches import Batches
from bench.signals.split_data import SplitData


@dataclass(frozen=True, eq=False)
class Prediction:
    """A method's confidences in the answers of a split."""

    confidence: FloatArray
    """`(n,)`: one for each question of the split; NaN where they are scores that could not be scaled."""
    seconds: float
    score: FloatArray | None = None
    """`(n,)`: the scores of a method that gives such, -infinity where there is no answer; None of any other."""
    scaled_by: int = 0
    """Validation labels by which scores became confidences."""
    note: str = ""
    """Account of that for a reader of the numbers, or the reason why it could not be done."""
    oddities: Mapping[str, int] = field(default_factory=dict)
    """Counts of what the method found odd about the answers."""
    scale: Scale | None = None
    """By which scores became confidences; None where there are none, or nothing could scale them."""


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
            reason = self.resolved.methods[name].skip(inputs.facts(self.batches.reader.lm.facts))
        if reason is not None:
            return Skipped(str(reason))
        if self.resolved.methods[name].output != "score":
            return self.confidences(name, inputs)
        held, usable = inputs.selection, inputs.predicted.usable
        predicted, seconds, odd = self.predicted(name, inputs)
        score, confidence = np.full(len(usable), -np.inf), np.full(len(usable), np.nan)
        score[usable] = predicted
        correct = np.zeros(0, dtype=np.bool_) if held is None else held.correct[held.usable]
        reason = unscalable(correct)
        if held is None or reason is not None:
            note = f"{reason}, by which its scores could become probabilities: metrics of order alone"
            return Prediction(confidence, seconds, score, note=note, oddities=odd)
        labelled, more, _ = self.predicted(name, replace(inputs, predicted=held, selection=None))
        scale = Scale.fit(labelled, correct)
        confidence[:] = confidence_in_no_answer(inputs, self.resolved.protocol.empty_rule)
        confidence[usable] = scale.apply(predicted)
        note = f"scaled on validation: {len(correct):,} labelled answers of {held.where} made its scores probabilities"
        if not scale.slope:
            note += ", all the same one, since right answers have no higher scores there than wrong ones"
        return Prediction(confidence, seconds + more, score, len(correct), note, odd, scale)

    def confidences(self, name: str, inputs: Inputs) -> Prediction:
        """Confidences in all answers of a split; where there is no answer, the protocol says how sure a method is.

        Raises:
            ContractError: they are no probabilities, or not one for each answer.
            Exception: whatever the method raises here, or raised when it was fitted.
        """
        predicted, seconds, oddities = self.predicted(name, inputs)
        confidence = np.full(
            len(inputs.predicted.questions), confidence_in_no_answer(inputs, self.resolved.protocol.empty_rule)
        )
        confidence[inputs.predicted.usable] = predicted
        return Prediction(confidence, seconds, oddities=oddities)

    def predicted(self, name: str, inputs: Inputs) -> tuple[FloatArray, float, dict[str, int]]:
        """Confidences or scores `(m,)` of a method for the usable answers of a split, seconds, and counted oddities.

        Raises:
            ContractError: it is not what the method has to give.
            Exception: whatever the method raises here, or raised when it was fitted.
        """
        if inputs.failure is not None:
            raise inputs.failure
        split_data, signals = inputs.predicted, self.resolved.methods[name].reads().predict
        method = self.resolved.fresh(name) if inputs.fitted is None else inputs.fitted.method
        seconds, oddities = 0.0, Counter[str]()
        values = np.zeros(len(split_data.questions))
        with self.progress.stage(f"predict {name}", int(split_data.usable.sum())) as advance:
            for rows, batch in self.batches.pieces(split_data, signals, inputs.adapted):
                start = time.perf_counter()
                values[rows] = given(method, batch)
                seconds += time.perf_counter() - start
                oddities.update({str(what): int(n) for what, n in method.oddities(batch).items()})
                advance(len(batch))
                del batch
                give_back()
        return values[split_data.usable], seconds, dict(oddities)

    def read_through(self, name: str, split_data: SplitData, fitted: Fitted | BaseException) -> AdaptedSplit | None:
        """A split read again through the adapter that a method trained.

        None for a validation split in which its confidences were kept while it was trained.

        Args:
            name: of the method.
            split_data: the split as the frozen model read it.
            fitted: the method, or what fitting it raised, which is raised again.

        Raises:
            ContractError: `fit` left no adapter.
        """
        if isinstance(fitted, BaseException):
            raise fitted
        if split_data.where.split == "validation" and fitted.curve is not None:
            return None
        adapter = fitted.method.fitted().get("adapter_")
        if not isinstance(adapter, AdapterRef):
            raise ContractError(f"{name} reads through an adapter of its own, and fit left none in `adapter_`")
        start = time.perf_counter()
        again = self.batches.reader.read_through(split_data, adapter)
        return AdaptedSplit(again, time.perf_counter() - start)


def unscalable(correct: BoolArray) -> str | None:
    """Why scores can't be scaled on answers with these labels `(m,)`; None where they can."""
    if not correct.size:
        return "there are no labelled validation answers"
    if correct.all() or not correct.any():
        return f"all {correct.size:,} labelled validation answers are {'right' if correct.all() else 'wrong'}"
    return None


def confidence_in_no_answer(inputs: Inputs, rule: EmptyRule) -> float:
    """Confidence where there is no answer: none, or the share of right answers that it learned from."""
    return 0.0 if rule is EmptyRule.ZERO or inputs.base_rate is None else inputs.base_rate
