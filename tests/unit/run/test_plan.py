"""The plan reads before it fits, fits before it predicts, covers every need, and does nothing twice."""

from __future__ import annotations

from typing import Any, ClassVar

from hypothesis import given
from hypothesis import strategies as st

from bench.api import (
    At,
    Batch,
    ChoiceLogits,
    ConfidenceMethod,
    Context,
    FloatArray,
    Hidden,
    Needs,
    Of,
    QueryLogits,
    Signal,
    Split,
    TokenIds,
    Unembedding,
)
from bench.data.splits import TaskSplit
from bench.run.plan import Fit, Predict, Read, TrainOn, plan, signals_needed
from bench.signals.definition import read_from_model

PAID: list[Signal] = [
    ChoiceLogits(), QueryLogits(), Hidden(1.0, At.PROMPT_END), Hidden(1.0, At.ANSWER_PREDICTING),
    Hidden(0.5, At.ANSWER_END),
]  # fmt: skip
LEARNED: list[Split] = ["train", "validation"]
SPLITS: list[Split] = ["train", "dev", "validation", "test"]
FREE: list[Signal] = [TokenIds(Of.ANSWER), TokenIds(Of.PROMPT), TokenIds(Of.QUERY), Unembedding()]


class Still(ConfidenceMethod):
    reference: ClassVar[str] = "none"

    def predict(self, batch: Batch) -> FloatArray:
        raise NotImplementedError


class Learner(Still):
    def fit(self, train: Batch, ctx: Context) -> Learner:
        raise NotImplementedError


def make(name: str, needs: Needs, fit_on: Split, *, trains: bool) -> ConfidenceMethod:
    base = Learner if trains else Still
    body: dict[str, Any] = {"needs": needs, "fit_on": fit_on, "name": name}
    return type(name, (base,), body)()  # type: ignore[no-any-return]


signals = st.frozensets(st.sampled_from(PAID + FREE), max_size=4)
tasks = st.sampled_from(["atlas", "mmlu", "pro"])


@st.composite
def runs(draw: st.DrawFn) -> tuple[dict[str, ConfidenceMethod], list[TaskSplit], dict[str, TrainOn]]:
    methods = {
        f"m{i}": make(
            f"m{i}",
            Needs(fit=draw(signals), predict=draw(signals)),
            draw(st.sampled_from(LEARNED)),
            trains=draw(st.booleans()),
        )
        for i in range(draw(st.integers(1, 4)))
    }
    tests = draw(st.lists(tasks, min_size=1, max_size=3, unique=True))
    splits = st.sampled_from(SPLITS)
    learn_on = {test: TrainOn(draw(tasks), draw(splits)) for test in tests}
    return methods, [TaskSplit(test, "test") for test in tests], learn_on


@given(runs())
def test_every_step_comes_after_what_it_needs_and_only_once(run: Any) -> None:
    methods, tests, learn_on = run
    steps = plan(methods, tests, learn_on)
    assert len(set(steps)) == len(steps)
    at = {step: i for i, step in enumerate(steps)}
    reads = {step.where: step for step in steps if isinstance(step, Read)}
    assert len(reads) == sum(isinstance(step, Read) for step in steps)  # a split is read in one step
    for step in steps:
        if isinstance(step, Fit):
            method = methods[step.method]
            assert method.trains()
            assert at[reads[step.where]] < at[step]
            assert reads[step.where].signals >= {s for s in method.needs.fit if s in PAID}
        elif isinstance(step, Predict):
            method = methods[step.method]
            assert at[reads[step.where]] < at[step]
            assert reads[step.where].signals >= {s for s in method.needs.predict if s in PAID}
            if method.trains():
                learned = learn_on[step.where.task]
                split: Split = learned.split if method.fit_on == "train" else "validation"
                assert at[Fit(step.method, TaskSplit(learned.task, split))] < at[step]
    predicted = {(step.method, step.where) for step in steps if isinstance(step, Predict)}
    assert predicted == {(name, test) for name in methods for test in tests}


@given(runs())
def test_nothing_is_measured_that_no_method_reads_there(run: Any) -> None:
    methods, tests, learn_on = run
    for step in plan(methods, tests, learn_on):
        if not isinstance(step, Read):
            continue
        wanted: set[Signal] = set()
        for method in methods.values():
            if step.where in tests:
                wanted |= method.needs.predict
            if method.trains() and any(learn_on[t.task].split_of(method) == step.where for t in tests):
                wanted |= method.needs.fit
        assert step.signals == {s for s in wanted if s in PAID}


@given(runs())
def test_the_plan_does_not_depend_on_the_order_in_which_methods_are_named(run: Any) -> None:
    methods, tests, learn_on = run
    backwards = dict(reversed(list(methods.items())))
    assert signals_needed(methods, tests, learn_on) == signals_needed(backwards, tests, learn_on)
    reads = [[s for s in plan(m, tests, learn_on) if isinstance(s, Read)] for m in (methods, backwards)]
    assert set(reads[0]) == set(reads[1])


def test_ids_and_head_cost_no_pass() -> None:
    assert read_from_model(frozenset(PAID + FREE)) == frozenset(PAID)


def test_a_method_without_training_reads_the_test_split_only() -> None:
    method = make("m", Needs(predict=frozenset({QueryLogits()})), "train", trains=False)
    test = TaskSplit("atlas", "test")
    assert plan({"m": method}, [test], {"atlas": TrainOn("atlas")}) == [
        Read(test, frozenset({QueryLogits()})),
        Predict("m", test),
    ]


def test_two_tests_that_learn_on_one_split_share_its_fit() -> None:
    method = make("m", Needs(frozenset({ChoiceLogits()}), frozenset({ChoiceLogits()})), "train", trains=True)
    tests = [TaskSplit("atlas", "test"), TaskSplit("mmlu", "test")]
    steps = plan({"m": method}, tests, {"atlas": TrainOn("atlas"), "mmlu": TrainOn("atlas")})
    assert [s for s in steps if isinstance(s, Fit)] == [Fit("m", TaskSplit("atlas", "train"))]
    assert sum(isinstance(s, Read) for s in steps) == 3


def test_a_method_that_learns_on_validation_keeps_to_validation() -> None:
    needs = Needs(frozenset({QueryLogits()}), frozenset({QueryLogits()}))
    learn_on = TrainOn("atlas", "train")
    assert learn_on.split_of(make("m", needs, "validation", trains=True)) == TaskSplit("atlas", "validation")
    assert learn_on.split_of(make("m", needs, "train", trains=True)) == TaskSplit("atlas", "train")
    assert str(learn_on) == "atlas:train"
    assert str(TaskSplit("atlas", "test")) == "atlas/test"


def test_where_a_method_is_barred_nothing_is_read_or_fitted_for_it() -> None:
    letters: frozenset[Signal] = frozenset({ChoiceLogits()})
    lettered = make("m", Needs(fit=letters, predict=letters), "train", trains=True)
    tests = [TaskSplit("asked", "test"), TaskSplit("open", "test")]
    steps = plan({"m": lettered}, tests, {t.task: TrainOn(t.task) for t in tests}, {("m", tests[1])})
    assert Fit("m", TaskSplit("asked", "train")) in steps
    assert [s for s in steps if isinstance(s, Read) and s.where.task == "open"] == [Read(tests[1], frozenset())]
    assert [s for s in steps if isinstance(s, Fit) and s.where.task == "open"] == []
    assert Predict("m", tests[1]) in steps
