"""Costs are those of one run from nothing: what it feeds, whatever was stored before, and never below the floor."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.api import (
    Adapter,
    At,
    ChoiceLogits,
    Followup,
    Format,
    Hidden,
    Of,
    QueryLogits,
    Question,
    SampleAgreement,
    Samples,
    Signal,
    Split,
    Task,
    TokenIds,
    TokenScores,
    UserError,
)
from bench.api.protocol import FIXED
from bench.api.question import Message, Prompt, Released
from bench.data.splits import TaskSplit
from bench.grading.grade import JudgeCase, MatchJudge, normalise_text
from bench.model import extractor
from bench.model.cost import StageTokens
from bench.model.devices import BatchLimits
from bench.model.language_model import LanguageModel, LoadOptions
from bench.model.specs import ModelSpec
from bench.progress import Silent
from bench.prompts.shards import PromptTokeniser
from bench.run.config import RunConfig
from bench.run.costs import compute_costs, count_tokens, tokens_alone
from bench.run.pipeline import run
from bench.signals import reader as reading_room
from bench.signals.batch_builder import BatchBuilder
from bench.signals.grading import Grader
from bench.signals.reader import Reader
from bench.signals.split_data import SplitData
from bench.store.disk_cache import Store
from tests.kit.splits import FewRivers, FiveRivers, OpenRivers


class Elsewhere(FiveRivers):
    """Other questions in each split, with the same exemplars."""

    def questions(self, split: Split) -> Iterator[Question]:
        yield from (replace(q, text=f"{q.text} on a map of {split}") for q in super().questions(split))


class OpenElsewhere(Elsewhere):
    """The same, asked openly."""

    name = "rivers-elsewhere-oe"
    format = Format.OPEN


SAID = ("The answer is b", "b", "", "a river")
"""Answers of a release, by turns."""
LONG = ("a river of the north " * 24, "b", "", "the hills and the rivers " * 20)
TASKS = pytest.mark.parametrize("task", [FewRivers, OpenRivers], ids=lambda t: t.name)
_SAID = {"generated": (), "given": SAID, "long": LONG}
_FAST = {"generated-rivers", "given-rivers-oe", "long-rivers-oe"}


def cases(*kinds: str) -> Any:
    """Answers of these kinds to either task, of which one of each kind is tried each time."""
    made = {f"{kind}-{task.name}": (task, _SAID[kind]) for kind in kinds for task in (FewRivers, OpenRivers)}
    return pytest.mark.parametrize(
        ("task", "said"),
        [pytest.param(*case, id=name, marks=() if name in _FAST else pytest.mark.slow) for name, case in made.items()],
    )


FEW_CASES, ALL_CASES = cases("generated", "given"), cases(*_SAID)


@dataclass
class Model:
    """A model in this process, whose session starts anew with each store."""

    lm: LanguageModel
    folder: Path
    stores: int = 0

    def reader(self, seed: int = 0) -> Reader:
        """A reader with an empty store and nothing in memory."""
        self.stores += 1
        self.lm.session.reset()
        return self.again(Store(self.folder / str(self.stores)), seed)

    def again(self, store: Store, seed: int = 0) -> Reader:
        """A reader with a store."""
        store.prepare()
        return Reader(self.lm, store, replace(FIXED, max_new_tokens_open=4), 96, Silent(), seed=seed)


def opened(small_model: Path, folder: Path, **options: Any) -> Model:
    return Model(LanguageModel(ModelSpec("small", str(small_model), local=True), LoadOptions("cpu", **options)), folder)


@pytest.fixture(scope="module")
def model(small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Model:
    return opened(small_model, tmp_path_factory.mktemp("stores"))


@pytest.fixture(scope="module")
def plain_model(small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Model:
    """A model that reads each question alone."""
    return opened(small_model, tmp_path_factory.mktemp("plain"), plain=True)


def graded(
    reader: Reader, task: type[Task], signals: Iterable[Signal], said: tuple[str, ...] = (), split: Split = "test",
    judge: Any = None, prompt: Any = lambda _: None,
) -> SplitData:  # fmt: skip
    """A split as it was read; `said` are answers of a release, in turn, which may have prompts of their own."""
    made = task(None)  # type: ignore[arg-type]
    questions = list(made.questions(split))
    released = {
        question.id: Released(prompt(question), said[i % len(said)], correct=i % 3 == 0)
        for i, question in enumerate(questions if said else [])
    }
    split_data = reader.open(TaskSplit(task.name, split), made, questions, released)
    return Grader(reader, judge or MatchJudge()).grade(reader.read(split_data, frozenset(signals)))


def read(
    folder: Path, cache: Path, task: type[Task], signals: set[Signal], said: tuple[str, ...] = (), judge: Any = None
) -> tuple[Reader, SplitData]:
    """Read the test questions with a model of this folder and a store of this one."""
    reader = opened(folder, cache).again(Store(cache))
    return reader, graded(reader, task, signals, said, judge=judge, prompt=own_prompt)


def own_prompt(question: Question) -> Prompt:
    messages = (Message("system", "Be brief."), Message("user", f"Of {question.subject}: {question.text}?\nAnswer:"))
    return Prompt(messages)


def prefixes(sequences: list[list[int]]) -> set[tuple[int, ...]]:
    return {tuple(ids[:n]) for ids in sequences for n in range(1, len(ids) + 1)}


# --- counted as they were fed -----------------------------------------------------------------------------------------

DRAWN = Samples(3, 0.8)
KINDS: dict[str, frozenset[Signal]] = {
    "query": frozenset({QueryLogits(), Hidden(1.0, At.ANSWER_PREDICTING)}),
    "samples": frozenset({SampleAgreement(3, 0.8)}),
    "scored samples": frozenset({TokenScores(Of.SAMPLES, samples=DRAWN), SampleAgreement(2)}),
    "ends of samples": frozenset({Hidden(1.0, At.SAMPLE_END, samples=DRAWN)}),
    "options": frozenset({Hidden(1.0, At.WRONG_PREDICTING), Hidden(1.0, At.GOLD_PREDICTING)}),
    "prompts": frozenset({Hidden(1.0, At.PROMPT_END)}),
    "replies": frozenset({Followup("How sure are you?", say=3), Followup(say=2)}),
}
EVERYTHING = frozenset[Signal]().union(*KINDS.values())


def fed(*data_by_split: SplitData) -> Counter[str]:
    """Stage -> tokens that the passes of these readings fed, as they were counted by the session."""
    found: Counter[str] = Counter()
    for entry in (entry for split_data in data_by_split for shard in split_data.bundles for entry in shard):
        found += Counter({stage: cost["forward_tokens"] for stage, cost in entry.manifest["costs"].items()})
    return found


def forward(costs: dict[str, StageTokens]) -> Counter[str]:
    assert all(0 <= c.forward_tokens_floor <= c.forward_tokens == c.padded_tokens for c in costs.values())
    return +Counter({stage: cost.forward_tokens for stage, cost in costs.items()})


def counted(model: Model, *reading: Any) -> None:
    """The count of a reading from nothing is what its passes fed."""
    reader = model.reader()
    split_data = graded(reader, *reading)
    assert forward(compute_costs([split_data], reader)) == +fed(split_data) != Counter()


@ALL_CASES
def test_costs_are_what_a_run_from_nothing_feeds(model: Model, task: type[Task], said: tuple[str, ...]) -> None:
    for signals in (*(KINDS.values() if said != LONG else ()), EVERYTHING):
        counted(model, task, signals, said)


@FEW_CASES
def test_costs_where_each_sequence_is_read_alone(plain_model: Model, task: type[Task], said: tuple[str, ...]) -> None:
    for signals in (KINDS["samples"], EVERYTHING):
        counted(plain_model, task, signals, said)
        assert not plain_model.lm.uses_packs


@ALL_CASES
def test_costs_where_packs_are_followed_side_by_side(
    model: Model, monkeypatch: pytest.MonkeyPatch, task: type[Task], said: tuple[str, ...]
) -> None:
    for together in (BatchLimits(3, 10**9), BatchLimits(100, 40_000)) if said else [BatchLimits(100, 10**9)]:
        for room in (extractor, reading_room):
            monkeypatch.setattr(room, "default_batch_limits", lambda *_, limits=together, **__: limits)
        counted(model, task, EVERYTHING, said)


@ALL_CASES
def test_costs_where_the_query_does_not_continue_the_prompt(
    model: Model, plain_model: Model, monkeypatch: pytest.MonkeyPatch, task: type[Task], said: tuple[str, ...]
) -> None:
    monkeypatch.setattr(PromptTokeniser, "continues", lambda *_: False)
    for one in (model, plain_model) if said != LONG else [model]:  # where nothing is packed, nothing is too long for it
        counted(one, task, EVERYTHING, said)


def test_costs_know_long_answers_that_part_a_pack(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without that rule the count is another, so the tests above hold the count to it."""
    reader = model.reader()
    split_data = graded(reader, OpenRivers, KINDS["query"], LONG)
    before = compute_costs([split_data], reader)
    monkeypatch.setattr(extractor, "_LONG", 10**6)
    assert compute_costs([split_data], reader) != before


