"""The transfer matrix: each method learns on each of several corpora and is tested on all, from stored signals.

A corpus is the train and validation split of a task; with `leave_subject_out` it is that without the subject that is
tested. Formats may differ. Extra forward tokens after an ordinary run: none, but for adapters that are asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from bench.api import ConfidenceMethod, UserError
from bench.backbone.memory import give_back
from bench.data.splits import TaskSplit
from bench.progress import Progress
from bench.results.transfer import LEAVE_OUT, SUBJECT, Corpus, TransferCell
from bench.run.analyses.adapters import Adapters
from bench.run.analyses.folds import Folds, Outcome, Untaken
from bench.run.analyses.request import TransferConfig
from bench.run.analyses.stored import Needed, fit_seconds, read_all
from bench.run.config import RunConfig
from bench.run.feasibility import infeasible
from bench.run.fitting import Fitter
from bench.run.forecast import duration
from bench.run.heads.saving import HeadWriter
from bench.run.inputs import Inputs, StepResults
from bench.run.pipeline import CellWriter, RunReport, Work, at_work
from bench.run.plan import TrainOn
from bench.run.predicting import Predictor
from bench.run.preparation import Opened, Prepared, prepare
from bench.run.resolve import ResolvedRun
from bench.run.rows import RowBuilder
from bench.signals.batches import Batches
from bench.signals.definition import definition
from bench.signals.reading import Reading

_TWO = 2


@dataclass
class TransferReport:
    """Cells of the matrix and account of the work."""

    model: str
    preset: str
    corpora: tuple[Corpus, ...]
    tests: tuple[str, ...]
    homes: Mapping[str, str]
    """Test -> task that methods learn on by default, where it is one of the corpora."""
    learners: tuple[str, ...]
    """Methods that learn."""
    scaled: tuple[str, ...]
    """Methods that learn nothing but whose scores become probabilities on the corpus's validation split."""
    seeds: tuple[int, ...]
    cells: list[TransferCell] = field(default_factory=list)
    paths: list[Path] = field(default_factory=list)
    """The JSON files that were written."""
    notes: list[str] = field(default_factory=list)
    forward_tokens: int = 0
    """Token positions that were fed to the model."""

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
        joint = report if joint is None else _joined(joint, report)
    if joint is None:
        raise UserError("--seed: expected a seed, got none; give for example --seed 0")
    return joint


