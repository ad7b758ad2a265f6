"""The transfer matrix: each method learns on each of several corpora and is tested on all, from stored signals.

A corpus is the train and validation split of a task; with `leave_subject_out` also that without the subject that is
tested, and with `size_matched` that without as many answers of all subjects. Formats may differ. Extra forward tokens
after an ordinary run: none, but for adapters that are asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from bench.api import UserError
from bench.api.errors import did_you_mean
from bench.data.splits import TaskSplit
from bench.model.memory import give_back
from bench.model.specs import model_label
from bench.progress import Progress
from bench.results.transfer import LEAVE_OUT, About, Corpus, TransferCell
from bench.run.analyses.folds import WAY_OUT, Folds, Never, SkippedForCost, subjects_of
from bench.run.analyses.request import TransferConfig
from bench.run.analyses.stored import Needed, commands, missing, read_all
from bench.run.fitting import Fitter
from bench.run.forecast import Forecast, duration
from bench.run.inputs import StepResults
from bench.run.pipeline import CellWriter, RunReport, Work, at_work
from bench.run.plan import Adapt, Fit, TrainOn, adapted
from bench.run.predicting import Predictor
from bench.run.preparation import ModelHandle, infeasible_in, prepare
from bench.run.rows import RowBuilder
from bench.run.scorers.saving import ScorerWriter
from bench.signals.batches import Batches
from bench.signals.definition import definition

_TWO = 2
_NAMED = 6
"""Methods that are told one by one."""
_ADVICE = (
    "the dearest methods come last; each fit is stored, so that after Ctrl-C the same command goes on from there;"
    " --method chooses which take part"
)
_SHARE = 0.01
"""Part of the whole below which a method isn't told by its name."""


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
    opened, reports = ModelHandle(), []
    for config in configs:
        with at_work(config.run_config(), progress, opened=opened) as work:
            report = _Matrix.of(config, work, progress).made()
        report.notes += work.notes(failed=report.failed)
        reports.append(report)
    if not reports:
        raise UserError("--seed: expected a seed, got none; give for example --seed 0")
    tokens = sum(report.about.forward_tokens for report in reports)
    return TransferReport(
        replace(reports[0].about, seeds=tuple(config.seed for config in configs), forward_tokens=tokens),
        [cell for report in reports for cell in report.cells],
        list(dict.fromkeys(note for report in reports for note in report.notes)),
    )


