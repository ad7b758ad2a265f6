"""Recalibrated versions of a method: cells of their own, fitted on how sure it is of the validation answers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from bench.api import Batch, BoolArray, ConfidenceMethod, FloatArray, UserError
from bench.api.batch import labels_of
from bench.api.errors import attempted, reason_of
from bench.api.methods import refuse_one_class
from bench.metrics.recalibration import recalibrator
from bench.results.files import RECALIBRATED
from bench.results.row import ResultRow
from bench.run.costs import TokensAlone
from bench.run.fitting import Fitted, Fitter, derived_seed
from bench.run.inputs import Inputs, StepResults
from bench.run.out_of_fold import chosen_out_of_fold, out_of_fold, scaled_out_of_fold
from bench.run.plan import adapted
from bench.run.predicting import Predictor, unscalable
from bench.run.resolve import ResolvedRun
from bench.run.rows import RowBuilder, ScoredRow
from bench.signals.reading import Reading


@dataclass(frozen=True, eq=False)
class _Validated:
    """Confidences in the validation answers as a recalibrator must see them."""

    confidence: FloatArray
    """`(m,)` for the usable answers."""
    correct: BoolArray
    """`(m,)` their labels."""
    tokens_alone: TokensAlone
    """Tokens that the method needs by itself for test and validation."""


@dataclass(frozen=True)
class Recalibration:
    """Makes the recalibrated versions of a run's cells."""

    resolved: ResolvedRun
    made: StepResults
    fitter: Fitter
    predictor: Predictor
    rows: RowBuilder

    def versions(self, scored: ScoredRow, inputs: Inputs) -> Iterator[ScoredRow]:
        """A cell for each recalibrator of the run; none where the method itself has no numbers.

        Args:
            scored: the method's own cell.
            inputs: what it rests on.
        """
        row, confidence = scored.row, scored.confidence
        if confidence is None or not self.resolved.recalibrate:
            return
        validated = attempted(self._validated, row.method, inputs)
        notes = tuple(note for note in row.notes if note not in inputs.complaints)
        scaled = {"scale_training": True} if self.resolved.scale_training else {}  # also of one that learns nothing
        row = replace(row, notes=notes, config={**row.config, **scaled}, deviations={**row.deviations, **scaled})
        for kind in self.resolved.recalibrate:
            again = replace(row, method=f"{row.method}{RECALIBRATED}{kind}")
            version: ScoredRow | BaseException
            if isinstance(validated, _Validated):
                version = attempted(self._version, kind, again, inputs.predicted, confidence, validated)
            else:
                version = validated
            if isinstance(version, ScoredRow):
                yield replace(version, scale=scored.scale)
            else:
                again = replace(again, status="failed", reason=reason_of(version), metrics={}, per_subject={})
                yield ScoredRow(again)

    def _version(
        self, kind: str, row: ResultRow, test: Reading, confidence: FloatArray, validated: _Validated
    ) -> ScoredRow:
        """The cell with recalibrated confidences."""
        recalibrated = confidence.copy()
        fitted = recalibrator(kind).fit(validated.confidence, validated.correct)
        recalibrated[test.usable] = fitted.apply(confidence[test.usable])
        validation = max(row.labels_seen.validation, len(validated.correct))
        row = replace(row, labels_seen=replace(row.labels_seen, validation=validation))
        made = self.rows.with_numbers(validated.tokens_alone.put(row), test, recalibrated)
        return replace(made, recalibrator=fitted)

    def _validated(self, name: str, inputs: Inputs) -> _Validated:
        validation = self.made.validation_inputs(name, inputs.predicted.where)
        reading = validation.predicted
        confidence = self._confidence(name, validation)
        alone = self.rows.tokens_alone(name, inputs, reading, validation.adapted)
        return _Validated(confidence, reading.correct[reading.usable], alone)

    def _confidence(self, name: str, validation: Inputs) -> FloatArray:
        """Confidences `(m,)` in the usable validation answers; out of fold where the method was fitted on them."""
        reading, learned, fitted = validation.predicted, validation.learned, validation.fitted
        if fitted is not None and fitted.tuned is not None:  # the best step of all: that of the best configuration
            points = [self._points(name, validation, fit) for fit in fitted.tuned.fits]
            return chosen_out_of_fold(np.concatenate(points), reading.correct[reading.usable], self.fitter.seed)
        if fitted is not None and fitted.curve is not None:
            return chosen_out_of_fold(fitted.curve, reading.correct[reading.usable], self.fitter.seed)
        if self.resolved.methods[name].output == "score":
            correct = reading.correct[reading.usable]
            reason = unscalable(correct)
            if reason is not None:
                raise UserError(f"{reason}: its scores have no scale that could be recalibrated")
            return scaled_out_of_fold(self.predictor.predicted(name, validation)[0], correct, self.fitter.seed)
        if learned is None or learned.where != reading.where:
            return self.predictor.confidences(name, validation).confidence[reading.usable]
        if adapted(self.resolved.methods[name]):
            raise UserError(
                "it learned on the validation split through an adapter, so that there is nothing to recalibrate it on;"
                " let it learn elsewhere with --train-on"
            )
        return self._out_of_fold(name, validation)

    def _points(self, name: str, validation: Inputs, fit: Fitted) -> FloatArray:
        """Confidences `(points, m)` of one configuration in the usable validation answers, at each of its steps."""
        if fit.curve is not None:
            return fit.curve
        made = self.predictor.confidences(name, replace(validation, fitted=fit))
        return made.confidence[validation.predicted.usable][None]

    def _out_of_fold(self, name: str, validation: Inputs) -> FloatArray:
        """Confidences `(m,)` in the answers that a method learned from, each by a fit that did not see it."""
        reading, reads = validation.predicted, self.resolved.methods[name].reads()
        seed = derived_seed(self.fitter.seed, name, str(reading.where))

        def refitted(batch: Batch) -> ConfidenceMethod:
            method = self.resolved.fresh(name)
            refuse_one_class(method, labels_of(batch), reading.where.split)
            return method.fit(batch, self.fitter.context(name, reading, None, seed))

        labelled = self.fitter.batches.batch(reading, reads.fit, labels=True)
        unlabelled = self.fitter.batches.batch(reading, reads.predict, labels=False)
        return out_of_fold(refitted, labelled, unlabelled, seed)
