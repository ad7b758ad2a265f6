"""Signals of an analysis: found in the store, or read after saying what that costs; and what its fits cost."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from bench.api import Signal, UserError
from bench.data.splits import TaskSplit
from bench.progress import Progress
from bench.run.forecast import Forecast, duration
from bench.run.plan import Fit, adapted, signals_needed
from bench.run.preparation import Prepared, Resources
from bench.run.resolve import ResolvedRun
from bench.signals.reading import Reading

Signals = dict[TaskSplit, frozenset[Signal]]


class Request(Protocol):
    """Part of a request that says what to do about signals that are not stored."""

    @property
    def read(self) -> bool:
        """Whether they are read."""

    def run_command(self, tasks: tuple[str, ...]) -> list[str]:
        """Words of the `bench run` that stores them."""


@dataclass(frozen=True, eq=False)
class Needed:
    """The run in which every test learns on one corpus, prepared."""

    resolved: ResolvedRun
    prepared: Prepared

    def signals(self, names: Collection[str]) -> Signals:
        """Split -> signals that these methods read of it."""
        methods = {name: method for name, method in self.resolved.methods.items() if name in names}
        loaded, targets = self.prepared.readings, self.resolved.learn_on
        validated = {
            (name, target.validation)
            for name, method in methods.items()
            for target in targets.values()
            if method.output == "score" and target.validation in loaded
        }
        needed = signals_needed(
            methods, self.resolved.test_splits, targets, self.prepared.infeasible,
            validated=validated, selecting=self.prepared.selecting,
        )  # fmt: skip
        return {where: signals for where, signals in needed.items() if where in loaded}


def union(needed: Sequence[Needed], names: Collection[str]) -> Signals:
    """Split -> signals that these methods read of it, over all corpora."""
    found: Signals = {}
    for each in needed:
        for where, signals in each.signals(names).items():
            found[where] = found.get(where, frozenset()) | signals
    return found


def opened(needed: Sequence[Needed]) -> dict[TaskSplit, Reading]:
    """Every split with its prompts, over all corpora."""
    return {where: reading for each in reversed(needed) for where, reading in each.prepared.readings.items()}


def missing(needed: Sequence[Needed], names: Collection[str], resources: Resources) -> dict[TaskSplit, float]:
    """Splits that are not stored whole, with the share that is missing."""
    readings = opened(needed)
    found = {
        where: resources.reader.find(readings[where], signals) / len(readings[where].shards)
        for where, signals in sorted(union(needed, names).items())
    }
    return {where: share for where, share in found.items() if share}


def read_all(
    needed: Sequence[Needed], names: Collection[str], config: Request, resources: Resources, progress: Progress
) -> Mapping[TaskSplit, Reading]:
    """Every split with answers, signals and labels.

    Args:
        needed: one for each corpus.
        names: methods that take part.
        config: the request.
        resources: what it works with.
        progress: told what is read, before it is.

    Raises:
        UserError: something is not stored and was not to be read.
    """
    readings, signals = opened(needed), union(needed, names)
    lacking = missing(needed, names, resources)
    if lacking and not config.read:
        raise _not_stored(needed, lacking, config, _cost(lacking, readings, signals, resources))
    if lacking:
        cost = _cost(lacking, readings, signals, resources)
        progress.say(f"--read: {', '.join(map(str, lacking))} are read first, {cost}")
    grader = resources.grader
    return {where: grader.grade(resources.reader.read(readings[where], own)) for where, own in sorted(signals.items())}


def _cost(
    lacking: Mapping[TaskSplit, float], readings: Mapping[TaskSplit, Reading], signals: Signals, resources: Resources
) -> str:
    """Time of reading what is missing, in words."""
    times = [
        None if (seconds := resources.reader.estimate(readings[where], signals[where])) is None else seconds * share
        for where, share in lacking.items()
    ]
    known = [seconds for seconds in times if seconds is not None]
    return duration(sum(known)) if len(known) == len(times) else "in a time that can't be said before"


def _not_stored(needed: Sequence[Needed], lacking: Mapping[TaskSplit, float], config: Request, cost: str) -> UserError:
    ordinary = needed[0].resolved.tasks
    tests = needed[0].resolved.tests
    learned = {each.resolved.learn_on[tests[0]].task for each in needed}
    usual = {ordinary[test].train_on or test for test in tests}
    command = f"bench {shlex.join(config.run_command(tests))}" if learned <= usual else ""
    way_out = f"Read them with an ordinary run: {command} - or add --read" if command else "Add --read"
    return UserError(
        f"{len(lacking)} of {len(opened(needed))} splits are not stored with all that these methods read"
        f" ({', '.join(map(str, lacking))}), so nothing was computed. {way_out}, which reads them here ({cost})."
    )


def fit_seconds(needed: Sequence[Needed], names: Collection[str], resources: Resources) -> dict[str, float | None]:
    """Seconds that one fit on each corpus takes a method, at most; None where that can't be said.

    Args:
        needed: one for each corpus.
        names: methods that take part; of those that train adapters nothing is said.
        resources: what it works with.
    """
    found: dict[str, float | None] = {}
    for each in needed:
        forecast = Forecast(each.prepared, each.resolved, resources.grader)
        for step in each.prepared.steps:
            if isinstance(step, Fit) and step.method in names and not adapted(each.resolved.methods[step.method]):
                one, before = forecast.seconds(step), found.get(step.method, 0.0)
                found[step.method] = None if isinstance(one, str) or before is None else before + one
    return found