@dataclass(eq=False)
class _Matrix:
    """One seed's matrix while it is made."""

    config: TransferConfig
    work: Work
    progress: Progress
    learning: list[Needed]
    report: TransferReport

    @classmethod
    def of(cls, config: TransferConfig, work: Work, progress: Progress) -> _Matrix:
        """Resolve corpora and tests, and prepare what is read of them.

        Raises:
            UserError: too few tasks, no method that learns, or --home names no test or no corpus, or a test twice.
        """
        resolved, kinds = work.resolved, config.leave_out()
        if not any(method.trains() for method in resolved.methods.values()):
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
        homes = {test: home for test in tests if (home := resolved.learn_on[test].task) in corpora}
        named: set[str] = set()
        for text in config.homes:
            test, _, home = text.partition("=")
            for kind, name, known in (("test", test, tests), ("corpus", home, corpora)):
                if name not in known:
                    raise UserError(
                        f"--home {text}: expected TEST=TASK, a test and a corpus of --on; {name!r} is no {kind},"
                        f" there are {', '.join(known)}.{did_you_mean(name, known)}"
                    )
            if test in named:
                raise UserError(f"--home {text}: expected each test once, got {test} again; leave out one of the two")
            named.add(test)
            homes[test] = home
        about = About(
            model=model_label(config.model),
            preset=resolved.preset,
            corpora=tuple(Corpus(task, kind) for kind in ("", *kinds) for task in corpora),
            tests=tests,
            homes=homes,
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
        matrix = cls(config, work, progress, learning, TransferReport(about))
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
        data_by_split = each.prepared.data_by_split
        if not corpus.leaves_out:
            return each.resolved.test_splits
        own = set(subjects_of(*(split_data for where, split_data in data_by_split.items() if where.split != "test")))
        tests = [test for test in each.resolved.test_splits if own & set(subjects_of(data_by_split[test]))]
        return tests if len(own) >= _TWO else []

    # --- the steps ----------------------------------------------------------------------------------------------------

    def made(self) -> TransferReport:
        """Read, learn, predict and write every cell."""
        resources, reader = self.work.resources, self.work.resources.reader
        methods, with_adapters = self.work.resolved.methods, self.config.with_adapters
        training = [name for name, method in methods.items() if adapted(method)]
        # without --with-adapters those that train some take part where the splits are stored
        absent = [n for n in training if not with_adapters and missing(self.learning, [n], resources)]
        taking = [name for name in methods if name not in absent]
        about = self.report.about
        learners = [name for name in taking if name in about.learners]
        self.progress.say(
            f"Transfer on {self.config.model}, preset {about.preset}, seed {self.config.seed}: {len(learners)} methods"
            f" that learn and {len(taking) - len(learners)} that don't; learned on"
            f" {', '.join(corpus.label for corpus in about.corpora)}; tested on {', '.join(about.tests)}"
        )
        ordinary = commands(self.learning, self.config, about.homes)
        data_by_split = read_all(
            self.learning, taking, resources, self.progress, read=self.config.read, ordinary=ordinary
        )
        folds, batches = [], Batches(reader)
        for each in self.learning:
            own = {where: data_by_split[where] for where in each.prepared.data_by_split if where in data_by_split}
            fitter = Fitter(
                each.resolved, reader.lm, reader.store, batches, self.progress, self.config.seed,
                None if with_adapters else Never(),
            )  # fmt: skip
            predictor = Predictor(each.resolved, each.prepared.infeasible, batches, self.progress)
            made = StepResults(each.resolved, each.prepared.selecting, own)
            folds.append(Folds(each.task, made, fitter, predictor, with_adapters))
        shares = tuple(share for each in folds for share in each.shares(self.config.leave_out()))
        fits: list[FitsOf] = []
        for each, fold in zip(self.learning, folds, strict=True):
            forecast = Forecast(each.prepared, each.resolved, resources.grader)
            steps = {step.method: step for step in each.prepared.steps if isinstance(step, Fit)}
            for name in filter(steps.__contains__, taking):
                stored = fold.stored(name, self.config.leave_out())
                fits.append(FitsOf(name, stored, 0.0 if all(stored) else forecast.seconds(steps[name])))
        for line in fits_in_words(fits):
            self.progress.say(f"  {line}")
        taking = dearest_last(taking, fits)
        subjects = max(len(subjects_of(*each.prepared.data_by_split.values())) for each in self.learning)
        if training and with_adapters:
            times, seconds = 1 + subjects * len(self.config.leave_out()), []
            for each in self.learning:
                forecast = Forecast(each.prepared, each.resolved, resources.grader)
                own_steps = (step for step in each.prepared.steps if isinstance(step, Fit | Adapt))
                seconds += [forecast.seconds(step) for step in own_steps if step.method in training]
            known = [value for value in seconds if not isinstance(value, str)]
            cost = duration(times * sum(known), "at most") if known == seconds else "a time that can't be said"
            self.progress.say(
                f"--with-adapters: {', '.join(n for n in taking if n in training)} are trained"
                f" {times * len(self.learning) * len(training)} times and read each test through each adapter; from"
                f" nothing {cost}, less what is stored"
            )
        reader.working.rest()
        heads = ScorerWriter(None, self.config.run_config(), self.work.resolved, reader, resources.tasks)
        writer = CellWriter(self.config.out, self.work.resolved.protocol.letters, RunReport([]), heads)
        for kind in ("", *self.config.leave_out()):
            self._learn(kind, taking, folds, writer)
        self.report.about = replace(self.report.about, shares=shares, forward_tokens=reader.forward_tokens)
        notes = [note for each in self.learning for note in each.prepared.notes]
        every = [*self.work.resolved.notes, *reader.lm.chat.notes, *notes, *reader.store.notes]
        for name in absent:
            reason = f"not trained again: what it learns from is not stored; {WAY_OUT}"
            self.report.cells += [
                TransferCell(name, test.task, corpus, missing=reason)
                for corpus in self.report.about.corpora
                for test in self.tests_of(corpus)
            ]
        self.report.notes += list(dict.fromkeys(every))
        place = {name: i for i, name in enumerate(self.work.resolved.methods)}  # however long their fits took
        self.report.cells.sort(key=lambda cell: place[cell.method])
        return self.report

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
                fits: dict[str, StepResults] = {}
                for test in tests:
                    inputs, outcome = own.parted(name, kind, test, fits)
                    cell = TransferCell(name, test.task, corpus if told else None)
                    if isinstance(outcome, SkippedForCost):
                        cell = replace(cell, missing=outcome.reason)
                    else:
                        writer.write(rows.scored(name, inputs, outcome), inputs)
                        row, path = writer.report.rows[-1], writer.report.paths[-1]
                        missing = "" if row.status == "ok" else f"{row.status}: {row.reason}"
                        cell = replace(cell, row=row, path=path, missing=missing)
                    self.report.cells.append(cell)
                give_back()


# --- times of fits ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FitsOf:
    """Fits of one method on one corpus."""

    method: str
    stored: Sequence[bool]
    """For each fit whether an earlier run stored it."""
    seconds: float | str
    """Seconds of one fit on the whole corpus, at most; or why that can't be said."""

    @property
    def left(self) -> int:
        """Fits to be made."""
        return len(self.stored) - sum(self.stored)


def dearest_last(names: Iterable[str], fits: Sequence[FitsOf]) -> list[str]:
    """The methods in an order in which whoever stops early has most: by what their fits take, unknown times last."""
    cost = dict.fromkeys(names, 0.0)
    for each in fits:
        if each.method in cost and each.left:
            cost[each.method] += float("inf") if isinstance(each.seconds, str) else each.left * each.seconds
    return sorted(cost, key=lambda name: cost[name])


def fits_in_words(fits: Sequence[FitsOf]) -> list[str]:
    """Lines on the fits that are to be made, the dearest method first.

    >>> lines = fits_in_words([FitsOf("a", [False] * 18, 200.0)])
    >>> print(lines[0])
    18 of 18 fits are not stored: at most 60 min, of which a at most 60 min (18 of at most 200 s each)
    """
    total, left = sum(len(each.stored) for each in fits), sum(each.left for each in fits)
    if not left:
        return [f"all {total} fits are stored"] if total else []
    known: dict[str, list[tuple[int, float]]] = {}
    unknown: dict[str, int] = {}
    for each in (each for each in fits if each.left):
        if isinstance(each.seconds, str):
            unknown[each.method] = unknown.get(each.method, 0) + each.left
        else:
            known.setdefault(each.method, []).append((each.left, each.seconds))
    seconds = {name: sum(n * one for n, one in own) for name, own in known.items()}
    whole = sum(seconds.values())
    named = sorted((name for name in seconds if seconds[name] > _SHARE * whole), key=lambda name: -seconds[name])
    told = []
    for name in named[:_NAMED]:
        count, longest = sum(n for n, _ in known[name]), max(one for _, one in known[name])
        dearest = duration(longest, "at most")
        told.append(f"{name} {duration(seconds[name], 'at most')} ({count} of {dearest} each)")
    told += [f"others {duration(whole - sum(seconds[name] for name in named[:_NAMED]), 'at most')}"] * (
        len(seconds) > len(told)
    )
    also = f"; not known of {', '.join(f'{name} ({n})' for name, n in unknown.items())}" if unknown else ""
    times = f"{duration(whole, 'at most')}, of which {', '.join(told)}" if known else "in a time that can't be said"
    return [f"{left} of {total} fits are not stored: {times}{also}", _ADVICE]
