"""What can't run is named; a run reads before it fits, fits before it predicts; trainings elsewhere come first."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.api import (
    Adapter,
    At,
    Batch,
    ChoiceLogits,
    ConfidenceMethod,
    Context,
    FloatArray,
    Format,
    Hidden,
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
from bench.model import training_memory
from bench.model.training_memory import TrainingPlan
from bench.progress import Silent
from bench.run.analyses.transfer import FitCosts, describe_fits, sort_by_cost
from bench.run.feasibility import check_training_memory, has_validation, reason_infeasible
from bench.run.pipeline import in_order
from bench.run.plan import Adapt, Fit, Predict, Read, RunPlan, Step, TrainOn
from bench.run.preparation import find_infeasible
from bench.training.trainer import DeferredTrainingError
from tests.fixtures.rivers import Rivers

PAID: list[Signal] = [
    ChoiceLogits(), QueryLogits(), Hidden(1.0, At.PROMPT_END), Hidden(1.0, At.ANSWER_PREDICTING),
    Hidden(0.5, At.ANSWER_END),
]  # fmt: skip
FREE: list[Signal] = [TokenIds(Of.ANSWER), TokenIds(Of.PROMPT), TokenIds(Of.QUERY), Unembedding()]
LEARNED: list[Split] = ["train", "validation"]
SPLITS: list[Split] = ["train", "dev", "validation", "test"]
LETTERS = frozenset[Signal]({ChoiceLogits()})
QUERY = frozenset[Signal]({QueryLogits()})


class Still(ConfidenceMethod):
    name = "still"
    reference: ClassVar[str] = "none"
    needs = Needs()

    def __init__(self, *signals: Signal, target_modules: str = "") -> None:
        self.signals, self.target_modules = signals, target_modules

    def reads(self) -> Needs:
        return Needs(predict=frozenset(self.signals)) if self.signals else self.needs

    def predict(self, batch: Batch) -> FloatArray:
        raise NotImplementedError


class Learner(Still):
    def fit(self, train: Batch, ctx: Context) -> Learner:
        raise NotImplementedError


def make(needs: Needs, fit_on: Split = "train", *, trains: bool) -> ConfidenceMethod:
    body: dict[str, Any] = {"needs": needs, "fit_on": fit_on, "name": "m"}
    return type("M", (Learner if trains else Still,), body)()  # type: ignore[no-any-return]


def on(*tests: str) -> tuple[list[TaskSplit], dict[str, TrainOn]]:
    """Tests, and the tasks that they learn on: the first."""
    return [TaskSplit(test, "test") for test in tests], {test: TrainOn(tests[0]) for test in tests}


@st.composite
def runs(draw: st.DrawFn) -> tuple[dict[str, ConfidenceMethod], list[TaskSplit], dict[str, TrainOn]]:
    signals = st.frozensets(st.sampled_from(PAID + FREE), max_size=4)
    tasks = st.sampled_from(["atlas", "mmlu", "pro"])
    methods = {
        f"m{i}": make(
            Needs(fit=draw(signals), predict=draw(signals)),
            draw(st.sampled_from(LEARNED)),
            trains=draw(st.booleans()),
        )
        for i in range(draw(st.integers(1, 4)))
    }
    tests = draw(st.lists(tasks, min_size=1, max_size=3, unique=True))
    learn_on = {test: TrainOn(draw(tasks), draw(st.sampled_from(SPLITS))) for test in tests}
    return methods, [TaskSplit(test, "test") for test in tests], learn_on


@given(runs())
@settings(deadline=None)
def test_steps_come_once_after_what_they_need(run: Any) -> None:
    methods, tests, learn_on = run
    steps = RunPlan(methods, tests, learn_on).steps()
    assert len(set(steps)) == len(steps)
    at = {step: i for i, step in enumerate(steps)}
    reads = {step.where: step for step in steps if isinstance(step, Read)}
    assert len(reads) == sum(isinstance(step, Read) for step in steps)  # a split is read in one step
    for step in steps:
        if isinstance(step, Fit | Predict):
            method = methods[step.method]
            needed = method.needs.fit if isinstance(step, Fit) else method.needs.predict
            assert at[reads[step.where]] < at[step]
            assert reads[step.where].signals >= {s for s in needed if s in PAID}
            assert method.trains() or isinstance(step, Predict)
            if method.trains() and isinstance(step, Predict):
                learned = learn_on[step.where.task]
                split: Split = learned.split if method.fit_on == "train" else "validation"
                assert at[Fit(step.method, TaskSplit(learned.task, split))] < at[step]
    predicted = {(step.method, step.where) for step in steps if isinstance(step, Predict)}
    assert predicted == {(name, test) for name in methods for test in tests}


@given(runs())
@settings(deadline=None)
def test_reads_measure_what_a_method_reads_there(run: Any) -> None:
    methods, tests, learn_on = run
    for step in RunPlan(methods, tests, learn_on).steps():
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
@settings(deadline=None)
def test_plan_ignores_the_order_of_names(run: Any) -> None:
    methods, tests, learn_on = run
    backwards = dict(reversed(list(methods.items())))
    assert RunPlan(methods, tests, learn_on).signals() == RunPlan(backwards, tests, learn_on).signals()
    reads = [{s for s in RunPlan(m, tests, learn_on).steps() if isinstance(s, Read)} for m in (methods, backwards)]
    assert reads[0] == reads[1]


def test_plan_shares_the_fit_of_two_tests() -> None:
    steps = RunPlan({"m": make(Needs(LETTERS, LETTERS), trains=True)}, *on("atlas", "mmlu")).steps()
    assert [s for s in steps if isinstance(s, Fit)] == [Fit("m", TaskSplit("atlas", "train"))]
    assert sum(isinstance(s, Read) for s in steps) == 3


def test_barred_method_has_nothing_read_or_fitted() -> None:
    tests = [TaskSplit("asked", "test"), TaskSplit("open", "test")]
    lettered = make(Needs(fit=LETTERS, predict=LETTERS), trains=True)
    steps = RunPlan({"m": lettered}, tests, {t.task: TrainOn(t.task) for t in tests}, {("m", tests[1])}).steps()
    assert Fit("m", TaskSplit("asked", "train")) in steps
    assert [step for step in steps if step.where.task == "open"] == [
        Read(tests[1], frozenset()),
        Predict("m", tests[1]),
    ]


ADAPTED = Needs(fit=QUERY, predict=frozenset({QueryLogits(Adapter.OWN)}))
METHODS = {
    "plain": make(Needs(predict=QUERY), trains=False), "learner": make(Needs(QUERY, QUERY), trains=True),
    "one": make(ADAPTED, trains=True), "two": make(ADAPTED, trains=True),
}  # fmt: skip
CHOSEN_BY = TaskSplit("atlas", "validation")
STEPS = RunPlan(METHODS, *on("atlas", "rivers"), selecting=[CHOSEN_BY]).steps()


class Trainings:
    def __init__(self, *, on_cards: bool) -> None:
        self.on_cards = on_cards
        self.finished = 0

    def finish(self, _: Any) -> None:
        self.finished += 1


def taken(trainings: Trainings | None, *, stored: bool = False) -> tuple[list[Step], list[Step]]:
    """Steps before the trainings were over, and those after; adapters may all be stored."""
    before: list[Step] = []
    after: list[Step] = []
    fitter = SimpleNamespace(puts_off=False)
    resolved = SimpleNamespace(methods=METHODS)
    made: Any = SimpleNamespace(fits={}, resolved=resolved, selecting=frozenset({CHOSEN_BY}))
    for step in in_order(STEPS, trainings, fitter, made, Silent()):  # type: ignore[arg-type]
        (after if trainings is None or trainings.finished else before).append(step)
        if isinstance(step, Fit):
            off = not stored and fitter.puts_off and step.method in {"one", "two"}
            made.fits[step] = DeferredTrainingError("later") if off else "a fit"
    return before, after


def test_order_stays_without_other_machines() -> None:
    assert taken(None) == ([], STEPS)


@pytest.mark.parametrize("on_cards", [False, True])
def test_trainings_begin_first_and_what_needs_them_waits(on_cards: bool) -> None:
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


def test_stored_adapters_are_not_waited_for() -> None:
    trainings = Trainings(on_cards=True)
    order, after = taken(trainings, stored=True)
    assert (trainings.finished, after) == (0, [])
    assert set(order) == set(STEPS)
    assert len(order) == len(STEPS)


TEST = TaskSplit("rivers", "test")
FACTS = ModelFacts("m", 8, 16, 1, (Projection("qkv_proj", 8, 24, "fused"), Projection("up", 8, 16)))


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
def test_validation_is_a_split_or_of_train(splits: tuple[Split, ...], *, there: bool) -> None:
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


def test_adapter_of_an_unknown_layer_is_refused() -> None:
    with pytest.raises(UserError, match="'qq' is no linear layer"):
        reason(Learner(QueryLogits(Adapter.OWN), target_modules="qq"), task())


def test_memory_is_that_of_the_layers_a_method_adapts(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def plan(lm: object, tokens: int, **shape: object) -> TrainingPlan:
        asked.append((tokens, shape))
        return TrainingPlan(checkpointing=False, refusal="too large" if shape["named"] == "up" else None)

    monkeypatch.setattr(training_memory, "plan_training", plan)
    learners = [Learner(QueryLogits(Adapter.OWN), target_modules=named) for named in ("qkv_proj", "up")]
    lm: Any = SimpleNamespace(devices=("cpu",))
    check_training_memory({"one": learners[0], "barred": learners[1]}, [TEST], {("barred", TEST)}, lm, 512)
    with pytest.raises(UserError, match="too large"):
        check_training_memory({"one": learners[1]}, [TEST], (), lm, 512)
    assert asked == [(512, {"rank": 8, "named": "qkv_proj"}), (512, {"rank": 8, "named": "up"})]


def test_tasks_that_a_method_cannot_take_are_named() -> None:
    tasks = {"rivers": task(), "open": task(Format.OPEN)}
    methods: dict[str, Any] = {"letters": Still(ChoiceLogits()), "still": Still()}
    tests = [TEST, TaskSplit("open", "test")]
    learn_on = {name: TrainOn(name) for name in tasks}
    resolved: Any = SimpleNamespace(methods=methods, test_splits=tests, learn_on=learn_on)
    reader = SimpleNamespace(prompts=lambda _task: None, lm=SimpleNamespace(facts=FACTS, missing=lambda *_needs: None))
    resources: Any = SimpleNamespace(tasks=tasks, reader=reader)
    found = find_infeasible(resolved, resources)
    assert found == {("letters", tests[1]): "it reads option letters, and this task has none"}


def test_fits_are_named_from_a_hundredth_on() -> None:
    fits = [FitCosts("quick", [False], 5.0), FitCosts("dear", [False], 900.0), FitCosts("fair", [False] * 5, 3.0),
            FitCosts("middle", [True, False, True, False], 40.0), FitCosts("done", [True], 10_000.0)]  # fmt: skip
    assert describe_fits(fits)[0] == (
        "9 of 12 fits are not stored: at most 17 min, of which dear at most 15 min (1 of at most 15 min each), middle"
        " at most 80 s (2 of at most 40 s each), fair at most 15 s (5 of at most 3 s each), others at most 5 s"
    )


def test_fits_of_six_methods_are_named_at_most() -> None:
    (line, _) = describe_fits([FitCosts(f"m{i}", [False], 10.0 + i) for i in range(8)])
    assert [name for name in (f"m{i}" for i in range(8)) if f"{name} at most" in line] == [f"m{i}" for i in range(2, 8)]
    assert line.endswith("m2 at most 12 s (1 of at most 12 s each), others at most 21 s")


def test_fits_of_unknown_time_are_counted() -> None:
    unknown = [FitCosts("own", [False, True, False], "its own code decides it"), FitCosts("own", [False], "as before")]
    assert describe_fits(unknown)[0] == "3 of 4 fits are not stored: in a time that can't be said; not known of own (3)"
    both = describe_fits([*unknown, FitCosts("a", [False], 30.0)])[0]
    assert both.endswith("at most 30 s, of which a at most 30 s (1 of at most 30 s each); not known of own (3)")


def test_fits_that_are_stored_are_no_work() -> None:
    assert describe_fits([FitCosts("a", [True, True], 5.0)]) == ["all 2 fits are stored"]
    assert describe_fits([]) == []


def test_fits_are_made_in_order_of_their_cost() -> None:
    fits = [FitCosts("own", [False], "its own code decides it"), FitCosts("dear", [True, False], 100.0),
            FitCosts("many", [False] * 9, 10.0), FitCosts("many", [False] * 2, 10.0),
            FitCosts("stored", [True], "as before"), FitCosts("elsewhere", [False], 1.0)]  # fmt: skip
    assert sort_by_cost(["own", "many", "dear", "none", "stored"], fits) == ["none", "stored", "dear", "many", "own"]