@pytest.mark.parametrize("task", [Elsewhere, OpenElsewhere])
def test_costs_of_splits_that_begin_alike(model: Model, task: type[Task]) -> None:
    """Given answers before generated ones: what is in memory then was read for another stage."""
    splits: tuple[Split, Split] = ("test", "train")
    for given in ((), ("test",), ("train",)):
        reader = model.reader()
        both = [graded(reader, task, EVERYTHING, SAID if split in given else (), split) for split in splits]
        alone = [graded(model.reader(), task, EVERYTHING, SAID if split in given else (), split) for split in splits]
        assert forward(compute_costs(both, reader)) == +fed(*both)
        assert sum(fed(*both).values()) < sum(fed(*alone).values())  # exemplars were read once


# --- whatever was stored before ---------------------------------------------------------------------------------------


@FEW_CASES
def test_costs_are_the_same_after_every_history(model: Model, task: type[Task], said: tuple[str, ...]) -> None:
    cases = ("query", "scored samples", "options")
    wanted = {**{case: KINDS[case] for case in cases}, "all": frozenset().union(*(KINDS[case] for case in cases))}
    expected = {}
    for name, signals in wanted.items():
        reader = model.reader()
        expected[name] = compute_costs([graded(reader, task, signals, said)], reader)
    assert len({tuple(sorted(forward(costs).items())) for costs in expected.values()}) > 1
    several = False
    for order in ((*cases, "all"), (*cases[::-1], "all"), ("all", *cases), ("replies", "scored samples", "query")):
        reader = model.reader()
        for name in order:
            split_data = graded(reader, task, {**KINDS, **wanted}[name], said)
            assert name not in expected or compute_costs([split_data], reader) == expected[name], (order, name)
            several |= any(len(shard) > 1 for shard in split_data.bundles)
    assert several  # else all lay in one entry, and nothing was tried


