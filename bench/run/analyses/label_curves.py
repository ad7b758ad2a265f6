"""Label budgets on one test: a fit for each draw of labels, or a scale, and what it predicts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from bench.api import FloatArray, IntArray, UserError
from bench.api.errors import attempted, reason_of
from bench.backbone.memory import give_back
from bench.backbone.models import model_label
from bench.data.splits import TaskSplit
from bench.metrics.answers import ranked
from bench.metrics.scaling import Scale
from bench.progress import Progress, Silent
from bench.run.analyses.adapters import Never
from bench.run.analyses.budgets import Pool
from bench.run.analyses.request import LabelsConfig
from bench.run.fitting import Fitter
from bench.run.inputs import StepResults
from bench.run.plan import Fit
from bench.run.predicting import Prediction, Predictor, Skipped, confidence_in_no_answer, unscalable
from bench.run.preparation import Resources
from bench.signals.batches import Batches
from bench.signals.reading import Reading
from bench.stats.labels import ONE_KIND, LabelCount, LabelCurves, Study, Told, curves_of


@dataclass(eq=False)
class TaskStudy:
    """Study of one test."""

    config: LabelsConfig
    resources: Resources
    made: StepResults
    """Splits with all labels."""
    test: TaskSplit
    batches: Batches
    predictor: Predictor
    progress: Progress
    absent: dict[str, str]
    """Method -> why it doesn't take part."""
    pools: dict[str, Pool]
    """Method -> labels that it can be told."""

    @classmethod
    def of(
        cls, config: LabelsConfig, resources: Resources, made: StepResults, test: TaskSplit,
        absent: Mapping[str, str], progress: Progress,
    ) -> TaskStudy:  # fmt: skip
        """Decide what each method can be told."""
        batches, train_on, pools = Batches(resources.reader), made.resolved.learn_on[test.task], {}
        for name, method in made.resolved.methods.items():
            if name in absent:
                continue
            if method.trains():
                where = train_on.where(method)
                pools[name] = Pool(made.readings[where], made.selection(name, where))
            else:
                pools[name] = Pool(None, made.readings.get(train_on.validation) if method.output == "score" else None)
        predictor = Predictor(made.resolved, {}, batches, Silent())
        return cls(config, resources, made, test, batches, predictor, progress, dict(absent), pools)

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
        reading = self.made.readings[self.test]
        kept = np.flatnonzero(reading.kept)
        methods = self.made.resolved.methods
        told: dict[tuple[str, int], Told] = {}
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
        counts, readings = [], {each.where: each for pool in self.pools.values() for each in pool.readings}
        for where, each in sorted(readings.items()):
            right = int(each.correct[each.usable].sum())
            counts.append(LabelCount(str(where), right, int(each.usable.sum()) - right))
        both = next((pool for pool in self.pools.values() if len(pool.readings) > 1), None)
        validation = {} if both is None else {size: both.shares(size)[1] for size in self.sizes}
        study = Study(
            model_label(self.config.model), self.test.task, self.made.resolved.preset, self.sizes, self.available,
            self.config.numbers(),
            tuple(name for name in present if kinds[name] == "trained"),
            tuple(name for name in present if kinds[name] == "score"),
            tuple(name for name in present if kinds[name] not in {"trained", "score"}),
            tuple(counts), dict(self.absent), validation, self.resources.reader.forward_tokens,
        )  # fmt: skip
        subjects = [reading.questions[row].subject for row in kept]
        return curves_of(told, study, reading.correct[kept], subjects)

    def _learned(self, name: str, kept: IntArray) -> Iterator[tuple[int, Told]]:
        """For each size: a fit for each draw, and what it predicts. Draws of the same labels are fitted once."""
        seeds = self.config.numbers()
        made: dict[tuple[int, int], FloatArray | str] = {}
        with self.progress.stage(f"{name} on {self.test.task}", len(self.sizes) * len(seeds), unit="fits") as advance:
            for size in self.sizes:
                labels, confidence, missing = 0, {}, {}
                for seed in seeds:
                    splits, labels = self.pools[name].drawn(size, seed)
                    if (seed, labels) not in made:
                        made[seed, labels] = self._fitted(name, splits, seed)
                    outcome = made[seed, labels]
                    if isinstance(outcome, str):
                        missing[seed] = outcome
                    else:
                        confidence[seed] = outcome[kept]
                    advance(1)
                yield size, Told(labels, confidence, missing=missing)

    def _fitted(self, name: str, splits: Mapping[TaskSplit, Reading], seed: int) -> FloatArray | str:
        """Confidences of a method that learned from these splits, (n,), or why there are none."""
        method = self.made.resolved.methods[name]
        where = self.made.resolved.learn_on[self.test.task].where(method)
        labels = splits[where].correct[splits[where].usable]
        if not method.takes_one_class and (labels.all() or not labels.any()):
            return ONE_KIND
        here = StepResults(self.made.resolved, self.made.selecting, {**self.made.readings, **splits})
        reader = self.resources.reader
        fitter = Fitter(here.resolved, reader.backbone, reader.store, self.batches, Silent(), seed, Never())
        here.fits[Fit(name, where)] = attempted(fitter.fit, name, here.readings[where], here.selection(name, where))
        outcome = attempted(self.predictor.predict, name, here.inputs(name, self.test))
        if isinstance(outcome, Prediction):
            return outcome.confidence
        return outcome.reason if isinstance(outcome, Skipped) else reason_of(outcome)

    def _unlearned(self, name: str, kept: IntArray) -> Iterator[tuple[int, Told]]:
        """For each size: what a method says that learns nothing, scaled by each draw if it gives scores."""
        seeds, inputs = self.config.numbers(), self.made.inputs(name, self.test)
        outcome = attempted(self.predictor.predict, name, inputs)
        if not isinstance(outcome, Prediction):
            self.absent[name] = outcome.reason if isinstance(outcome, Skipped) else reason_of(outcome)
            return
        if outcome.score is None:
            yield from ((size, Told(0, dict.fromkeys(seeds, outcome.confidence[kept]))) for size in self.sizes)
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
            yield size, Told(labels, confidence, order, missing)
