"""A method that can't run somewhere is named with the reason, and runs everywhere else."""

from __future__ import annotations

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

    def __init__(self, *signals: Signal, target_modules: str = "") -> None:
        self.signals, self.target_modules = signals, target_modules

    def reads(self) -> Needs:
        return Needs(predict=frozenset(self.signals))

    def predict(self, batch: Batch) -> FloatArray:
        raise NotImplementedError


class Learner(Still):
    """Learns on train."""

    def fit(self, train: Batch, ctx: Context) -> Learner:
        raise NotImplementedError


class Scaler(Learner):
    """Learns on validation."""

    fit_on = "validation"


def task(fmt: Format = Format.CHOICE, splits: tuple[Split, ...] = ("train", "test")) -> Task:
    card = type("Card", (), {"splits": dict.fromkeys(splits)})
    return type("Some", (Rivers,), {"format": fmt, "card": card})(None)  # type: ignore[no-any-return]


def reason(method: ConfidenceMethod, on: Task, unsupported: str | None = None, facts: ModelFacts = FACTS) -> str | None:
    prompts: Any = SimpleNamespace(query_unsupported_reason=lambda _task: unsupported)
    lm: Any = SimpleNamespace(facts=facts, missing=lambda _needs, _depths: None)
    return reason_infeasible(method, TEST, {"rivers": on}, TrainOn("rivers"), prompts, lm)


NO_ROWS = "it learns, and rivers has no train rows; name some with --train-on FILE, or a task with --train-on TASK"


@pytest.mark.parametrize(
    ("method", "on", "unsupported", "told"),
    [
        (Still(ChoiceLogits()), task(), None, None),
        (Still(ChoiceLogits()), task(Format.OPEN), None, "it reads option letters, and this task has none"),
        (Still(QueryLogits()), task(), "no verdict tokens", "no verdict tokens"),
        (Still(TokenIds(Of.QUERY)), task(), "no verdict tokens", "no verdict tokens"),
        (Still(QueryLogits()), task(), None, None),
        (Still(TokenIds(Of.QUERY)), task(), None, None),
        (Still(Unembedding()), task(), "no verdict tokens", None),
        (Still(), task(splits=("test",)), None, None),
        (Learner(), task(), None, None),
        (Learner(), task(splits=("test",)), None, NO_ROWS),
    ],
)
def test_method_needs_what_it_reads_and_learns_from(
    method: ConfidenceMethod, on: Task, unsupported: str | None, told: str | None
) -> None:
    assert reason(method, on, unsupported) == told


@pytest.mark.parametrize(
    ("splits", "there"), [(("test",), False), (("test", "train"), True), (("test", "validation"), True)]
)
def test_validation_is_a_split_or_taken_out_of_train(splits: tuple[Split, ...], *, there: bool) -> None:
    on = task(splits=splits)
    assert has_validation(on) is there
    assert (reason(Scaler(), on) is None) is there


@pytest.mark.parametrize(
    ("layers", "named", "words"),
    [
        (FACTS.projections, "", None),
        (FACTS.projections[1:], "", "--set still.target_modules=NAME,NAME, of up"),
        (FACTS.projections[1:], "up", None),
        ((), "", "of none"),
    ],
)
def test_adapter_needs_layers_that_can_be_told(layers: tuple[Projection, ...], named: str, words: str | None) -> None:
    adapted = Learner(QueryLogits(Adapter.OWN), target_modules=named)
    found = reason(adapted, task(), facts=replace(FACTS, projections=layers))
    assert found is None if words is None else words in str(found)


def test_adapter_of_an_unknown_layer_is_the_users_mistake() -> None:
    with pytest.raises(UserError, match="'qq' is no linear layer"):
        reason(Learner(QueryLogits(Adapter.OWN), target_modules="qq"), task())


def test_pairs_that_cannot_run_are_named_alone() -> None:
    tasks = {"rivers": task(), "open": task(Format.OPEN)}
    methods: dict[str, Any] = {"letters": Still(ChoiceLogits()), "still": Still()}
    tests = [TEST, TaskSplit("open", "test")]
    learn_on = {name: TrainOn(name) for name in tasks}
    resolved: Any = SimpleNamespace(methods=methods, test_splits=tests, learn_on=learn_on)
    reader = SimpleNamespace(prompts=lambda _task: None, lm=SimpleNamespace(facts=FACTS, missing=lambda *_needs: None))
    resources: Any = SimpleNamespace(tasks=tasks, reader=reader)
    found = find_infeasible(resolved, resources)
    assert found == {("letters", tests[1]): "it reads option letters, and this task has none"}
