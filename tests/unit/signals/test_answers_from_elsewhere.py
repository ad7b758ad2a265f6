"""Answers that were made elsewhere are read as plain passes read them: after their trace, with their own samples."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bench.api import At, Hidden, Of, QueryLogits, SampleAgreement, Samples, Text, TokenIds, TokenScores, UserError
from bench.api.protocol import FIXED
from bench.api.question import Released
from bench.data.splits import TaskSplit
from bench.grading.grade import MatchJudge
from bench.model.language_model import LanguageModel, LoadOptions
from bench.model.specs import ModelSpec
from bench.progress import Silent
from bench.run.costs import compute_costs
from bench.signals.definition import definition
from bench.signals.grading import Grader
from bench.signals.reader import Reader
from bench.store.disk_cache import Store
from tests.unit.model.test_backbone import plain
from tests.unit.run.test_costs import FewRivers, OpenRivers

SAMPLES = Samples(2, 1.0, 1.0)
SIGNALS: frozenset[Any] = frozenset({
    QueryLogits(), Hidden(1.0, At.PROMPT_END), Hidden(1.0, At.ANSWER_END), TokenScores(Of.ANSWER), SAMPLES,
    SampleAgreement(2, 1.0, 1.0), Text(Of.SAMPLES, samples=SAMPLES), TokenIds(Of.ANSWER), TokenIds(Of.PROMPT),
})  # fmt: skip


def read(folder: Path, cache: Path, task: Any, answers: list[Any], seed: int = 0) -> tuple[Reader, Any]:
    """The test questions with these answers in turn: `(trace, text, samples)`."""
    lm = LanguageModel(ModelSpec("small", str(folder), local=True), LoadOptions(device="cpu"))
    store = Store(cache)
    store.prepare()
    reader = Reader(lm, store, replace(FIXED, max_new_tokens_open=4), 96, Silent(), seed)
    made = task(None)
    questions = list(made.questions("test"))
    released = {}
    for i, question in enumerate(questions):
        trace, text, samples = answers[i % len(answers)]
        released[question.id] = Released(None, text, None, trace, samples)
    split_data = reader.open(TaskSplit(task.name, "test"), made, questions, released)
    return reader, Grader(reader, MatchJudge()).grade(reader.read(split_data, SIGNALS))


ANSWERS = [
    ("The river ends somewhere. So ", "Tove river", ("Tove river", "Kiru")),
    ((40, 41, 42, 43, 44, 45), (50, 51, 52, 53, 54, 55, 56), ((60, 61), (50, 51, 52, 53, 54, 55))),
    ("", "Bamo", ("Bamo", "Lun")),
    ("Nothing comes of it.", "", ("Tove", "Lun")),
]


def test_signals_are_those_of_plain_passes_over_prompt_trace_and_final_part(small_model: Path, tmp_path: Path) -> None:
    reader, split_data = read(small_model, tmp_path, OpenRivers, ANSWERS)
    lm, split = reader.lm, reader.stored(split_data)
    found = {signal: definition(signal).column(split) for signal in SIGNALS}
    suffix, verdicts = split.settings.suffix, split.settings.verdict_ids
    asked_without = reader.open(split_data.where, split_data.task, split_data.questions)
    for place, row in enumerate(split_data.rows):
        trace, text, samples = ANSWERS[row % len(ANSWERS)]
        ids = [each if isinstance(each, tuple) else _ids(lm, each) for each in (trace, text)]
        prompt = np.concatenate([list(_pairs(asked_without))[place], ids[0]]).astype(int)
        assert found[TokenIds(Of.PROMPT)][place].tolist() == prompt.tolist()
        assert found[TokenIds(Of.ANSWER)][place].tolist() == list(ids[1])
        if not len(ids[1]):
            continue
        logits, states = plain(lm, np.asarray([*prompt, *ids[1]]))
        n = len(prompt)
        end = torch.as_tensor(np.asarray(found[Hidden(1.0, At.PROMPT_END)][place]))
        torch.testing.assert_close(end, states[-1][n - 1], atol=1e-4, rtol=1e-4)
        log_p = logits.log_softmax(-1)[range(n - 1, n - 1 + len(ids[1])), list(ids[1])]
        scored = found[TokenScores(Of.ANSWER)][place]["log_probability"]
        torch.testing.assert_close(torch.as_tensor(np.asarray(scored)), log_p, atol=1e-4, rtol=1e-4)
        asked = plain(lm, np.asarray([*prompt, *ids[1], *suffix]))[0][-1][torch.as_tensor(verdicts)]
        told = torch.as_tensor(np.asarray(found[QueryLogits()][place]))
        torch.testing.assert_close(told, asked, atol=1e-4, rtol=1e-4)
        for k, sample in enumerate(samples):
            said = list(sample if isinstance(sample, tuple) else _ids(lm, sample))
            mine = np.asarray(found[SAMPLES].values)[found[SAMPLES].offsets[place] : found[SAMPLES].offsets[place + 1]]
            owner = found[SAMPLES].owner[found[SAMPLES].offsets[place] : found[SAMPLES].offsets[place + 1]]
            own = mine[owner == k]
            assert own["id"].tolist() == said
            assert own["ended"].all()
            logits = plain(lm, np.asarray([*prompt, *said]))[0].log_softmax(-1)
            expected = logits[range(n - 1, n - 1 + len(said)), said]
            torch.testing.assert_close(torch.tensor(own["log_probability"].tolist()), expected, atol=1e-4, rtol=1e-4)
    assert found[SampleAgreement(2, 1.0, 1.0)][[list(split_data.rows).index(2)]].tolist() == [[True, False]]


def _ids(lm: LanguageModel, text: str) -> list[int]:
    return list(lm.chat.tokenizer(text, add_special_tokens=False)["input_ids"])


def _pairs(split_data: Any) -> Any:
    return (prompt for shard in split_data.shards for prompt in shard.prompts)


def test_a_run_reads_each_token_once(small_model: Path, tmp_path: Path) -> None:
    reader, split_data = read(small_model, tmp_path, OpenRivers, ANSWERS)
    fed = sum(cost.forward_tokens for cost in compute_costs([split_data], reader).values())
    floor = sum(cost.forward_tokens_floor for cost in compute_costs([split_data], reader).values())
    assert reader.forward_tokens >= fed >= floor > 0
    again, _ = read(small_model, tmp_path, OpenRivers, ANSWERS)
    assert again.forward_tokens == 0


@pytest.mark.parametrize("changed", [0, 1, 2], ids=["trace", "text", "samples"])
def test_other_answers_are_read_anew(small_model: Path, tmp_path: Path, changed: int) -> None:
    read(small_model, tmp_path, OpenRivers, ANSWERS)
    other = list(ANSWERS[0])
    other[changed] = ("Vesk", "Orro") if changed == 2 else "Vesk "
    again, _ = read(small_model, tmp_path, OpenRivers, [tuple(other), *ANSWERS[1:]])
    assert again.forward_tokens > 0


def test_letters_are_sampled_elsewhere_too(small_model: Path, tmp_path: Path) -> None:
    answers = [("I think it is ", "b", ("b", "a")), ("", "a", ("a", "a or b"))]
    reader, split_data = read(small_model, tmp_path, FewRivers, answers)
    agree = definition(SampleAgreement(2, 1.0, 1.0)).column(reader.stored(split_data))
    expected = {0: [True, False], 1: [True, False]}
    assert [own.tolist() for own in agree] == [expected[row % 2] for row in split_data.rows]


def test_an_id_that_the_tokenizer_does_not_have_is_a_clear_sentence(small_model: Path, tmp_path: Path) -> None:
    for ids in ((3, 10**6), (-1,)):
        with pytest.raises(UserError, match=r"expected token ids from 0 to [\d,]+ of this model's tokenizer, got"):
            read(small_model, tmp_path, OpenRivers, [("", ids, (ids,))])


def test_tokens_that_end_an_answer_are_no_part_of_it(small_model: Path, tmp_path: Path) -> None:
    end = LanguageModel(
        ModelSpec("s", str(small_model), local=True), LoadOptions(device="cpu")
    ).chat.tokenizer.eos_token_id
    _, split_data = read(small_model, tmp_path, OpenRivers, [("", (50, 51, end), ((50, end), (51,)))])
    assert {tuple(ids) for answers in split_data.answer_ids for ids in answers} == {(50, 51)}
    assert {tuple(map(tuple, own)) for shard in split_data.shards for own in shard.samples} == {((50,), (51,))}


@pytest.mark.parametrize("samples", [((50,), (51,) * 5000), ((51,) * 5000,)])
def test_a_sample_that_the_context_has_no_room_for_is_a_clear_sentence(
    small_model: Path, tmp_path: Path, samples: tuple[tuple[int, ...], ...]
) -> None:
    with pytest.raises(UserError, match=r"without exemplars, and its answer or sample, with a trace, 5,000: more"):
        read(small_model, tmp_path, OpenRivers, [("", (50,), samples)])


def test_a_trace_that_the_context_has_no_room_for_is_a_clear_sentence(small_model: Path, tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"has \d+ tokens without exemplars, and its answer or sample, with a trace, 5,001: more"
    ):
        read(small_model, tmp_path, OpenRivers, [((40,) * 5000, (50,), ((50,), (51,)))])


def test_long_answers_are_read_in_passes_of_few(
    small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bench.model.session import Session

    sizes, forward = [], Session.forward
    monkeypatch.setattr(
        Session, "forward", lambda self, ids, *rest: sizes.append(len(ids)) or forward(self, ids, *rest)
    )
    answers = [("", tuple(range(40 + i, 200 + i)), ((50,), (51,))) for i in range(14)]
    _, split_data = read(small_model, tmp_path, OpenRivers, answers)
    assert len(split_data.questions) == 14
    assert 160 <= max(sizes) <= 2 * 96 + 50
