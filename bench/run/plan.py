"""Plan a run as ordered steps: read each split once, with the signals of all methods, before fits and predictions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter

from bench.api import AdapterRef, ConfidenceMethod, Signal, Split
from bench.data.splits import TaskSplit
from bench.signals.definition import read_from_model, uses_adapter


@dataclass(frozen=True)
class TrainOn:
    """Task and split that methods learn on."""

    task: str
    split: Split = "train"
    """Split that takes the place of the train split; it has no effect on a method that is fitted on validation."""

    def __str__(self) -> str:
        return f"{self.task}:{self.split}"

    @property
    def validation(self) -> TaskSplit:
        """The validation split of this task, used for recalibration, scaling and early stopping."""
        return TaskSplit(self.task, "validation")

    def split_of(self, method: ConfidenceMethod) -> TaskSplit:
        """Return the split of this task that a method is fitted on."""
        return TaskSplit(self.task, self.split if method.fit_on == "train" else method.fit_on)

    def selection(self, method: ConfidenceMethod, selecting: Collection[TaskSplit]) -> TaskSplit | None:
        """Return the validation split for early stopping of a method; None if the method uses none.

        Args:
            method: the method; it uses none if it is untrained, or fitted on the validation split itself.
            selecting: validation splits on which the run does early stopping.
        """
        chooses = method.trains() and self.validation in selecting and self.split_of(method) != self.validation
        return self.validation if chooses else None


@dataclass(frozen=True)
class Read:
    """Step of a run: generate the answers of a split and compute signals; shards in the store are loaded instead."""

    where: TaskSplit
    signals: frozenset[Signal]


@dataclass(frozen=True)
class Fit:
    """Step of a run: fit a method on a split."""

    method: str
    where: TaskSplit


@dataclass(frozen=True)
class Adapt:
    """Step of a run: read the self-check query after each answer of a split, with the adapter that a method trained."""

    method: str
    where: TaskSplit
    learned: TaskSplit
    """Training split of the method."""


@dataclass(frozen=True)
class Predict:
    """Step of a run: predict a method's confidences in the answers of a test split."""

    method: str
    where: TaskSplit


Step = Read | Fit | Adapt | Predict


@dataclass(frozen=True)
class RunPlan:
    """Methods and splits of a run, and with them its steps and the signals that the model must compute."""

    methods: Mapping[str, ConfidenceMethod]
    tests: Sequence[TaskSplit]
    learn_on: Mapping[str, TrainOn]
    """Test task -> task and split that methods learn on for this test."""
    infeasible: Collection[tuple[str, TaskSplit]] = ()
    """Pairs (name of a method, test split) for which the method can't run: nothing is read or fitted."""
    validated: Collection[tuple[str, TaskSplit]] = ()
    """Pairs (name of a method, validation split): the method also predicts this split, for recalibration or scaling."""
    selecting: Collection[TaskSplit] = ()
    """Validation splits for early stopping."""

    def steps(self) -> list[Step]:
        """Return the steps of the run in topological order: each step comes after all steps that it needs."""
        needed = self.signals()
        graph: TopologicalSorter[Step] = TopologicalSorter()
        for where, signals in sorted(needed.items()):
            graph.add(Read(where, signals))
        for name, method in self.methods.items():
            for test in self.tests:
                target = self.learn_on[test.task] if (name, test) not in self.infeasible else None
                graph.add(Predict(name, test), Read(test, needed[test]))
                if target is None:
                    continue
                validation = [target.validation] if (name, target.validation) in self.validated else []
                if method.trains():
                    source, chosen_by = target.split_of(method), target.selection(method, self.selecting)
                    fit = Fit(name, source)
                    graph.add(fit, Read(source, needed[source]))
                    graph.add(Predict(name, test), fit)
                    if chosen_by is not None:
                        graph.add(fit, Read(chosen_by, needed[chosen_by]))
                    for where in (test, *validation) if uses_trained_adapter(method) else ():
                        graph.add(Adapt(name, where, source), Read(where, needed[where]), fit)
                        graph.add(Predict(name, test), Adapt(name, where, source))
                for where in validation:
                    graph.add(Predict(name, test), Read(where, needed[where]))
        return list(graph.static_order())

    def signals(self) -> dict[TaskSplit, frozenset[Signal]]:
        """Return split -> signals that the model must compute there for all methods together."""
        needed: dict[TaskSplit, frozenset[Signal]] = {test: frozenset() for test in self.tests}
        for name, method in self.methods.items():
            for test in self.tests:
                if (name, test) in self.infeasible:
                    continue
                needed[test] |= read_from_model(method.reads().predict)
                target = self.learn_on[test.task]
                if method.trains():
                    source = target.split_of(method)
                    needed[source] = needed.get(source, frozenset()) | read_from_model(method.reads().fit)
                validation = target.validation
                if (name, validation) in self.validated or target.selection(method, self.selecting) is not None:
                    needed[validation] = needed.get(validation, frozenset()) | read_from_model(method.reads().predict)
        return needed


def uses_trained_adapter(method: ConfidenceMethod) -> bool:
    """Return whether a method reads signals through an adapter that it trained."""
    return uses_adapter(method.reads().predict)


def trained_adapter(method: ConfidenceMethod) -> AdapterRef | None:
    """Return the adapter that a fitted method has trained; None if it has trained none."""
    adapter = method.fitted().get("adapter_")
    return adapter if isinstance(adapter, AdapterRef) else None
