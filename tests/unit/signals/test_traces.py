"""Answers after reasoning traces: what the reader generates, stores, appends and counts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bench.api import (
    At,
    ChoiceLogits,
    Format,
    Hidden,
    Of,
    QueryLogits,
    SampleAgreement,
    Samples,
    Signal,
    Task,
    Text,
    TokenIds,
    TokenScores,
)
from bench.api.protocol import FIXED
from bench.api.question import Released
from bench.grading.grade import MatchJudge
from bench.progress import Silent
from bench.prompts.chat import Chat
from bench.prompts.traces import TraceEnd
from bench.run.costs import compute_costs, tokens_alone
from bench.signals.batch_builder import BatchBuilder
from bench.signals.definition import continuations_of, definition
from bench.signals.grading import Grader
from bench.signals.reader import Reader
from bench.signals.split_data import SplitData
from bench.store.disk_cache import Store
from tests.fixtures import thinking
from tests.kit import passes, splits
from tests.kit.splits import FewRivers, FiveOpenRivers, FiveRivers

BUDGET = 12
SAMPLED = Samples(3)
READ = frozenset({
    QueryLogits(), TokenScores(), Hidden(0.5, At.ANSWER_END), Hidden(1.0, At.PROMPT_END), TokenIds(Of.QUERY),
    TokenIds(Of.TRACE), TokenScores(Of.TRACE, mean_of=4), Hidden(0.5, At.STEP_END), SampleAgreement(3),
    Text(Of.SAMPLES, samples=SAMPLED), TokenIds(Of.OPTIONS),
})  # fmt: skip
FIVE = pytest.mark.parametrize("task", [FiveRivers, FiveOpenRivers], ids=lambda task: task.name)
LETTERED = frozenset({ChoiceLogits(), ChoiceLogits((0.25, 0.5, 0.75))})


def reader_of(
    folder: Path, cache: Path, budget: int | None = BUDGET, *, marker: int | None = None, seed: int = 0
) -> Reader:
    """A reader whose model reasons first: by an instruction, or up to a token that its traces happen to have."""
    lm = passes.load(folder)
    if budget is not None:
        lm.chat.think(budget, lm.context)
    if marker is not None:
        assert lm.chat.thinking is not None
        closed = np.concatenate([[marker], lm.chat.thinking.closed]).astype(np.int32)
        lm.chat.thinking = replace(lm.chat.thinking, marker="</think>", marker_id=marker, closed=closed)
    store = Store(cache)
    store.prepare()
    return Reader(lm, store, replace(FIXED, max_new_tokens_open=4), 96, Silent(), seed=seed)


def graded(reader: Reader, task: type[Task], signals: Iterable[Signal], said: Sequence[Released] = ()) -> SplitData:
    done = reader.read(splits.opened(reader, task, said), frozenset(signals))
    return Grader(reader, MatchJudge()).grade(done)


def signals_of(task: type[Task]) -> frozenset[Signal]:
    return READ | (LETTERED if task.format is Format.CHOICE else frozenset())


def test_long_traces_are_generated_fewer_together(
    small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bench.signals.reader._LARGE_PIECE", (256, 3 * BUDGET))
    reader = reader_of(small_model, tmp_path)
    pieces = reader.trace_pieces(splits.opened(reader, FiveRivers), frozenset({SampleAgreement(2)}))
    assert {piece.sampling: len(piece.items) for piece in reversed(pieces)} == {None: 3, Samples(2): 1}


@FIVE
def test_signals_are_read_after_prompt_trace_and_closing(small_model: Path, tmp_path: Path, task: type[Task]) -> None:
    reader = reader_of(small_model, tmp_path)
    split_data = graded(reader, task, signals_of(task))
    bare = splits.opened(reader_of(small_model, tmp_path), task)
    batch = BatchBuilder(reader).batch(split_data, signals_of(task), labels=False)
    lm, way = reader.lm, reader.lm.chat.thinking
    assert way is not None
    rows = np.flatnonzero(split_data.usable)
    assert len(rows) > 4
    place = {row: (shard, k) for shard in bare.shards for k, row in enumerate(shard.rows.tolist())}
    (settings,) = {id(s): s for s in [reader.prompt_settings(split_data)]}.values()
    for i, row in enumerate(rows.tolist()):
        shard, k = place[row]
        prompt = shard.prompts[k].tolist()
        trace = passes.say(lm, prompt, BUDGET)
        assert batch[TokenIds(Of.TRACE)][i].tolist() == trace
        end = TraceEnd.BUDGET if len(trace) == BUDGET else TraceEnd.STOPPED
        whole = [*prompt, *trace, *way.closing(end).tolist()]
        answer = passes.say(lm, whole, settings.max_new_tokens)
        query = [*whole, *answer, *settings.suffix.tolist()]
        assert batch[TokenIds(Of.QUERY)][i].tolist() == query
        asked = passes.plain(lm, query)[0][-1][settings.verdict_ids.tolist()]
        passes.assert_close(batch[QueryLogits()][i], asked, "query")
        scores = passes.plain(lm, whole, answer)[0][len(whole) - 1 : -1].double().log_softmax(-1)
        found = batch[TokenScores()][i]["log_probability"]
        passes.assert_close(found, scores[torch.arange(len(answer)), answer], "answer")
        if task is FiveRivers:
            shown = len(split_data.questions[row].choices)
            letters = passes.plain(lm, whole)[0][-1][settings.letter_ids[:shown].tolist()]
            passes.assert_close(batch[ChoiceLogits()][i][:shown], letters, "letters")
            assert lm.chat.tokenizer.decode([*whole, settings.letter_ids[1]]).endswith("Answer: b")


@FIVE
@pytest.mark.parametrize("marked", [False, True], ids=["instructed", "marked"])
def test_costs_are_those_of_the_run(small_model: Path, tmp_path: Path, task: type[Task], *, marked: bool) -> None:
    marker = None
    if marked:
        prompt = splits.opened(reader_of(small_model, tmp_path, marker=0), task).shards[0].prompts[3]
        marker = passes.say(reader_of(small_model, tmp_path).lm, prompt, BUDGET)[5]
    reader = reader_of(small_model, tmp_path, marker=marker)
    signals = signals_of(task)
    split_data = graded(reader, task, signals)
    costs = compute_costs([split_data], reader)
    assert sum(cost.forward_tokens for cost in costs.values()) == reader.forward_tokens
    assert all(cost.forward_tokens_floor <= cost.forward_tokens for cost in costs.values())
    greedy = split_data.generated[None]
    written = sum(text.fed + 1 for (text,) in greedy)
    distinct = {len(text.trace) for (text,) in greedy}
    assert len(distinct) > 1 or not marked
    few = tokens_alone([(split_data, frozenset({TokenIds(Of.TRACE)}))], [], reader)
    many = tokens_alone([(split_data, frozenset({SampleAgreement(3)}))], [], reader)
    assert many.generated > few.generated
    assert few.generated <= written + sum(len(ids) + 1 for ids in split_data.answer_ids[0]) * 2
    again = reader_of(small_model, tmp_path, marker=marker)
    assert graded(again, task, signals).digest() == split_data.digest()
    assert again.forward_tokens == 0
    assert again.find(splits.opened(again, task), signals) == 0


def test_traces_change_keys_settings_and_counts(small_model: Path, tmp_path: Path) -> None:
    without, with_traces = reader_of(small_model, tmp_path, None), reader_of(small_model, tmp_path)
    plain, traced = (graded(each, FiveRivers, {QueryLogits()}) for each in (without, with_traces))
    assert not plain.counts
    assert plain.digest() != traced.digest()
    ends = [end for shard in traced.shards for end in shard.ends or ()]
    assert traced.counts[f"traces cut at {BUDGET} tokens and closed"] == ends.count(TraceEnd.BUDGET) > 0
    assert without.nondefault_settings == {}
    assert with_traces.nondefault_settings == {"thinking": "instruction/1"}
    other = reader_of(small_model, tmp_path, BUDGET + 1)
    assert other.find(splits.opened(other, FiveRivers), frozenset({QueryLogits()})) > 0  # another budget, other traces


@FIVE
def test_sampled_traces_are_counted(small_model: Path, tmp_path: Path, task: type[Task]) -> None:
    reader = reader_of(small_model, tmp_path)
    split_data = graded(reader, task, {SampleAgreement(3), QueryLogits()})
    texts = [text for sampled in split_data.generated[SAMPLED] for text in sampled]
    counts = reader.sampled_counts(split_data, frozenset({SampleAgreement(3)}))
    cut = [text.end for text in texts].count(TraceEnd.BUDGET)
    assert counts.pop(f"sampled traces cut at {BUDGET} tokens and closed") == cut > 0
    said = [reader.lm.chat.decode([*text.answer]).strip() for text in texts]
    unread = sum(text.lower() not in {*"abcdefghij"} for text in said) if task is FiveRivers else 0
    assert counts.pop("sampled answers that could not be read", 0) == unread
    assert sum(counts.values()) <= len(texts) - cut
    assert reader.sampled_counts(split_data, frozenset({QueryLogits()})) == {}
    assert reader.stored_signals(frozenset({SampleAgreement(3)}), split_data) == frozenset()  # nothing more is read


@FIVE
def test_answers_with_a_further_marker_are_counted(small_model: Path, tmp_path: Path, task: type[Task]) -> None:
    reader = reader_of(small_model, tmp_path)
    done = reader.read(splits.opened(reader, task), frozenset({QueryLogits()}))
    said = np.asarray(reader.lm.chat.tokenizer("b</think>c", add_special_tokens=False)["input_ids"], dtype=np.int32)
    odd = Grader(reader, MatchJudge()).grade(replace(done, answer_ids=[[said] * len(own) for own in done.answer_ids]))
    assert odd.counts["answers after traces with a further marker of a trace, read whole"] == len(done.questions)


def test_samples_follow_traces_of_their_own(small_model: Path, tmp_path: Path) -> None:
    first = graded(reader_of(small_model, tmp_path), FiveRivers, {SampleAgreement(3)})
    other = graded(reader_of(small_model, tmp_path, seed=1), FiveRivers, {SampleAgreement(3)})
    texts = [[text.trace.tolist() for text in own] for own in first.generated[SAMPLED]]
    assert all(len(own) == SAMPLED.n for own in texts)
    assert any(own[0] != own[1] for own in texts)
    assert [[t.trace.tolist() for t in own] for own in other.generated[SAMPLED]] != texts
    assert [t[0].trace.tolist() for t in other.generated[None]] == [t[0].trace.tolist() for t in first.generated[None]]
    assert first.agreements[SampleAgreement(3)].agree.shape == (5, 3)  # type: ignore[union-attr]


@pytest.mark.parametrize("signal", [TokenScores(Of.SAMPLES), Hidden(0.5, At.SAMPLE_END), SAMPLED], ids=repr)
def test_tokens_of_samples_are_not_read(small_model: Path, tmp_path: Path, signal: Signal) -> None:
    task: Any = FewRivers(None)  # type: ignore[arg-type]
    found = definition(signal).unsupported_reason(task, reader_of(small_model, tmp_path).prompts)
    assert "each has a trace of its own" in str(found)
    assert definition(signal).unsupported_reason(task, reader_of(small_model, tmp_path, None).prompts) is None


@pytest.mark.parametrize(
    "signal", [TokenIds(Of.TRACE), TokenScores(Of.TRACE), Hidden(0.5, At.STEP_END), ChoiceLogits((0.5,))], ids=repr
)
def test_without_traces_none_can_be_read(small_model: Path, tmp_path: Path, signal: Signal) -> None:
    task: Any = FewRivers(None)  # type: ignore[arg-type]
    prompts = reader_of(small_model, tmp_path, None).prompts
    assert "ask for traces with --think-budget N" in str(definition(signal).unsupported_reason(task, prompts))
    of_file = replace(prompts, file_has_traces=True)
    forced = "say how with --think-budget N" if isinstance(signal, ChoiceLogits) else "None"
    assert forced in str(definition(signal).unsupported_reason(task, of_file))


# --- answers of a file ------------------------------------------------------------------------------------------------


def test_traces_of_a_file_are_read_and_missing_ones_counted(small_model: Path, tmp_path: Path) -> None:
    said = [Released(None, "b", None, "I think.\nSo:"), Released(None, "a", None), Released(None, "b", None)]
    said[1] = replace(said[1], redacted=True)
    reader = replace(reader_of(small_model, tmp_path, None), file_has_traces=True)
    split_data = graded(reader, FewRivers, {TokenIds(Of.TRACE), Hidden(0.5, At.STEP_END), QueryLogits()}, said)
    without = sum(said[i % 3].redacted for i in range(len(split_data.questions)))
    assert split_data.counts == {
        "answers without a trace, in a file where others have one": 9,
        "answers whose reasoning was redacted": without,
    }
    lengths = BatchBuilder(reader).batch(split_data, frozenset({TokenIds(Of.TRACE)}), labels=False)
    assert min(set(lengths[TokenIds(Of.TRACE)].lengths.tolist())) == 0


@FIVE
def test_samples_after_traces_are_in_fits_keys(small_model: Path, tmp_path: Path, task: type[Task]) -> None:
    """Both the samples of a file and the judge that compared them."""
    said = Released(None, "It is b.\nAnswer: b", None, samples=("So.\nAnswer: a", "b"))
    reader, signals = reader_of(small_model, tmp_path), {SampleAgreement(2)}
    one, other = (
        graded(reader, task, signals, [replace(said, samples=(text, "b"))]) for text in ("Answer: a", "Answer: c")
    )
    assert one.digest() != other.digest()
    generated = graded(reader, task, signals)
    assert {one.compared_by, generated.compared_by} == {"match" if task.format is Format.OPEN else ""}


def test_outputs_of_a_file_are_closed_alike(small_model: Path, tmp_path: Path) -> None:
    said = [
        Released(None, "It is b.\nAnswer: b", None, samples=("So.\nAnswer: a", "b")),
        Released(None, "no end", None, samples=("a", "a")),
        Released(None, "Answer: a", None, samples=("a", "b")),
    ]
    reader = reader_of(small_model, tmp_path)
    signals = {ChoiceLogits(), ChoiceLogits((0.25, 0.5)), QueryLogits(), SampleAgreement(2), TokenIds(Of.TRACE)}
    split_data = graded(reader, FewRivers, signals, said)
    assert split_data.counts == {"outputs that don't end their trace, without an answer": 5, "empty traces": 4}
    letters = [split_data.answers[row].letter for row in split_data.rows[:3]]
    assert letters == ["b", None, "a"]
    agree = split_data.agreements[SampleAgreement(2)].agree  # type: ignore[union-attr]
    assert agree[0].tolist() == [False, True]
    assert agree[2].tolist() == [True, False]


def test_a_query_after_a_trace_is_appended_where_templates_drop_it(small_model: Path, tmp_path: Path) -> None:
    """Qwen's template would give another beginning for the conversation with the query."""
    reader = reader_of(small_model, tmp_path, None)
    reader.lm.chat = Chat(thinking.tokenizer("qwen3"))
    said = [Released(None, "b", None, "I think.\nSo:")]
    split_data = splits.opened(replace(reader, file_has_traces=True), FewRivers, said)
    (shard,) = split_data.shards
    items = reader.items(split_data, shard, continuations_of([QueryLogits()]), shard.given)
    assert not reader.prompts.continues(split_data.task)
    assert all(item.query_prompt is None for item in items)


@pytest.mark.parametrize("said", [(), splits.SAID], ids=["generated", "given"])
def test_query_tokens_are_those_that_are_read(small_model: Path, tmp_path: Path, said: Sequence[Any]) -> None:
    """Qwen's template shows earlier answers without the empty trace at which they were generated."""
    reader = reader_of(small_model, tmp_path, None)
    reader.lm.chat.tokenizer.chat_template = thinking.TEMPLATES["qwen3"]
    reader.lm.chat = Chat(reader.lm.chat.tokenizer)
    signals = {QueryLogits(), TokenIds(Of.QUERY), TokenIds(Of.PROMPT)}
    split_data = graded(reader, FiveRivers, signals, said)
    batch = BatchBuilder(reader).batch(split_data, frozenset(signals), labels=False)
    verdicts = reader.prompt_settings(split_data).verdict_ids.tolist()
    assert len(batch) > 2
    for i, query in enumerate(batch[TokenIds(Of.QUERY)]):
        prompt = batch[TokenIds(Of.PROMPT)][i].tolist()
        assert query.tolist()[: len(prompt)] != prompt
        passes.assert_close(batch[QueryLogits()][i], passes.plain(reader.lm, query.tolist())[0][-1][verdicts], "query")