def _joined(first: TransferReport, second: TransferReport) -> TransferReport:
    return replace(
        first, seeds=first.seeds + second.seeds, cells=first.cells + second.cells, paths=first.paths + second.paths,
        notes=list(dict.fromkeys(first.notes + second.notes)),
        forward_tokens=first.forward_tokens + second.forward_tokens,
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class _Learning:
    """The run in which every test learns on one corpus."""

    task: str
    resolved: ResolvedRun
    prepared: Prepared


@dataclass(eq=False)
class _Matrix:
    """One seed's matrix while it is made."""

    config: TransferConfig
    work: Work
    progress: Progress
    learning: list[_Learning]
    report: TransferReport
    batches: Batches

    @classmethod
    def of(cls, config: TransferConfig, work: Work, progress: Progress) -> _Matrix:
        """Resolve corpora and tests, and prepare what is read of them."""
        resolved = work.resolved
        corpora, tests = _corpora(resolved, config)
        report = TransferReport(
            model=resolved.model.name,
            preset=resolved.preset,
            corpora=tuple(
                Corpus(task, out) for out in (False, True)[: 1 + config.leave_subject_out] for task in corpora
            ),
            tests=tests,
            homes={test: home for test in tests if (home := resolved.learn_on[test].task) in corpora},
            learners=tuple(name for name, method in resolved.methods.items() if method.trains()),
            scaled=tuple(name for name, method in resolved.methods.items() if method.output == "score"),
            seeds=(config.seed,),
        )
        learning = [cls._learning(task, tests, work) for task in corpora]
        return cls(config, work, progress, learning, report, Batches(work.resources.reader))

    @staticmethod
    def _learning(task: str, tests: Sequence[str], work: Work) -> _Learning:
        here = replace(work.resolved, tests=tuple(tests), learn_on=dict.fromkeys(tests, TrainOn(task)))
        resources = work.resources
        reader = resources.reader
        reasons = infeasible(
            here.methods, here.test_splits, resources.tasks, here.learn_on, reader.prompts,
            lambda: reader.backbone.facts,
        )  # fmt: skip
        for name, method in here.methods.items():
            for signal in sorted(method.reads().fit, key=repr) if method.trains() else ():
                hindrance = definition(signal).hindrance(resources.tasks[task], reader.prompts)
                if hindrance is not None:
                    reasons.update({(name, test): f"on {task}: {hindrance}" for test in here.test_splits})
        return _Learning(task, here, prepare(here, resources, reasons, None))

    # --- the steps ----------------------------------------------------------------------------------------------------

    def made(self) -> TransferReport:
        """Read, learn, predict and write every cell."""
        resources, reader, guard = self.work.resources, self.work.resources.reader, self.work.resolved.isolation
        needed = [Needed(each.resolved, each.prepared) for each in self.learning]
        adapters = Adapters(self.config, needed, resources, self.progress)
        taking = adapters.taking()
        times = self._announce(taking)
        guard.attach(reader.backbone, self.work.resolved.cache)
        with guard.weights_watched("the splits were read"):
            readings = read_all(needed, taking, self.config, resources, self.progress)
        self._say_fits(taking, times)
        adapters.say_cost(taking, times)
        reader.working.rest()
        heads = HeadWriter(None, self.config.run_config(), self.work.resolved, reader, resources.tasks)
        account = RunReport([])
        writer = CellWriter(self.config.out, self.work.resolved.protocol.letters, account, heads)
        self._learn_whole(taking, readings, adapters, writer)
        self._leave_subjects_out(taking, readings, adapters, writer)
        guard.check_weights("after the last prediction")
        self.report.paths = account.paths
        self.report.forward_tokens = reader.forward_tokens
        notes = [note for each in self.learning for note in each.prepared.notes]
        every = [*self.work.resolved.notes, *reader.backbone.chat.notes, *notes, *reader.store.notes]
        for name, reason in adapters.absent.items():
            self.report.cells += [
                TransferCell(name, test, corpus, missing=reason)
                for corpus in self.report.corpora
                for test in self.report.tests
            ]
        self.report.notes += list(dict.fromkeys(every))
        return self.report

    def _announce(self, taking: Sequence[str]) -> int:
        """Say what is done; returns how often a method learns on each corpus."""
        report = self.report
        learners = [name for name in taking if name in report.learners]
        tests = self.learning[0].prepared.readings
        subjects = max(
            len({question.subject for question in tests[TaskSplit(test, "test")].questions}) for test in report.tests
        )
        times = 1 + subjects * self.config.leave_subject_out
        self.progress.say(
            f"Transfer on {self.config.model}, preset {report.preset}, seed {self.config.seed}: {len(learners)} methods"
            f" that learn and {len(taking) - len(learners)} that don't; learned on"
            f" {', '.join(corpus.label for corpus in report.corpora)}; tested on {', '.join(report.tests)};"
            f" up to {times * len(self.learning) * len(learners)} fits, of which stored ones are not made again"
        )
        return times

    def _say_fits(self, taking: Sequence[str], times: int) -> None:
        """Say how long fits take from nothing, where each is made many times."""
        if not self.config.leave_subject_out:
            return
        needed = [Needed(each.resolved, each.prepared) for each in self.learning]
        found = fit_seconds(needed, taking, self.work.resources)
        seconds = {name: times * one for name, one in found.items() if one is not None}
        unknown = [name for name, one in found.items() if one is None]
        longest = max(seconds, key=lambda name: seconds[name], default=None)
        if longest is not None:
            also = f"; not known of {', '.join(unknown)}" if unknown else ""
            self.progress.say(
                f"  all fits from nothing: {duration(sum(seconds.values()), 'at most')}, of which {longest}"
                f" {duration(seconds[longest], 'at most')}{also}"
            )

    def _learn_whole(
        self, taking: Sequence[str], readings: Mapping[TaskSplit, Reading], adapters: Adapters, writer: CellWriter
    ) -> None:
        for number, each in enumerate(self.learning):
            folds = self._folds(each, readings, adapters)
            rows = self._rows(each.resolved, each.prepared)
            for name in taking:
                told = self.work.resolved.is_told(name)
                if not told and number:  # what is told nothing is the same for all corpora
                    continue
                for test in each.resolved.test_splits:
                    inputs, outcome = folds.whole(name, test)
                    cell = TransferCell(name, test.task, Corpus(each.task) if told else None)
                    self._put(cell, rows, inputs, outcome, writer)
                give_back()

    def _leave_subjects_out(
        self, taking: Sequence[str], readings: Mapping[TaskSplit, Reading], adapters: Adapters, writer: CellWriter
    ) -> None:
        for each in self.learning if self.config.leave_subject_out else ():
            unusual = {**each.resolved.unusual, LEAVE_OUT: SUBJECT}
            rows = self._rows(replace(each.resolved, unusual=unusual), each.prepared)
            folds = self._folds(each, readings, adapters)
            for name in filter(self.work.resolved.is_told, taking):
                for test, (inputs, outcome) in folds.without_subjects(name):
                    cell = TransferCell(name, test.task, Corpus(each.task, leaves_out=True))
                    self._put(cell, rows, inputs, outcome, writer)
                give_back()

    def _folds(self, each: _Learning, readings: Mapping[TaskSplit, Reading], adapters: Adapters) -> Folds:
        reader, resolved = self.work.resources.reader, each.resolved
        own = {where: readings[where] for where in each.prepared.readings if where in readings}
        fitter = Fitter(
            resolved, reader.backbone, reader.store, self.batches, self.progress, self.config.seed,
            adapters.elsewhere,
        )  # fmt: skip
        predictor = Predictor(resolved, each.prepared.infeasible, self.batches, self.progress)
        return Folds(each.task, StepResults(resolved, each.prepared.selecting, own), fitter, predictor, adapters)

    def _rows(self, resolved: ResolvedRun, prepared: Prepared) -> RowBuilder:
        config: RunConfig = self.config.run_config()
        resources = self.work.resources
        return RowBuilder(config, resolved, resources.reader, prepared.origins, resources.grader.judge)

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
