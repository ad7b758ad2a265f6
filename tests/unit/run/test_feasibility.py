"""A method that can't run somewhere is named with the reason, and runs everywhere else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from bench.api import (
    Adapter,
    Batch,
    ChoiceLogits,
    ConfidenceMethod,
    Context,
    FloatArray,
    Format,
    ModelFacts,
    Needs,
    Of,
    Projection,
    QueryLogits,
    Signal,
    Split,
    Task,
    TokenIds,
    Unembedding,
    UserError,
)
from bench.data.splits import TaskSplit
from bench.run.feasibility import has_validation, reason_infeasible
from bench.run.plan import TrainOn
from bench.run.preparation import find_infeasible
from tests.fixtures.rivers import Rivers

TEST = TaskSplit("rivers", "test")


FACTS = ModelFacts("m", 8, 16, 1, (Projection("qkv_proj", 8, 24, "fused"), Projection("up", 8, 16)))


class Still(ConfidenceMethod):
    name = "still"
    reference: ClassVar[str] = "none"

    def __init__(self, *signals: Signal) -> None:
        self.signals = signals

    def reads(self) -> Needs:
        return Needs(predict=frozenset(self.signals))

    def predict(self, batch: Batch) -> FloatArray:
        raise NotImplementedError


class Scaler(Still):
    """Learns on validation."""

    fit_on = "validation"

    def fit(self, train: Batch, ctx: Context) -> Scaler:
        raise NotImplementedError


def task(fmt: Format = Format.CHOICE, *splits: Split) -> Task:
    card = type("Card", (), {"splits": dict.fromkeys(splits or ("train", "test"))})
    return type("Some", (Rivers,), {"format": fmt, "card": card})(None)  # type: ignore[no-any-return]


def reason(method: ConfidenceMethod, tasks: Mapping[str, Task], unsupported_reason: str | None = None) -> str | None:
    prompts = SimpleNamespace(query_unsupported_reason=lambda _task: unsupported_reason)
    return reason_infeasible(method, TEST, tasks, TrainOn("rivers"), prompts, lambda: FACTS)  # type: ignore[arg-type]


@pytest.mark.parametrize(("fmt", "runs"), [(Format.CHOICE, True), (Format.OPEN, False)])
def test_option_letters_are_there_in_choice_tasks_only(fmt: Format, *, runs: bool) -> None:
    assert (reason(Still(ChoiceLogits()), {"rivers": task(fmt)}) is None) is runs


@pytest.mark.parametrize("signal", [QueryLogits(), TokenIds(Of.QUERY)])
def test_who_reads_the_query_needs_a_model_that_can_be_asked(signal: Signal) -> None:
    tasks = {"rivers": task()}
    assert reason(Still(signal), tasks, "no verdict tokens") == "no verdict tokens"
    assert reason(Still(signal), tasks) is None
    assert reason(Still(Unembedding()), tasks, "no verdict tokens") is None


@pytest.mark.parametrize(
    ("splits", "there"), [(("test",), False), (("test", "train"), True), (("test", "validation"), True)]
)
def test_validation_is_a_split_or_taken_out_of_train(splits: tuple[Split, ...], *, there: bool) -> None:
    tasks = {"rivers": task(Format.CHOICE, *splits)}
    assert has_validation(tasks["rivers"]) is there
    assert (reason(Scaler(), tasks) is None) is there
    assert reason(Still(), tasks) is None


def test_only_the_pairs_that_cannot_run_are_named() -> None:
    tasks = {"rivers": task(), "open": task(Format.OPEN)}
    methods: dict[str, Any] = {"letters": Still(ChoiceLogits()), "still": Still()}
    tests = [TEST, TaskSplit("open", "test")]
    learn_on = {name: TrainOn(name) for name in tasks}
    resolved: Any = SimpleNamespace(methods=methods, test_splits=tests, learn_on=learn_on)
    reader = SimpleNamespace(prompts=lambda _task: None, lm=SimpleNamespace(facts=FACTS))
    resources: Any = SimpleNamespace(tasks=tasks, reader=reader)
    found = find_infeasible(resolved, resources)
    assert found == {("letters", tests[1]): "it reads option letters, and this task has none"}


class Learner(Still):
    """Learns on train."""

    def fit(self, train: Batch, ctx: Context) -> Learner:
        raise NotImplementedError


def test_a_method_that_learns_needs_rows_to_learn_from() -> None:
    tasks = {"rivers": task(Format.CHOICE, "test")}
    assert reason(Learner(), tasks) == (
        "it learns, and rivers has no train rows; name some with --train-on FILE, or a task with --train-on TASK"
    )
    assert reason(Still(), tasks) is None
    assert reason(Learner(), {"rivers": task()}) is None


class Adapted(Learner):
    """Reads the query through an adapter of its own."""

    name = "adapted"

    def __init__(self, target_modules: str = "") -> None:
        super().__init__(QueryLogits(Adapter.OWN))
        self.target_modules = target_modules


@pytest.mark.parametrize(
    ("layers", "named", "words"),
    [
        (FACTS.projections, "", None),
        (FACTS.projections[1:], "", "--set adapted.target_modules=NAME,NAME, of up"),
        (FACTS.projections[1:], "up", None),
        ((), "", "of none"),
    ],
)
def test_an_adapter_needs_layers_that_can_be_told(
    layers: tuple[Projection, ...], named: str, words: str | None
) -> None:
    prompts = SimpleNamespace(query_unsupported_reason=lambda _task: None)
    facts = replace(FACTS, projections=layers)
    found = reason_infeasible(Adapted(named), TEST, {"rivers": task()}, TrainOn("rivers"), prompts, lambda: facts)  # type: ignore[arg-type]
    assert found is None if words is None else words in str(found)


def test_a_layer_that_is_not_there_is_the_users_mistake() -> None:
    prompts: Any = SimpleNamespace(query_unsupported_reason=lambda _task: None)
    with pytest.raises(UserError, match="'qq' is no linear layer"):
        reason_infeasible(Adapted("qq"), TEST, {"rivers": task()}, TrainOn("rivers"), prompts, lambda: FACTS)
