"""Signals of an analysis: found in the store, or read after saying what that costs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from bench.api import Signal, UserError
from bench.data.splits import TaskSplit
from bench.progress import Progress
from bench.run.analyses.request import TransferConfig, command_of
from bench.run.forecast import duration
from bench.run.plan import signals_needed
from bench.run.preparation import Prepared, Resources
from bench.run.resolve import ResolvedRun
from bench.signals.split_data import SplitData

Signals = dict[TaskSplit, frozenset[Signal]]


@dataclass(frozen=True, eq=False)
class Needed:
    """The run in which every test learns on one corpus, prepared."""

    resolved: ResolvedRun
    prepared: Prepared

    @property
    def task(self) -> str:
        """Task of the corpus."""
        return self.resolved.learn_on[self.resolved.tests[0]].task


def union(needed: Sequence[Needed], names: Collection[str]) -> Signals:
    """Split -> signals that these methods read of it, over all corpora."""
    found: Signals = {}
    for each in needed:
        resolved, loaded = each.resolved, each.prepared.data_by_split
        methods = {name: method for name, method in resolved.methods.items() if name in names}
        validated = {
            (name, target.validation)
            for name, method in methods.items()
            for target in resolved.learn_on.values()
            if method.output == "score" and target.validation in loaded
        }
        signals = signals_needed(
            methods, resolved.test_splits, resolved.learn_on, each.prepared.infeasible,
            validated=validated, selecting=each.prepared.selecting,
        )  # fmt: skip
        for where in signals.keys() & loaded.keys():
            found[where] = found.get(where, frozenset()) | signals[where]
    return found


def opened(needed: Sequence[Needed]) -> dict[TaskSplit, SplitData]:
    """Every split with its prompts, over all corpora."""
    return {where: split_data for each in reversed(needed) for where, split_data in each.prepared.data_by_split.items()}


def missing(needed: Sequence[Needed], names: Collection[str], resources: Resources) -> dict[TaskSplit, float]:
    """Splits that are not stored whole, with the share that is missing."""
    data_by_split = opened(needed)
    found = {
        where: resources.reader.find(data_by_split[where], signals) / len(data_by_split[where].shards)
        for where, signals in sorted(union(needed, names).items())
    }
    return {where: share for where, share in found.items() if share}


def read_all(
    needed: Sequence[Needed],
    names: Collection[str],
    resources: Resources,
    progress: Progress,
    *,
    read: bool,
    ordinary: Sequence[str],
) -> Mapping[TaskSplit, SplitData]:
    """Every split with answers, signals and labels.

    Args:
        needed: one for each corpus.
        names: methods that take part.
        resources: what it works with.
        progress: told what is read, before it is.
        read: whether what is not stored is read.
        ordinary: commands that store it.

    Raises:
        UserError: something is not stored and was not to be read.
    """
    data_by_split, signals = opened(needed), union(needed, names)
    lacking = missing(needed, names, resources)
    if lacking:
        times = [
            None
            if (seconds := resources.reader.estimate(data_by_split[where], signals[where])) is None
            else seconds * share
            for where, share in lacking.items()
        ]
        known = [seconds for seconds in times if seconds is not None]
        cost = duration(sum(known)) if len(known) == len(times) else "in a time that can't be said before"
        names_lacking = ", ".join(map(str, lacking))
        if not read:
            run = "an ordinary run" if len(ordinary) == 1 else "ordinary runs"
            way_out = f"Read them with {run}: {' ; '.join(ordinary)} - or add --read" if ordinary else "Add --read"
            raise UserError(
                f"{len(lacking)} of {len(data_by_split)} splits are not stored with all that these methods read"
                f" ({names_lacking}), so nothing was computed. {way_out}, which reads them here ({cost})."
            )
        progress.say(f"--read: {names_lacking} are read first, {cost}")
    grader = resources.grader
    return {
        where: grader.grade(resources.reader.read(data_by_split[where], own)) for where, own in sorted(signals.items())
    }


def commands(needed: Sequence[Needed], config: TransferConfig, homes: Mapping[str, str]) -> list[str]:
    """Ordinary runs that store what a matrix needs; none where a format is learned on and never tested, or reverse.

    Args:
        needed: one for each corpus.
        config: the request.
        homes: test -> corpus that methods learn on by default.
    """
    resolved = needed[0].resolved
    tasks, tests = resolved.tasks, resolved.tests
    corpora = [each.task for each in needed]
    learned: list[tuple[str, str]] = []
    for test in tests:
        alike = [corpus for corpus in corpora if tasks[corpus].format is tasks[test].format]
        learned += [(test, corpus) for corpus in [homes.get(test), *alike][:2] if corpus in alike][:1]
    for corpus in corpora:
        if all(corpus != other for _, other in learned):
            learned += [(test, corpus) for test in tests if tasks[corpus].format is tasks[test].format][:1]
    if {test for test, _ in learned} != set(tests) or {corpus for _, corpus in learned} != set(corpora):
        return []
    runs: dict[str | None, list[str]] = {}
    for test, corpus in learned:
        runs.setdefault(None if corpus == (tasks[test].train_on or test) else corpus, []).append(test)
    run = config.run_config()
    return [command_of(replace(run, tasks=tuple(own), train_on=train_on)) for train_on, own in runs.items()]
