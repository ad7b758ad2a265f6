"""The transfer matrix: each method learns on each of several corpora and is tested on all, from stored signals.

A corpus is the train and validation split of a task; with `leave_subject_out` also that without the subject that is
tested, and with `size_matched` that without as many answers of all subjects. Formats may differ. Extra forward tokens
after an ordinary run: none, but for adapters that are asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from bench.api import ConfidenceMethod, UserError
from bench.api.errors import did_you_mean
from bench.backbone.memory import give_back
from bench.backbone.models import model_label
from bench.data.splits import TaskSplit
from bench.progress import Progress
from bench.results.transfer import LEAVE_OUT, About, Corpus, TransferCell
from bench.run.analyses import outlook
from bench.run.analyses.adapters import Adapters
from bench.run.analyses.folds import Folds, Outcome, Untaken, subjects_of
from bench.run.analyses.request import TransferConfig
from bench.run.analyses.stored import Needed, commands, read_all
from bench.run.fitting import Fitter
from bench.run.forecast import Forecast
from bench.run.heads.saving import HeadWriter
from bench.run.inputs import Inputs, StepResults
from bench.run.pipeline import CellWriter, RunReport, Work, at_work
from bench.run.plan import Fit, TrainOn
from bench.run.predicting import Predictor
from bench.run.preparation import Opened, infeasible_in, prepare
from bench.run.resolve import ResolvedRun
from bench.run.rows import RowBuilder
from bench.signals.batches import Batches
from bench.signals.definition import definition
from bench.signals.reading import Reading

_TWO = 2


@dataclass
class TransferReport:
    """Cells of the matrix and account of the work."""

    about: About
    cells: list[TransferCell] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """Notes for the user."""

    @property
    def failed(self) -> bool:
        """Whether a cell failed."""
        return any(cell.row is not None and cell.row.status == "failed" for cell in self.cells)


def run_transfer(configs: Sequence[TransferConfig], progress: Progress) -> TransferReport:
    """Make the matrix for each seed.

    Args:
        configs: requests that differ in their seeds alone.
        progress: told how far it is.

    Raises:
        UserError: nothing to compare, something unknown, or signals that are not stored and were not to be read.
    """
    opened, joint = Opened(), None
    for config in configs:
        with at_work(config.run_config(), progress, opened=opened) as work:
            report = _Matrix.of(config, work, progress).made()
        report.notes += work.notes(failed=report.failed)
        if joint is None:
            joint = report
            continue
        one, other = joint.about, report.about
        tokens = one.forward_tokens + other.forward_tokens
        joint = TransferReport(
            replace(one, seeds=one.seeds + other.seeds, forward_tokens=tokens), joint.cells + report.cells,
            list(dict.fromkeys(joint.notes + report.notes)),
        )  # fmt: skip
    if joint is None:
        raise UserError("--seed: expected a seed, got none; give for example --seed 0")
    return joint


@dataclass(eq=False)
class _Matrix:
    """One seed's matrix while it is made."""

    config: TransferConfig
    work: Work
    progress: Progress
    learning: list[Needed]
    report: TransferReport
    batches: Batches

    @classmethod
    def of(cls, config: TransferConfig, work: Work, progress: Progress) -> _Matrix:
        """Resolve corpora and tests, and prepare what is read of them."""
        resolved, kinds = work.resolved, config.leave_out()
        corpora, tests = _corpora(resolved, config)
        about = About(
            model=model_label(config.model),
            preset=resolved.preset,
            corpora=tuple(Corpus(task, kind) for kind in ("", *kinds) for task in corpora),
            tests=tests,
            homes=_homes(resolved, config, corpora, tests),
            learners=tuple(name for name, method in resolved.methods.items() if method.trains()),
            scaled=tuple(name for name, method in resolved.methods.items() if method.output == "score"),
            seeds=(config.seed,),
        )
        learning, resources = [], work.resources
        for task in corpora:
            here = replace(resolved, tests=tuple(tests), learn_on=dict.fromkeys(tests, TrainOn(task)))
            reasons = infeasible_in(here, resources)
            for name, method in here.methods.items():
                for signal in sorted(method.reads().fit, key=repr) if method.trains() else ():
                    hindrance = definition(signal).hindrance(resources.tasks[task], resources.reader.prompts)
                    if hindrance is not None:
                        reasons.update({(name, test): f"on {task}: {hindrance}" for test in here.test_splits})
            learning.append(Needed(here, prepare(here, resources, reasons, config.limit)))
        matrix = cls(config, work, progress, learning, TransferReport(about), Batches(work.resources.reader))
        there = tuple(corpus for corpus in about.corpora if matrix.tests_of(corpus))
        matrix.report.about = replace(about, corpora=there)
        matrix.report.notes += [
            f"{corpus.task} has no two subjects, or none that a test asks about: there are no cells of {corpus.label}"
            for corpus in about.corpora
            if corpus not in there
        ]
        return matrix

    def tests_of(self, corpus: Corpus) -> list[TaskSplit]:
        """Tests of which there are cells: of a part of a corpus those that ask about one of its subjects."""
        each = next(each for each in self.learning if each.task == corpus.task)
        readings = each.prepared.readings
        if not corpus.leaves_out:
            return each.resolved.test_splits
        own = set(subjects_of(*(reading for where, reading in readings.items() if where.split != "test")))
        tests = [test for test in each.resolved.test_splits if own & set(subjects_of(readings[test]))]
        return tests if len(own) >= _TWO else []

    # --- the steps ----------------------------------------------------------------------------------------------------

    def made(self) -> TransferReport:
        """Read, learn, predict and write every cell."""
        resources, reader = self.work.resources, self.work.resources.reader
        adapters = Adapters(self.config, self.learning, resources, self.progress)
        taking = adapters.taking()
        about = self.report.about
        learners = [name for name in taking if name in about.learners]
        self.progress.say(
            f"Transfer on {self.config.model}, preset {about.preset}, seed {self.config.seed}: {len(learners)} methods"
            f" that learn and {len(taking) - len(learners)} that don't; learned on"
            f" {', '.join(corpus.label for corpus in about.corpora)}; tested on {', '.join(about.tests)}"
        )
        ordinary = commands(self.learning, self.config, about.homes)
        readings = read_all(self.learning, taking, resources, self.progress, read=self.config.read, ordinary=ordinary)
        folds = [self._folds(each, readings, adapters) for each in self.learning]
        shares = tuple(share for each in folds for share in each.shares(self.config.leave_out()))
        taking = self._say_fits(taking, folds)
        subjects = max(len(subjects_of(*each.prepared.readings.values())) for each in self.learning)
        adapters.say_cost(taking, times=1 + subjects * len(self.config.leave_out()))
        reader.working.rest()
        heads = HeadWriter(None, self.config.run_config(), self.work.resolved, reader, resources.tasks)
        writer = CellWriter(self.config.out, self.work.resolved.protocol.letters, RunReport([]), heads)
        for kind in ("", *self.config.leave_out()):
            self._learn(kind, taking, folds, writer)
        self.report.about = replace(self.report.about, shares=shares, forward_tokens=reader.forward_tokens)
        notes = [note for each in self.learning for note in each.prepared.notes]
        every = [*self.work.resolved.notes, *reader.backbone.chat.notes, *notes, *reader.store.notes]
        for name, reason in adapters.absent.items():
            self.report.cells += [
                TransferCell(name, test.task, corpus, missing=reason)
                for corpus in self.report.about.corpora
                for test in self.tests_of(corpus)
            ]
        self.report.notes += list(dict.fromkeys(every))
        place = {name: i for i, name in enumerate(self.work.resolved.methods)}  # however long their fits took
        self.report.cells.sort(key=lambda cell: place[cell.method])
        return self.report

    def _say_fits(self, taking: Sequence[str], folds: Sequence[Folds]) -> list[str]:
        """Say how long the fits take that are not stored; returns the methods in the order in which they are made."""
        fits: list[outlook.FitsOf] = []
        for each, own in zip(self.learning, folds, strict=True):
            forecast = Forecast(each.prepared, each.resolved, self.work.resources.grader)
            steps = {step.method: step for step in each.prepared.steps if isinstance(step, Fit)}
            for name in filter(steps.__contains__, taking):
                stored = own.stored(name, self.config.leave_out())
                seconds = 0.0 if all(stored) else forecast.seconds(steps[name])
                fits.append(outlook.FitsOf(name, stored, seconds))
        for line in outlook.in_words(fits):
            self.progress.say(f"  {line}")
        return outlook.dearest_last(taking, fits)

    def _learn(self, kind: str, taking: Sequence[str], folds: Sequence[Folds], writer: CellWriter) -> None:
        """Cells of what was learned on each whole corpus (`kind` is empty), or without a part for each subject."""
        resources = self.work.resources
        for number, (each, own) in enumerate(zip(self.learning, folds, strict=True)):
            corpus, unusual = Corpus(each.task, kind), {LEAVE_OUT: kind} if kind else {}
            resolved = replace(each.resolved, unusual={**each.resolved.unusual, **unusual})
            origins, judge = each.prepared.origins, resources.grader.judge
            rows = RowBuilder(self.config.run_config(), resolved, resources.reader, origins, judge)
            tests = self.tests_of(corpus)
            for name in taking if tests else ():
                told = self.work.resolved.is_told(name)
                if not told and (kind or number):  # what is told nothing is the same for all corpora
                    continue
                outcomes = own.parted(name, kind, tests) if kind else own.whole(name, tests)
                for test, (inputs, outcome) in outcomes:
                    cell = TransferCell(name, test.task, corpus if told else None)
                    self._put(cell, rows, inputs, outcome, writer)
                give_back()

    def _folds(self, each: Needed, readings: Mapping[TaskSplit, Reading], adapters: Adapters) -> Folds:
        reader, resolved = self.work.resources.reader, each.resolved
        own = {where: readings[where] for where in each.prepared.readings if where in readings}
        fitter = Fitter(
            resolved, reader.backbone, reader.store, self.batches, self.progress, self.config.seed,
            adapters.elsewhere,
        )  # fmt: skip
        predictor = Predictor(resolved, each.prepared.infeasible, self.batches, self.progress)
        return Folds(each.task, StepResults(resolved, each.prepared.selecting, own), fitter, predictor, adapters)

    def _put(self, cell: TransferCell, rows: RowBuilder, inputs: Inputs, outcome: Outcome, writer: CellWriter) -> None:
        """Write a cell, or tell why there is none."""
        if isinstance(outcome, Untaken):
            self.report.cells.append(replace(cell, missing=outcome.reason))
            return
        writer.write(rows.scored(cell.method, inputs, outcome), inputs)
        row, path = writer.report.rows[-1], writer.report.paths[-1]
        missing = "" if row.status == "ok" else f"{row.status}: {row.reason}"
        self.report.cells.append(replace(cell, row=row, path=path, missing=missing))


