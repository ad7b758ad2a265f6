"""The pipeline, and the file to read first: run methods on a model over tasks, and score them.

questions -> prompts -> answers and signals (once, shared by all methods) -> fit -> predict -> score -> results
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from bench.api import (
    AdapterRef,
    Batch,
    BoolArray,
    ConfidenceMethod,
    ContractError,
    FloatArray,
    Task,
    UntrainableError,
    UserError,
)
from bench.api.confidence import checked
from bench.api.errors import fenced, reason_of
from bench.api.protocol import EmptyRule, KeptStep
from bench.backbone.memory import give_back, peak_memory_mb
from bench.data.contamination import contaminated
from bench.data.loading import Loaded, Loader
from bench.data.sources import open_source
from bench.data.splits import TaskSplit
from bench.grading.judges import open_judge
from bench.metrics.recalibration import recalibrator
from bench.progress import Progress, Silent
from bench.results import files, questions
from bench.results.files import RECALIBRATED, Records
from bench.results.row import ResultRow
from bench.run.config import RunConfig
from bench.run.fitting import Fitted, Fitter, derived_seed
from bench.run.out_of_fold import chosen_out_of_fold, out_of_fold
from bench.run.plan import Adapt, Fit, Predict, Read, Step, TrainOn, adapted, plan
from bench.run.resolve import Chosen, choose, judge_options
from bench.run.rows import Cells, Used, records_of
from bench.signals.batches import Batches
from bench.signals.definition import definition
from bench.signals.graded import Grader
from bench.signals.reader import Reader
from bench.signals.reading import Reading
from bench.store.folders import Store

if TYPE_CHECKING:
    from bench.backbone.model import Backbone

MIN_VALIDATION = 2
"""Answers that are needed to choose a step by."""
S = TypeVar("S", bound=Step)
T = TypeVar("T")


@dataclass
class RunReport:
    """What a run did."""

    plan: list[str]
    """The plan in words."""
    rows: list[ResultRow] = field(default_factory=list)
    """One for each method and task."""
    paths: list[Path] = field(default_factory=list)
    """The JSON files that were written."""
    notes: list[str] = field(default_factory=list)
    """What a user should know."""
    forward_tokens: int = 0
    """Token positions that this run itself fed to the model; 0 where everything was stored."""

    @property
    def failed(self) -> bool:
        """Whether a cell failed."""
        return any(row.status == "failed" for row in self.rows)


def run(config: RunConfig, progress: Progress | None = None) -> RunReport:
    """Run the chosen methods on a model over tasks, score them and write the results.

    Raises:
        UserError: something outside the program is not as it must be; nothing was computed for it.
    """
    chosen = choose(config)
    if not config.dry_run:
        files.ensure_writable(config.out)
    return _Run(config, chosen, progress or Silent()).execute()


class _Run:
    """One run; the steps of its plan in order."""

    def __init__(self, config: RunConfig, chosen: Chosen, progress: Progress) -> None:
        from bench.backbone.model import Backbone, LoadOptions

        self.config = config
        self.chosen = chosen
        self.progress = progress
        self.source = open_source(config.data_dir)
        self.tasks: dict[str, Task] = {name: self._made(name) for name in chosen.tasks}
        self.tests = [TaskSplit(name, "test") for name in chosen.tests]
        options = LoadOptions(config.device, config.dtype, config.trust_remote_code)
        self.backbone: Backbone = Backbone(chosen.model, options)
        self.store = Store(chosen.cache)
        self.reader = Reader(self.backbone, self.store, chosen.protocol, config.token_budget, progress, config.seed)
        self.grader = Grader(self.reader, open_judge(judge_options(config), chosen.cache))
        self.barred = self._barred()
        self.report = RunReport([], notes=list(chosen.notes))
        self.selecting = self._selecting()
        while not self._planned():
            pass
        if not config.dry_run:
            self.store.prepare()
        self.batches = Batches(self.reader)
        self.fitter = Fitter(chosen, self.backbone, self.store, self.batches, progress)
        self.cells = Cells(config, chosen, self.reader, self.source, self.grader.judge.name, chosen.release)
        self.readings: dict[TaskSplit, Reading] = {}
        self.kept: dict[TaskSplit, str] = {}
        """Digest of the questions that were tested."""
        self.fits: dict[Fit, Fitted | BaseException] = {}
        self.adapted: dict[tuple[str, TaskSplit], Reading | BaseException | None] = {}
        self.seconds: dict[tuple[str, str, TaskSplit], float] = {}
        """By stage, method, and the split that was learned from or predicted."""

    def _made(self, name: str) -> Task:
        with fenced(f"task {name!r}"):
            return self.chosen.tasks[name](self.source, self.chosen.protocol)

    def execute(self) -> RunReport:
        self._announce()
        if self.config.dry_run:
            return self.report
        for step in self.steps:
            if isinstance(step, Read):
                read = self.reader.read(self.readings[step.where], step.signals)
                self.readings[step.where] = self.grader.grade(read)
            elif isinstance(step, Fit):
                self.fits[step] = _attempted(self._fit, step)
            elif isinstance(step, Adapt):
                self.adapted[step.method, step.where] = _attempted(self._adapt, step)
            else:
                self._finish(step)
            give_back()
        self.report.forward_tokens = self.reader.forward_tokens
        self.report.notes += [note for note in self.store.notes if note not in self.report.notes]
        return self.report

    def _barred(self) -> dict[tuple[str, TaskSplit], str]:
        """Method and test -> why it can't run there; the others go on."""
        reasons = {}
        for name, method in self.chosen.methods.items():
            for test in self.tests:
                reason = self._hindrance(method, test)
                if reason is not None:
                    reasons[name, test] = reason
        return reasons

    def _hindrance(self, method: ConfidenceMethod, test: TaskSplit) -> str | None:
        task = self.tasks[test.task]
        signals = method.reads().fit | method.reads().predict
        for signal in sorted(signals, key=repr):
            hindrance = definition(signal).hindrance(task, self.reader.prompts)
            if hindrance is not None:
                return hindrance
        source = self.chosen.learn_on[test.task].where(method)
        if method.trains() and source.split == "validation" and not self._has_validation(source.task):
            return f"it learns on a validation split, and {source.task} has neither that nor a train split"
        return None

    def _has_validation(self, task: str) -> bool:
        """Whether there is a validation split, or a train split to take one from."""
        return not {"validation", "train"}.isdisjoint(self.tasks[task].card.splits)

    def _selecting(self) -> frozenset[TaskSplit]:
        """The validation splits by which methods choose the step of their training to keep; none in some presets."""
        if self.chosen.protocol.kept_step is KeptStep.LAST:
            return frozenset()
        targets = {self.chosen.learn_on[test.task] for test in self.tests if test.task in self.chosen.learn_on}
        return frozenset(t.validation for t in targets if t.task in self.tasks and self._has_validation(t.task))

    def _planned(self) -> bool:
        """Make the plan and load its questions; False where a split to choose steps by is missing and was given up."""
        chosen, recalibrated = self.chosen, bool(self.chosen.recalibrate)
        self.steps: list[Step] = plan(
            chosen.methods,
            self.tests,
            chosen.learn_on,
            self.barred,
            recalibrated=recalibrated,
            selecting=self.selecting,
        )
        reads = [step.where for step in self.steps if isinstance(step, Read)]
        loader = Loader(self.tasks, self.tests, reads, chosen.protocol, self.config.limit, chosen.release)
        self.loaded: dict[TaskSplit, Loaded] = {}
        for where in reads:
            try:
                self.loaded[where] = loader.load(where)
            except UserError as error:
                if where not in self.selecting:
                    raise
                self.selecting -= {where}
                self.report.notes.append(f"no step is chosen by {where}, the last one is kept: {error}")
                return False
        return True

    # --- plan ---------------------------------------------------------------------------------------------------------

    def _announce(self) -> None:
        for step in self.steps:
            if isinstance(step, Read):
                task = self.tasks[step.where.task]
                given = self.loaded[step.where]
                reading = self.reader.open(step.where, task, given.questions, given.released)
                reading = self._mark_contaminated(reading)
                if not reading.released:
                    self.cells.origins(reading)
                self.readings[step.where] = reading
                self.report.plan.append(self._line(step, reading))
        count = Counter(type(step) for step in self.steps)
        again = f", {count[Adapt]} of them after reading the query again through an adapter" if count[Adapt] else ""
        self.report.plan.append(f"then {count[Fit]} fits and {count[Predict]} predictions{again}")
        self.progress.say(self._title())
        notes = self.backbone.chat.notes
        self.report.notes += notes
        for line in self.report.plan + notes:
            self.progress.say("  " + line)

    def _mark_contaminated(self, reading: Reading) -> Reading:
        """Leave out what is learned from and also tested in this run (docs/methods.md §0.18), or only count it."""
        if reading.where in self.tests:
            return reading
        dropped = self.chosen.protocol.drop_contaminated
        for test in self.tests:
            if self.chosen.learn_on[test.task].task != reading.where.task:
                continue
            found = contaminated(reading.questions, self.loaded[test].whole)
            if found:
                what = f"questions that are also in {test}, {'left out' if dropped else 'kept'}"
                left_out = reading.left_out | (found if dropped else frozenset())
                reading = replace(reading, left_out=left_out, counts={**reading.counts, what: len(found)})
        return reading

    def _title(self) -> str:
        methods = ", ".join(self.chosen.methods)
        tasks = ", ".join(self.chosen.tests)
        return f"Plan: {methods} on {self.config.model} over {tasks}, preset {self.chosen.preset}"

    def _line(self, step: Read, reading: Reading) -> str:
        missing = self.reader.find(reading, step.signals)
        signals = ", ".join(sorted(map(repr, step.signals))) or "answers only"
        left = self.reader.estimate(reading) * missing / len(reading.shards)
        state = (
            f"{missing} of {len(reading.shards)} shards to compute, about {left:,.0f} s" if missing else "all stored"
        )
        return f"read {step.where}: {len(reading.questions):,} questions; {signals}; {state}"

    # --- fit and predict ----------------------------------------------------------------------------------------------

    def _fit(self, step: Fit) -> Fitted:
        """Fit, or take the fit from the store."""
        learned, chosen_by = self.readings[step.where], self._chosen_by(step.method, step.where)
        fitted = self.fitter.fit(step.method, learned, chosen_by, self.config.seed)
        self.seconds["fit", step.method, step.where] = fitted.seconds
        complaint = fitted.complaint()
        if complaint is not None:
            self.report.notes.append(f"{step.method}, learned on {step.where}: {complaint}")
        return fitted

    def _chosen_by(self, name: str, learned: TaskSplit) -> Reading | None:
        """The validation split by which a method that learns here chooses its step, unless it has too few answers."""
        chosen = TrainOn(learned.task, learned.split).selection(self.chosen.methods[name], self.selecting)
        reading = None if chosen is None else self.readings[chosen]
        return reading if reading is not None and reading.usable.sum() >= MIN_VALIDATION else None

    def _adapt(self, step: Adapt) -> Reading | BaseException | None:
        """Read the query through the adapter that the method trained."""
        fitted = self.fits[Fit(step.method, step.learned)]
        if isinstance(fitted, BaseException):
            return fitted
        if step.where not in self.tests and fitted.curve is not None:
            return None  # how sure it is there was kept while it was trained
        adapter = fitted.method.fitted().get("adapter_")
        if not isinstance(adapter, AdapterRef):
            raise ContractError(f"{step.method} reads through an adapter of its own, and fit left none in `adapter_`")
        start = time.perf_counter()
        again = self.reader.read_through(self.readings[step.where], adapter)
        self.seconds["adapter_predictions", step.method, step.where] = time.perf_counter() - start
        return again

    def _finish(self, step: Predict) -> None:
        """Predict, score and write one cell."""
        used = self._used(step)
        method = self.chosen.methods[step.method]
        row = self.cells.row(step.method, used)
        records = confidence = None
        try:
            facts = self.cells.facts(used)
            reason = self.barred.get((step.method, step.where)) or method.skip(facts)
            if reason is not None:
                row = replace(row, status="skipped", reason=str(reason))
            else:
                confidence = self._predict(step, step.where)
                alone = self.cells.tokens_alone(step.method, used)
                row = replace(row, n_parameters=int(method.n_parameters(facts)), forward_tokens_alone=alone)
                row = self.cells.scored(row, used.test, confidence)
                records = records_of(used.test, confidence)
        except UntrainableError as error:
            row = replace(row, status="skipped", reason=reason_of(error))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - as in _fit
            row, confidence = replace(row, status="failed", reason=reason_of(error)), None
        row = replace(row, timings=self._timings(step), peak_memory_mb=peak_memory_mb(self.backbone.device))
        row = replace(row, questions_digest=self._keep_questions(self.readings[step.where]))
        self._write(row, records)
        if confidence is not None:
            self._recalibrate(step, used, row, confidence)

    def _predict(self, step: Predict, where: TaskSplit) -> FloatArray:
        """How sure the method is of the answers of a split: (n,), those without text included."""
        fitted = self._fitted(step)
        method = self.chosen.fresh(step.method) if fitted is None else fitted.method
        reading = self.readings[where]
        batch = self._unlabelled(step.method, where)
        start = time.perf_counter()
        with self.progress.stage(f"predict {step.method}", len(batch)) as advance:
            predicted = method.predict(batch) if len(batch) else np.zeros(0)
            advance(len(batch))
        self.seconds["predict", step.method, where] = time.perf_counter() - start
        confidence = np.full(len(reading.questions), self._in_no_answer(step, method))
        confidence[reading.usable] = checked(f"{step.method}.predict", predicted, len(batch))
        return confidence

    def _fitted(self, step: Predict) -> Fitted | None:
        """None where the method does not learn; what went wrong is raised again."""
        method = self.chosen.methods[step.method]
        if not method.trains():
            return None
        fitted = self.fits[Fit(step.method, self._learned_from(step, method))]
        if isinstance(fitted, BaseException):
            raise fitted
        return fitted

    def _in_no_answer(self, step: Predict, method: ConfidenceMethod) -> float:
        """How sure the method is, by the protocol, where there is no answer."""
        if self.chosen.protocol.empty_rule is EmptyRule.ZERO or not method.trains():
            return 0.0
        learned = self.readings[self._learned_from(step, method)]
        return float(learned.correct[learned.usable].mean())

    def _unlabelled(self, name: str, where: TaskSplit) -> Batch:
        again = self.adapted.get((name, where))
        if isinstance(again, BaseException):
            raise again
        signals = self.chosen.methods[name].reads().predict
        return self.batches.batch(self.readings[where], signals, labels=False, adapted=again)

    def _recalibrate(self, step: Predict, used: Used, row: ResultRow, confidence: FloatArray) -> None:
        """A cell of its own for each recalibrated version, fitted on the validation split."""
        usable = used.test.usable
        for kind in self.chosen.recalibrate:
            notes = tuple(note for note in row.notes if note not in used.complaints)
            again = replace(row, method=f"{row.method}{RECALIBRATED}{kind}", notes=notes)
            records = None
            try:
                seen, correct = self._on_validation(step)
                mended = confidence.copy()
                mended[usable] = recalibrator(kind).fit(seen, correct).apply(confidence[usable])
                labels = replace(row.labels_seen, validation=max(row.labels_seen.validation, len(correct)))
                alone = self.cells.tokens_alone(step.method, used, *self._validated(step))
                again = replace(again, labels_seen=labels, forward_tokens_alone=alone)
                again = self.cells.scored(again, used.test, mended)
                records = records_of(used.test, mended)
            except (Exception, SystemExit) as error:  # noqa: BLE001 - as in _fit
                again = replace(again, status="failed", reason=reason_of(error), metrics={}, per_subject={})
            self._write(again, records)

    def _on_validation(self, step: Predict) -> tuple[FloatArray, BoolArray]:
        """Confidences in the validation answers and their labels, (m,) each; out of fold where it was fitted there."""
        method, target = self.chosen.methods[step.method], self.chosen.learn_on[step.where.task]
        reading, fitted = self.readings[target.validation], self._fitted(step)
        correct = reading.correct[reading.usable]
        if fitted is not None and fitted.curve is not None:
            return chosen_out_of_fold(fitted.curve, correct, self.config.seed), correct
        if fitted is None or target.where(method) != target.validation:
            return self._predict(step, target.validation)[reading.usable], correct
        if adapted(method):
            raise UserError(
                "it learned on the validation split through an adapter, so that there is nothing to recalibrate it on;"
                " let it learn elsewhere with --train-on"
            )
        seed = derived_seed(self.config.seed, step.method, str(target.validation))

        def fitted_anew(batch: Batch) -> ConfidenceMethod:
            context = self.fitter.context(step.method, reading, None, seed)
            return self.chosen.fresh(step.method).fit(batch, context)

        labelled = self.batches.batch(reading, method.reads().fit, labels=True)
        return out_of_fold(fitted_anew, labelled, self._unlabelled(step.method, target.validation), seed), correct

    def _validated(self, step: Predict) -> tuple[Reading | None, Reading | None]:
        """The validation split, and as it was read through the method's adapter."""
        where = self.chosen.learn_on[step.where.task].validation
        again = self.adapted.get((step.method, where))
        return self.readings[where], again if isinstance(again, Reading) else None

    def _keep_questions(self, reading: Reading) -> str | None:
        """The texts of what was tested, once beside the results of all methods, and their digest."""
        if reading.released:
            return None
        if reading.where not in self.kept:
            task, letters = reading.task, self.chosen.protocol.letters
            with fenced(f"task {task.name!r}, style_of"):
                texts = [questions.of(q, task.style_of(q), task.format, letters) for q in reading.questions]
            questions.write(task.name, task.card.version, texts, self.config.out)
            self.kept[reading.where] = questions.digest(texts)
        return self.kept[reading.where]

    def _write(self, row: ResultRow, records: Records | None) -> None:
        self.report.paths.append(files.write(row, records, self.config.out))
        self.report.rows.append(files.read(self.report.paths[-1]))

    def _used(self, step: Predict) -> Used:
        """What the cell rests on."""
        method = self.chosen.methods[step.method]
        again = self.adapted.get((step.method, step.where))
        through = again if isinstance(again, Reading) else None
        where = self._learned_from(step, method)
        if not method.trains() or where not in self.readings:
            return Used(self.readings[step.where], adapted=through)
        fitted = self.fits.get(Fit(step.method, where))
        return Used(
            self.readings[step.where],
            self.readings[where],
            through,
            self._chosen_by(step.method, where),
            fitted if isinstance(fitted, Fitted) else None,
        )

    def _timings(self, step: Predict) -> dict[str, float]:
        """Stage -> seconds of this cell; a fit that serves several cells is in each."""
        fit = ("fit", step.method, self._learned_from(step, self.chosen.methods[step.method]))
        own = (fit, ("adapter_predictions", step.method, step.where), ("predict", step.method, step.where))
        return {key[0]: round(self.seconds[key], 4) for key in own if key in self.seconds}

    def _learned_from(self, step: Adapt | Predict, method: ConfidenceMethod) -> TaskSplit:
        return self.chosen.learn_on[step.where.task].where(method)


def _attempted(work: Callable[[S], T], step: S) -> T | BaseException:
    """What a step made, or what a plugin raised instead: that is its cells' failure, not the run's."""
    try:
        return work(step)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a plugin raises
        return error
