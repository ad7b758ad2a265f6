"""The pipeline, and the file to read first: run methods on a model over tasks, and score them.

questions -> prompts -> answers and signals (once, shared by all methods) -> fit -> predict -> score -> results

Nothing notes how far a run has come. Each step asks the store first, `bench.signals.reader` for answers and signals,
`bench.run.fitting` for fits, so that a run which was stopped goes on where it was.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path

from bench.api import ConfidenceMethod
from bench.api.errors import attempted, fenced
from bench.backbone.devices import training_budget
from bench.backbone.memory import give_back
from bench.backbone.models import label_of
from bench.data.splits import TaskSplit
from bench.progress import DECISIONS, Progress, Silent
from bench.results import files, questions
from bench.results.row import ResultRow
from bench.run.config import RunConfig
from bench.run.feasibility import check_room
from bench.run.fitting import Fitted, Fitter
from bench.run.forecast import Forecast
from bench.run.heads.saving import HeadWriter
from bench.run.inputs import Inputs, StepResults
from bench.run.isolation.log import RunLog
from bench.run.isolation.sandbox import Isolation
from bench.run.order import in_order
from bench.run.plan import Adapt, Fit, Predict, Read
from bench.run.predicting import Predictor
from bench.run.preparation import Opened, Prepared, Resources, infeasible_in, open_resources, prepare
from bench.run.recalibration import Recalibration
from bench.run.resolve import ResolvedRun, resolve
from bench.run.rows import RowBuilder, ScoredRow
from bench.run.tuning import Tuner
from bench.signals.batches import Batches
from bench.store.folders import cache_folder
from bench.store.locks import in_use
from bench.store.sources import plugin_digest

_ONE_AT_A_TIME = threading.RLock()
"""Held by the run of this process: standard streams, torch's settings and the model's weights are all threads'."""


@dataclass
class RunReport:
    """Results and account of a run."""

    plan: list[str]
    """The plan in words."""
    rows: list[ResultRow] = field(default_factory=list)
    """One for each method and task."""
    paths: list[Path] = field(default_factory=list)
    """The JSON files that were written."""
    heads: list[Path] = field(default_factory=list)
    """Folders of the heads that were kept."""
    notes: list[str] = field(default_factory=list)
    """Notes for the user."""
    forward_tokens: int = 0
    """Token positions that this run itself fed to the model; 0 where everything was stored."""
    stopped: list[str] = field(default_factory=list)
    """A sentence about each seed of several that was stopped."""

    @property
    def failed(self) -> bool:
        """Whether a cell failed."""
        return any(row.status == "failed" for row in self.rows)


def run(
    config: RunConfig,
    progress: Progress | None = None,
    classes: Sequence[type[ConfidenceMethod]] = (),
    opened: Opened | None = None,
) -> RunReport:
    """Run the chosen methods on a model over tasks, score them and write the results.

    Threads of one process run one after the other.

    Args:
        config: the request.
        progress: told how far the run is.
        classes: methods of no file, e.g. of a notebook, which the request names too; they run in this process.
        opened: keeps the loaded model for the next run of the same model and options.

    Raises:
        UserError: something outside the program is not as it must be; nothing was computed for it.
    """
    progress = progress or Silent()
    with at_work(config, progress, classes, opened) as work:
        report = _run(config, work.resolved, work.resources, progress)
    report.notes += work.notes(failed=report.failed)
    return report


@dataclass(frozen=True, eq=False)
class Work:
    """A request that was checked, and what its work is done with."""

    resolved: ResolvedRun
    resources: Resources
    log: RunLog

    def notes(self, *, failed: bool) -> list[str]:
        """Notes on plugins for the user; `failed`: whether a cell did."""
        where = [f"tracebacks, and what plugins printed, are in {self.log.path}"] if failed and self.log.written else []
        return [*self.resolved.isolation.notes, *where]


@contextmanager
def at_work(
    config: RunConfig,
    progress: Progress,
    classes: Sequence[type[ConfidenceMethod]] = (),
    opened: Opened | None = None,
) -> Iterator[Work]:
    """Everything that a request works with, as long as it works. The same arguments and errors as `run`."""
    log = RunLog.below(config.cache or cache_folder())
    with (
        _ONE_AT_A_TIME,
        log.opened(progress.say if config.debug else None),
        closing(Isolation(config.method_timeout, log)) as isolation,
    ):
        resolved = resolve(config, isolation, classes)
        resources = open_resources(config, resolved, progress, opened)
        isolation.backbone = resources.reader.backbone
        claimed: AbstractContextManager[Callable[[str], object]] = (
            nullcontext(str) if config.dry_run else in_use(resolved.cache, label_of(resolved.model))
        )  # keeps others from pruning what is stored of the model; a plan writes nothing
        with closing(resources.reader.working), claimed as reads:
            resources.reader.store.reads = reads
            yield Work(resolved, resources, log)


