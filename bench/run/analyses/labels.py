"""The study of label budgets: methods told 20, 50, ... labels, in several draws, from stored signals.

Every draw is a smaller split of the same questions, so the model reads nothing. A method that is scaled predicts once
and is scaled again for each draw; one that is told nothing predicts once. Adapters are not trained again.

Questions of a split are ordered by a hash of the seed, the split and their id, so that the first k of them are a simple
random sample, contained in the first k + 1. Neither labels, nor answers, nor methods enter.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress

import numpy as np

from bench.api import ConfidenceMethod, IntArray, UserError
from bench.api.errors import attempted, reason_of
from bench.data.splits import TaskSplit
from bench.metrics.answers import ranked
from bench.metrics.scaling import Scale
from bench.model.memory import give_back
from bench.model.specs import model_label
from bench.progress import Progress, Silent
from bench.run.analyses.folds import Never
from bench.run.analyses.request import LabelsConfig, command_of
from bench.run.analyses.stored import Needed, read_all
from bench.run.fitting import Fitter
from bench.run.forecast import Forecast, duration
from bench.run.inputs import StepResults
from bench.run.pipeline import at_work
from bench.run.plan import Fit, adapted
from bench.run.predicting import Prediction, Predictor, Skipped, confidence_in_no_answer, unscalable
from bench.run.preparation import Resources, infeasible_in, prepare
from bench.signals.batches import Batches
from bench.signals.split_data import SplitData
from bench.stats.labels import ONE_KIND, DrawnConfidences, LabelCount, LabelCurves, Study, curves_of

ADAPTERS = "not trained again: each draw would need an adapter of its own, and every test read through it"
LEAST_VALIDATION = 4
"""Validation labels at least, where a method is told labels of both splits: fewer say nothing about a step."""


@dataclass
class LabelsReport:
    """Curves of each test and account of the work."""

    curves: list[LabelCurves]
    notes: list[str] = field(default_factory=list)
    """Notes for the user."""


def run_labels(
    config: LabelsConfig, progress: Progress, classes: Sequence[type[ConfidenceMethod]] = ()
) -> LabelsReport:
    """Make the study of each test.

    Args:
        config: the request.
        progress: told how far it is.
        classes: methods of no file, which the request names too.

    Raises:
        UserError: nothing to study, something unknown, more labels than there are, or signals that are not stored and
            were not to be read.
    """
    times = len(config.sizes()) * len(config.numbers())  # a bad request is refused before a model is loaded
    with at_work(config.run_config(), progress, classes) as work:
        resources, reader = work.resources, work.resources.reader
        absent = {name: ADAPTERS for name, method in work.resolved.methods.items() if adapted(method)}
        taking = {name: method for name, method in work.resolved.methods.items() if name not in absent}
        resolved = replace(work.resolved, methods=taking)
        prepared = prepare(resolved, resources, infeasible_in(resolved, resources), None)
        for name, reason in absent.items():
            progress.say(f"  {name} takes no part: {reason}")
        forecast = Forecast(prepared, resolved, resources.grader)
        seconds: dict[str, float | None] = {}
        for step in (step for step in prepared.steps if isinstance(step, Fit)):
            one, before = forecast.seconds(step), seconds.get(step.method, 0.0)
            seconds[step.method] = None if isinstance(one, str) or before is None else before + times * one
        learners = [name for name, method in taking.items() if method.trains()]
        known = {name: own for name in learners if (own := seconds.get(name)) is not None}
        each_one = [
            f"{name} {duration(known[name], 'at most') if name in known else '(not known)'}" for name in learners
        ]
        progress.say(
            f"Label budgets on {config.model}, preset {resolved.preset}: {len(learners)} methods that learn"
            f" and {len(taking) - len(learners)} that don't, tested on {', '.join(resolved.tests)};"
            f" {', '.join(config.labels)} labels, {len(config.numbers())} draws each. Fits from nothing:"
            f" {duration(sum(known.values()), 'at most')} ({'; '.join(each_one)}), less what is stored"
        )
        if not learners:
            left = f"; left out: {', '.join(absent)}" if absent else ""
            raise UserError(
                f"--method {','.join(config.methods) or 'all'}: expected at least one method that learns and trains no"
                f" adapter, since only these change with the number of labels{left}. See: bench list methods."
            )
        ordinary = command_of(replace(config.run_config(), methods=tuple(taking)))
        needed = [Needed(resolved, prepared)]
        data_by_split = read_all(needed, tuple(taking), resources, progress, read=config.read, ordinary=[ordinary])
        reader.working.rest()
        made = StepResults(resolved, prepared.selecting, dict(data_by_split))
        batches, studies = Batches(reader), []
        for test in resolved.test_splits:
            barred = {name: reason for (name, where), reason in prepared.infeasible.items() if where == test}
            train_on, pools = resolved.learn_on[test.task], {}
            for name, method in taking.items():
                if name not in barred and method.trains():
                    where = train_on.where(method)
                    pools[name] = LabelPool(made.data_by_split[where], made.selection(name, where))
                elif name not in barred:
                    scaled = made.data_by_split.get(train_on.validation) if method.output == "score" else None
                    pools[name] = LabelPool(None, scaled)
            studies.append(TaskStudy(config, resources, made, test, batches, progress, absent | barred, pools))
        for each in studies:
            each.require_labels()
        curves = [each.curves() for each in studies]
        notes = dict.fromkeys([*work.resolved.notes, *reader.lm.chat.notes, *prepared.notes])
        every = [*notes, *reader.store.notes]
    return LabelsReport(curves, every + work.notes(failed=False))


# --- draws of labels --------------------------------------------------------------------------------------------------


def ordered(ids: Sequence[str], where: TaskSplit, seed: int) -> list[str]:
    """Ids in the order in which they are drawn.

    Args:
        ids: of questions, in any order.
        where: the split that they are of.
        seed: of the draw.
    """
    return sorted(ids, key=lambda one: hashlib.sha256(f"{seed}\0{where}\0{one}".encode()).digest())


def shares(size: int, train: int, validation: int) -> tuple[int, int]:
    """Training and validation labels of a budget, in the proportion of the two splits.

    Both grow with the budget, so that draws are nested.

    Args:
        size: the budget.
        train: labels that there are in training.
        validation: labels that there are in validation.

    >>> shares(100, 1280, 320), shares(20, 1280, 320), shares(20, 18_650, 2_000), shares(9_999, 1280, 320)
    ((80, 20), (16, 4), (16, 4), (1280, 320))
    """
    if size >= train + validation:
        return train, validation
    proportional = round(size * validation / (train + validation))
    held = min(validation, max(LEAST_VALIDATION, proportional, size - train))
    return size - held, held


@dataclass(frozen=True, eq=False)
class LabelPool:
    """Labels that a method can be told: of the split that it learns from, and of one that it chooses or scales by."""

    learned: SplitData | None
    """None of a method that learns nothing."""
    validation: SplitData | None = None

    @property
    def data_by_split(self) -> list[SplitData]:
        """The splits that there are."""
        return [split_data for split_data in (self.learned, self.validation) if split_data is not None]

    @property
    def available(self) -> int:
        """Labels that there are."""
        return sum(int(split_data.usable.sum()) for split_data in self.data_by_split)

    def shares(self, size: int) -> tuple[int, int]:
        """Labels of each of the two splits at most."""
        if self.learned is None or self.validation is None:
            return size, size
        return shares(size, int(self.learned.usable.sum()), int(self.validation.usable.sum()))

    def drawn(self, size: int, seed: int) -> tuple[Mapping[TaskSplit, SplitData], int]:
        """The splits with all but the drawn questions left out, and how many labels these are.

        A method that is told labels of one split only gets the whole budget from it, or all that it has. With all
        labels nothing is left out, so that fits are those of an ordinary run.
        """
        found, told = {}, 0
        for split_data, most in zip((self.learned, self.validation), self.shares(size), strict=True):
            if split_data is None:
                continue
            ids = [question.id for question in split_data.questions]
            usable = list(compress(ids, split_data.usable))
            found[split_data.where] = split_data
            if most < len(usable):
                chosen = ordered(usable, split_data.where, seed)[:most]
                left_out = split_data.left_out | frozenset(ids).difference(chosen)
                found[split_data.where] = replace(split_data, left_out=left_out)
            told += min(most, len(usable))
        return found, told


# --- one test ---------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class TaskStudy:
    """Study of one test."""

    config: LabelsConfig
    resources: Resources
    made: StepResults
    """Splits with all labels."""
    test: TaskSplit
    batches: Batches
    progress: Progress
    absent: dict[str, str]
    """Method -> why it doesn't take part."""
    pools: dict[str, LabelPool]
    """Method -> labels that it can be told."""

    def __post_init__(self) -> None:
        self.predictor = Predictor(self.made.resolved, {}, self.batches, Silent())

    @property
    def available(self) -> int:
        """Labels that there are for those that are told most."""
        return max((pool.available for pool in self.pools.values()), default=0)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Budgets of this test, ascending, without those that are larger than what there is."""
        asked = {self.available if size is None else size for size in self.config.sizes()}
        return tuple(sorted(size for size in asked if size <= self.available))

    def require_labels(self) -> None:
        """Refuse budgets that were asked for and are larger than what there is.

        Raises:
            UserError: one is, or there is none.
        """
        if self.pools and not self.available:
            raise UserError(
                f"{self.test.task}: expected answers that can be told as labels, got none: the model answered none of"
                " the questions that are learned on; name another --task"
            )
        beyond = [size for size in self.config.sizes() if size is not None and size > self.available]
        if beyond and self.pools and self.config.labels != LabelsConfig.labels:
            raise UserError(
                f"--labels {','.join(self.config.labels)}: expected at most the {self.available:,} labels that"
                f" {self.test.task} has to learn from, got {beyond[0]:,}; all stands for as many as there are"
            )

    # --- curves -------------------------------------------------------------------------------------------------------

    def curves(self) -> LabelCurves:
        """Numbers of this test.

        Raises:
            UserError: no method that learns has a confidence.
        """
        split_data = self.made.data_by_split[self.test]
        kept = np.flatnonzero(split_data.kept)
        methods = self.made.resolved.methods
        told: dict[tuple[str, int], DrawnConfidences] = {}
        for name in self.pools:
            of_method = self._learned(name, kept) if methods[name].trains() else self._unlearned(name, kept)
            told |= {(name, size): each for size, each in of_method}
            give_back()
        present = list(dict.fromkeys(name for name, _ in told))
        kinds = {name: "trained" if methods[name].trains() else methods[name].output for name in present}
        if "trained" not in kinds.values():
            reasons = "; ".join(f"{name}: {reason}" for name, reason in self.absent.items())
            raise UserError(
                f"{self.test.task}: no method that learns can take part ({reasons}); name others (--method)"
            )
        counts, data_by_split = (
            [],
            {each.where: each for pool in self.pools.values() for each in pool.data_by_split},
        )
        for where, each in sorted(data_by_split.items()):
            right = int(each.correct[each.usable].sum())
            counts.append(LabelCount(str(where), right, int(each.usable.sum()) - right))
        both = next((pool for pool in self.pools.values() if len(pool.data_by_split) > 1), None)
        validation = {} if both is None else {size: both.shares(size)[1] for size in self.sizes}
        study = Study(
            model_label(self.config.model), self.test.task, self.made.resolved.preset, self.sizes, self.available,
            self.config.numbers(),
            tuple(name for name in present if kinds[name] == "trained"),
            tuple(name for name in present if kinds[name] == "score"),
            tuple(name for name in present if kinds[name] not in {"trained", "score"}),
            tuple(counts), dict(self.absent), validation, self.resources.reader.forward_tokens,
        )  # fmt: skip
        subjects = [split_data.questions[row].subject for row in kept]
        return curves_of(told, study, split_data.correct[kept], subjects)

    def _learned(self, name: str, kept: IntArray) -> Iterator[tuple[int, DrawnConfidences]]:
        """For each size: a fit for each draw, and what it predicts. Draws of the same labels are fitted once."""
        seeds, resolved, reader = self.config.numbers(), self.made.resolved, self.resources.reader
        method = resolved.methods[name]
        where = resolved.learn_on[self.test.task].where(method)
        made: dict[tuple[int, int], Prediction | Skipped | BaseException] = {}
        with self.progress.stage(f"{name} on {self.test.task}", len(self.sizes) * len(seeds), unit="fits") as advance:
            for size in self.sizes:
                labels, confidence, missing = 0, {}, {}
                for seed in seeds:
                    splits, labels = self.pools[name].drawn(size, seed)
                    told = splits[where].correct[splits[where].usable]
                    if not method.takes_one_class and (told.all() or not told.any()):
                        made[seed, labels] = Skipped(ONE_KIND)
                    if (seed, labels) not in made:
                        here = StepResults(resolved, self.made.selecting, {**self.made.data_by_split, **splits})
                        fitter = Fitter(resolved, reader.lm, reader.store, self.batches, Silent(), seed, Never())
                        held = here.selection(name, where)
                        here.fits[Fit(name, where)] = attempted(fitter.fit, name, here.data_by_split[where], held)
                        inputs = here.inputs(name, self.test)
                        made[seed, labels] = attempted(self.predictor.predict, name, inputs)
                    outcome = made[seed, labels]
                    if isinstance(outcome, Prediction):
                        confidence[seed] = outcome.confidence[kept]
                    else:
                        missing[seed] = outcome.reason if isinstance(outcome, Skipped) else reason_of(outcome)
                    advance(1)
                yield size, DrawnConfidences(labels, confidence, missing=missing)

    def _unlearned(self, name: str, kept: IntArray) -> Iterator[tuple[int, DrawnConfidences]]:
        """For each size: what a method says that learns nothing, scaled by each draw if it gives scores."""
        seeds, inputs = self.config.numbers(), self.made.inputs(name, self.test)
        outcome = attempted(self.predictor.predict, name, inputs)
        if not isinstance(outcome, Prediction):
            self.absent[name] = outcome.reason if isinstance(outcome, Skipped) else reason_of(outcome)
            return
        if outcome.score is None:
            yield from (
                (size, DrawnConfidences(0, dict.fromkeys(seeds, outcome.confidence[kept]))) for size in self.sizes
            )
            return
        held = inputs.selection
        labelled = None
        if held is not None:
            labelled, *_ = self.predictor.predicted(name, replace(inputs, predicted=held, selection=None))
        order = dict.fromkeys(seeds, ranked(outcome.score[kept]))
        usable = inputs.predicted.usable
        for size in self.sizes:
            labels, confidence, missing = 0, {}, {}
            for seed in seeds:
                splits, labels = self.pools[name].drawn(size, seed)
                if held is None or labelled is None:
                    missing[seed] = "there are no labelled validation answers"
                    continue
                chosen = splits[held.where].usable[held.usable]
                correct = held.correct[held.usable][chosen]
                if unscalable(correct) is not None:
                    missing[seed] = ONE_KIND
                    continue
                sure = np.full(len(usable), confidence_in_no_answer(inputs, self.made.resolved.protocol.empty_rule))
                sure[usable] = Scale.fit(labelled[chosen], correct).apply(outcome.score[usable])
                confidence[seed] = sure[kept]
            yield size, DrawnConfidences(labels, confidence, order, missing)
