"""Needs of all chosen methods -> the ordered steps of a run, each reading once what several methods want."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter

from bench.api import ConfidenceMethod, Signal, Split
from bench.data.splits import TaskSplit
from bench.signals.definition import read_from_model, reads_own_adapter


@dataclass(frozen=True)
class TrainOn:
    """Split that methods learn from."""

    task: str
    split: Split = "train"
    """Instead of the train split; a method that learns on validation keeps to validation."""

    def __str__(self) -> str:
        return f"{self.task}:{self.split}"

    @property
    def validation(self) -> TaskSplit:
        """Split on which recalibrators are fitted and steps are chosen."""
        return TaskSplit(self.task, "validation")

    def where(self, method: ConfidenceMethod) -> TaskSplit:
        """The split that this method learns from."""
        return TaskSplit(self.task, self.split if method.fit_on == "train" else method.fit_on)

    def selection(self, method: ConfidenceMethod, selecting: Collection[TaskSplit]) -> TaskSplit | None:
        """The split by which this method chooses the step of its training to keep, if it does."""
        chooses = method.trains() and self.validation in selecting and self.where(method) != self.validation
        return self.validation if chooses else None


@dataclass(frozen=True)
class Read:
    """Answer the questions of a split and measure these signals, in one pass where nothing is stored yet."""

    where: TaskSplit
    signals: frozenset[Signal]


@dataclass(frozen=True)
class Fit:
    """Let a method learn from a split."""

    method: str
    where: TaskSplit


@dataclass(frozen=True)
class Adapt:
    """Read the self-check query of a split again, through the adapter that a method trained."""

    method: str
    where: TaskSplit
    learned: TaskSplit
    """The split that the method learned from."""


@dataclass(frozen=True)
class Predict:
    """Let a method say how sure it is of the answers of a split."""

    method: str
    where: TaskSplit


Step = Read | Fit | Adapt | Predict


def plan(
    methods: Mapping[str, ConfidenceMethod],
    tests: Sequence[TaskSplit],
    learn_on: Mapping[str, TrainOn],
    infeasible: Collection[tuple[str, TaskSplit]] = (),
    *,
    validated: Collection[tuple[str, TaskSplit]] = (),
    selecting: Collection[TaskSplit] = (),
) -> list[Step]:
    """The steps of a run, in an order in which everything is there before it is needed.

    Args:
        methods: name -> method.
        tests: what is predicted.
        learn_on: test task -> where methods learn.
        infeasible: method and test where it can't run; nothing is read or fitted for these.
        validated: method and validation split that it also predicts, to be recalibrated or scaled there.
        selecting: validation splits by which methods choose the step of their training to keep.
    """
    needed = signals_needed(methods, tests, learn_on, infeasible, validated=validated, selecting=selecting)
    graph: TopologicalSorter[Step] = TopologicalSorter()
    for where, signals in sorted(needed.items()):
        graph.add(Read(where, signals))
    for name, method in methods.items():
        for test in tests:
            target = learn_on[test.task] if (name, test) not in infeasible else None
            graph.add(Predict(name, test), Read(test, needed[test]))
            if target is None:
                continue
            validation = [target.validation] if (name, target.validation) in validated else []
            if method.trains():
                source, chosen_by = target.where(method), target.selection(method, selecting)
                fit = Fit(name, source)
                graph.add(fit, Read(source, needed[source]))
                graph.add(Predict(name, test), fit)
                if chosen_by is not None:
                    graph.add(fit, Read(chosen_by, needed[chosen_by]))
                for where in (test, *validation) if adapted(method) else ():
                    graph.add(Adapt(name, where, source), Read(where, needed[where]), fit)
                    graph.add(Predict(name, test), Adapt(name, where, source))
            for where in validation:
                graph.add(Predict(name, test), Read(where, needed[where]))
    return list(graph.static_order())


def signals_needed(
    methods: Mapping[str, ConfidenceMethod],
    tests: Sequence[TaskSplit],
    learn_on: Mapping[str, TrainOn],
    infeasible: Collection[tuple[str, TaskSplit]] = (),
    *,
    validated: Collection[tuple[str, TaskSplit]] = (),
    selecting: Collection[TaskSplit] = (),
) -> dict[TaskSplit, frozenset[Signal]]:
    """Split -> the signals that are read from the model, over all methods."""
    needed: dict[TaskSplit, frozenset[Signal]] = {test: frozenset() for test in tests}
    for name, method in methods.items():
        for test in tests:
            if (name, test) in infeasible:
                continue
            needed[test] |= read_from_model(method.reads().predict)
            if method.trains():
                source = learn_on[test.task].where(method)
                needed[source] = needed.get(source, frozenset()) | read_from_model(method.reads().fit)
            target = learn_on[test.task]
            validation = target.validation
            if (name, validation) in validated or target.selection(method, selecting) is not None:
                needed[validation] = needed.get(validation, frozenset()) | read_from_model(method.reads().predict)
    return needed


def adapted(method: ConfidenceMethod) -> bool:
    """Whether the method reads anything through an adapter of its own."""
    return reads_own_adapter(method.reads().predict)
