"""Where adapters are trained elsewhere, trainings begin first, everything else goes on, and nothing is left out."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from bench.api import Adapter, Batch, ConfidenceMethod, Context, FloatArray, Needs, QueryLogits
from bench.data.splits import TaskSplit
from bench.progress import Silent
from bench.run.pipeline import in_order
from bench.run.plan import Adapt, Fit, Predict, Read, Step, TrainOn, plan
from bench.training.trainer import DeferredTrainingError


class Plain(ConfidenceMethod):
    needs = Needs(predict=frozenset({QueryLogits()}))

    def predict(self, batch: Batch) -> FloatArray:
        raise NotImplementedError


class Learner(Plain):
    needs = Needs(fit=frozenset({QueryLogits()}), predict=frozenset({QueryLogits()}))

    def fit(self, train: Batch, ctx: Context) -> Learner:
        raise NotImplementedError


class Tuned(Learner):
    needs = Needs(fit=frozenset({QueryLogits()}), predict=frozenset({QueryLogits(Adapter.OWN)}))


METHODS: dict[str, ConfidenceMethod] = {"plain": Plain(), "learner": Learner(), "one": Tuned(), "two": Tuned()}
TESTS = [TaskSplit("atlas", "test"), TaskSplit("rivers", "test")]
CHOSEN_BY = TaskSplit("atlas", "validation")
STEPS = plan(METHODS, TESTS, {test.task: TrainOn("atlas") for test in TESTS}, selecting=[CHOSEN_BY])
NEEDED: Any = SimpleNamespace(resolved=SimpleNamespace(methods=METHODS), selecting=frozenset({CHOSEN_BY}))


class Trainings:
    def __init__(self, *, on_cards: bool) -> None:
        self.on_cards = on_cards
        self.finished = 0

    def finish(self, _: Any) -> None:
        self.finished += 1


def taken(trainings: Trainings | None) -> tuple[list[Step], list[Step]]:
    """Steps before the trainings were over, and those after."""
    fitter, before, after = SimpleNamespace(puts_off=False), [], []
    made: Any = SimpleNamespace(fits={}, **vars(NEEDED))
    for step in in_order(STEPS, trainings, fitter, made, Silent()):  # type: ignore[arg-type]
        (after if trainings is None or trainings.finished else before).append(step)
        if isinstance(step, Fit):
            off = fitter.puts_off and step.method in {"one", "two"}
            made.fits[step] = DeferredTrainingError("later") if off else "a fit"
    return before, after


def test_without_other_machines_the_order_stays() -> None:
    assert taken(None) == ([], STEPS)


@pytest.mark.parametrize("on_cards", [False, True])
def test_trainings_begin_first_and_what_needs_them_comes_when_they_are_over(on_cards: bool) -> None:
    before, after = taken(Trainings(on_cards=on_cards))
    assert [type(step) for step in before[:4]] == [Read, Read, Fit, Fit]
    assert {step.where for step in before[:2]} == {TaskSplit("atlas", "train"), CHOSEN_BY}
    tuned = [step for step in STEPS if not isinstance(step, Read) and step.method in {"one", "two"}]
    learned = [step for step in STEPS if not isinstance(step, Read) and step.method == "learner"]
    put_off = {*tuned, *(learned if on_cards else [])}  # what the run itself would do on a card that may be taken
    assert set(after) == put_off
    assert len(after) == len(put_off)
    assert [step for step in before if isinstance(step, Fit)] == [
        *(step for step in tuned if isinstance(step, Fit)),
        *(step for step in learned if isinstance(step, Fit) and not on_cards),
    ]
    assert {*before, *after} == set(STEPS)
    order = [*before, *after]
    for step in order:
        if isinstance(step, Adapt | Predict):
            fit = Fit(step.method, TaskSplit("atlas", "train"))
            assert fit not in STEPS or len(order) - 1 - order[::-1].index(fit) < order.index(step)


def test_where_all_adapters_are_stored_nothing_is_waited_for() -> None:
    trainings = Trainings(on_cards=True)
    fitter, made = SimpleNamespace(), SimpleNamespace(fits={}, **vars(NEEDED))
    order = []
    for step in in_order(STEPS, trainings, fitter, made, Silent()):  # type: ignore[arg-type]
        order.append(step)
        made.fits[step] = "a fit"
    assert trainings.finished == 0
    assert set(order) == set(STEPS)
    assert len(order) == len(STEPS)
