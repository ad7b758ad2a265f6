"""Fit methods on one corpus (training data of a task), and predict tests, for the transfer matrix.

A method is fitted on the whole corpus. For leave-out fits it is also fitted once for each subject, on the corpus
without this subject, or without equally many random answers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from bench.api import FloatArray
from bench.api.errors import capture
from bench.data.splits import TaskSplit
from bench.results.row import LabelsSeen
from bench.results.transfer import SUBJECT, Corpus, Share
from bench.run.fitting import Fitted, Fitter, derived_seed
from bench.run.inputs import AdaptedSplit, Inputs, StepResults
from bench.run.plan import Fit, TrainOn, trained_adapter, uses_trained_adapter
from bench.run.predicting import Prediction, Predictor, Skipped
from bench.signals.split_data import SplitData
from bench.training.assignment import Assignment
from bench.training.trainer import DeferredTrainingError

ADVICE = "--with-adapters does it"
Outcome = Prediction | Skipped | BaseException


class NoTraining:
    """Trainer that refuses to train adapters, so that methods can use only adapters that are in the store."""

    def begun(self, key: str) -> bool:
        """Return False: this trainer never starts a training."""
        del key
        return False

    def train(self, key: str, work: Assignment, *, wait: bool) -> tuple[float, Sequence[str]] | None:
        """Refuse to train.

        Raises:
            DeferredTrainingError: always.
        """
        del key, wait
        raise DeferredTrainingError(work.method)


class UnreadError(DeferredTrainingError):
    """Raised if the store lacks signals of a method's adapter, and the user did not ask to compute these signals."""


@dataclass(frozen=True)
class SkippedForCost(Skipped):
    """Reason why a cell has no row: the method's adapter costs too much, or the corpus has no subject to leave out."""