def _corpora(resolved: ResolvedRun, config: TransferConfig) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Tasks that are learned on, and those that are tested.

    Raises:
        UserError: too few of them, or no method that learns.
    """
    learners: Iterator[ConfidenceMethod] = (method for method in resolved.methods.values() if method.trains())
    if next(learners, None) is None:
        raise UserError(
            f"--method {','.join(resolved.methods)}: expected at least one method that learns; the others are told"
            " nothing, so their numbers don't depend on a corpus. See: bench list methods."
        )
    splits = {task: resolved.tasks[task].card.splits for task in resolved.tests}
    corpora = tuple(task for task, own in splits.items() if "train" in own)
    tests = tuple(task for task, own in splits.items() if "test" in own)
    if not corpora or not tests:
        kind = "train" if not corpora else "test"
        raise UserError(f"--on {','.join(splits)}: expected a task with a {kind} split, got none; name one.")
    if len(corpora) < _TWO and not config.leave_subject_out:
        raise UserError(
            f"--on {','.join(splits)}: expected at least two tasks with a train split, got one ({corpora[0]}). Name"
            " another one, or add --leave-subject-out."
        )
    return corpora, tests


def _homes(
    resolved: ResolvedRun, config: TransferConfig, corpora: Sequence[str], tests: Sequence[str]
) -> dict[str, str]:
    """Test -> corpus that prices are against.

    Raises:
        UserError: --home names what is no test or no corpus, or a test twice.
    """
    homes = {test: home for test in tests if (home := resolved.learn_on[test].task) in corpora}
    named: set[str] = set()
    for text in config.homes:
        test, _, home = text.partition("=")
        for kind, name, known in (("test", test, tests), ("corpus", home, corpora)):
            if name not in known:
                raise UserError(
                    f"--home {text}: expected TEST=TASK, a test and a corpus of --on; {name!r} is no {kind}, there are"
                    f" {', '.join(known)}.{did_you_mean(name, known)}"
                )
        if test in named:
            raise UserError(f"--home {text}: expected each test once, got {test} again; leave out one of the two")
        named.add(test)
        homes[test] = home
    return homes
