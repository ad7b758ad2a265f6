"""The label-budget study: fit methods to samples of 20, 50, ... labels, with several seeds, from stored signals.

Every sample is a subset of the same split, so none needs a forward pass; the model runs only with `--read`, for
signals that the store lacks. A method that learns is fitted to each sample. A method that outputs scores predicts once,
and its scores are scaled for each sample. A method that uses no labels predicts once. Methods that train adapters are
left out.

The questions of a split are sorted by a hash of seed, split and question ID. The first k are the sample of size k: a
simple random sample, which the sample of size k + 1 contains. The order depends on neither labels, answers nor methods.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress

import numpy as np

from bench.api import ConfidenceMethod, IntArray, UserError
from bench.api.errors import capture, reason_of
from bench.data.splits import TaskSplit, budget_shares, sampling_order
from bench.metrics.scaling import Scale
from bench.metrics.validation import normalised_ranks
from bench.model.memory import release_free_memory
from bench.model.specs import label_of, public_name
from bench.progress import Progress, Silent, format_duration
from bench.run.analyses.folds import NoTraining
from bench.run.analyses.request import LabelsConfig, format_command
from bench.run.analyses.stored_signals import CorpusRun, read_all
from bench.run.fitting import Fitter
from bench.run.forecast import Forecast
from bench.run.inputs import StepResults
from bench.run.pipeline import open_run
from bench.run.plan import Fit, uses_trained_adapter
from bench.run.predicting import Prediction, Predictor, Skipped, confidence_in_all, reason_unscalable
from bench.run.preparation import Resources, find_infeasible, prepare
from bench.signals.batch_builder import BatchBuilder
from bench.signals.split_data import SplitData
from bench.stats.label_budgets import ONE_KIND, CorrectCounts, LabelCurves, SeedConfidences, Study, compute_label_curves

ADAPTER_REASON = "not trained again: each draw would need an adapter of its own, and every test read through it"


@dataclass
class LabelsReport:
    """Learning curves of each test (metrics as functions of the number of labels), and notes for the user."""

    curves: list[LabelCurves]
    notes: list[str] = field(default_factory=list)
    """Notes for the user."""


def run_labels(
    config: LabelsConfig, progress: Progress, classes: Sequence[type[ConfidenceMethod]] = ()
) -> LabelsReport:
    """Run the label-budget study on each test: fit methods to samples of labels, and compute metrics per sample size.

    Args:
        config: options of the study.
        progress: shows stages and messages.
        classes: method classes passed from Python, e.g. of a notebook; `config` names them like all other methods.

    Raises:
        UserError: there is nothing to study, a name is unknown, or more labels are requested than there are; or signals
            are not stored, and `config` does not allow to compute them.
    """
    times = len(config.sizes()) * len(config.seed_values())  # a bad request is refused before a model is loaded
    with open_run(config.run_config(), progress, classes) as work:
        resources, reader = work.resources, work.resources.reader
        absent = {
            name: ADAPTER_REASON for name, method in work.resolved.methods.items() if uses_trained_adapter(method)
        }
        methods = {name: method for name, method in work.resolved.methods.items() if name not in absent}
        resolved = replace(work.resolved, methods=methods)
        prepared = prepare(resolved, resources, find_infeasible(resolved, resources), None)
        for name, reason in absent.items():
            progress.say(f"  {name} takes no part: {reason}")
        forecast = Forecast(prepared, resolved, resources.grader)
        seconds: dict[str, float | None] = {}
        for step in (step for step in prepared.steps if isinstance(step, Fit)):
            estimate, before = forecast.seconds(step), seconds.get(step.method, 0.0)
            seconds[step.method] = None if isinstance(estimate, str) or before is None else before + times * estimate
        learners = [name for name, method in methods.items() if method.trains()]
        known = {name: value for name in learners if (value := seconds.get(name)) is not None}
        descriptions = [
            f"{name} {format_duration(known[name], 'at most') if name in known else '(not known)'}" for name in learners
        ]
        progress.say(
            f"Label budgets on {public_name(config.model)}, preset {resolved.preset}: {len(learners)} methods that"
            f" learn and {len(methods) - len(learners)} that don't, tested on {', '.join(resolved.tests)};"
            f" {', '.join(config.labels)} labels, {len(config.seed_values())} draws each. Fits from nothing:"
            f" {format_duration(sum(known.values()), 'at most')} ({'; '.join(descriptions)}), less what is stored"
        )
        if not learners:
            left_out = f"; left out: {', '.join(absent)}" if absent else ""
            raise UserError(
                f"--method {','.join(config.methods) or 'all'}: expected at least one method that learns and trains no"
                f" adapter, since only these change with the number of labels{left_out}. See: bench list methods."
            )
        ordinary = format_command(replace(config.run_config(), methods=tuple(methods)))
        corpora = [CorpusRun(resolved, prepared)]
        data_by_split = read_all(corpora, tuple(methods), resources, progress, read=config.read, ordinary=[ordinary])
        reader.active_engine.rest()
        results = StepResults(resolved, prepared.selecting, dict(data_by_split))
        batches, studies = BatchBuilder(reader), []
        for test in resolved.test_splits:
            infeasible = {name: reason for (name, where), reason in prepared.infeasible.items() if where == test}
            train_on, pools = resolved.learn_on[test.task], {}
            for name, method in methods.items():
                if name not in infeasible and method.trains():
                    where = train_on.split_of(method)
                    pools[name] = LabelPool(results.data_by_split[where], results.selection(name, where))
                elif name not in infeasible:
                    scaled = results.data_by_split.get(train_on.validation) if method.output == "score" else None
                    pools[name] = LabelPool(None, scaled)
            studies.append(TaskStudy(config, resources, results, test, batches, progress, absent | infeasible, pools))
        for study in studies:
            study.require_labels()
        curves = [study.curves() for study in studies]
        notes = dict.fromkeys([*work.resolved.notes, *reader.lm.chat.notes, *prepared.notes])
        all_notes = [*notes, *reader.store.notes]
    return LabelsReport(curves, all_notes + work.notes(failed=False))


# --- samples of labels ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class LabelPool:
    """Labels available to a method: those of the split that it is fitted on, and those of the validation split."""

    learned: SplitData | None
    """Split that the method is fitted on; None if the method is untrained."""
    validation: SplitData | None = None
    """Validation split on which the method's training step is chosen, or its scores are scaled; None if neither is
    done."""

    @property
    def data_by_split(self) -> list[SplitData]:
        """The training and the validation split of the method, without those that are None."""
        return [split_data for split_data in (self.learned, self.validation) if split_data is not None]

    @property
    def available(self) -> int:
        """Number of available labels: the sum over training and validation split."""
        return sum(int(split_data.usable.sum()) for split_data in self.data_by_split)

    def budget_shares(self, size: int) -> tuple[int, int]:
        """Return the largest number of training labels, and of validation labels, in a label budget of `size`."""
        if self.learned is None or self.validation is None:
            return size, size
        return budget_shares(size, int(self.learned.usable.sum()), int(self.validation.usable.sum()))

    def sample(self, size: int, seed: int) -> tuple[Mapping[TaskSplit, SplitData], int]:
        """Sample labels for a budget; return the splits with all other questions left out, and the number of labels.

        If the method has only one split, the whole budget comes from this split. If the budget is at least the number
        of labels, nothing is left out, so that the fits equal those of an ordinary run.
        """
        splits, n_labels = {}, 0
        for split_data, most in zip((self.learned, self.validation), self.budget_shares(size), strict=True):
            if split_data is None:
                continue
            ids = [question.id for question in split_data.questions]
            usable = list(compress(ids, split_data.usable))
            splits[split_data.where] = split_data
            if most < len(usable):
                sampled = sampling_order(usable, split_data.where, seed)[:most]
                left_out = split_data.left_out | frozenset(ids).difference(sampled)
                splits[split_data.where] = replace(split_data, left_out=left_out)
            n_labels += min(most, len(usable))
        return splits, n_labels


# --- one test ---------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class TaskStudy:
    """Label-budget study on one test split."""

    config: LabelsConfig
    resources: Resources
    results: StepResults
    """Splits of the study, with all labels."""
    test: TaskSplit
    batches: BatchBuilder
    progress: Progress
    absent: dict[str, str]
    """Method -> reason why the study leaves the method out."""
    pools: dict[str, LabelPool]
    """Method -> labels available to it."""

    def __post_init__(self) -> None:
        self.predictor = Predictor(self.results.resolved, {}, self.batches, Silent())

    @property
    def available(self) -> int:
        """Number of labels available to the method that has most."""
        return max((pool.available for pool in self.pools.values()), default=0)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Label budgets of this test, ascending; requested budgets larger than `available` are omitted."""
        requested = {self.available if size is None else size for size in self.config.sizes()}
        return tuple(sorted(size for size in requested if size <= self.available))

    def require_labels(self) -> None:
        """Check that there are labels, and at least as many as the user requested.

        Raises:
            UserError: there are no labels, or a requested budget is larger than `available`. With the default list of
                budgets, larger ones are no error.
        """
        if self.pools and not self.available:
            raise UserError(
                f"{self.test.task}: expected answers that can be told as labels, got none: the model answered none of"
                " the questions that are learned on; name another --task"
            )
        too_large = [size for size in self.config.sizes() if size is not None and size > self.available]
        if too_large and self.pools and self.config.labels != LabelsConfig.labels:
            raise UserError(
                f"--labels {','.join(self.config.labels)}: expected at most the {self.available:,} labels that"
                f" {self.test.task} has to learn from, got {too_large[0]:,}; all stands for as many as there are"
            )

    # --- curves -------------------------------------------------------------------------------------------------------

    def curves(self) -> LabelCurves:
        """Compute the learning curves of this test: metrics of each method as functions of the number of labels.

        Raises:
            UserError: no trained method can take part. A trained method whose fits all fail is no error.
        """
        split_data = self.results.data_by_split[self.test]
        rows = np.flatnonzero(split_data.included)
        methods = self.results.resolved.methods
        confidences: dict[tuple[str, int], SeedConfidences] = {}
        for name in self.pools:
            by_size = self._trained(name, rows) if methods[name].trains() else self._untrained(name, rows)
            confidences |= {(name, size): confidence for size, confidence in by_size}
            release_free_memory()
        names = list(dict.fromkeys(name for name, _ in confidences))
        kinds = {name: "trained" if methods[name].trains() else methods[name].output for name in names}
        if "trained" not in kinds.values():
            reasons = "; ".join(f"{name}: {reason}" for name, reason in self.absent.items())
            raise UserError(
                f"{self.test.task}: no method that learns can take part ({reasons}); name others (--method)"
            )
        counts, labelled = [], {data.where: data for pool in self.pools.values() for data in pool.data_by_split}
        for where, data in sorted(labelled.items()):
            right = int(data.correct[data.usable].sum())
            counts.append(CorrectCounts(str(where), right, int(data.usable.sum()) - right))
        joint_pool = next((pool for pool in self.pools.values() if len(pool.data_by_split) > 1), None)
        validation = {} if joint_pool is None else {size: joint_pool.budget_shares(size)[1] for size in self.sizes}
        study = Study(
            label_of(self.results.resolved.model), self.test.task, self.results.resolved.preset, self.sizes,
            self.available, self.config.seed_values(),
            tuple(name for name in names if kinds[name] == "trained"),
            tuple(name for name in names if kinds[name] == "score"),
            tuple(name for name in names if kinds[name] not in {"trained", "score"}),
            tuple(counts), dict(self.absent), validation, self.resources.reader.forward_tokens,
        )  # fmt: skip
        subjects = [split_data.questions[row].subject for row in rows]
        return compute_label_curves(confidences, study, split_data.correct[rows], subjects)

    def _trained(self, name: str, rows: IntArray) -> Iterator[tuple[int, SeedConfidences]]:
        """Yield each label budget with the confidences of one fit per seed. Budgets with equal samples share a fit.

        Args:
            name: name of the method.
            rows: indices of the test's questions that are counted.
        """
        full, resolved, reader = self.results, self.results.resolved, self.resources.reader
        seeds = self.config.seed_values()
        method = resolved.methods[name]
        where = resolved.learn_on[self.test.task].split_of(method)
        outcomes: dict[tuple[int, int], Prediction | Skipped | BaseException] = {}
        with self.progress.stage(f"{name} on {self.test.task}", len(self.sizes) * len(seeds), unit="fits") as advance:
            for size in self.sizes:
                labels, confidence, missing = 0, {}, {}
                for seed in seeds:
                    splits, labels = self.pools[name].sample(size, seed)
                    labels_seen = splits[where].correct[splits[where].usable]
                    if not method.takes_one_class and (labels_seen.all() or not labels_seen.any()):
                        outcomes[seed, labels] = Skipped(ONE_KIND)
                    if (seed, labels) not in outcomes:
                        run = StepResults(resolved, full.selecting, {**full.data_by_split, **splits})
                        fitter = Fitter(resolved, reader.lm, reader.store, self.batches, Silent(), seed, NoTraining())
                        selection = run.selection(name, where)
                        run.fits[Fit(name, where)] = capture(fitter.fit, name, run.data_by_split[where], selection)
                        inputs = run.inputs(name, self.test)
                        outcomes[seed, labels] = capture(self.predictor.predict, name, inputs)
                    outcome = outcomes[seed, labels]
                    if isinstance(outcome, Prediction):
                        confidence[seed] = outcome.confidence[rows]
                    else:
                        missing[seed] = _why_missing(outcome)
                    advance(1)
                yield size, SeedConfidences(labels, confidence, missing=missing)

    def _untrained(self, name: str, rows: IntArray) -> Iterator[tuple[int, SeedConfidences]]:
        """Yield each label budget with an untrained method's confidences; scores are scaled for each sample of labels.

        Args:
            name: name of the method.
            rows: indices of the test's questions that are counted.
        """
        seeds, inputs = self.config.seed_values(), self.results.inputs(name, self.test)
        rule = self.results.resolved.protocol.empty_rule
        outcome = capture(self.predictor.predict, name, inputs)
        if not isinstance(outcome, Prediction):
            self.absent[name] = _why_missing(outcome)
            return
        if outcome.score is None:
            confidences = SeedConfidences(0, dict.fromkeys(seeds, outcome.confidence[rows]))
            yield from ((size, confidences) for size in self.sizes)
            return
        validation = inputs.selection
        labelled = None
        if validation is not None:
            labelled, *_ = self.predictor.timed_output(name, replace(inputs, predicted=validation, selection=None))
        order = dict.fromkeys(seeds, normalised_ranks(outcome.score[rows]))
        for size in self.sizes:
            labels, confidence, missing = 0, {}, {}
            for seed in seeds:
                splits, labels = self.pools[name].sample(size, seed)
                if validation is None or labelled is None:
                    missing[seed] = "there are no labelled validation answers"
                    continue
                sampled = splits[validation.where].usable[validation.usable]
                correct = validation.correct[validation.usable][sampled]
                if reason_unscalable(correct) is not None:
                    missing[seed] = ONE_KIND
                    continue
                scaled = Scale.fit(labelled[sampled], correct).apply(outcome.score[inputs.predicted.usable])
                confidence[seed] = confidence_in_all(scaled, inputs, rule)[rows]
            yield size, SeedConfidences(labels, confidence, order, missing)


def _why_missing(outcome: Skipped | BaseException) -> str:
    return outcome.reason if isinstance(outcome, Skipped) else reason_of(outcome)