@dataclass(frozen=True, eq=False)
class Folds:
    """Fits methods on one corpus, whole or with a part left out, and predicts tests with these fits."""

    task: str
    """Task whose train and validation answers are the corpus."""
    results: StepResults
    """Splits of the corpus and of the tests, and the fits on the whole corpus."""
    fitter: Fitter
    predictor: Predictor
    with_adapters: bool
    """Whether missing adapters are trained, and missing signals of the tests are computed with adapters."""
    _reduced_splits: dict[tuple[str, str], dict[TaskSplit, SplitData]] = field(default_factory=dict, init=False)
    """(kind of leave-out fit: SUBJECT or AT_RANDOM; subject) -> all splits. Their training and validation splits lack
    the subject's questions or, with AT_RANDOM, equally many random ones."""

    def stored(self, name: str, leave_out: Sequence[str]) -> list[bool]:
        """Return, for each fit of a method that the matrix needs, whether the store has it.

        The list is empty if the method is untrained, can't be fitted, or trains an adapter.

        Args:
            name: name of the method.
            leave_out: kinds of fits besides the fit on the whole corpus: without each subject in turn (SUBJECT), or
                without equally many random answers (AT_RANDOM).
        """
        method = self.predictor.resolved.methods[name]
        where = TrainOn(self.task).split_of(method)
        tests = self.predictor.resolved.test_splits
        is_infeasible = all((name, test) in self.predictor.infeasible for test in tests)
        if (
            not method.trains()
            or uses_trained_adapter(method)
            or is_infeasible
            or where not in self.results.data_by_split
        ):
            return []
        splits = [
            self.results.data_by_split,
            *(self._splits_without(kind, s) for kind in leave_out for s in self.subjects(where)),
        ]
        fits = [StepResults(self.results.resolved, self.results.selecting, data_by_split) for data_by_split in splits]
        return [self.fitter.is_stored(name, fit.data_by_split[where], fit.selection(name, where)) for fit in fits]

    def subjects(self, where: TaskSplit) -> list[str]:
        """Return the subjects that a split shares with any test; empty if the split has fewer than two subjects.

        With only one subject, no data would remain once that subject is left out.
        """
        subjects, data = subjects_of(self.results.data_by_split[where]), self.results.data_by_split
        tested = {s for test in self.predictor.resolved.test_splits for s in subjects_of(data[test])}
        return [subject for subject in subjects if subject in tested] if len(subjects) > 1 else []

    def shares(self, leave_out: Sequence[str]) -> Iterator[Share]:
        """Yield the share of right answers in the training data: first of the whole corpus, then of each smaller one.

        Args:
            leave_out: kinds of smaller corpora: without each subject in turn (SUBJECT), or without equally many random
                answers (AT_RANDOM).
        """
        corpus_splits = (TaskSplit(self.task, "train"), TaskSplit(self.task, "validation"))
        where = next((split for split in corpus_splits if split in self.results.data_by_split), None)
        if where is None:
            return
        parts = [("", "", self.results.data_by_split[where])]
        parts += [(kind, s, self._splits_without(kind, s)[where]) for kind in leave_out for s in self.subjects(where)]
        for kind, subject, split_data in parts:
            correct = split_data.correct[split_data.usable]
            if correct.size:
                yield Share(Corpus(self.task, kind), subject, float(correct.mean()), int(correct.size))

    def predict(
        self, name: str, leaves_out: str, test: TaskSplit, fits: dict[str, StepResults]
    ) -> tuple[Inputs, Outcome]:
        """Predict a test by the fit on the whole corpus or, with `leaves_out`, by one fit for each subject of the test.

        Args:
            name: name of the method.
            leaves_out: what the fit for a subject leaves out of the corpus: nothing (empty text), the subject's answers
                (SUBJECT), or equally many answers of any subject (AT_RANDOM). Subjects that the corpus lacks are
                predicted by the fit on the whole corpus.
            test: the test split.
            fits: subject -> results of the fit for this subject. All tests share this dict; missing fits are added to
                it.
        """
        if not leaves_out:
            whole = self._inputs(name, test, self.results)
            return whole, self._outcome(name, whole)
        split_data, method = self.results.data_by_split[test], self.predictor.resolved.methods[name]
        train_on = TrainOn(self.task)
        where = train_on.split_of(method) if method.trains() else train_on.validation
        learned = self.results.data_by_split.get(where)
        whole = self.results.inputs(name, test)
        if (name, test) in self.predictor.infeasible or learned is None:
            return whole, self._outcome(name, whole)
        learned_subjects, test_subjects = subjects_of(learned), subjects_of(split_data)
        if not set(learned_subjects) & set(test_subjects):
            return whole, SkippedForCost(
                f"{test} and {where} have no subject in common, so that nothing can be left out"
            )
        if len(learned_subjects) <= 1:
            return whole, SkippedForCost(f"{where} has one subject; without it there is nothing to learn from")
        parts: list[tuple[FloatArray, Inputs, Prediction]] = []
        for subject in test_subjects:
            if subject in learned_subjects and subject not in fits:
                data_by_split = self._splits_without(leaves_out, subject)
                fits[subject] = StepResults(self.results.resolved, self.results.selecting, data_by_split)
            results = fits.get(subject, self.results)
            mask = np.asarray([question.subject == subject for question in split_data.questions])
            left_out = split_data.left_out | {
                question.id for question in split_data.questions if question.subject != subject
            }
            inputs = replace(self._inputs(name, test, results), predicted=replace(split_data, left_out=left_out))
            outcome = self._outcome(name, inputs)
            if isinstance(outcome, Skipped):
                return whole, replace(outcome, reason=f"without {subject}: {outcome.reason}")
            if not isinstance(outcome, Prediction):
                return whole, outcome
            parts.append((mask, inputs, outcome))
        note = f"scaled subject by subject on the labelled answers of {Corpus(learned.where.task, leaves_out).label}"
        return self._join_predictions(whole, note, learned, parts)

    def _splits_without(self, leaves_out: str, subject: str) -> dict[TaskSplit, SplitData]:
        """Return all splits; training and validation lack a subject's answers, or equally many random answers."""
        key = leaves_out, subject
        if key not in self._reduced_splits:
            splits = self._reduced_splits[key] = dict(self.results.data_by_split)
            for where, split_data in self.results.data_by_split.items():
                if where.split == "test":
                    continue
                removed_ids = {question.id for question in split_data.questions if question.subject == subject}
                if leaves_out != SUBJECT:  # as many usable answers as the subject has, sampled from all subjects
                    usable = np.flatnonzero(split_data.usable)
                    n = sum(split_data.questions[row].subject == subject for row in usable)
                    rng = np.random.default_rng(derived_seed(self.fitter.seed, "as many", str(where), subject))
                    removed_ids = {split_data.questions[row].id for row in rng.choice(usable, n, replace=False)}
                splits[where] = replace(split_data, left_out=split_data.left_out | removed_ids)
        return self._reduced_splits[key]

    # --- one fit ------------------------------------------------------------------------------------------------------

    def _inputs(self, name: str, test: TaskSplit, results: StepResults) -> Inputs:
        """Return the data that a test's confidences are computed from; fit the method first if it is not fitted yet."""
        method = self.predictor.resolved.methods[name]
        where = TrainOn(self.task).split_of(method)
        if method.trains() and where in results.data_by_split and (name, test) not in self.predictor.infeasible:
            step = Fit(name, where)
            if step not in results.fits:
                results.fits[step] = capture(
                    self.fitter.fit, name, results.data_by_split[where], results.selection(name, where)
                )
            if uses_trained_adapter(method):
                results.adapted[name, test] = capture(self._read_through_adapter, name, test, results.fits[step])
        return results.inputs(name, test)

    def _read_through_adapter(self, name: str, test: TaskSplit, fitted: Fitted | BaseException) -> AdaptedSplit | None:
        """Return a test split with the signals that the model gives with a method's trained adapter.

        Raises:
            UnreadError: the store lacks these signals, and `with_adapters` is false.
        """
        split_data, reader = self.results.data_by_split[test], self.predictor.batches.reader
        ref = trained_adapter(fitted.method) if isinstance(fitted, Fitted) else None
        if ref is not None and not (self.with_adapters or reader.has_adapted(split_data, ref)):
            raise UnreadError(f"not read again: no run has read {test} through this adapter of {name}; {ADVICE}")
        return self.predictor.read_adapted(name, split_data, fitted)

    def _outcome(self, name: str, inputs: Inputs) -> Outcome:
        if isinstance(inputs.failure, UnreadError):
            return SkippedForCost(str(inputs.failure))
        if isinstance(inputs.failure, DeferredTrainingError):
            return SkippedForCost(f"not trained again: no run has stored such an adapter of {name}; {ADVICE}")
        return capture(self.predictor.predict, name, inputs)

    # --- all folds of a test ------------------------------------------------------------------------------------------

    def _join_predictions(
        self, whole: Inputs, scaling: str, learned: SplitData, parts: Sequence[tuple[FloatArray, Inputs, Prediction]]
    ) -> tuple[Inputs, Outcome]:
        """Join the predictions for a test's subjects to one for the whole test; seconds are summed.

        Label counts are not summed: the joined fit counts the labels of the whole corpus once.

        Args:
            whole: data of the whole test.
            scaling: note on how the scores were scaled.
            learned: training split of the whole corpus; its validation split if the method is untrained.
            parts: one triple for each subject: mask of the subject's questions in the test, data of the subject's fit,
                and prediction.
        """
        n, (_, first_inputs, example) = len(whole.predicted.questions), parts[0]
        confidence, has_scores = np.full(n, np.nan), example.score is not None
        score = np.full(n, -np.inf) if has_scores else None
        for mask, _, prediction in parts:
            confidence[mask] = prediction.confidence[mask]
            if score is not None and prediction.score is not None:
                score[mask] = prediction.score[mask]
        note = ""
        if has_scores and np.isnan(confidence).any():
            confidence[:] = np.nan
            note = next(prediction.note for _, _, prediction in parts if np.isnan(prediction.confidence).all())
        elif has_scores:
            note = scaling
        scaled_by = 0 if not has_scores or np.isnan(confidence).any() else int(learned.usable.sum())
        warnings = Counter[str]()
        for _, _, prediction in parts:
            warnings.update(prediction.oddities)
        stages = dict.fromkeys(stage for _, fold_inputs, _ in parts for stage in fold_inputs.seconds)
        seconds = {stage: sum(fold_inputs.seconds.get(stage, 0.0) for _, fold_inputs, _ in parts) for stage in stages}
        fitted = first_inputs.fitted
        if fitted is not None:  # all folds together have seen the labels of the whole corpus
            labels_seen, n_learned, chosen = fitted.labels, whole.n_learned, whole.selection
            n_chosen = n_learned if chosen is None else int(chosen.usable.sum())
            labels = LabelsSeen(
                train=n_learned * bool(labels_seen.train), validation=n_chosen * bool(labels_seen.validation),
                gold=n_learned * bool(labels_seen.gold),
            )  # fmt: skip
            fitted = replace(fitted, labels=labels)
        inputs = replace(whole, fitted=fitted, adapted=first_inputs.adapted, failure=None, seconds=seconds)
        joined = Prediction(
            confidence, sum(prediction.seconds for _, _, prediction in parts), score, scaled_by, note, dict(warnings)
        )
        return inputs, joined


def subjects_of(*data_by_split: SplitData) -> list[str]:
    """Return the distinct subjects of the questions of some splits, in order of first appearance.

    Questions that are in `left_out` of their split are ignored.
    """
    counted = (
        question
        for split_data in data_by_split
        for question in split_data.questions
        if question.id not in split_data.left_out
    )
    return list(dict.fromkeys(question.subject for question in counted))
