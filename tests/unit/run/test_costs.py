"""The floor of a run is the number of distinct prefixes that its signals need, and what was fed never goes below it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.api import (
    Adapter,
    At,
    ChoiceLogits,
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
from bench.model.language_model import LanguageModel, LoadOptions
from bench.model.specs import ModelSpec
from bench.progress import Silent
from bench.run.costs import compute_costs, count_tokens, tokens_alone
from bench.signals.batch_builder import BatchBuilder
from bench.signals.grading import Grader
from bench.signals.reader import Reader
from bench.signals.split_data import SplitData
from bench.store.disk_cache import Store
from tests.fixtures.rivers import NAMES, Rivers


class FewRivers(Rivers):
    """Questions of two subjects that share exemplars, options and beginnings."""

    def questions(self, split: Split) -> Iterator[Question]:
        count = 2 if split == "dev" else 7
        for subject in ("rivers", "hills"):
            for i in range(count):
                choices = tuple(NAMES[(i + j) % len(NAMES)] for j in range(2 + i % 3))
                text = f"Where does {NAMES[(i // 2) % len(NAMES)]} end"  # two questions of one text: longer sharing
                yield Question(f"{split}/{subject}/{i}", subject, text, choices, i % len(choices))


class OpenRivers(FewRivers):
    """The same, asked openly."""

    name = "rivers-oe"
    format = Format.OPEN


def read(
    folder: Path, cache: Path, task: type[Task], signals: set[Signal], said: tuple[str, ...] = (), judge: Any = None
) -> tuple[Reader, SplitData]:
    """Read the test questions; `said` are the answers of a release, in turn, where the model doesn't answer."""
    lm = LanguageModel(ModelSpec("small", str(folder), local=True), LoadOptions(device="cpu"))
    store = Store(cache)
    store.prepare()
    protocol = replace(FIXED, max_new_tokens_open=4)
    reader = Reader(lm, store, protocol, 96, Silent())
    made = task(None)  # type: ignore[arg-type]
    questions = list(made.questions("test"))
    released = {
        question.id: Released(_prompt(question), said[i % len(said)], correct=i % 3 == 0)
        for i, question in enumerate(questions if said else [])
    }
    split_data = reader.open(TaskSplit(task.name, "test"), made, questions, released)
    return reader, Grader(reader, judge or MatchJudge()).grade(reader.read(split_data, frozenset(signals)))


def _prompt(question: Question) -> Prompt:
    messages = (Message("system", "Be brief."), Message("user", f"Of {question.subject}: {question.text}?\nAnswer:"))
    return Prompt(messages)


def prefixes(sequences: list[list[int]]) -> set[tuple[int, ...]]:
    return {tuple(ids[:n]) for ids in sequences for n in range(1, len(ids) + 1)}


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


CASES: dict[str, set[Signal]] = {
    "query": {QueryLogits()},
    "prompt end": {Hidden(1.0, At.PROMPT_END), ChoiceLogits()},
    "answer predicting": {Hidden(1.0, At.ANSWER_PREDICTING)},
    "token scores": {TokenScores(top=2)},
    "answer end": {Hidden(1.0, At.ANSWER_END)},
    "all": {QueryLogits(), Hidden(1.0, At.ANSWER_PREDICTING), Hidden(1.0, At.ANSWER_END), ChoiceLogits()},
}


@pytest.mark.parametrize("task", [FewRivers, OpenRivers], ids=lambda t: t.name)
@pytest.mark.parametrize("case", CASES)
def test_the_floor_is_the_number_of_distinct_prefixes(
    small_model: Path, tmp_path: Path, task: type[Task], case: str
) -> None:
    signals = CASES[case]
    if task is OpenRivers:
        signals = signals - {ChoiceLogits()}
    reader, split_data = read(small_model, tmp_path, task, signals)
    query = QueryLogits() in signals
    expected = brute_force(reader, split_data, to_answer_end=Hidden(1.0, At.ANSWER_END) in signals, query=query)
    assert count_tokens([split_data], reader).floors == Counter(expected)
    assert count_tokens([split_data, split_data], reader).floors == Counter(expected)  # counted once
    costs = compute_costs([split_data], reader)
    assert Counter({stage: cost.forward_tokens_floor for stage, cost in costs.items()}) == Counter(expected)
    for stage, cost in costs.items():
        assert cost.padded_tokens >= cost.forward_tokens >= expected[stage]
    assert sum(cost.forward_tokens for cost in costs.values()) == reader.forward_tokens


