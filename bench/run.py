"""The pipeline, and the file to read first: run methods on a model over tasks, and score them.

questions -> prompts -> answers and signals (once, shared by all methods) -> fit -> predict -> score -> results
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bench import asked, results
from bench.api import (
    AdapterRef,
    Batch,
    BoolArray,
    ChoiceLogits,
    ConfidenceMethod,
    Context,
    FloatArray,
    Of,
    QueryLogits,
    Task,
    TokenIds,
)
from bench.batching import Batches
from bench.cells import Cells, Used, checked, reason_of, records_of
from bench.choose import Chosen, choose, source_digest
from bench.config import RunConfig
from bench.duplicates import contaminated
from bench.errors import UntrainableError, UserError
from bench.judges import open_judge
from bench.memory import give_back, peak_memory_mb
from bench.plan import Adapt, Fit, Predict, Read, Step, Where, plan
from bench.progress import Progress, Silent
from bench.questions import Loader
from bench.reading import Reader, Reading, bundle_digest
from bench.recalibrate import recalibrator
from bench.recalibrating import out_of_fold
from bench.records import Format, ResultRow
from bench.release import open_release
from bench.results import RECALIBRATED, Records
from bench.sources import open_source
from bench.store import Store, key_of

if TYPE_CHECKING:
    from bench.backbone.hf import Backbone


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
        results.ensure_writable(config.out)
    return _Run(config, chosen, progress or Silent()).execute()


class _Run:
    """One run; the steps of its plan in order."""

    def __init__(self, config: RunConfig, chosen: Chosen, progress: Progress) -> None:
        from bench.backbone.hf import Backbone, LoadOptions

        self.config = config
        self.chosen = chosen
        self.progress = progress
        self.source = open_source(config.data_dir)
        self.tasks: dict[str, Task] = {name: task(self.source, chosen.protocol) for name, task in chosen.tasks.items()}
        self.tests = [Where(name, "test") for name in chosen.tests]
        options = LoadOptions(config.device, config.dtype, config.trust_remote_code)
        self.backbone: Backbone = Backbone(chosen.model, options)
        self.store = Store(chosen.cache)
        self.judge = open_judge(config, chosen.cache)
        self.reader = Reader(
            self.backbone, self.store, chosen.protocol, config.token_budget, progress, config.seed, self.judge
        )
        self.release = open_release(config, chosen.model)
        self.barred = self._barred()
        recalibrated = bool(chosen.recalibrate)
        self.steps: list[Step] = plan(
            chosen.methods, self.tests, chosen.learn_on, self.barred, recalibrated=recalibrated
        )
        reads = [step.where for step in self.steps if isinstance(step, Read)]
        loader = Loader(self.tasks, self.tests, reads, chosen.protocol, config.limit, self.release)
        self.loaded = {where: loader.load(where) for where in reads}
        if not config.dry_run:
            self.store.prepare()
        self.batches = Batches(self.reader)
        self.cells = Cells(config, chosen, self.reader, self.source, self.release)
        self.readings: dict[Where, Reading] = {}
        self.kept: dict[Where, str] = {}
        self.fits: dict[Fit, ConfidenceMethod | BaseException] = {}
        self.adapted: dict[tuple[str, Where], Reading | BaseException] = {}
        self.seconds: dict[tuple[str, str], float] = {}
        self.report = RunReport([], notes=list(chosen.notes))

    def execute(self) -> RunReport:
        self._announce()
        if self.config.dry_run:
            return self.report
        for step in self.steps:
            if isinstance(step, Read):
                self.reader.read(self.readings[step.where], step.signals)
            elif isinstance(step, Fit):
                self.fits[step] = self._fit(step)
            elif isinstance(step, Adapt):
                self.adapted[step.method, step.where] = self._adapt(step)
            else:
                self._finish(step)
            give_back()
        self.report.forward_tokens = self.reader.forward_tokens
        self.report.notes += [note for note in self.store.notes if note not in self.report.notes]
        return self.report

    def _barred(self) -> dict[tuple[str, Where], str]:
        """Method and test -> why it can't run there; the others go on."""
        reasons = {}
        for name, method in self.chosen.methods.items():
            for test in self.tests:
                reason = self._hindrance(method, test)
                if reason is not None:
                    reasons[name, test] = reason
        return reasons

    def _hindrance(self, method: ConfidenceMethod, test: Where) -> str | None:
        task = self.tasks[test.task]
        signals = method.reads().fit | method.reads().predict
        if ChoiceLogits() in signals and task.format is Format.OPEN:
            return "it reads option letters, and this task has none"
        if any(isinstance(s, QueryLogits) or s == TokenIds(Of.QUERY) for s in signals):
            hindrance = self.reader.writer.query_hindrance(task)
            if hindrance is not None:
                return hindrance
        source = self.chosen.learn_on[test.task].where(method)
        if method.trains() and source.split == "validation":
            splits = self.tasks[source.task].card.splits
            if "validation" not in splits and "train" not in splits:
                return f"it learns on a validation split, and {source.task} has neither that nor a train split"
        return None

    # --- plan ---------------------------------------------------------------------------------------------------------

    def _announce(self) -> None:
        for step in self.steps:
            if isinstance(step, Read):
                task = self.tasks[step.where.task]
                given = self.loaded[step.where]
                reading = self.reader.open(step.where, task, given.questions, given.released)
                self._mark_contaminated(reading)
                self.readings[step.where] = reading
                self.report.plan.append(self._line(step, reading))
        count = Counter(type(step) for step in self.steps)
        again = f", {count[Adapt]} of them after reading the query again through an adapter" if count[Adapt] else ""
        self.report.plan.append(f"then {count[Fit]} fits and {count[Predict]} predictions{again}")
        self.progress.say(self._title())
        for line in self.report.plan:
            self.progress.say("  " + line)

    def _mark_contaminated(self, reading: Reading) -> None:
        """Leave out what is learned from and also tested in this run (methods.md §0.18), or only count it."""
        if reading.where in self.tests:
            return
        dropped = self.chosen.protocol.drop_contaminated
        for test in self.tests:
            if self.chosen.learn_on[test.task].task != reading.where.task:
                continue
            found = contaminated(reading.questions, self.loaded[test].whole)
            if found:
                what = f"questions that are also in {test}, {'left out' if dropped else 'kept'}"
                reading.counts[what] = len(found)
            reading.left_out |= found if dropped else frozenset()

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

    def _fit(self, step: Fit) -> ConfidenceMethod | BaseException:
        """Fit, or take the fit from the store; a method's own failure is a value, so that the others go on."""
        method = self.chosen.fresh(step.method)
        reading = self.readings[step.where]
        seed = self._seed(step)
        fields = {
            "method": step.method,
            "code": f"{type(method).__module__}:{type(method).__qualname__}",
            "source": source_digest(type(method)),
            "params": {k: repr(v) for k, v in method.params().items()},
            "seed": seed,
            "protocol": self.chosen.protocol.digest(),
            "device": self.backbone.device,
            "learned from": bundle_digest(reading),
            "left out": sorted(reading.left_out),
        }
        key = key_of(fields)
        stored = self._stored_fit(step, key)
        if stored is not None:
            return stored
        start = time.perf_counter()
        try:
            batch = self.batches.batch(reading, method.reads().fit, labels=True)
            with self.progress.stage(f"fit {step.method}", 1, unit="fit") as advance:
                method.fit(batch, self._context(step, seed))
                advance(1)
            seconds = time.perf_counter() - start
            self.store.put("fits", key, fields, method.save, seconds=seconds)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a plugin raises is its cell's failure, not the run's
            return error
        self.seconds["fit", step.method] = seconds
        return method

    def _seed(self, step: Fit) -> int:
        return derived_seed(self.config.seed, step.method, self.backbone.fingerprint, str(step.where))

    def _stored_fit(self, step: Fit, key: str) -> ConfidenceMethod | None:
        """The fit that an earlier run stored; None also where what it points to is gone."""
        entry = self.store.get("fits", key)
        if entry is None:
            return None
        try:
            method = self.chosen.fresh(step.method).load(entry.folder)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a plugin's own `load`; fitting anew is the mend
            self.store.notes.append(
                f"the stored fit of {step.method} can't be used ({reason_of(error)}); it is fitted again"
            )
            return None
        self.seconds["fit", step.method] = float(entry.manifest["seconds"])
        return method

    def _context(self, step: Fit, seed: int) -> Context:
        """What `fit` gets besides data."""
        from bench.launch.trainer import AdapterTrainer

        reading = self.readings[step.where]
        no, yes = self.reader.asking(reading).verdict_ids.tolist()
        trainer = AdapterTrainer(self.backbone, self.store, step.method, (no, yes), progress=self.progress)
        return Context(seed, reading.task.format, self.backbone.device, self.chosen.protocol, trainer)

    def _adapt(self, step: Adapt) -> Reading | BaseException:
        """Read the query through the adapter that the method trained."""
        fitted = self.fits[Fit(step.method, step.learned)]
        if isinstance(fitted, BaseException):
            return fitted
        adapter: AdapterRef = fitted.fitted()["adapter_"]
        start = time.perf_counter()
        try:
            again = self.reader.read_through(self.readings[step.where], adapter)
        except UserError as error:
            return error
        self.seconds["adapter_predictions", step.method] = time.perf_counter() - start
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
                row = replace(row, status="skipped", reason=reason)
            else:
                confidence = self._predict(step, step.where)
                alone = self.cells.tokens_alone(step.method, used)
                row = replace(row, n_parameters=method.n_parameters(facts), forward_tokens_alone=alone)
                row = self.cells.scored(row, used.test, confidence)
                records = records_of(used.test, confidence)
        except UntrainableError as error:
            row = replace(row, status="skipped", reason=reason_of(error))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - as in _fit
            row = replace(row, status="failed", reason=reason_of(error))
        row = replace(row, timings=self._timings(step), peak_memory_mb=peak_memory_mb(self.backbone.device))
        row = replace(row, questions_digest=self._keep_questions(self.readings[step.where]))
        self._write(row, records)
        if confidence is not None:
            self._recalibrate(step, used, row, confidence)

    def _predict(self, step: Predict, where: Where) -> FloatArray:
        """How sure the method is of the answers of a split: (n,), 0.0 where there is no answer (methods.md §0.6)."""
        method = self.chosen.fresh(step.method)
        if method.trains():
            fitted = self.fits[Fit(step.method, self._learned_from(step, method))]
            if isinstance(fitted, BaseException):
                raise fitted
            method = fitted
        reading = self.readings[where]
        batch = self._unlabelled(step.method, where)
        start = time.perf_counter()
        with self.progress.stage(f"predict {step.method}", len(batch)) as advance:
            predicted = method.predict(batch) if len(batch) else np.zeros(0)
            advance(len(batch))
        self.seconds["predict", step.method] = time.perf_counter() - start
        confidence = np.zeros(len(reading.questions))
        confidence[reading.usable] = checked(step.method, predicted, len(batch))
        return confidence

    def _unlabelled(self, name: str, where: Where) -> Batch:
        again = self.adapted.get((name, where))
        if isinstance(again, BaseException):
            raise again
        signals = self.chosen.methods[name].reads().predict
        return self.batches.batch(self.readings[where], signals, labels=False, adapted=again)

    def _recalibrate(self, step: Predict, used: Used, row: ResultRow, confidence: FloatArray) -> None:
        """A cell of its own for each recalibrated version, fitted on the validation split."""
        usable = used.test.usable
        for kind in self.chosen.recalibrate:
            again = replace(row, method=f"{row.method}{RECALIBRATED}{kind}")
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
        reading = self.readings[target.validation]
        correct = reading.correct[reading.usable]
        if not method.trains() or target.where(method) != target.validation:
            return self._predict(step, target.validation)[reading.usable], correct
        fit = Fit(step.method, target.validation)
        seed = self._seed(fit)

        def fitted_anew(batch: Batch) -> ConfidenceMethod:
            return self.chosen.fresh(step.method).fit(batch, self._context(fit, seed))

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
            texts = [asked.of(q, task.style_of(q), task.format, letters) for q in reading.questions]
            asked.write(task.name, task.card.version, texts, self.config.out)
            self.kept[reading.where] = asked.digest(texts)
        return self.kept[reading.where]

    def _write(self, row: ResultRow, records: Records | None) -> None:
        self.report.paths.append(results.write(row, records, self.config.out))
        self.report.rows.append(results.read(self.report.paths[-1]))

    def _used(self, step: Predict) -> Used:
        """What the cell rests on."""
        method = self.chosen.methods[step.method]
        learned = self.readings.get(self._learned_from(step, method)) if method.trains() else None
        again = self.adapted.get((step.method, step.where))
        return Used(self.readings[step.where], learned, again if isinstance(again, Reading) else None)

    def _timings(self, step: Predict) -> dict[str, float]:
        return {stage: round(s, 4) for (stage, name), s in self.seconds.items() if name == step.method}

    def _learned_from(self, step: Adapt | Predict, method: ConfidenceMethod) -> Where:
        return self.chosen.learn_on[step.where.task].where(method)


def derived_seed(seed: int, *parts: str) -> int:
    """A seed for one fit: 63 bits of a hash of the run's seed and of what is fitted on what."""
    digest = hashlib.sha256("\0".join([str(seed), *parts]).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1
