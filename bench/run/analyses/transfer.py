"""The transfer matrix: each method is fitted on each of several corpora and tested on all tasks, from stored signals.

A corpus is the train and validation split of a task. With `leave_subject_out`, methods are also fitted on each corpus
without the subject that is tested. With `size_matched`, as a control, they are also fitted on the corpus without
equally many random answers. A method that was fitted on a choice task may be tested on an open one, and vice versa.
Forward passes are needed only for signals that the store lacks, and for adapters if the user requests these.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, product

from bench.api import UserError
from bench.api.errors import did_you_mean, fold_name
from bench.data.splits import TaskSplit
from bench.model.memory import release_free_memory
from bench.model.specs import label_of, public_name
from bench.progress import Progress, format_duration
from bench.results.transfer import LEAVE_OUT, About, Corpus, TransferCell
from bench.run.analyses.folds import ADVICE, Folds, NoTraining, SkippedForCost, subjects_of
from bench.run.analyses.request import TransferConfig
from bench.run.analyses.stored_signals import CorpusRun, missing_shards, read_all, run_commands
from bench.run.fitting import Fitter
from bench.run.forecast import Forecast
from bench.run.inputs import StepResults
from bench.run.pipeline import CellWriter, OpenRun, RunReport, open_run
from bench.run.plan import Adapt, Fit, TrainOn, uses_trained_adapter
from bench.run.predicting import Predictor
from bench.run.preparation import ModelHandle, find_infeasible, prepare
from bench.run.rows import RowBuilder
from bench.run.scorers.saving import ScorerWriter
from bench.signals.batch_builder import BatchBuilder
from bench.signals.definition import definition

_MAX_NAMED = 6
"""Largest number of methods that are named one by one when the times of fits are shown."""
_ORDER_NOTE = (
    "the dearest methods come last; each fit is stored, so that after Ctrl-C the same command goes on from there;"
    " --method chooses which take part"
)
_SHARE = 0.01
"""Smallest share of the total fitting time with which a method is named when the times of fits are shown."""


@dataclass
class TransferReport:
    """Cells of the transfer matrix, its design, and notes for the user."""

    about: About
    cells: list[TransferCell] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """Notes for the user."""

    @property
    def any_failed(self) -> bool:
        """Whether a cell failed."""
        return any(cell.row is not None and cell.row.status == "failed" for cell in self.cells)


def run_transfer(configs: Sequence[TransferConfig], progress: Progress) -> TransferReport:
    """Compute the transfer matrix for each seed, and return the cells of all seeds.

    Args:
        configs: options of the matrix, once for each seed; apart from the seed they are equal.
        progress: shows stages and messages.

    Raises:
        UserError: there is nothing to compare, or a name is unknown; or signals are not stored, and the options do not
            allow to compute them.
    """
    opened, reports = ModelHandle(), []
    for config in configs:
        with open_run(config.run_config(), progress, opened=opened) as work:
            report = _Matrix.of(config, work, progress).compute()
        report.notes += work.notes(failed=report.any_failed)
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
    """Computes the transfer matrix of one seed."""

    config: TransferConfig
    work: OpenRun
    progress: Progress
    corpora: list[CorpusRun]
    report: TransferReport

    @classmethod
    def of(cls, config: TransferConfig, work: OpenRun, progress: Progress) -> _Matrix:
        """Build the computation from options: find corpora and tests, and prepare their data.

        Raises:
            UserError: there are too few tasks, no trained method, or an invalid --home. A --home is invalid if its test
                or corpus is unknown, or if another --home names the same test.
        """
        resolved, kinds = work.resolved, config.leave_out()
        if not any(method.trains() for method in resolved.methods.values()):
            raise UserError(
                f"--method {','.join(resolved.methods)}: expected at least one method that learns; the others are told"
                " nothing, so their numbers don't depend on a corpus. See: bench list methods."
            )
        splits = {task: resolved.tasks[task].card.splits for task in resolved.tests}
        corpora = tuple(task for task, task_splits in splits.items() if "train" in task_splits)
        tests = tuple(task for task, task_splits in splits.items() if "test" in task_splits)
        if not corpora or not tests:
            kind = "train" if not corpora else "test"
            raise UserError(f"--on {','.join(splits)}: expected a task with a {kind} split, got none; name one.")
        if len(corpora) <= 1 and not config.leave_subject_out:
            raise UserError(
                f"--on {','.join(splits)}: expected at least two tasks with a train split, got one ({corpora[0]}). Name"
                " another one, or add --leave-subject-out."
            )
        homes = {test: home for test in tests if (home := resolved.learn_on[test].task) in corpora}
        seen_tests: set[str] = set()
        for text in config.homes:
            test, _, home = map(fold_name, text.partition("="))
            for kind, name, choices in (("test", test, tests), ("corpus", home, corpora)):
                if name not in choices:
                    raise UserError(
                        f"--home {text}: expected TEST=TASK, a test and a corpus of --on; {name!r} is no {kind},"
                        f" there are {', '.join(choices)}.{did_you_mean(name, choices)}"
                    )
            if test in seen_tests:
                raise UserError(f"--home {text}: expected each test once, got {test} again; leave out one of the two")
            seen_tests.add(test)
            homes[test] = home
        about = About(
            model=label_of(resolved.model),
            preset=resolved.preset,
            corpora=tuple(Corpus(task, kind) for kind in ("", *kinds) for task in corpora),
            tests=tests,
            homes=homes,
            learners=tuple(name for name, method in resolved.methods.items() if method.trains()),
            scaled=tuple(name for name, method in resolved.methods.items() if method.output == "score"),
            seeds=(config.seed,),
            overlapping=tuple(
                (one, other)
                for one, other in combinations(resolved.tests, 2)
                if resolved.tasks[one].card.overlaps_with(resolved.tasks[other].card)
            ),
        )
        prepared, resources = [], work.resources
        for task in corpora:
            on_corpus = replace(resolved, tests=tuple(tests), learn_on=dict.fromkeys(tests, TrainOn(task)))
            reasons = find_infeasible(on_corpus, resources)
            for name, method in on_corpus.methods.items():
                for signal in sorted(method.reads().fit, key=repr) if method.trains() else ():
                    reason = definition(signal).unsupported_reason(resources.tasks[task], resources.reader.prompts)
                    if reason is not None:
                        reasons.update({(name, test): f"on {task}: {reason}" for test in on_corpus.test_splits})
            prepared.append(CorpusRun(on_corpus, prepare(on_corpus, resources, reasons, config.limit)))
        matrix = cls(config, work, progress, prepared, TransferReport(about))
        with_cells = tuple(corpus for corpus in about.corpora if matrix.tests_of(corpus))
        matrix.report.about = replace(about, corpora=with_cells)
        matrix.report.notes += [
            f"{corpus.task} has no two subjects, or none that a test asks about: there are no cells of {corpus.label}"
            for corpus in about.corpora
            if corpus not in with_cells
        ]
        return matrix

    def tests_of(self, corpus: Corpus) -> list[TaskSplit]:
        """Return the tests that have cells for a corpus.

        For a corpus that leaves out a subject's answers or equally many random ones, these are the tests that share a
        subject with the corpus; there are none if the corpus has only one subject. For a whole corpus, these are all
        tests.
        """
        corpus_run = next(corpus_run for corpus_run in self.corpora if corpus_run.task == corpus.task)
        data_by_split = corpus_run.prepared.data_by_split
        if not corpus.leaves_out:
            return corpus_run.resolved.test_splits
        subjects = set(subjects_of(*(data for where, data in data_by_split.items() if where.split != "test")))
        tests = [test for test in corpus_run.resolved.test_splits if subjects & set(subjects_of(data_by_split[test]))]
        return tests if len(subjects) > 1 else []

    # --- the steps ----------------------------------------------------------------------------------------------------

    def compute(self) -> TransferReport:
        """Read the signals, fit the methods, predict the tests, and write every cell."""
        resources, reader = self.work.resources, self.work.resources.reader
        methods, with_adapters = self.work.resolved.methods, self.config.with_adapters
        adapter_methods = [name for name, method in methods.items() if uses_trained_adapter(method)]
        # without --with-adapters, methods with adapters take part only if their splits are stored
        absent = [n for n in adapter_methods if not with_adapters and missing_shards(self.corpora, [n], resources)]
        selected = [name for name in methods if name not in absent]
        about = self.report.about
        learners = [name for name in selected if name in about.learners]
        self.progress.say(
            f"Transfer on {public_name(self.config.model)}, preset {about.preset}, seed {self.config.seed}:"
            f" {len(learners)} methods that learn and {len(selected) - len(learners)} that don't; learned on"
            f" {', '.join(corpus.label for corpus in about.corpora)}; tested on {', '.join(about.tests)}"
        )
        ordinary = run_commands(self.corpora, self.config, about.homes)
        data_by_split = read_all(
            self.corpora, selected, resources, self.progress, read=self.config.read, ordinary=ordinary
        )
        folds, batches = [], BatchBuilder(reader)
        for corpus in self.corpora:
            splits = {where: data_by_split[where] for where in corpus.prepared.data_by_split if where in data_by_split}
            fitter = Fitter(
                corpus.resolved, reader.lm, reader.store, batches, self.progress, self.config.seed,
                None if with_adapters else NoTraining(),
            )  # fmt: skip
            predictor = Predictor(corpus.resolved, corpus.prepared.infeasible, batches, self.progress)
            results = StepResults(corpus.resolved, corpus.prepared.selecting, splits)
            folds.append(Folds(corpus.task, results, fitter, predictor, with_adapters))
        shares = tuple(share for fold in folds for share in fold.shares(self.config.leave_out()))
        selected = self._say_costs(selected, adapter_methods, folds)
        reader.active_engine.rest()
        scorer_writer = ScorerWriter(self.config.run_config(), self.work.resolved, reader, resources.tasks)
        writer = CellWriter(self.config.out, self.work.resolved.protocol.letters, RunReport([]), scorer_writer)
        for kind in ("", *self.config.leave_out()):
            self._compute_cells(kind, selected, folds, writer)
        self.report.about = replace(self.report.about, shares=shares, forward_tokens=reader.forward_tokens)
        notes = [note for corpus in self.corpora for note in corpus.prepared.notes]
        all_notes = [*self.work.resolved.notes, *reader.lm.chat.notes, *notes, *reader.store.notes]
        reason = f"not trained again: what it learns from is not stored; {ADVICE}"
        for name, learned in product(absent, self.report.about.corpora):
            tests = self.tests_of(learned)
            self.report.cells += [TransferCell(name, test.task, learned, missing=reason) for test in tests]
        self.report.notes += list(dict.fromkeys(all_notes))
        order = {name: i for i, name in enumerate(self.work.resolved.methods)}  # not the order of the fits
        self.report.cells.sort(key=lambda cell: order[cell.method])
        return self.report

    def _say_costs(self, selected: Sequence[str], adapter_methods: Sequence[str], folds: Sequence[Folds]) -> list[str]:
        """Say how long fits that are not stored and adapters take; return the selected methods, sorted by cost."""
        fits, kinds, adapter_times = list[FitCosts](), self.config.leave_out(), list[float | str]()
        for corpus, fold in zip(self.corpora, folds, strict=True):
            forecast = Forecast(corpus.prepared, corpus.resolved, self.work.resources.grader)
            steps = {step.method: step for step in corpus.prepared.steps if isinstance(step, Fit)}
            for name in filter(steps.__contains__, selected):
                stored = fold.stored(name, kinds)
                fits.append(FitCosts(name, stored, 0.0 if all(stored) else forecast.seconds(steps[name])))
            if self.config.with_adapters:
                trained = (step for step in corpus.prepared.steps if isinstance(step, Fit | Adapt))
                adapter_times += [forecast.seconds(step) for step in trained if step.method in adapter_methods]
        for line in describe_fits(fits):
            self.progress.say(f"  {line}")
        selected = sort_by_cost(selected, fits)
        if adapter_methods and self.config.with_adapters:
            subjects = max(len(subjects_of(*corpus.prepared.data_by_split.values())) for corpus in self.corpora)
            times, known = 1 + subjects * len(kinds), [each for each in adapter_times if not isinstance(each, str)]
            unknown = len(known) < len(adapter_times)
            cost = "a time that can't be said" if unknown else format_duration(times * sum(known), "at most")
            self.progress.say(
                f"--with-adapters: {', '.join(n for n in selected if n in adapter_methods)} are trained"
                f" {times * len(self.corpora) * len(adapter_methods)} times and read each test through each adapter;"
                f" from nothing {cost}, less what is stored"
            )
        return selected

    def _compute_cells(self, kind: str, selected: Sequence[str], folds: Sequence[Folds], writer: CellWriter) -> None:
        """Compute the cells of one kind of fit, for all corpora and tests.

        Args:
            kind: SUBJECT or AT_RANDOM for leave-out fits (on a corpus without a part); empty for fits on whole corpora.
            selected: names of the methods, in the order of computation.
            folds: the fits on each corpus.
            writer: writes the cells.
        """
        resources = self.work.resources
        for number, (corpus_run, fold) in enumerate(zip(self.corpora, folds, strict=True)):
            corpus, settings = Corpus(corpus_run.task, kind), {LEAVE_OUT: kind} if kind else {}
            resolved = replace(corpus_run.resolved, unusual={**corpus_run.resolved.unusual, **settings})
            origins, judge = corpus_run.prepared.origins, resources.grader.judge
            rows = RowBuilder(self.config.run_config(), resolved, resources.reader, origins, judge)
            tests = self.tests_of(corpus)
            for name in selected if tests else ():
                uses_labels = self.work.resolved.uses_labels(name)
                if not uses_labels and (kind or number):  # without labels, a cell is the same for all corpora
                    continue
                fits: dict[str, StepResults] = {}
                for test in tests:
                    inputs, outcome = fold.predict(name, kind, test, fits)
                    cell = TransferCell(name, test.task, corpus if uses_labels else None)
                    if isinstance(outcome, SkippedForCost):
                        cell = replace(cell, missing=outcome.reason)
                    else:
                        writer.write(rows.build_cell(name, inputs, outcome), inputs)
                        row, path = writer.report.rows[-1], writer.report.paths[-1]
                        missing = "" if row.status == "ok" else f"{row.status}: {row.reason}"
                        cell = replace(cell, row=row, path=path, missing=missing)
                    self.report.cells.append(cell)
                release_free_memory()


# --- times of fits ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FitCosts:
    """Fits of one method on one corpus: which of them are stored, and how long one takes."""

    method: str
    stored: Sequence[bool]
    """For each fit, whether the store has it."""
    seconds: float | str
    """Seconds of one fit on the whole corpus (see `Forecast.seconds`); if they are unknown, a text that says why. 0 if
    no fit is missing."""

    @property
    def n_missing(self) -> int:
        """Number of fits that are not stored."""
        return len(self.stored) - sum(self.stored)


def sort_by_cost(names: Iterable[str], fits: Sequence[FitCosts]) -> list[str]:
    """Sort methods by the total time of their missing fits, ascending; methods with unknown times come last.

    In this order a run that is interrupted has finished the most cells.
    """
    cost = dict.fromkeys(names, 0.0)
    for fit in fits:
        if fit.method in cost and fit.n_missing:
            cost[fit.method] += float("inf") if isinstance(fit.seconds, str) else fit.n_missing * fit.seconds
    return sorted(cost, key=lambda name: cost[name])


def describe_fits(fits: Sequence[FitCosts]) -> list[str]:
    """Format lines about the fits that are not stored, the slowest method first.

    >>> lines = describe_fits([FitCosts("a", [False] * 18, 200.0)])
    >>> print(lines[0])
    18 of 18 fits are not stored: at most 60 min, of which a at most 60 min (18 of at most 200 s each)
    """
    total, missing = sum(len(fit.stored) for fit in fits), sum(fit.n_missing for fit in fits)
    if not missing:
        return [f"all {total} fits are stored"] if total else []
    known: dict[str, list[tuple[int, float]]] = {}
    unknown: dict[str, int] = {}
    for fit in (fit for fit in fits if fit.n_missing):
        if isinstance(fit.seconds, str):
            unknown[fit.method] = unknown.get(fit.method, 0) + fit.n_missing
        else:
            known.setdefault(fit.method, []).append((fit.n_missing, fit.seconds))
    seconds = {name: sum(n * one for n, one in costs) for name, costs in known.items()}
    total_s = sum(seconds.values())
    major = sorted((name for name in seconds if seconds[name] > _SHARE * total_s), key=lambda name: -seconds[name])
    parts = []
    for name in major[:_MAX_NAMED]:
        n_fits, longest = sum(n for n, _ in known[name]), max(one for _, one in known[name])
        longest_text = format_duration(longest, "at most")
        parts.append(f"{name} {format_duration(seconds[name], 'at most')} ({n_fits} of {longest_text} each)")
    parts += [f"others {format_duration(total_s - sum(seconds[name] for name in major[:_MAX_NAMED]), 'at most')}"] * (
        len(seconds) > len(parts)
    )
    unknown_text = f"; not known of {', '.join(f'{name} ({n})' for name, n in unknown.items())}" if unknown else ""
    times = (
        f"{format_duration(total_s, 'at most')}, of which {', '.join(parts)}"
        if known
        else "in a time that can't be said"
    )
    return [f"{missing} of {total} fits are not stored: {times}{unknown_text}", _ORDER_NOTE]