@pytest.mark.parametrize("task", [FewRivers, OpenRivers], ids=lambda t: t.name)
@pytest.mark.parametrize("case", ["query", "answer predicting", "token scores", "samples", "options"])
def test_a_method_alone_costs_what_a_run_of_it_alone_would(
    small_model: Path, tmp_path: Path, task: type[Task], case: str
) -> None:
    signals = {**CASES, "samples": {SampleAgreement(3)}, "options": {Hidden(1.0, At.WRONG_PREDICTING)}}
    everything = {signal for each in signals.values() for signal in each}
    if task is OpenRivers:
        everything -= {ChoiceLogits()}
    shared, read_for_all = read(small_model, tmp_path / "all", task, everything)
    alone, read_for_one = read(small_model, tmp_path / "one", task, signals[case])
    wanted = frozenset({*signals[case], TokenIds(Of.ANSWER), QueryLogits(Adapter.OWN)})  # of which no pass is made here
    found = tokens_alone([(read_for_all, wanted)], [], shared).forward
    assert found == count_tokens([read_for_one], alone).floors.total()
    assert found <= count_tokens([read_for_all], shared).floors.total()


def test_stored_readings_tell_what_they_once_cost(small_model: Path, tmp_path: Path) -> None:
    reader, split_data = read(small_model, tmp_path, FewRivers, CASES["query"])
    again, stored = read(small_model, tmp_path, FewRivers, CASES["query"])
    assert (reader.forward_tokens > 0, again.forward_tokens) == (True, 0)
    assert compute_costs([stored], again) == compute_costs([split_data], reader)


# --- samples compared by a judge --------------------------------------------------------------------------------------


class Friend:
    """A judge that takes any two answers for one, and remembers what it was asked."""

    name = "friend"

    def __init__(self) -> None:
        self.asked: list[JudgeCase] = []

    def verdicts(self, asked: Sequence[JudgeCase], what: str, progress: object) -> list[bool | None]:
        self.asked += asked
        return [True] * len(asked)

    def pairwise_judge(self) -> Friend:
        return self


def test_the_judge_says_which_samples_agree_where_their_text_does_not(small_model: Path, tmp_path: Path) -> None:
    signal = SampleAgreement(5)
    literal, by_match = read(small_model, tmp_path, OpenRivers, {signal})
    same = BatchBuilder(literal).batch(by_match, frozenset({signal}), labels=False)[signal]
    judge = Friend()
    reader, split_data = read(small_model, tmp_path, OpenRivers, {signal}, judge=judge)
    assert reader.forward_tokens == 0  # the samples are the same
    assert BatchBuilder(reader).batch(split_data, frozenset({signal}), labels=False)[signal].all()
    compared = judge.asked[len(split_data.answers) :]
    assert len(compared) == (~same).sum() > 0
    said = {answer.text for answer in split_data.answers}
    assert all(one.gold in said and normalise_text(one.gold) != normalise_text(one.answer) for one in compared)
    assert split_data.agreements[signal].modal_share == 1.0
    assert 1 / 5 <= by_match.agreements[signal].modal_share < 1
    assert replace(split_data, compared_by="another").digest() != split_data.digest()


class Spent(Friend):
    """A judge that can be asked about answers and not about samples."""

    def verdicts(self, asked: Sequence[JudgeCase], what: str, progress: object) -> list[bool | None]:
        if what.startswith("compare"):
            raise UserError("the quota is spent")
        return super().verdicts(asked, what, progress)


def test_a_judge_that_cant_compare_samples_fails_only_who_reads_them(small_model: Path, tmp_path: Path) -> None:
    signal = SampleAgreement(5)
    reader, split_data = read(small_model, tmp_path, OpenRivers, {signal, QueryLogits()}, judge=Spent())
    assert split_data.correct.all()
    assert len(BatchBuilder(reader).batch(split_data, frozenset({QueryLogits()}), labels=False)) > 0
    with pytest.raises(UserError, match="the quota is spent"):
        BatchBuilder(reader).batch(split_data, frozenset({signal}), labels=False)


# --- answers from a release -------------------------------------------------------------------------------------------