def test_costs_of_samples_of_a_second_seed(model: Model) -> None:
    first = model.reader()
    graded(first, OpenRivers, KINDS["samples"])
    second, alone = model.again(first.store, seed=1), model.reader(seed=1)
    found = compute_costs([graded(second, OpenRivers, KINDS["samples"])], second)
    assert second.forward_tokens > 0
    assert found == compute_costs([graded(alone, OpenRivers, KINDS["samples"])], alone)


def test_costs_of_rows_belong_to_their_request(tmp_path: Path) -> None:
    """What else the cache holds, and in which order methods were named, is not in them."""

    def costs(cache: str, *methods: str) -> dict[str, dict[str, StageTokens]]:
        folders: dict[str, Any] = {"out": tmp_path / "out" / cache / "-".join(methods), "cache": tmp_path / cache}
        report = run(RunConfig(methods, "tiny", tasks=("atlas-oe",), limit=3, **folders))
        assert {row.status for row in report.rows} == {"ok"}
        return {row.method: dict(row.cost) for row in report.rows if row.method in methods}

    ptrue, samples, both = costs("1", "ptrue"), costs("1", "self-consistency"), costs("1", "ptrue", "self-consistency")
    assert (*ptrue.values(),) != (*samples.values(),) != (both["self-consistency"],)
    assert both["ptrue"] == both["self-consistency"]  # of one run's readings, which are those of all its methods
    assert costs("2", "self-consistency", "ptrue") == both
    assert costs("2", "self-consistency") == samples
    assert costs("2", "ptrue") == ptrue


# --- floors -----------------------------------------------------------------------------------------------------------


CASES: dict[str, frozenset[Signal]] = {
    "query": frozenset({QueryLogits()}),
    "prompt end": frozenset({Hidden(1.0, At.PROMPT_END), ChoiceLogits()}),
    "answer predicting": frozenset({Hidden(1.0, At.ANSWER_PREDICTING)}),
    "token scores": frozenset({TokenScores(top=2)}),
    "answer end": frozenset({Hidden(1.0, At.ANSWER_END)}),
    "all": frozenset(
        {QueryLogits(), Hidden(1.0, At.ANSWER_PREDICTING), Hidden(1.0, At.ANSWER_END), ChoiceLogits()}
    ),
}  # fmt: skip


