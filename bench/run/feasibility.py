"""Decide before any computation whether a method can run on a test split, from its signals and training split."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from bench.api import ConfidenceMethod, Task, UserError
from bench.data.splits import TaskSplit
from bench.run.plan import TrainOn, uses_trained_adapter
from bench.signals.definition import definition

if TYPE_CHECKING:
    from bench.model.language_model import LanguageModel
    from bench.prompts.shards import PromptTokeniser


def reason_infeasible(
    method: ConfidenceMethod,
    test: TaskSplit,
    tasks: Mapping[str, Task],
    train_on: TrainOn,
    prompts: PromptTokeniser,
    lm: LanguageModel,
) -> str | None:
    """Return why a method can't run on a test split; None if it can.

    Args:
        method: the unfitted method.
        test: the test split.
        tasks: name -> task, for tests and training tasks.
        train_on: task and split that methods learn on for this test.
        prompts: prompt tokeniser of the model; a signal may need tokens that the model's vocabulary lacks.
        lm: the model; its weights are not loaded.

    Raises:
        UserError: the method's `target_modules` has a name that is no linear layer of the model.
    """
    task = tasks[test.task]
    signals = method.reads().fit | method.reads().predict
    for signal in sorted(signals, key=repr):
        spec = definition(signal)
        reason = spec.unsupported_reason(task, prompts) or lm.missing(spec.needs(task.format), spec.depths)
        if reason is not None:
            return reason
    no_labels = reason_untrainable(method, train_on, tasks)
    if no_labels or not uses_trained_adapter(method):
        return no_labels
    from bench.model import linear_layers

    target_modules = str(method.params().get("target_modules") or "")
    layers = [linear_layers.NamedLinear(layer.name, layer) for layer in lm.facts.projections]
    try:
        linear_layers.target_paths(layers, target_modules)
    except UserError as error:
        if target_modules:
            raise
        return str(error).replace("METHOD.", f"{method.name}.")
    return None


def reason_untrainable(
    method: ConfidenceMethod, train_on: TrainOn, tasks: Mapping[str, Task] | Mapping[str, type[Task]]
) -> str | None:
    """Return why a method has no training data; None if it has some, needs none, or its training task is unknown."""
    source = train_on.split_of(method)
    task = tasks.get(source.task)
    if not method.trains() or task is None or source.split in task.card.splits:
        return None
    way_out = "name some with --train-on FILE, or a task with --train-on TASK"
    if source.split != "validation":
        return f"it learns, and {source.task} has no {source.split} rows; {way_out}"
    if has_validation(task):
        return None
    return f"it learns on a validation split, and {source.task} has neither that nor train rows; {way_out}"


def check_training_memory(
    methods: Mapping[str, ConfidenceMethod],
    tests: Sequence[TaskSplit],
    infeasible: Collection[tuple[str, TaskSplit]],
    lm: LanguageModel,
    budget: int | None,
) -> None:
    """Check that the adapters of all methods can be trained within the device's memory.

    Args:
        methods: name -> method.
        tests: test splits.
        infeasible: pairs (name of a method, test split) for which the method can't run.
        lm: the model; its weights are not loaded.
        budget: most tokens of one forward pass of training; None: the device's default.

    Raises:
        UserError: the training of an adapter needs more memory than the device has.
    """
    from bench.model.devices import training_budget

    for name, method in methods.items():
        if not uses_trained_adapter(method) or all((name, test) in infeasible for test in tests):
            continue
        from bench.model.training_memory import plan_training

        params = method.params()
        rank, target_modules = int(str(params.get("rank", 8))), str(params.get("target_modules") or "")
        plan_training(lm, budget or training_budget(*lm.devices), rank=rank, named=target_modules).check()


def has_validation(task: Task | type[Task]) -> bool:
    """Return whether a task has a validation split, or a train split from which one can be held out."""
    return not {"validation", "train"}.isdisjoint(task.card.splits)
