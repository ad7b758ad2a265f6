"""The pipeline, and the file to read first: run methods on a model over tasks, and score them.

questions -> prompts -> answers and signals (once, shared by all methods) -> fit -> predict -> score -> results
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bench import metrics, provenance, results
from bench.api import AdapterRef, BoolArray, ConfidenceMethod, Context, FloatArray, RunFacts, Split, Task
from bench.batching import Batches
from bench.choose import Chosen, check_questions, choose, source_digest
from bench.cost import costs_of, peak_memory_mb
from bench.errors import ContractError, UserError
from bench.grading import substring_rule
from bench.plan import Adapt, Fit, Predict, Read, Step, Where, plan
from bench.progress import Progress, Silent
from bench.reading import Reader, Reading, bundle_digest
from bench.records import Format, LabelsSeen, Question, ResultRow
from bench.sources import open_source
from bench.splits import held_out, spread
from bench.store import Store, key_of

if TYPE_CHECKING:
    from bench.backbone.hf import Backbone

TRAIN_LIMIT = 320
"""Questions of a training split that a run with --limit keeps, at most (or the limit itself, where it is larger)."""


@dataclass(frozen=True)
class RunConfig:
    """What a user asks for; `bench run` fills it from its options."""

    methods: tuple[str, ...]
    """Names, or "all"."""
    model: str
    """Alias, Hub id or folder."""
    tasks: tuple[str, ...] = ()
    """Names; empty: the model's default tasks."""
    train_on: str | None = None
    """`TASK` or `TASK:SPLIT` that methods learn on; None: the task's own choice."""
    preset: str | None = None
    """None: the model's default preset."""
    seed: int = 0
    """Of fits, hold-out splits and sampling."""
    limit: int | None = None
    """Test questions at most, spread over subjects."""
    overrides: tuple[str, ...] = ()
    """`METHOD.FIELD=VALUE`, `protocol.FIELD=VALUE`, or `FIELD=VALUE` with one method."""
    data_dir: Path | None = None
    """Folder of Parquet files instead of the Hub."""
    plugins: tuple[Path, ...] = ()
    """Files with methods or tasks; their code is run."""
    device: str | None = None
    """None: cuda, else mps, else cpu."""
    dtype: str | None = None
    """None: the model's own on an accelerator, float32 on the CPU."""
    token_budget: int = 1024
    """Tokens of one forward pass."""
    out: Path = Path("results")
    """Where results are written."""
    cache: Path | None = None
    """None: $CONFBENCH_CACHE, else the user's cache folder."""
    trust_remote_code: bool = False
    """Run Python code that comes with the model."""
    dry_run: bool = False
    """Stop after the plan."""


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
        self.tasks: dict[str, Task] = {name: task(self.source) for name, task in chosen.tasks.items()}
        self.tests = [Where(name, "test") for name in chosen.tests]
        self.steps: list[Step] = plan(chosen.methods, self.tests, chosen.learn_on)
        self.questions = {step.where: self._questions(step.where) for step in self.steps if isinstance(step, Read)}
        options = LoadOptions(config.device, config.dtype, config.trust_remote_code)
        self.backbone: Backbone = Backbone(chosen.model, options)
        self.store = Store(chosen.cache)
        if not config.dry_run:
            self.store.prepare()
        self.reader = Reader(self.backbone, self.store, chosen.protocol, config.token_budget, progress)
        self.batches = Batches(self.reader)
        self.readings: dict[Where, Reading] = {}
        self.fits: dict[Fit, ConfidenceMethod | Exception] = {}
        self.adapted: dict[tuple[str, Where], Reading | Exception] = {}
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
        self.report.forward_tokens = self.reader.forward_tokens
        self.report.notes += [note for note in self.store.notes if note not in self.report.notes]
        return self.report

    # --- questions and plan -------------------------------------------------------------------------------------------

    def _questions(self, where: Where) -> list[Question]:
        questions = self._load(where)
        if self.config.limit is None:
            return questions
        cap = self.config.limit if where in self.tests else max(self.config.limit, TRAIN_LIMIT)
        return spread(questions, cap)

    def _load(self, where: Where) -> list[Question]:
        questions = self._whole_split(where)
        lettered = self.tasks[where.task].format is Format.CHOICE
        check_questions(where, questions, self.chosen.protocol.letters if lettered else None)
        return questions

    def _whole_split(self, where: Where) -> list[Question]:
        """The questions of a split; where a task has no validation split, it is taken out of train."""
        task, protocol = self.tasks[where.task], self.chosen.protocol
        validation = Where(where.task, "validation")
        derived = "validation" not in task.card.splits and any(
            isinstance(step, Read) and step.where == validation for step in self.steps
        )
        source: Split = "train" if derived and where == validation else where.split
        if source not in task.card.splits:
            raise UserError(
                f"Task {where.task!r} has no {source} split (it has {', '.join(task.card.splits)}), which methods were"
                " to learn on. Name another task: --train-on TASK."
            )
        questions = list(task.questions(source))
        if not derived or source != "train":
            return questions
        out = held_out(questions, protocol.validation_fraction, protocol.split_seed)
        return [question for question, is_out in zip(questions, out, strict=True) if is_out == (where == validation)]

    def _announce(self) -> None:
        for step in self.steps:
            if isinstance(step, Read):
                task = self.tasks[step.where.task]
                dev = self._load(Where(step.where.task, "dev")) if "dev" in task.card.splits else []
                reading = self.reader.open(step.where, task, self.questions[step.where], dev)
                self.readings[step.where] = reading
                self.report.plan.append(self._line(step, reading))
        fits = sum(isinstance(step, Fit) for step in self.steps)
        predictions = sum(isinstance(step, Predict) for step in self.steps)
        self.report.plan.append(f"then {fits} fits and {predictions} predictions, no further pass over the model")
        self.progress.say(self._title())
        for line in self.report.plan:
            self.progress.say("  " + line)

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

    def _fit(self, step: Fit) -> ConfidenceMethod | Exception:
        """Fit, or take the fit from the store; a method's own failure is a value, so that the others go on."""
        method = self.chosen.fresh(step.method)
        reading = self.readings[step.where]
        seed = derived_seed(self.config.seed, step.method, self.backbone.fingerprint, str(step.where))
        fields = {
            "method": step.method,
            "code": f"{type(method).__module__}:{type(method).__qualname__}",
            "source": source_digest(type(method)),
            "params": {k: repr(v) for k, v in method.params().items()},
            "seed": seed,
            "protocol": self.chosen.protocol.digest(),
            "device": self.backbone.device,
            "learned from": bundle_digest(reading),
        }
        key = key_of(fields)
        entry = self.store.get("fits", key)
        start = time.perf_counter()
        try:
            if entry is not None:
                self.seconds["fit", step.method] = float(entry.manifest["seconds"])
                return method.load(entry.folder)
            batch = self.batches.batch(reading, method.reads().fit, labels=True)
            context = Context(seed, reading.task.format, self.backbone.device, self.chosen.protocol)
            with self.progress.stage(f"fit {step.method}", 1, unit="fit") as advance:
                method.fit(batch, context)
                advance(1)
            seconds = time.perf_counter() - start
            self.store.put("fits", key, fields, method.save, seconds=seconds)
        except Exception as error:  # noqa: BLE001 - whatever a plugin raises is its cell's failure, not the run's
            return error
        self.seconds["fit", step.method] = seconds
        return method

    def _adapt(self, step: Adapt) -> Reading | Exception:
        """Read the query through the adapter that the method trained."""
        fitted = self.fits[Fit(step.method, self._learned_from(step, self.chosen.methods[step.method]))]
        if isinstance(fitted, Exception):
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
        row = self._row(step)
        reading = self.readings[step.where]
        method = self.chosen.methods[step.method]
        records = None
        try:
            reason = method.skip(self._facts(step))
            if reason is not None:
                row = replace(row, status="skipped", reason=reason)
            else:
                confidence = self._predict(step)
                row = self._scored(
                    replace(row, n_parameters=method.n_parameters(self._facts(step))), reading, confidence
                )
                records = _records(reading, confidence)
        except Exception as error:  # noqa: BLE001 - as in _fit
            row = replace(row, status="failed", reason=reason_of(error))
        row = replace(row, timings=self._timings(step), peak_memory_mb=peak_memory_mb(self.backbone.device))
        self.report.rows.append(row)
        self.report.paths.append(results.write(row, records, self.config.out))

    def _predict(self, step: Predict) -> FloatArray:
        method = self.chosen.fresh(step.method)
        if method.trains():
            fitted = self.fits[Fit(step.method, self._learned_from(step, method))]
            if isinstance(fitted, Exception):
                raise fitted
            method = fitted
        reading = self.readings[step.where]
        batch = self.batches.batch(reading, method.reads().predict, labels=False, adapted=self._through(step))
        start = time.perf_counter()
        with self.progress.stage(f"predict {step.method}", len(batch)) as advance:
            predicted = method.predict(batch) if len(batch) else np.zeros(0)
            advance(len(batch))
        self.seconds["predict", step.method] = time.perf_counter() - start
        confidence = np.zeros(len(reading.questions))  # answers without a token keep 0.0 (methods.md §0.6)
        confidence[reading.answered] = checked(step.method, predicted, len(batch))
        return confidence

    def _through(self, step: Predict) -> Reading | None:
        """What was read through the method's own adapter; None where it has none."""
        again = self.adapted.get((step.method, step.where))
        if isinstance(again, Exception):
            raise again
        return again

    def _learned_from(self, step: Adapt | Predict, method: ConfidenceMethod) -> Where:
        return self.chosen.learn_on[step.where.task].where(method)

    # --- results ------------------------------------------------------------------------------------------------------

    def _row(self, step: Predict) -> ResultRow:
        """The cell with everything but its numbers."""
        method = self.chosen.methods[step.method]
        reading = self.readings[step.where]
        used = [reading]
        train_on, seen = None, 0
        if method.trains():
            learned = self.readings[self._learned_from(step, method)]
            used.append(learned)
            again = self.adapted.get((step.method, step.where))
            used += [again] if isinstance(again, Reading) else []
            train_on, seen = str(learned.where), int(learned.answered.sum())
        split_seen: Split = method.fit_on
        labels = LabelsSeen(validation=seen) if split_seen == "validation" else LabelsSeen(train=seen)
        correct = reading.correct
        return ResultRow(
            method=step.method,
            model=results.model_label(self.config.model),
            task=step.where.task,
            preset=self.chosen.preset,
            seed=self.config.seed,
            config=self.chosen.config_of(step.method, step.where.task),
            protocol=self.chosen.protocol.digest(),
            task_version=reading.task.card.version,
            deviations=self.chosen.deviations_of(step.method),
            train_on=train_on,
            judge=None if reading.task.format is Format.CHOICE else "match",
            labels_seen=labels if seen else LabelsSeen(),
            status="ok",
            n=len(correct),
            n_unparsed=sum(not answer.parsed for answer in reading.answers),
            n_empty=int((~reading.answered).sum()),
            n_shots_dropped=sum(shard.dropped for r in used for shard in r.shards),
            llm_accuracy=float(correct.mean()),
            letter_rule_disagreement=_letter_rule_disagreement(reading, self.chosen.protocol.letters),
            cost=costs_of(used, self.reader),
            limit=self.config.limit,
            notes=tuple(self._notes(used)),
            provenance=provenance.collect(self.backbone.device, self._revisions(used)),
        )

    def _notes(self, used: Sequence[Reading]) -> list[str]:
        halvings = sum(int(e.manifest["halvings"]) for r in used for shard in r.bundles for e in shard)
        notes = [f"{halvings} forward passes did not fit into memory and were halved"] if halvings else []
        if not self.backbone.packed:
            notes.append("this architecture can't share a cache between questions: each was read alone")
        return notes

    def _revisions(self, used: Sequence[Reading]) -> dict[str, str | None]:
        revisions: dict[str, str | None] = {results.model_label(self.config.model): self.backbone.fingerprint}
        for reading in used:
            card = reading.task.card
            if card.hub is not None:
                described = self.source.describe(card, reading.where.split)
                revisions[f"{card.hub} {reading.where.split}"] = ", ".join(f"{k} {v}" for k, v in described.items())
        return revisions

    def _facts(self, step: Predict) -> RunFacts:
        method = self.chosen.methods[step.method]
        task = self.readings[step.where].task
        learned = self.readings[self._learned_from(step, method)] if method.trains() else None
        seen = int(learned.answered.sum()) if learned is not None else 0
        return RunFacts(self.backbone.facts, step.where.task, task.format, seen)

    def _scored(self, row: ResultRow, reading: Reading, confidence: FloatArray) -> ResultRow:
        subjects = [question.subject for question in reading.questions]
        scores = metrics.summarise(confidence, reading.correct, subjects, self.chosen.protocol)
        return replace(row, metrics=scores.metrics, n_excluded=scores.n_excluded, per_subject=scores.per_subject)

    def _timings(self, step: Predict) -> dict[str, float]:
        return {stage: round(s, 4) for (stage, name), s in self.seconds.items() if name == step.method}