def of_task(task: type[Task], signals: Iterable[Signal]) -> frozenset[Signal]:
    """The signals that this task has."""
    return frozenset(signals) - ({ChoiceLogits()} if task is OpenRivers else set())


def brute_force(reader: Reader, split_data: SplitData, *, to_answer_end: bool, query: bool) -> dict[str, int]:
    """Every prefix as a tuple in a set."""
    limit = 1 if split_data.task.format is Format.CHOICE else 4
    suffix = reader.prompt_settings(split_data).suffix.tolist() if query else []
    generated, queried = [], []
    for prompt, answer in split_data.pairs():
        read_back = len(answer) - 1 if len(answer) == limit else len(answer)
        generated.append([*prompt.tolist(), *answer.tolist()[:read_back]])
        if len(answer):
            kept = len(answer) if query or to_answer_end else len(answer) - 1
            queried.append([*prompt.tolist(), *answer.tolist()[:kept], *suffix])
    first = prefixes(generated)
    return {"answers": len(first), "query": len(prefixes(queried) - first)}


@TASKS
@pytest.mark.parametrize("case", CASES)
def test_floor_is_the_number_of_distinct_prefixes(model: Model, task: type[Task], case: str) -> None:
    signals = of_task(task, CASES[case])
    reader = model.reader()
    split_data = graded(reader, task, signals)
    query, to_answer_end = QueryLogits() in signals, Hidden(1.0, At.ANSWER_END) in signals
    expected = brute_force(reader, split_data, to_answer_end=to_answer_end, query=query)
    assert count_tokens([split_data], reader).floors == Counter(expected)
    assert count_tokens([split_data, split_data], reader).floors == Counter(expected)  # counted once
    costs = compute_costs([split_data], reader)
    assert Counter({stage: cost.forward_tokens_floor for stage, cost in costs.items()}) == Counter(expected)
    assert forward(costs).total() == reader.forward_tokens


@TASKS
def test_floor_of_given_answers_is_met_and_shared(model: Model, task: type[Task]) -> None:
    """Without an empty answer, of which nothing is needed."""
    reader = model.reader()
    given = graded(reader, task, CASES["query"], ("The answer is b", "b", "a river"), prompt=own_prompt)
    own = graded(reader, task, CASES["query"], (), "train")
    suffix = reader.prompt_settings(given).suffix.tolist()
    queried = [[[*prompt, *answer, *suffix] for prompt, answer in one.pairs() if len(answer)] for one in (given, own)]
    (cost,) = compute_costs([given], reader).values()
    assert cost.forward_tokens == cost.forward_tokens_floor == len(prefixes(queried[0]))
    expected = prefixes([*queried[0], *queried[1], *([*prompt] for prompt, _ in own.pairs())])
    floors = [cost.forward_tokens_floor for cost in compute_costs([given, own], reader).values()]
    assert sum(floors) == len(expected)


@TASKS
@pytest.mark.parametrize("case", ["query", "answer predicting", "token scores", "samples", "options"])
def test_method_costs_what_a_run_of_it_alone_would(model: Model, task: type[Task], case: str) -> None:
    signals = {**CASES, "samples": {SampleAgreement(3)}, "options": {Hidden(1.0, At.WRONG_PREDICTING)}}
    shared = model.reader()
    read_for_all = graded(shared, task, of_task(task, (signal for each in signals.values() for signal in each)))
    alone = model.reader()
    read_for_one = graded(alone, task, signals[case])
    wanted = frozenset({*signals[case], TokenIds(Of.ANSWER), QueryLogits(Adapter.OWN)})  # of which no pass is made here
    found = tokens_alone([(read_for_all, wanted)], [], shared).forward
    assert found == count_tokens([read_for_one], alone).floors.total()
    assert found <= count_tokens([read_for_all], shared).floors.total()


# --- answers from a release -------------------------------------------------------------------------------------------

STAGES: dict[str, tuple[str, frozenset[Signal]]] = {
    **{name: ("query", signals) for name, signals in CASES.items()},
    "letters alone": ("continuations", frozenset({ChoiceLogits()})),
    "right answer": ("continuations", frozenset({Hidden(1.0, At.GOLD_PREDICTING)})),
    "samples": ("samples", frozenset({SampleAgreement(3)})),
}
"""Name -> the stage in which prompts are read, and signals."""