SAID = ("The answer is b", "b", "", "a river")
GIVEN: dict[str, tuple[str, set[Signal]]] = {
    **{name: ("query", signals) for name, signals in CASES.items()},
    "letters alone": ("continuations", {ChoiceLogits()}),
    "right answer": ("continuations", {Hidden(1.0, At.GOLD_PREDICTING)}),
    "samples": ("samples", {SampleAgreement(3)}),
}
"""Name -> the stage in which prompts are read, and signals."""


@pytest.mark.parametrize("task", [FewRivers, OpenRivers], ids=lambda t: t.name)
@pytest.mark.parametrize("case", GIVEN)
def test_given_answers_are_read_and_not_generated(
    small_model: Path, tmp_path: Path, task: type[Task], case: str
) -> None:
    stage, signals = GIVEN[case]
    if task is OpenRivers:
        signals = signals - {ChoiceLogits()}
    elif case in {"samples", "right answer"}:
        stage = "query"  # a letter is read off the state at the prompt's end
    reader, split_data = read(small_model, tmp_path, task, signals, SAID)
    costs = compute_costs([split_data], reader)
    assert set(costs) == ({stage} if signals else set())
    for cost in costs.values():
        assert cost.forward_tokens >= cost.forward_tokens_floor > 0
    assert sum(cost.forward_tokens for cost in costs.values()) == reader.forward_tokens


@pytest.mark.parametrize("task", [FewRivers, OpenRivers], ids=lambda t: t.name)
def test_the_floor_of_given_answers_is_the_number_of_distinct_prefixes(
    small_model: Path, tmp_path: Path, task: type[Task]
) -> None:
    """Without an empty answer, of which nothing is needed, the floor is met."""
    reader, split_data = read(small_model, tmp_path, task, CASES["query"], ("The answer is b", "b", "a river"))
    suffix = reader.prompt_settings(split_data).suffix.tolist()
    whole = prefixes([[*prompt.tolist(), *answer.tolist(), *suffix] for prompt, answer in split_data.pairs()])
    (cost,) = compute_costs([split_data], reader).values()
    assert cost.forward_tokens == cost.forward_tokens_floor == len(whole)


def test_of_given_answers_only_samples_are_written(small_model: Path, tmp_path: Path) -> None:
    signals = frozenset({Samples(3), QueryLogits()})
    reader, split_data = read(small_model, tmp_path, OpenRivers, set(signals), ("The answer is b", "b", "a river"))
    assert tokens_alone([(split_data, frozenset({QueryLogits()}))], [], reader).generated == 0
    column = BatchBuilder(reader).batch(split_data, frozenset({Samples(3)}), labels=False)[Samples(3)]
    lengths = [int((own == k).sum()) for own in np.split(column.owner, column.offsets[1:-1]) for k in range(3)]
    assert len(lengths) == 14 * 3
    twice = [(split_data, signals), (split_data, frozenset({SampleAgreement(3)}))]
    assert tokens_alone(twice, [], reader).generated == sum(min(length + 1, 4) for length in lengths)


def test_given_answers_keep_their_labels_and_are_stored(small_model: Path, tmp_path: Path) -> None:
    reader, split_data = read(small_model, tmp_path, FewRivers, CASES["query"], SAID)
    assert split_data.correct.tolist() == [i % 3 == 0 for i in range(14)]
    assert [answer.text for answer in split_data.answers] == [SAID[i % 4] for i in range(14)]
    assert [answer.letter for answer in split_data.answers[:4]] == [None, "b", None, None]
    assert split_data.answered.tolist() == [i % 4 != 2 for i in range(14)]
    again, stored = read(small_model, tmp_path, FewRivers, CASES["query"], SAID)
    assert (reader.forward_tokens > 0, again.forward_tokens) == (True, 0)
    assert compute_costs([stored], again) == compute_costs([split_data], reader)
    other, _ = read(small_model, tmp_path, FewRivers, CASES["query"], (*SAID[:3], "a lake"))
    assert other.forward_tokens > 0  # other answers are read anew


def test_an_answer_of_white_space_alone_is_empty(small_model: Path, tmp_path: Path) -> None:
    _, split_data = read(small_model, tmp_path, OpenRivers, CASES["query"], (" \n", "a river", "b"))
    assert all(len(ids) for shard in split_data.answer_ids for ids in shard)
    assert split_data.answered.tolist() == [i % 3 != 0 for i in range(14)]
    assert not split_data.correct.any()  # whatever its label says
