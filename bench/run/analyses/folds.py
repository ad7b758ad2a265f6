"""Fits on one corpus, whole and without a part for each subject in turn, and what they predict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from bench.api import AdapterRef, FloatArray
from bench.api.errors import attempted
from bench.data.splits import TaskSplit
from bench.results.row import LabelsSeen
from bench.results.transfer import SUBJECT, Corpus, Share
from bench.run.fitting import Fitted, Fitter, derived_seed
from bench.run.inputs import AdaptedSplit, Inputs, StepResults
from bench.run.plan import Fit, TrainOn, adapted
from bench.run.predicting import Prediction, Predictor, Skipped
from bench.signals.split_data import SplitData
from bench.training.assignment import Assignment
from bench.training.trainer import PutOffError

_TWO = 2
WAY_OUT = "--with-adapters does it"
Outcome = Prediction | Skipped | BaseException


class Never:
    """In the place of machines that train adapters: a stored one is found before; no other is trained."""

    def begun(self, key: str) -> bool:
        """Whether it trains here."""
        del key
        return False

    def train(self, key: str, work: Assignment, *, wait: bool) -> tuple[float, Sequence[str]] | None:
        """Refuse it.

        Raises:
            PutOffError: always.
        """
        del key, wait
        raise PutOffError(work.method)


class NotReadError(PutOffError):
    """A split was not to be read through an adapter."""


@dataclass(frozen=True)
class SkippedForCost(Skipped):
    """Reason why a cell is not computed; nothing is written of it."""


@dataclass(frozen=True, eq=False)
class Folds:
    """Fits on one corpus."""

    task: str
    made: StepResults
    """Readings of the corpus and the tests."""
    fitter: Fitter
    predictor: Predictor
    with_adapters: bool
    """Whether adapters are trained and read that are not stored."""
    _without: dict[tuple[str, str], dict[TaskSplit, SplitData]] = field(default_factory=dict, init=False)
    """Part that is left out, and the subject for which -> the readings without it."""

    def stored(self, name: str, leave_out: Sequence[str]) -> list[bool]:
        """For each fit that a method needs whether it is stored; none of a method that learns nothing or has adapters.

        Args:
            name: of the method.
            leave_out: kinds of parts that are left out besides fits of the whole corpus.
        """
        method = self.predictor.resolved.methods[name]
        where = TrainOn(self.task).where(method)
        tests = self.predictor.resolved.test_splits
        barred = all((name, test) in self.predictor.infeasible for test in tests)
        if not method.trains() or adapted(method) or barred or where not in self.made.data_by_split:
            return []
        parts = [
            self.made.data_by_split,
            *(self._readings(kind, s) for kind in leave_out for s in self.subjects(where)),
        ]
        made = [StepResults(self.made.resolved, self.made.selecting, data_by_split) for data_by_split in parts]
        return [self.fitter.is_stored(name, each.data_by_split[where], each.selection(name, where)) for each in made]

    def subjects(self, where: TaskSplit) -> list[str]:
        """Subjects of a split that some test asks about too; none where it has but one, since nothing would be left."""
        own = subjects_of(self.made.data_by_split[where])
        asked = {s for test in self.predictor.resolved.test_splits for s in subjects_of(self.made.data_by_split[test])}
        return [subject for subject in own if subject in asked] if len(own) >= _TWO else []

    def shares(self, leave_out: Sequence[str]) -> Iterator[Share]:
        """Shares of right answers in what is learned from: in all of it, and for each subject that loses a part.

        Args:
            leave_out: kinds of parts that are left out besides fits of the whole corpus.
        """
        of_corpus = (TaskSplit(self.task, "train"), TaskSplit(self.task, "validation"))
        where = next((split for split in of_corpus if split in self.made.data_by_split), None)
        if where is None:
            return
        parts = [("", "", self.made.data_by_split[where])]
        parts += [(kind, s, self._readings(kind, s)[where]) for kind in leave_out for s in self.subjects(where)]
        for kind, subject, split_data in parts:
            right = split_data.correct[split_data.usable]
            if right.size:
                yield Share(Corpus(self.task, kind), subject, float(right.mean()), int(right.size))

    def parted(
        self, name: str, leaves_out: str, test: TaskSplit, fits: dict[str, StepResults]
    ) -> tuple[Inputs, Outcome]:
        """Prediction of a test by a fit of the whole corpus, or each question by one that lacks a part of it.

        Args:
            name: of the method.
            leaves_out: nothing; SUBJECT: the question's subject; AT_RANDOM: as many answers drawn from all subjects,
                anew for each subject. Subjects of which the corpus has no question lose nothing.
            test: what is predicted.
            fits: subject -> fits without it, which several tests share.
        """
        if not leaves_out:
            whole = self._inputs(name, test, self.made)
            return whole, self._outcome(name, whole)
        split_data, method = self.made.data_by_split[test], self.predictor.resolved.methods[name]
        train_on = TrainOn(self.task)
        where = train_on.where(method) if method.trains() else train_on.validation
        learned = self.made.data_by_split.get(where)
        whole = self.made.inputs(name, test)
        if (name, test) in self.predictor.infeasible or learned is None:
            return whole, self._outcome(name, whole)
        own, asked = subjects_of(learned), subjects_of(split_data)
        if not set(own) & set(asked):
            return whole, SkippedForCost(
                f"{test} and {where} have no subject in common, so that nothing can be left out"
            )
        if len(own) < _TWO:
            return whole, SkippedForCost(f"{where} has one subject; without it there is nothing to learn from")
        parts: list[tuple[FloatArray, Inputs, Prediction]] = []
        for subject in asked:
            if subject in own and subject not in fits:
                data_by_split = self._readings(leaves_out, subject)
                fits[subject] = StepResults(self.made.resolved, self.made.selecting, data_by_split)
            made = fits.get(subject, self.made)
            mine = np.asarray([question.subject == subject for question in split_data.questions])
            others = frozenset(
                question.id for question, is_mine in zip(split_data.questions, mine, strict=True) if not is_mine
            )
            inputs = replace(
                self._inputs(name, test, made), predicted=replace(split_data, left_out=split_data.left_out | others)
            )
            outcome = self._outcome(name, inputs)
            if isinstance(outcome, Skipped):
                return whole, replace(outcome, reason=f"without {subject}: {outcome.reason}")
            if not isinstance(outcome, Prediction):
                return whole, outcome
            parts.append((mine, inputs, outcome))
        words = Corpus(learned.where.task, leaves_out).label
        return self._joined(whole, f"scaled subject by subject on the labelled answers of {words}", learned, parts)

    def _readings(self, leaves_out: str, subject: str) -> dict[TaskSplit, SplitData]:
        """The same readings, without a part of all that is learned from and chosen by."""
        key = leaves_out, subject
        if key not in self._without:
            found = self._without[key] = dict(self.made.data_by_split)
            for where, split_data in self.made.data_by_split.items():
                if where.split == "test":
                    continue
                part = {question.id for question in split_data.questions if question.subject == subject}
                if leaves_out != SUBJECT:  # as many usable answers drawn from all subjects, this one included
                    usable = np.flatnonzero(split_data.usable)
                    n = sum(split_data.questions[row].subject == subject for row in usable)
                    rng = np.random.default_rng(derived_seed(self.fitter.seed, "as many", str(where), subject))
                    part = {split_data.questions[row].id for row in rng.choice(usable, n, replace=False)}
                found[where] = replace(split_data, left_out=split_data.left_out | part)
        return self._without[key]

    # --- one fit ------------------------------------------------------------------------------------------------------

    def _inputs(self, name: str, test: TaskSplit, made: StepResults) -> Inputs:
        """Inputs of a prediction; the method learns where it has not yet."""
        method = self.predictor.resolved.methods[name]
        where = TrainOn(self.task).where(method)
        if method.trains() and where in made.data_by_split and (name, test) not in self.predictor.infeasible:
            step = Fit(name, where)
            if step not in made.fits:
                made.fits[step] = attempted(
                    self.fitter.fit, name, made.data_by_split[where], made.selection(name, where)
                )
            if adapted(method):
                made.adapted[name, test] = attempted(self._through, name, test, made.fits[step])
        return made.inputs(name, test)

    def _through(self, name: str, test: TaskSplit, fitted: Fitted | BaseException) -> AdaptedSplit | None:
        """A test as read through an adapter, unless it would have to be read for that and nobody asked for it."""
        split_data, reader = self.made.data_by_split[test], self.predictor.batches.reader
        ref = fitted.method.fitted().get("adapter_") if isinstance(fitted, Fitted) else None
        if isinstance(ref, AdapterRef) and not (self.with_adapters or reader.is_read_through(split_data, ref)):
            raise NotReadError(f"not read again: no run has read {test} through this adapter of {name}; {WAY_OUT}")
        return self.predictor.read_through(name, split_data, fitted)

    def _outcome(self, name: str, inputs: Inputs) -> Outcome:
        if isinstance(inputs.failure, NotReadError):
            return SkippedForCost(str(inputs.failure))
        if isinstance(inputs.failure, PutOffError):
            return SkippedForCost(f"not trained again: no run has stored such an adapter of {name}; {WAY_OUT}")
        return attempted(self.predictor.predict, name, inputs)

    # --- all folds of a test ------------------------------------------------------------------------------------------

    def _joined(
        self, whole: Inputs, scaled: str, learned: SplitData, parts: Sequence[tuple[FloatArray, Inputs, Prediction]]
    ) -> tuple[Inputs, Outcome]:
        """One prediction for all questions of a test, and inputs that tell of all folds together."""
        n, (_, first, example) = len(whole.predicted.questions), parts[0]
        confidence, scored = np.full(n, np.nan), example.score is not None
        score = np.full(n, -np.inf) if scored else None
        for mine, _, made in parts:
            confidence[mine] = made.confidence[mine]
            if score is not None and made.score is not None:
                score[mine] = made.score[mine]
        note = ""
        if scored and np.isnan(confidence).any():
            confidence[:] = np.nan
            note = next(made.note for _, _, made in parts if np.isnan(made.confidence).all())
        elif scored:
            note = scaled
        scaled_by = 0 if not scored or np.isnan(confidence).any() else int(learned.usable.sum())
        odd = Counter[str]()
        for _, _, made in parts:
            odd.update(made.oddities)
        stages = dict.fromkeys(stage for _, each, _ in parts for stage in each.seconds)
        seconds = {stage: sum(each.seconds.get(stage, 0.0) for _, each, _ in parts) for stage in stages}
        fitted = first.fitted
        if fitted is not None:  # all folds together were told the labels of the whole corpus
            told, n_learned, chosen = fitted.labels, whole.n_learned, whole.selection
            n_chosen = n_learned if chosen is None else int(chosen.usable.sum())
            labels = LabelsSeen(
                train=n_learned * bool(told.train), validation=n_chosen * bool(told.validation),
                gold=n_learned * bool(told.gold),
            )  # fmt: skip
            fitted = replace(fitted, labels=labels)
        inputs = replace(whole, fitted=fitted, adapted=first.adapted, failure=None, seconds=seconds)
        prediction = Prediction(
            confidence, sum(made.seconds for _, _, made in parts), score, scaled_by, note, dict(odd)
        )
        return inputs, prediction


def subjects_of(*data_by_split: SplitData) -> list[str]:
    """Subjects of the questions that count, in order."""
    counted = (
        question
        for split_data in data_by_split
        for question in split_data.questions
        if question.id not in split_data.left_out
    )
    return list(dict.fromkeys(question.subject for question in counted))