def _run(config: RunConfig, resolved: ResolvedRun, resources: Resources, progress: Progress) -> RunReport:
    reader, methods, tests = resources.reader, resolved.methods, resolved.test_splits
    # digests as long as they are of what was imported
    sources = {name: plugin_digest(type(method)) for name, method in methods.items() if method.trains()}
    reasons = infeasible_in(resolved, resources)
    check_room(methods, tests, reasons, reader.backbone, resolved.training_budget)
    prepared = prepare(resolved, resources, reasons, config.limit)
    heads = HeadWriter(config.save_heads, config, resolved, reader, resources.tasks)
    notes = [*prepared.notes, *reader.backbone.chat.notes, *(reader.store.notes if config.dry_run else ())]
    report = RunReport(
        [*Forecast(prepared, resolved, resources.grader).lines(), *heads.plan()], notes=[*resolved.notes, *notes]
    )
    named = f"{', '.join(methods)} on {config.model} over {', '.join(resolved.tests)}"
    progress.say(f"Plan: {named}, preset {resolved.preset}, seed {config.seed}")
    for line in (*report.plan, *notes):
        progress.say("  " + line)
    if DECISIONS.isEnabledFor(logging.INFO):
        _tell_decisions(config, resolved, resources, prepared)
    if config.dry_run:
        return report

    batches = Batches(reader)
    fitter = Fitter(
        resolved, reader.backbone, reader.store, batches, progress, config.seed, resources.trainings, sources=sources
    )
    predictor = Predictor(resolved, prepared.infeasible, batches, progress)
    rows = RowBuilder(config, resolved, reader, prepared.origins, resources.grader.judge)
    made = StepResults(resolved, prepared.selecting, prepared.readings)
    recalibration = Recalibration(resolved, made, fitter, predictor, rows)
    writer = CellWriter(config.out, resolved.protocol.letters, report, heads)

    for step in in_order(prepared.steps, resources.trainings, fitter, made, progress):
        match step:
            case Read(where, signals):
                made.readings[where] = resources.grader.grade(reader.read(made.readings[where], signals))
            case Fit(name, where):
                reader.working.rest()
                learned, selection = made.readings[where], made.selection(name, where)
                made.fits[step] = attempted(Tuner(resolved, fitter).fit, name, learned, selection)
            case Adapt(name, where, learned_from):
                reading, fitted = made.readings[where], made.fits[Fit(name, learned_from)]
                made.adapted[name, where] = attempted(predictor.read_through, name, reading, fitted)
            case Predict(name, where):
                inputs = made.inputs(name, where)
                prediction = attempted(predictor.predict, name, inputs)
                scored = rows.scored(name, inputs, prediction)
                for version in chain([scored], recalibration.versions(scored, inputs)):
                    writer.write(version, inputs)
        give_back()

    report.forward_tokens = reader.forward_tokens
    fits = [(step, fitted.complaint()) for step, fitted in made.fits.items() if isinstance(fitted, Fitted)]
    complaints = [f"{step.method}, learned on {step.where}: {text}" for step, text in fits if text is not None]
    told = [*complaints, *heads.notes, *reader.store.notes]
    report.notes += [note for note in told if note not in report.notes]
    return report


@dataclass(frozen=True)
class CellWriter:
    """Writes cells, once beside them the texts of what was tested, and heads where they are asked for."""

    out: Path
    letters: str
    report: RunReport
    heads: HeadWriter
    digests: dict[TaskSplit, str | None] = field(default_factory=dict)

    def write(self, scored: ScoredRow, inputs: Inputs) -> None:
        """Write a cell; the report gets its row as it is read again, and its path."""
        test, task = inputs.predicted, inputs.predicted.task
        if test.asked_elsewhere:  # questions of a release are not kept
            self.digests[test.where] = None
        elif test.where not in self.digests:
            with fenced(f"task {task.name!r}, style_of"):
                texts = [questions.of(q, task.style_of(q), task.format, self.letters) for q in test.questions]
            questions.write(task.name, task.card.version, texts, self.out)
            self.digests[test.where] = questions.digest(texts)
        row = replace(scored.row, questions_digest=self.digests[test.where])
        self.report.paths.append(files.write(row, scored.records, self.out))
        self.report.rows.append(files.read(self.report.paths[-1]))
        self.report.heads += self.heads.save(self.report.rows[-1], scored, inputs)


def _tell_decisions(config: RunConfig, resolved: ResolvedRun, resources: Resources, prepared: Prepared) -> None:
    """Tell the log what nobody asked for: revisions, where and how the model is computed, what is stored and where."""
    reader = resources.reader
    backbone = reader.backbone
    commit = f"commit {backbone.files.commit}" if backbone.files.commit else f"weights {backbone.files.weights[:12]}"
    DECISIONS.info("model %s, %s", backbone.spec.name, commit)
    devices = ", ".join(backbone.devices)
    DECISIONS.info("device %s, dtype %s, attention %s", devices, backbone.dtype_name, backbone.attention)
    budget = resolved.training_budget or training_budget(backbone.device)
    DECISIONS.info("token budget %s, of training an adapter %s", f"{reader.budget:,}", f"{budget:,}")
    workers = "" if config.workers is None else f", {config.workers} workers"
    DECISIONS.info("engine %s%s; seed %d; preset %s", config.engine, workers, config.seed, resolved.preset)
    DECISIONS.info("cache %s; results %s", resolved.cache, config.out)
    for where, told in prepared.origins.items():
        for name, revision in told.items():
            DECISIONS.info("data of %s: %s %s", where, name, revision)
    for step in prepared.steps:
        if isinstance(step, Read) and reader.sample is None:  # a plan says it itself
            reading = prepared.readings[step.where]
            total = len(reading.shards)
            stored = total - reader.find(reading, step.signals)
            DECISIONS.info("%s: %d of %d shards are taken from the store", step.where, stored, total)
