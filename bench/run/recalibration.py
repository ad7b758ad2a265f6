"""Recalibrated versions of a method: cells of their own, fitted on how sure it is of the validation answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from bench.api import Batch, BoolArray, ConfidenceMethod, FloatArray, UserError
from bench.api.batch import labels_of
from bench.api.early_stopping import best_point, validation_loss
from bench.api.errors import attempted, reason_of
from bench.api.methods import given, refuse_one_class
from bench.metrics.recalibration import folds_of, recalibrator
from bench.metrics.scaling import Scale
from bench.results.files import RECALIBRATED
from bench.results.row import ResultRow
from bench.run.costs import TokensAlone
from bench.run.fitting import Fitter, derived_seed
from bench.run.inputs import Inputs, StepResults
from bench.run.plan import adapted
from bench.run.predicting import Predictor, unscalable
from bench.run.resolve import ResolvedRun
from bench.run.rows import RowBuilder, ScoredRow


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

        def version(again: ResultRow, kind: str, sure: FloatArray, correct: BoolArray, alone: TokensAlone) -> ScoredRow:
            recalibrated, usable = confidence.copy(), inputs.predicted.usable
            fitted = recalibrator(kind).fit(sure, correct)
            recalibrated[usable] = fitted.apply(confidence[usable])
            seen = replace(row.labels_seen, validation=max(row.labels_seen.validation, len(correct)))
            made = self.rows.with_numbers(replace(alone.put(again), labels_seen=seen), inputs.predicted, recalibrated)
            return replace(made, recalibrator=fitted, scale=scored.scale)

        for kind in self.resolved.recalibrate:
            again = replace(row, method=f"{row.method}{RECALIBRATED}{kind}")
            made = validated if isinstance(validated, BaseException) else attempted(version, again, kind, *validated)
            if isinstance(made, BaseException):
                failed = replace(again, status="failed", reason=reason_of(made), metrics={}, per_subject={})
                made = ScoredRow(failed)
            yield made

    def _validated(self, name: str, inputs: Inputs) -> tuple[FloatArray, BoolArray, TokensAlone]:
        """Confidences in the validation answers `(m,)`, their labels, and tokens for test and validation together."""
        validation = self.made.inputs(name, inputs.predicted.where, validation=True)
        split_data = validation.predicted
        confidence = self._confidence(name, validation)
        alone = self.rows.tokens_alone(name, inputs, split_data, validation.adapted)
        return confidence, split_data.correct[split_data.usable], alone

    def _confidence(self, name: str, validation: Inputs) -> FloatArray:
        """Confidences `(m,)` in the usable validation answers; out of fold where the method was fitted on them."""
        split_data, learned, fitted = validation.predicted, validation.learned, validation.fitted
        correct, seed = split_data.correct[split_data.usable], self.fitter.seed
        if fitted is not None and fitted.tuned is not None:  # the best step of all: that of the best configuration
            curves = [
                self.predictor.confidences(name, replace(validation, fitted=fit)).confidence[split_data.usable][None]
                if fit.curve is None
                else fit.curve
                for fit in fitted.tuned.fits
            ]
            return chosen_out_of_fold(np.concatenate(curves), correct, seed)
        if fitted is not None and fitted.curve is not None:
            return chosen_out_of_fold(fitted.curve, correct, seed)
        if self.resolved.methods[name].output == "score":
            reason = unscalable(correct)
            if reason is not None:
                raise UserError(f"{reason}: its scores have no scale that could be recalibrated")
            score = self.predictor.predicted(name, validation)[0]
            return _by_folds(
                correct, seed, lambda others, own: Scale.fit(score[others], correct[others]).apply(score[own])
            )
        if learned is None or learned.where != split_data.where:
            return self.predictor.confidences(name, validation).confidence[split_data.usable]
        if adapted(self.resolved.methods[name]):
            raise UserError(
                "it learned on the validation split through an adapter, so that there is nothing to recalibrate it on;"
                " let it learn elsewhere with --train-on"
            )
        reads, seed = self.resolved.methods[name].reads(), derived_seed(seed, name, str(split_data.where))

        def refitted(batch: Batch) -> ConfidenceMethod:
            method = self.resolved.fresh(name)
            refuse_one_class(method, labels_of(batch), split_data.where.split)
            return method.fit(batch, self.fitter.context(name, split_data, None, seed))

        labelled = self.fitter.batches.batch(split_data, reads.fit, labels=True)
        unlabelled = self.fitter.batches.batch(split_data, reads.predict, labels=False)
        return out_of_fold(refitted, labelled, unlabelled, seed)


def out_of_fold(
    fitted_anew: Callable[[Batch], ConfidenceMethod], labelled: Batch, unlabelled: Batch, seed: int
) -> FloatArray:
    """Confidences `(n,)` in the answers that a method learns from, each by a fit that did not see it.

    Args:
        fitted_anew: fits a fresh method on some of the answers.
        labelled: the answers as `fit` gets them.
        unlabelled: the same answers as `predict` gets them.
        seed: of the folds.
    """
    return _by_folds(
        labelled.correct, seed, lambda others, own: given(fitted_anew(labelled.take(others)), unlabelled.take(own))
    )


def chosen_out_of_fold(curve: FloatArray, correct: BoolArray, seed: int) -> FloatArray:
    """Confidences `(n,)` in the answers that a step was chosen by, each at the step that the others choose.

    Args:
        curve: `(points, n)` confidences at each point of the training.
        correct: `(n,)` labels.
        seed: of the folds.
    """

    def chosen(others: BoolArray, own: BoolArray) -> FloatArray:
        losses = [validation_loss(point[others], correct[others]) for point in curve]
        point: FloatArray = curve[best_point(losses)]
        return point[own]

    return _by_folds(correct, seed, chosen)


def _by_folds(correct: BoolArray, seed: int, by_others: Callable[[BoolArray, BoolArray], FloatArray]) -> FloatArray:
    """Confidences `(n,)` in answers with these labels: those of each fold by all other folds."""
    fold = folds_of(correct, seed=seed)
    confidence = np.empty(len(correct))
    for k in range(int(fold.max()) + 1):
        confidence[fold == k] = by_others(fold != k, fold == k)
    return confidence
