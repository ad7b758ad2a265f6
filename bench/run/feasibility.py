"""Tests that bar a method, and why: decided from what it reads and where it learns, before anything is computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bench.api import ConfidenceMethod, Task
from bench.data.splits import TaskSplit
from bench.prompts.shards import PromptTokeniser
from bench.run.plan import TrainOn
from bench.signals.definition import definition


def infeasible(
    methods: Mapping[str, ConfidenceMethod],
    tests: Sequence[TaskSplit],
    tasks: Mapping[str, Task],
    learn_on: Mapping[str, TrainOn],
    prompts: PromptTokeniser,
) -> dict[tuple[str, TaskSplit], str]:
    """Method and test -> why the method can't run there; pairs that can run are left out.

    Args:
        methods: name -> method.
        tests: what is predicted.
        tasks: name -> task, those that are only learned on included.
        learn_on: test task -> where methods learn.
        prompts: of the model, which may lack what a signal needs.
    """
    reasons = {
        (name, test): reason_infeasible(method, test, tasks, learn_on[test.task], prompts)
        for name, method in methods.items()
        for test in tests
    }
    return {pair: reason for pair, reason in reasons.items() if reason is not None}


def reason_infeasible(
    method: ConfidenceMethod,
    test: TaskSplit,
    tasks: Mapping[str, Task],
    train_on: TrainOn,
    prompts: PromptTokeniser,
) -> str | None:
    """Why a method can't run on a test; None where it can.

    Args:
        method: unfitted.
        test: what is predicted.
        tasks: as for `infeasible`.
        train_on: where methods learn for this test.
        prompts: of the model, which may lack what a signal needs.
    """
    task = tasks[test.task]
    signals = method.reads().fit | method.reads().predict
    for signal in sorted(signals, key=repr):
        hindrance = definition(signal).hindrance(task, prompts)
        if hindrance is not None:
            return hindrance
    source = train_on.where(method)
    if method.trains() and source.split == "validation" and not has_validation(tasks[source.task]):
        return f"it learns on a validation split, and {source.task} has neither that nor a train split"
    return None


def has_validation(task: Task) -> bool:
    """Whether a task has a validation split, or a train split to take one from."""
    return not {"validation", "train"}.isdisjoint(task.card.splits)
