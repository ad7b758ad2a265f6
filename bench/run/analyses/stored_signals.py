"""Get the signals that an analysis needs: from the store, or from the model after the user was told the cost."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from bench.api import Signal, UserError
from bench.data.splits import TaskSplit
from bench.progress import Progress, format_duration
from bench.run.analyses.request import TransferConfig, format_command
from bench.run.preparation import PreparedRun, Resources, plan_of
from bench.run.resolve import ResolvedRun
from bench.signals.split_data import SplitData

Signals = dict[TaskSplit, frozenset[Signal]]


@dataclass(frozen=True, eq=False)
class CorpusRun:
    """A prepared run in which methods learn on one corpus (training data of a task), whichever test is predicted."""

    resolved: ResolvedRun
    prepared: PreparedRun

    @property
    def task(self) -> str:
        """Task whose training data are the corpus."""
        return self.resolved.learn_on[self.resolved.tests[0]].task


def requested_signals(corpora: Sequence[CorpusRun], names: Collection[str]) -> Signals:
    """Return split -> signals that the named methods read in this split, for all corpora together."""
    signals_by_split: Signals = {}
    for corpus in corpora:
        prepared, loaded = corpus.prepared, corpus.prepared.data_by_split
        methods = {name: method for name, method in corpus.resolved.methods.items() if name in names}
        resolved = replace(corpus.resolved, methods=methods)
        signals = plan_of(resolved, prepared.infeasible, loaded, prepared.selecting).signals()
        for where in signals.keys() & loaded.keys():
            signals_by_split[where] = signals_by_split.get(where, frozenset()) | signals[where]
    return signals_by_split


def merge_splits(corpora: Sequence[CorpusRun]) -> dict[TaskSplit, SplitData]:
    """Return all splits of all corpora, with prompts; where corpora share a split, the data of the first corpus."""
    return {where: data for corpus in reversed(corpora) for where, data in corpus.prepared.data_by_split.items()}


def missing_shards(
    corpora: Sequence[CorpusRun], names: Collection[str], resources: Resources
) -> dict[TaskSplit, float]:
    """Return split -> share of its shards whose signals the store lacks; splits that are complete are omitted."""
    data_by_split = merge_splits(corpora)
    shares = {
        where: resources.reader.find(data_by_split[where], signals) / len(data_by_split[where].shards)
        for where, signals in sorted(requested_signals(corpora, names).items())
    }
    return {where: share for where, share in shares.items() if share}


def read_all(
    corpora: Sequence[CorpusRun],
    names: Collection[str],
    resources: Resources,
    progress: Progress,
    *,
    read: bool,
    ordinary: Sequence[str],
) -> Mapping[TaskSplit, SplitData]:
    """Return all splits that the methods need, with answers, signals and labels.

    Args:
        corpora: the prepared corpora.
        names: names of the methods that take part.
        resources: reader and grader.
        progress: shows what the model is going to read.
        read: whether the model computes what the store lacks.
        ordinary: `bench run` commands that would store the missing signals, for the error message.

    Raises:
        UserError: the store lacks something, and `read` is false.
    """
    splits, signals = merge_splits(corpora), requested_signals(corpora, names)
    missing = missing_shards(corpora, names, resources)
    if missing:
        times = [
            None if (seconds := resources.reader.estimate(splits[where], signals[where])) is None else seconds * share
            for where, share in missing.items()
        ]
        known_times = [seconds for seconds in times if seconds is not None]
        cost = (
            format_duration(sum(known_times))
            if len(known_times) == len(times)
            else "in a time that can't be said before"
        )
        missing_names = ", ".join(map(str, missing))
        if not read:
            runs = "an ordinary run" if len(ordinary) == 1 else "ordinary runs"
            way_out = f"Read them with {runs}: {' ; '.join(ordinary)} - or add --read" if ordinary else "Add --read"
            raise UserError(
                f"{len(missing)} of {len(splits)} splits are not stored with all that these methods read"
                f" ({missing_names}), so nothing was computed. {way_out}, which reads them here ({cost})."
            )
        progress.say(f"--read: {missing_names} are read first, {cost}")
    grader = resources.grader
    return {
        where: grader.grade(resources.reader.read(splits[where], needed)) for where, needed in sorted(signals.items())
    }


def run_commands(prepared: Sequence[CorpusRun], config: TransferConfig, homes: Mapping[str, str]) -> list[str]:
    """Return the `bench run` commands that store the signals of a transfer matrix.

    The list is empty if some corpus has no test of its format (choice or open), or some test no corpus of its format.

    Args:
        prepared: the prepared corpora.
        config: options of the transfer matrix.
        homes: test -> corpus named by `--home` for this test, else the corpus that methods learn on by default.
    """
    resolved = prepared[0].resolved
    tasks, tests = resolved.tasks, resolved.tests
    corpora = [corpus.task for corpus in prepared]
    pairs: list[tuple[str, str]] = []
    for test in tests:
        same_format = [corpus for corpus in corpora if tasks[corpus].format is tasks[test].format]
        pairs += [(test, corpus) for corpus in [homes.get(test), *same_format][:2] if corpus in same_format][:1]
    for corpus in corpora:
        if all(corpus != other for _, other in pairs):
            pairs += [(test, corpus) for test in tests if tasks[corpus].format is tasks[test].format][:1]
    if {test for test, _ in pairs} != set(tests) or {corpus for _, corpus in pairs} != set(corpora):
        return []
    runs: dict[str | None, list[str]] = {}
    for test, corpus in pairs:
        runs.setdefault(None if corpus == (tasks[test].train_on or test) else corpus, []).append(test)
    run = config.run_config()
    return [format_command(replace(run, tasks=tuple(tested), train_on=train_on)) for train_on, tested in runs.items()]
