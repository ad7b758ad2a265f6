"""The pipeline, and the file to read first: run methods on a model over tasks, and score them.

questions -> prompts -> answers and signals (once, shared by all methods) -> fit -> predict -> score -> results

A run keeps no record of its progress. Answers, signals and fits are looked up in the store first, so that a run that is
started again repeats none of them (`bench.signals.reader`, `bench.run.fitting`). Predictions and results are computed
anew in every run.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import chain, product
from pathlib import Path

from bench.api import ConfidenceMethod
from bench.api.errors import capture, plugin_errors
from bench.data.splits import TaskSplit
from bench.engine.trainings import Trainings
from bench.model.devices import training_budget
from bench.model.memory import release_free_memory
from bench.model.specs import label_of
from bench.progress import DECISIONS, Progress, Silent
from bench.results import files, provenance, question_texts
from bench.results.row import ResultRow
from bench.run.config import RunConfig
from bench.run.feasibility import check_training_memory
from bench.run.fitting import Fitted, Fitter
from bench.run.forecast import Forecast
from bench.run.inputs import Inputs, StepResults
from bench.run.isolation.log import RunLog
from bench.run.isolation.sandbox import Isolation
from bench.run.plan import Adapt, Fit, Predict, Read, Step, TrainOn, uses_trained_adapter
from bench.run.predicting import Predictor
from bench.run.preparation import ModelHandle, PreparedRun, Resources, find_infeasible, open_resources, prepare
from bench.run.recalibration import Recalibration
from bench.run.resolve import ResolvedRun, resolve
from bench.run.rows import RowBuilder, ScoredRow
from bench.run.scorers.saving import ScorerWriter
from bench.run.tuning import fit_tuned
from bench.signals.batch_builder import BatchBuilder
from bench.signals.split_data import SplitData
from bench.store.disk_cache import cache_folder
from bench.store.locks import mark_in_use
from bench.training.trainer import DeferredTrainingError

_JUDGED = 30.0
"""Expected seconds of reading from which on the time that they took corrects what is left."""
_RUN_LOCK = threading.RLock()
"""Lock that a thread holds during a run: all threads share the standard streams, torch's settings and the model's
weights."""


@dataclass
class RunReport:
    """Plan, results and notes of a run."""

    plan: list[str]
    """Lines that describe the steps of the run."""
    rows: list[ResultRow] = field(default_factory=list)
    """One result row for each cell: a method, or a recalibrated version of it, on a task."""
    paths: list[Path] = field(default_factory=list)
    """Paths of the written JSON files, one for each row."""
    heads: list[Path] = field(default_factory=list)
    """Folders of the written heads."""
    notes: list[str] = field(default_factory=list)
    """Notes for the user."""
    forward_tokens: int = 0
    """Token positions that this run fed to the model; 0 if everything was stored."""
    stopped: list[str] = field(default_factory=list)
    """Error message of each seed whose run was stopped by an error."""

    @property
    def any_failed(self) -> bool:
        """Whether a cell failed."""
        return any(row.status == "failed" for row in self.rows)


def run(
    config: RunConfig,
    progress: Progress | None = None,
    classes: Sequence[type[ConfidenceMethod]] = (),
    opened: ModelHandle | None = None,
) -> RunReport:
    """Run the chosen methods on a model over tasks, score them and write the results.

    If several threads of a process call this function, the runs wait for each other.

    Args:
        config: options of the run.
        progress: reports how far the run is.
        classes: method classes passed from Python, e.g. of a notebook; `config` names them. They run in this process.
        opened: holds the loaded model, for further runs that differ only in their seed.

    Raises:
        UserError: an option, file or model is invalid.
    """
    progress = progress or Silent()
    with open_run(config, progress, classes, opened) as work:
        report = _run(config, work, progress, opened.seeds if opened else ())
    report.notes += work.notes(failed=report.any_failed)
    return report


@dataclass(frozen=True, eq=False)
class OpenRun:
    """A run whose options are resolved, with its model, store, tasks and log, ready for computation."""

    resolved: ResolvedRun
    resources: Resources
    log: RunLog

    def notes(self, *, failed: bool) -> list[str]:
        """Return notes on plugins for the user. If a cell has failed (`failed`), a note names the log of tracebacks."""
        where = (
            [f"tracebacks, and what plugins printed, are in {self.log.path}"] if failed and self.log.has_text else []
        )
        return [*self.resolved.isolation.notes, *where]


@contextmanager
def open_run(
    config: RunConfig,
    progress: Progress,
    classes: Sequence[type[ConfidenceMethod]] = (),
    opened: ModelHandle | None = None,
) -> Iterator[OpenRun]:
    """Context with all that a run needs (model, store, tasks, log), which is closed at the end.

    Args:
        config: options of the run.
        progress: reports how far the run is.
        classes: method classes passed from Python, e.g. of a notebook, which `config` names.
        opened: holds the loaded model, for further runs that differ only in their seed.

    Raises:
        UserError: an option, file or model is invalid.
    """
    provenance.code()  # both are cached from here on: a commit made during the run is not what it runs
    provenance.packages()
    log = RunLog.create(config.cache or cache_folder())
    with (
        _RUN_LOCK,
        log.redirect(progress.say if config.debug else None),
        closing(Isolation(config.method_timeout, log)) as isolation,
    ):
        resolved = resolve(config, isolation, classes)
        claimed: AbstractContextManager[Callable[[str], object]] = (
            nullcontext(str) if config.dry_run else mark_in_use(resolved.cache, label_of(resolved.model))
        )  # keeps other processes from pruning the model's store; a dry run writes nothing
        with claimed as reads:  # before a GGUF file is converted
            resources = open_resources(config, resolved, progress, opened)
            isolation.lm = resources.reader.lm
            resources.reader.store.reads = reads
            reads(resources.reader.lm.label)  # a server's model has its name from the server
            if resources.reader.served_answers is not None:
                reads(resources.reader.served_answers.server.label)
            with closing(resources.reader.active_engine):
                yield OpenRun(resolved, resources, log)


def _run(config: RunConfig, work: OpenRun, progress: Progress, seeds: Sequence[int]) -> RunReport:
    resolved, resources = work.resolved, work.resources
    reader, methods = resources.reader, resolved.methods
    reasons = find_infeasible(resolved, resources)
    check_training_memory(resolved.methods, resolved.test_splits, reasons, reader.lm, resolved.training_budget)
    prepared = prepare(resolved, resources, reasons, config.limit)
    forecast = Forecast(prepared, resolved, resources.grader)
    left_out: list[str] = []
    if resolved.max_time is not None:
        too_long = forecast.too_long(resolved.max_time, str(config.max_time), dry_run=config.dry_run)
        left_out = [f"{name} on {test} is skipped: {reason}" for (name, test), reason in too_long.items()]
        if too_long:
            prepared = prepare(resolved, resources, {**too_long, **reasons}, config.limit)
            forecast = Forecast(prepared, resolved, resources.grader)
    heads = ScorerWriter(config, resolved, reader, resources.tasks)
    notes = [*prepared.notes, *left_out, *reader.lm.notes, *(reader.store.notes if config.dry_run else ())]
    report = RunReport([*forecast.lines(), *heads.plan()], notes=[*resolved.notes, *notes])
    model = reader.lm.label if resolved.model.is_server else config.model  # a URL may have a password
    named = f"{', '.join(methods)} on {model} over {', '.join(resolved.tests)}"
    progress.say(f"Plan: {named}, preset {resolved.preset}, seed {config.seed}")
    for line in (*report.plan, *notes):
        progress.say("  " + line)
    if DECISIONS.isEnabledFor(logging.INFO):
        _log_decisions(config, resolved, resources, prepared)
    if config.dry_run:
        return report
    rows = RowBuilder(config, resolved, reader, prepared.origins, resources.grader.judge)
    writer = CellWriter(config.out, resolved.protocol.letters, report, heads)
    if not config.overwrite:
        kinds = ("", *(f"{files.RECALIBRATED}{kind}" for kind in resolved.recalibrate))
        cells = [
            replace(rows.cell(step.method + kind, prepared.data_by_split[step.where]), seed=seed)
            for step, kind, seed in product(prepared.steps, kinds, seeds or (config.seed,))
            if isinstance(step, Predict)
        ]
        tests = [prepared.data_by_split[where] for where in resolved.test_splits if where in prepared.data_by_split]
        changed = [
            question_texts.path_of(test.task.name, test.task.card.version, config.out)
            for test in tests
            if not test.has_external_prompts
            and question_texts.would_change(test.task.name, test.task.card.version, writer.texts(test), config.out)
        ]
        files.refuse_tracked(cells, config.out, changed)

    batches = BatchBuilder(reader)
    fitter = Fitter(resolved, reader.lm, reader.store, batches, progress, config.seed, resources.trainings)
    predictor = Predictor(resolved, prepared.infeasible, batches, progress)
    done = StepResults(resolved, prepared.selecting, prepared.data_by_split)
    recalibration = Recalibration(done, fitter, predictor, rows)

    ahead = {step: seconds for step, seconds in forecast.times.items() if not isinstance(seconds, str)}
    expected = spent = 0.0  # seconds of what was read, without the first split, with which the model is loaded
    loaded = False
    for step in in_order(prepared.steps, resources.trainings, fitter, done, progress):
        seconds, start = ahead.pop(step, 0.0), time.monotonic()
        pace = spent / expected if expected > _JUDGED else 1.0  # the machine may be slower than when it was timed
        progress.seconds_after = sum(left * (pace if isinstance(other, Read) else 1) for other, left in ahead.items())
        match step:
            case Read(where, signals):
                done.data_by_split[where] = resources.grader.grade(reader.read(done.data_by_split[where], signals))
                if loaded:
                    expected, spent = expected + seconds, spent + time.monotonic() - start
                loaded = loaded or seconds > 0
            case Fit(name, where):
                reader.active_engine.rest()
                learned, selection = done.data_by_split[where], done.selection(name, where)
                done.fits[step] = capture(fit_tuned, fitter, name, learned, selection)
            case Adapt(name, where, learned_from):
                split_data, fitted = done.data_by_split[where], done.fits[Fit(name, learned_from)]
                done.adapted[name, where] = capture(predictor.read_adapted, name, split_data, fitted)
            case Predict(name, where):
                inputs = done.inputs(name, where)
                prediction = capture(predictor.predict, name, inputs)
                scored = rows.build_cell(name, inputs, prediction)
                for version in chain([scored], recalibration.versions(scored, inputs)):
                    writer.write(version, inputs)
        release_free_memory()

    report.forward_tokens = reader.forward_tokens
    fits = [(step, fitted.complaint()) for step, fitted in done.fits.items() if isinstance(fitted, Fitted)]
    complaints = [f"{step.method}, learned on {step.where}: {text}" for step, text in fits if text is not None]
    new_notes = [*complaints, *heads.notes, *reader.store.notes]
    report.notes += [note for note in new_notes if note not in report.notes]
    return report


def in_order(
    steps: Sequence[Step], trainings: Trainings | None, fitter: Fitter, results: StepResults, progress: Progress
) -> Iterator[Step]:
    """Yield each step once it can be done; steps that need an adapter trained on another machine come last.

    If such a training has not ended when its fit is yielded, the fit is yielded again after the training. Fits of other
    methods come last, too, if they may need the cards on which adapters are being trained.

    Args:
        steps: steps of the run, in topological order.
        trainings: trainings on other machines; None: adapters are trained on this machine, and no step is deferred.
        fitter: fits the methods; its `puts_off` is set here, so that fits don't wait for adapters in training.
        results: results of the finished steps.
        progress: reports how far the trainings are.
    """
    if trainings is None:
        yield from steps
        return
    methods = results.resolved.methods
    reads = {step.where: step for step in steps if isinstance(step, Read)}
    prioritised: list[Step] = []  # fits of adapters, and reads that they need: trained while the others are read
    for step in steps:
        if isinstance(step, Fit) and uses_trained_adapter(method := methods[step.method]):
            chosen_by = TrainOn(step.where.task, step.where.split).selection(method, results.selecting)
            prioritised += [*(reads[where] for where in (step.where, chosen_by) if where is not None), step]
    deferred: list[Step] = []
    fitter.puts_off = True
    for step in dict.fromkeys([*prioritised, *steps]):
        if isinstance(step, Fit):  # a fit may need the cards on which adapters are trained
            waits = bool(deferred) and trainings.on_cards and not uses_trained_adapter(methods[step.method])
        else:
            waits = not isinstance(step, Read) and any(isinstance(x, Fit) and x.method == step.method for x in deferred)
        if not waits:
            yield step
        if waits or (isinstance(step, Fit) and isinstance(results.fits[step], DeferredTrainingError)):
            deferred.append(step)
    fitter.puts_off = False
    if deferred:
        trainings.finish(progress)
    yield from deferred


@dataclass(frozen=True)
class CellWriter:
    """Writes the cells of a run, the question texts of each test (once), and the heads that the user requested."""

    out: Path
    letters: str
    report: RunReport
    heads: ScorerWriter
    digests: dict[TaskSplit, str | None] = field(default_factory=dict)

    def texts(self, test: SplitData) -> list[question_texts.QuestionText]:
        """Return the texts of a test's questions.

        Raises:
            UserError: the task's `style_of` raised an exception.
        """
        with plugin_errors(f"task {test.task.name!r}, style_of"):
            return [question_texts.of(q, test.task.style_of(q), test.task.format, self.letters) for q in test.questions]

    def write(self, scored: ScoredRow, inputs: Inputs) -> None:
        """Write a cell, and its head if requested; add the paths of both, and the cell's row, to the report."""
        test, task = inputs.predicted, inputs.predicted.task
        if test.has_external_prompts:  # questions of a release are not written
            self.digests[test.where] = None
        elif test.where not in self.digests:
            texts = self.texts(test)
            question_texts.write(task.name, task.card.version, texts, self.out)
            self.digests[test.where] = question_texts.digest(texts)
        row = replace(scored.row, questions_digest=self.digests[test.where])
        self.report.paths.append(files.write(row, scored.records, self.out))
        self.report.rows.append(files.read(self.report.paths[-1]))
        self.report.heads += self.heads.save(self.report.rows[-1], scored, inputs)


