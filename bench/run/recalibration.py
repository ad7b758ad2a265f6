"""Build further cells with recalibrated confidences, by maps that are fitted on confidences in validation answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from bench.api import Batch, BoolArray, ConfidenceMethod, FloatArray, UntrainableError
from bench.api.batch import labels_of
from bench.api.early_stopping import best_point, validation_loss
from bench.api.errors import capture, reason_of
from bench.api.methods import outputs_of, refuse_one_class
from bench.metrics.recalibration import by_folds, create_recalibrator
from bench.metrics.scaling import Scale
from bench.results.files import RECALIBRATED
from bench.results.row import ResultRow
from bench.run.costs import TokensAlone
from bench.run.fitting import Fitter, derived_seed
from bench.run.inputs import Inputs, StepResults
from bench.run.plan import uses_trained_adapter
from bench.run.predicting import Predictor, reason_unscalable
from bench.run.rows import RowBuilder, ScoredRow, ended_as


@dataclass(frozen=True)
class Recalibration:
    """Builds, for each cell of a run, one more cell per recalibrator (e.g. isotonic), with recalibrated confidences."""

    made: StepResults
    fitter: Fitter
    predictor: Predictor
    rows: RowBuilder

    def versions(self, scored: ScoredRow, inputs: Inputs) -> Iterator[ScoredRow]:
        """Yield a recalibrated cell for each recalibrator of the run; nothing if the method's own cell has no metrics.

        Args:
            scored: the method's own cell.
            inputs: splits and fitted method of this cell.
        """
        row, confidence = scored.row, scored.confidence
        if confidence is None or not self.made.resolved.recalibrate:
            return
        validated = capture(self._validation_confidence, row.method, inputs)
        notes = tuple(note for note in row.notes if note not in inputs.complaints)
        # also for an untrained method
        row = replace(row, notes=notes, config={**row.config, **self.made.resolved.labels_of(row.task)})

        def version(new: ResultRow, kind: str, sure: FloatArray, correct: BoolArray, alone: TokensAlone) -> ScoredRow:
            recalibrated, usable = confidence.copy(), inputs.predicted.usable
            fitted = create_recalibrator(kind).fit(sure, correct)
            recalibrated[usable] = fitted.apply(confidence[usable])
            labels = replace(row.labels_seen, validation=max(row.labels_seen.validation, len(correct)))
            cell = self.rows.with_numbers(
                replace(alone.fill_in(new), labels_seen=labels), inputs.predicted, recalibrated
            )
            return replace(cell, recalibrator=fitted, scale=scored.scale)

        for kind in self.made.resolved.recalibrate:
            new = replace(row, method=f"{row.method}{RECALIBRATED}{kind}")
            cell = validated if isinstance(validated, BaseException) else capture(version, new, kind, *validated)
            if isinstance(cell, BaseException):
                status = ended_as(cell)
                cell = ScoredRow(replace(new, status=status, reason=reason_of(cell), metrics={}, per_subject={}))
            yield cell

    def _validation_confidence(self, name: str, inputs: Inputs) -> tuple[FloatArray, BoolArray, TokensAlone]:
        """Return a method's confidences in m validation answers `(m,)`, their labels `(m,)`, and token counts.

        The token counts are of a run of this method alone. Recalibration makes it predict the validation split, too.
        """
        validation = self.made.inputs(name, inputs.predicted.where, validation=True)
        split_data = validation.predicted
        if not split_data.usable.any():
            raise UntrainableError("no validation answer is left to recalibrate on; raise --train-limit, if given")
        confidence = self._predict_validation(name, validation)
        alone = self.rows.tokens_alone(name, inputs, split_data, validation.adapted)
        return confidence, split_data.correct[split_data.usable], alone

    def _predict_validation(self, name: str, validation: Inputs) -> FloatArray:
        """Return a method's confidences `(m,)` in the usable validation answers: not blank, to questions not left out.

        If these answers were used to fit the method, choose its training step or scale its scores, this is repeated for
        each fold, with the answers of the other folds. So no confidence depends on the label of its own answer. There
        is one exception: if the answers chose training steps, but the fit has no curve (see `training_history`), the
        confidences are those of this one fit.

        Raises:
            UntrainableError: the scores can't be scaled, there is one answer alone, or the method learned on these
                answers through an adapter.
        """
        split_data, learned, fitted = validation.predicted, validation.learned, validation.fitted
        correct, seed = split_data.correct[split_data.usable], self.fitter.seed
        if fitted is not None and fitted.tuned is not None:  # the best step of any configuration is chosen
            curves = [
                self.predictor.confidences(name, replace(validation, fitted=fit)).confidence[split_data.usable][None]
                if fit.curve is None
                else fit.curve
                for fit in fitted.tuned.fits
            ]
            return chosen_out_of_fold(np.concatenate(curves), correct, seed)
        if fitted is not None and fitted.curve is not None:
            return chosen_out_of_fold(fitted.curve, correct, seed)
        if self.made.resolved.methods[name].output == "score":
            reason = reason_unscalable(correct)
            if reason is not None:
                raise UntrainableError(f"{reason}: its scores have no scale that could be recalibrated")
            score = self.predictor.timed_output(name, validation)[0]
            return by_folds(
                correct, seed, lambda train, held_out: Scale.fit(score[train], correct[train]).apply(score[held_out])
            )
        if learned is None or learned.where != split_data.where:
            return self.predictor.confidences(name, validation).confidence[split_data.usable]
        if uses_trained_adapter(self.made.resolved.methods[name]):
            raise UntrainableError(
                "it learned on the validation split through an adapter, so that there is nothing to recalibrate it on;"
                " let it learn elsewhere with --train-on"
            )
        reads, seed = self.made.resolved.methods[name].reads(), derived_seed(seed, name, str(split_data.where))

        def refitted(batch: Batch) -> ConfidenceMethod:
            method = self.made.resolved.new_method(name)
            refuse_one_class(method, labels_of(batch), split_data.where.split)
            return method.fit(batch, self.fitter.context(name, split_data, None, seed))

        labelled = self.fitter.batches.batch(split_data, reads.fit, labels=True)
        unlabelled = self.fitter.batches.batch(split_data, reads.predict, labels=False)
        return out_of_fold(refitted, labelled, unlabelled, seed)


def out_of_fold(fit: Callable[[Batch], ConfidenceMethod], labelled: Batch, unlabelled: Batch, seed: int) -> FloatArray:
    """Return confidences `(n,)` in a method's training answers, each by a fit on the folds without this answer.

    Args:
        fit: fits a new method on some of the answers, and returns it.
        labelled: the n answers with labels, for `fit`.
        unlabelled: the same answers without labels, for `predict`.
        seed: seed of the division into folds.
    """
    return by_folds(
        labelled.correct, seed, lambda train, held_out: outputs_of(fit(labelled.take(train)), unlabelled.take(held_out))
    )


def chosen_out_of_fold(curve: FloatArray, correct: BoolArray, seed: int) -> FloatArray:
    """Return confidences `(n,)` in validation answers, each at the checkpoint that is best on the other folds.

    The best checkpoint has the smallest negative log-likelihood.

    Args:
        curve: `(points, n)` confidences at each checkpoint of the training.
        correct: `(n,)` labels.
        seed: seed of the division into folds.
    """

    def chosen(train: BoolArray, held_out: BoolArray) -> FloatArray:
        losses = [validation_loss(point[train], correct[train]) for point in curve]
        point: FloatArray = curve[best_point(losses)]
        return point[held_out]

    return by_folds(correct, seed, chosen)
