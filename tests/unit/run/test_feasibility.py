"""A method that can't run somewhere is named with the reason, and runs everywhere else."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from bench.api import (
    Batch,
    ChoiceLogits,
    ConfidenceMethod,
    Context,
    FloatArray,
    Format,
    Needs,
    Of,
    QueryLogits,
    Signal,
    Split,
    Task,
    TokenIds,
    Unembedding,
)
from bench.data.splits import TaskSplit
from bench.run.feasibility import has_validation, infeasible, reason_infeasible
from bench.run.plan import TrainOn
from tests.fixtures.rivers import Rivers

TEST = TaskSplit("rivers", "test")


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


def reason(method: ConfidenceMethod, tasks: Mapping[str, Task], hindrance: str | None = None) -> str | None:
    prompts = SimpleNamespace(query_hindrance=lambda _task: hindrance)
    return reason_infeasible(method, TEST, tasks, TrainOn("rivers"), prompts)  # type: ignore[arg-type]


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
    found = infeasible(methods, tests, tasks, {name: TrainOn(name) for name in tasks}, lambda _task: None)
    assert found == {("letters", tests[1]): "it reads option letters, and this task has none"}