@TASKS
@pytest.mark.parametrize("case", STAGES)
def test_given_answers_are_read_and_not_generated(model: Model, task: type[Task], case: str) -> None:
    stage, signals = STAGES[case]
    if task is FewRivers and case in {"samples", "right answer"}:
        stage = "query"  # a letter is read off the state at the prompt's end
    reader = model.reader()
    costs = compute_costs([graded(reader, task, of_task(task, signals), SAID, prompt=own_prompt)], reader)
    assert set(costs) == ({stage} if of_task(task, signals) else set())
    assert all(cost.forward_tokens_floor > 0 for cost in costs.values())
    assert forward(costs).total() == reader.forward_tokens


def test_given_answers_leave_samples_alone_to_be_written(model: Model) -> None:
    signals = frozenset({Samples(3), QueryLogits()})
    reader = model.reader()
    split_data = graded(reader, OpenRivers, signals, ("The answer is b", "b", "a river"), prompt=own_prompt)
    assert tokens_alone([(split_data, frozenset({QueryLogits()}))], [], reader).generated == 0
    column = BatchBuilder(reader).batch(split_data, frozenset({Samples(3)}), labels=False)[Samples(3)]
    lengths = [int((own == k).sum()) for own in np.split(column.owner, column.offsets[1:-1]) for k in range(3)]
    assert len(lengths) == 14 * 3
    twice = [(split_data, signals), (split_data, frozenset({SampleAgreement(3)}))]
    assert tokens_alone(twice, [], reader).generated == sum(min(length + 1, 4) for length in lengths)


def test_given_answer_of_white_space_is_empty(model: Model) -> None:
    split_data = graded(model.reader(), OpenRivers, CASES["query"], (" \n", "a river", "b"))
    assert all(len(ids) for shard in split_data.answer_ids for ids in shard)
    assert split_data.answered.tolist() == [i % 3 != 0 for i in range(14)]
    assert not split_data.correct.any()  # whatever its label says


# --- samples compared by a judge --------------------------------------------------------------------------------------


class Friend:
    """A judge that takes any two answers for one, and remembers what it was asked; it may have no words for samples."""

    name = "friend"

    def __init__(self, *, spent: bool = False) -> None:
        self.asked: list[JudgeCase] = []
        self.spent = spent

    def verdicts(self, asked: Sequence[JudgeCase], what: str, progress: object) -> list[bool | None]:
        if self.spent and what.startswith("compare"):
            raise UserError("the quota is spent")
        self.asked += [] if what.startswith("measure") else asked
        return [True] * len(asked)

    def pairwise_judge(self) -> Friend:
        return self


def test_judge_says_which_samples_agree(model: Model) -> None:
    """It is asked where their text does not say it."""
    signal = SampleAgreement(5)
    literal = model.reader()
    by_match = graded(literal, OpenRivers, {signal})
    same = BatchBuilder(literal).batch(by_match, frozenset({signal}), labels=False)[signal]
    judge, reader = Friend(), model.again(literal.store)
    split_data = graded(reader, OpenRivers, {signal}, judge=judge)
    assert reader.forward_tokens == 0  # the samples are the same
    assert BatchBuilder(reader).batch(split_data, frozenset({signal}), labels=False)[signal].all()
    compared = judge.asked[len(split_data.answers) :]
    assert len(compared) == (~same).sum() > 0
    said = {answer.text for answer in split_data.answers}
    assert all(one.gold in said and normalise_text(one.gold) != normalise_text(one.answer) for one in compared)
    assert split_data.agreements[signal].modal_share == 1.0
    assert 1 / 5 <= by_match.agreements[signal].modal_share < 1
    assert replace(split_data, compared_by="another").digest() != split_data.digest()


def test_judge_that_cant_compare_fails_readers_of_samples(model: Model) -> None:
    signal, reader = SampleAgreement(5), model.reader()
    split_data = graded(reader, OpenRivers, {signal, QueryLogits()}, judge=Friend(spent=True))
    assert split_data.correct.all()
    assert len(BatchBuilder(reader).batch(split_data, frozenset({QueryLogits()}), labels=False)) > 0
    with pytest.raises(UserError, match="the quota is spent"):
        BatchBuilder(reader).batch(split_data, frozenset({signal}), labels=False)