def derived_seed(seed: int, *parts: str) -> int:
    """A seed for one fit: 63 bits of a hash of the run's seed and of what is fitted on what."""
    digest = hashlib.sha256("\0".join([str(seed), *parts]).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def checked(name: str, confidence: FloatArray, n: int) -> FloatArray:
    """The confidences, if they are what the contract says.

    Raises:
        ContractError: wrong shape, NaN, or values outside [0, 1].
    """
    array = np.asarray(confidence, dtype=np.float64)
    if array.shape != (n,):
        raise ContractError(f"{name}.predict: expected shape ({n},), got {array.shape}")
    if np.isnan(array).any():
        raise ContractError(f"{name}.predict: expected numbers, got NaN in {int(np.isnan(array).sum())} of {n}")
    outside = (array < 0) | (array > 1)
    if outside.any():
        raise ContractError(
            f"{name}.predict: expected values within [0, 1], got {int(outside.sum())} outside,"
            f" e.g. {array[outside][0]:.4g}"
        )
    return array


def reason_of(error: Exception) -> str:
    """An exception as the reason of a failed cell: one line."""
    text = " ".join(str(error).split())
    return text if isinstance(error, UserError | ContractError) else f"{type(error).__name__}: {text}"


def _records(reading: Reading, confidence: FloatArray) -> results.Records:
    return results.Records(
        id=[q.id for q in reading.questions],
        subject=[q.subject for q in reading.questions],
        correct=reading.correct,
        confidence=confidence,
        answer=[answer.text for answer in reading.answers],
        parsed=np.asarray([answer.parsed for answer in reading.answers], dtype=np.bool_),
    )


def _letter_rule_disagreement(reading: Reading, letters: str) -> float | None:
    if reading.task.format is not Format.CHOICE:
        return None
    pairs = zip(reading.questions, reading.answers, strict=True)
    by_substring: BoolArray = np.asarray([substring_rule(a.text, letters[q.gold]) for q, a in pairs], dtype=np.bool_)
    return float((by_substring != reading.correct).mean())