def _log_decisions(config: RunConfig, resolved: ResolvedRun, resources: Resources, prepared: PreparedRun) -> None:
    """Log what the run has chosen: revisions, device, dtype, budgets, engine, cache; and how many shards are stored."""
    reader = resources.reader
    lm = reader.lm
    commit = f"commit {lm.files.commit}" if lm.files.commit else f"weights {lm.files.weights[:12]}"
    DECISIONS.info("model %s, %s", lm.spec.name, commit)
    devices = ", ".join(lm.devices)
    DECISIONS.info("device %s, dtype %s, attention %s", devices, lm.dtype_name, lm.attention)
    budget = resolved.training_budget or training_budget(lm.device)
    DECISIONS.info("token budget %s, of training an adapter %s", f"{reader.budget:,}", f"{budget:,}")
    workers = "" if config.workers is None else f", {config.workers} workers"
    DECISIONS.info("engine %s%s; seed %d; preset %s", config.engine, workers, config.seed, resolved.preset)
    DECISIONS.info("cache %s; results %s", resolved.cache, config.out)
    for where, sources in prepared.origins.items():
        for name, revision in sources.items():
            DECISIONS.info("data of %s: %s %s", where, name, revision)
    for step in prepared.steps:
        if isinstance(step, Read) and reader.sample is None:  # a dry run says it in its plan
            split_data = prepared.data_by_split[step.where]
            total = len(split_data.shards)
            stored = total - reader.find(split_data, step.signals)
            DECISIONS.info("%s: %d of %d shards are taken from the store", step.where, stored, total)
            DECISIONS.info("%s: methods need %s", step.where, ", ".join(sorted(map(repr, step.signals))) or "answers")
