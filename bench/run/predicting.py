"""Predict confidences in a split's answers, scale scores on validation answers, read splits again with an adapter."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from bench.api import BoolArray, ContractError, FloatArray
from bench.api.methods import outputs_of
from bench.api.protocol import EmptyRule
from bench.data.splits import TaskSplit
from bench.metrics.scaling import Scale
from bench.model.memory import release_free_memory
from bench.progress import Progress
from bench.run.fitting import Fitted
from bench.run.inputs import AdaptedSplit, Inputs
from bench.run.plan import trained_adapter
from bench.run.resolve import ResolvedRun
from bench.signals.batch_builder import BatchBuilder
from bench.signals.split_data import SplitData


@dataclass(frozen=True, eq=False)
class Prediction:
    """A method's confidences in the answers of one split."""

    confidence: FloatArray
    """`(n,)`: confidence for each question of the split; all NaN if the method outputs scores that could not be
    scaled."""
    seconds: float
    score: FloatArray | None = None
    """`(n,)`: scores, -infinity where the answer is empty or the question is left out; None if the method outputs
    confidences."""
    scaled_by: int = 0
    """Number of validation labels to which the map from scores to confidences was fitted."""
    note: str = ""
    """Note on how the scores were scaled, or why they could not be; empty without scores."""
    oddities: Mapping[str, int] = field(default_factory=dict)
    """Description of unusual answers, e.g. "replies without a number" -> number of such answers, as the method
    reports."""
    scale: Scale | None = None
    """Map from scores to confidences; None if the method outputs confidences, its scores could not be scaled, or each
    subject of the test has its own map (see `Folds.predict`)."""


@dataclass(frozen=True)
class Skipped:
    """Outcome of a prediction that was not made; holds the reason."""

    reason: str


@dataclass(frozen=True)
class Predictor:
    """Predicts confidences with the methods of a run."""

    resolved: ResolvedRun
    infeasible: Mapping[tuple[str, TaskSplit], str]
    """(method, test split) -> why the method can't run there."""
    batches: BatchBuilder
    progress: Progress

    def predict(self, name: str, inputs: Inputs) -> Prediction | Skipped:
        """Predict a method's confidences in a test split.

        The result is `Skipped` if the method is infeasible on this split, or if its `skip` returns a reason.

        Args:
            name: name of the method.
            inputs: splits and fitted method for this test.

        Raises:
            Exception: any exception that the method raises here, or raised in its fit.
        """
        reason = self.infeasible.get((name, inputs.predicted.where))
        if reason is None:
            reason = self.resolved.methods[name].skip(inputs.facts(self.batches.reader.lm.facts))
        if reason is not None:
            return Skipped(str(reason))
        if self.resolved.methods[name].output != "score":
            return self.confidences(name, inputs)
        held, usable = inputs.selection, inputs.predicted.usable
        predicted, seconds, oddities = self.timed_output(name, inputs)
        score = np.full(len(usable), -np.inf)
        score[usable] = predicted
        correct = np.zeros(0, dtype=np.bool_) if held is None else held.correct[held.usable]
        reason = reason_unscalable(correct)
        if held is None or reason is not None:
            note = f"{reason}, by which its scores could become probabilities: metrics of order alone"
            unscaled = np.full(len(usable), np.nan)
            return Prediction(unscaled, seconds, score, note=note, oddities=oddities)
        labelled, scaling_seconds, _ = self.timed_output(name, replace(inputs, predicted=held, selection=None))
        scale = Scale.fit(labelled, correct)
        confidence = confidence_in_all(scale.apply(predicted), inputs, self.resolved.protocol.empty_rule)
        note = f"scaled on validation: {len(correct):,} labelled answers of {held.where} made its scores probabilities"
        if not scale.slope:
            note += ", all the same one, since right answers have no higher scores there than wrong ones"
        return Prediction(confidence, seconds + scaling_seconds, score, len(correct), note, oddities, scale)

    def confidences(self, name: str, inputs: Inputs) -> Prediction:
        """Return a method's confidences in all answers of a split; the protocol sets the confidence in empty answers.

        Raises:
            ContractError: the method's output is no probabilities, or not one for each answer.
            Exception: any exception that the method raises here, or raised in its fit.
        """
        predicted, seconds, oddities = self.timed_output(name, inputs)
        confidence = confidence_in_all(predicted, inputs, self.resolved.protocol.empty_rule)
        return Prediction(confidence, seconds, oddities=oddities)

    def timed_output(self, name: str, inputs: Inputs) -> tuple[FloatArray, float, dict[str, int]]:
        """Return a method's output for the m usable answers of a split, with seconds and counts.

        Usable are answers that are not blank, to questions that are not left out.

        Returns:
            The output `(m,)`, the seconds of the prediction, and description -> number of unusual answers.

        Raises:
            ContractError: the method's output has a wrong type, shape or range.
            Exception: any exception that the method raises here, or raised in its fit.
        """
        if inputs.failure is not None:
            raise inputs.failure
        split_data, signals = inputs.predicted, self.resolved.methods[name].reads().predict
        method = self.resolved.new_method(name) if inputs.fitted is None else inputs.fitted.method
        seconds, oddities = 0.0, Counter[str]()
        values = np.zeros(len(split_data.questions))
        with self.progress.stage(f"predict {name}", int(split_data.usable.sum())) as advance:
            for rows, batch in self.batches.pieces(split_data, signals, inputs.adapted):
                start = time.perf_counter()
                values[rows] = outputs_of(method, batch)
                seconds += time.perf_counter() - start
                oddities.update({str(what): int(n) for what, n in method.oddities(batch).items()})
                advance(len(batch))
                del batch
                release_free_memory()
        return values[split_data.usable], seconds, dict(oddities)

    def read_adapted(self, name: str, split_data: SplitData, fitted: Fitted | BaseException) -> AdaptedSplit | None:
        """Read a split again with the adapter that a method trained.

        Return None for a validation split if its confidences were recorded during training.

        Args:
            name: name of the method.
            split_data: the split as the frozen model read it.
            fitted: the fitted method, or the exception of its fit, which is raised again.

        Raises:
            ContractError: the fitted method has no adapter in its attribute `adapter_`.
        """
        if isinstance(fitted, BaseException):
            raise fitted
        if split_data.where.split == "validation" and fitted.curve is not None:
            return None
        if (adapter := trained_adapter(fitted.method)) is None:
            raise ContractError(f"{name} reads through an adapter of its own, and fit left none in `adapter_`")
        start = time.perf_counter()
        reread = self.batches.reader.read_adapted(split_data, adapter)
        return AdaptedSplit(reread, time.perf_counter() - start)


def reason_unscalable(correct: BoolArray) -> str | None:
    """Return why scores can't be scaled with these labels `(m,)` of answers; None if they can."""
    if not correct.size:
        return "there are no labelled validation answers"
    if correct.all() or not correct.any():
        return f"all {correct.size:,} labelled validation answers are {'right' if correct.all() else 'wrong'}"
    return None


def confidence_in_all(predicted: FloatArray, inputs: Inputs, rule: EmptyRule) -> FloatArray:
    """Return confidences `(..., n)` in all answers, given those `(..., m)` that were predicted in the usable ones."""
    usable = inputs.predicted.usable
    confidence = np.full((*predicted.shape[:-1], len(usable)), empty_answer_confidence(inputs, rule))
    confidence[..., usable] = predicted
    return confidence


def empty_answer_confidence(inputs: Inputs, rule: EmptyRule) -> float:
    """Return the confidence in an empty answer: 0 or the share of right training answers, as the protocol says.

    Without training answers, e.g. for an untrained method, it is always 0.
    """
    return 0.0 if rule is EmptyRule.ZERO or inputs.base_rate is None else inputs.base_rate
