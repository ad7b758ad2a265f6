"""Replies to follow-ups, and states at further places, are those of plain passes on every architecture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bench.api import (
    At,
    ContractError,
    Followup,
    Format,
    Hidden,
    Needs,
    Of,
    QueryLogits,
    Samples,
    Signal,
    Task,
    Unembedding,
    UserError,
)
from bench.api.methods import refuse_gold
from bench.api.question import Message, Prompt
from bench.model.continuation_specs import UserTurn
from bench.model.continuation_tree import ContinuationTree
from bench.model.extractor import Extractor
from bench.model.language_model import LanguageModel, LoadOptions
from bench.model.specs import ModelSpec
from bench.model.token_sampling import uniform_numbers
from bench.prompts.chat import Chat
from bench.prompts.prompt_settings import PromptSettings
from bench.run.costs import compute_costs
from bench.signals.definition import definition, pass_definitions, read_from_model, required_stored_signals
from bench.testing import planted
from tests.fixtures import models
from tests.unit.model.test_backbone import LETTERS, SUFFIX, VERDICTS, items, plain, prompts
from tests.unit.run.test_costs import SAID, FewRivers, OpenRivers, prefixes, read
from tests.unit.signals.test_samples import TASKS, batch_of, lm, sampled

__all__ = ["lm"]

HOW = "how sure?"
TURN = np.asarray([60, 61, 62], dtype=np.int32)
WORDS = ("low", "medium", "high")
SURE, SPOKEN, AGAIN = Followup(HOW, words=WORDS), Followup(HOW, say=4), Followup(say=2)
TOLERANCE = {"atol": 1e-4, "rtol": 1e-4}
ANSWERS = [[20, 21], [30], [], [50], [60, 61], [70], [30]]
DRAWN = Samples(3)


def prompt_settings(limit: int) -> PromptSettings:
    return PromptSettings(
        limit, LETTERS, SUFFIX, VERDICTS, 64, {HOW: TURN}, {WORDS: np.asarray([13, 14, 15], dtype=np.int32)}
    )


def measured(lm: LanguageModel, signals: list[Signal], limit: int = 6, **more: Any) -> Any:
    answers = [np.asarray(ids, dtype=np.int32) for ids in ANSWERS]
    return Extractor(lm, prompt_settings(limit), pass_definitions(signals)).extract(items(answers, **more))


def spoken(lm: LanguageModel, ids: list[int], limit: int) -> list[int]:
    said: list[int] = []
    while len(said) < limit:
        token = int(plain(lm, np.asarray([*ids, *said]))[0][-1].argmax())
        if token in lm.stops:
            break
        said.append(token)
    return said


def rows_of(column: dict[str, torch.Tensor]) -> list[list[int]]:
    return [part.tolist() for part in torch.split(column["values"], column["offsets"].diff().tolist())]


def test_replies_are_those_of_plain_passes(lm: LanguageModel) -> None:
    signals: list[Signal] = [SURE, SPOKEN, AGAIN, QueryLogits(), Hidden(0.5, At.QUERY_END), Hidden(1.0, At.QUERY_END)]
    columns = measured(lm, signals).columns
    replies, again = rows_of(columns[SPOKEN]), rows_of(columns[AGAIN])
    first = 1 if lm.spec.name == "mamba" else 0  # its list of states has no embeddings at the front
    for i, (prompt, answer) in enumerate(zip(prompts(), ANSWERS, strict=True)):
        if not answer:
            assert all(columns[each]["values"][i].isnan().all() for each in signals if each not in {SPOKEN, AGAIN})
            assert replies[i] == again[i] == []
            continue
        asked, query = [*prompt, *answer, *TURN], [*prompt, *answer, *SUFFIX]
        torch.testing.assert_close(columns[SURE]["values"][i], plain(lm, asked)[0][-1][[13, 14, 15]], **TOLERANCE)
        logits, states = plain(lm, query)
        torch.testing.assert_close(columns[QueryLogits()]["values"][i], logits[-1][VERDICTS.tolist()], **TOLERANCE)
        for depth, block in ((0.5, 2), (1.0, 4)):
            expected = states[-1 if block == 4 else block - first][-1]
            torch.testing.assert_close(columns[Hidden(depth, At.QUERY_END)]["values"][i], expected, **TOLERANCE)
        assert (replies[i], again[i]) == (spoken(lm, asked, 4), spoken(lm, query, 2))


def test_the_state_at_the_query_s_end_needs_no_other_signal(lm: LanguageModel) -> None:
    signal = Hidden(0.5, At.QUERY_END)
    alone, beside = (measured(lm, each).columns[signal]["values"] for each in ([signal], [signal, QueryLogits()]))
    torch.testing.assert_close(alone, beside, equal_nan=True, **TOLERANCE)


def test_a_conversation_that_does_not_continue_the_prompt_is_read_whole(lm: LanguageModel) -> None:
    before = [prompt[3:] for prompt in prompts()]
    columns = measured(lm, [SURE, SPOKEN, QueryLogits()], query_prompt=before).columns
    replies = rows_of(columns[SPOKEN])
    for i, (start, answer) in enumerate(zip(before, ANSWERS, strict=True)):
        if not answer:
            continue
        asked = [*start, *answer, *TURN]
        torch.testing.assert_close(columns[SURE]["values"][i], plain(lm, asked)[0][-1][[13, 14, 15]], **TOLERANCE)
        logits = plain(lm, [*start, *answer, *SUFFIX])[0][-1]
        torch.testing.assert_close(columns[QueryLogits()]["values"][i], logits[VERDICTS.tolist()], **TOLERANCE)
        assert replies[i] == spoken(lm, asked, 4)


def test_means_and_the_ends_of_samples_are_those_of_plain_passes(lm: LanguageModel) -> None:
    means = [Hidden(0.5, at, "mean") for at in (At.ANSWER_PREDICTING, At.ANSWER_END)]
    ends = [Hidden(depth, At.SAMPLE_END, samples=DRAWN) for depth in (0.5, 1.0)]
    random = [uniform_numbers(3, f"question {i}", 3, 2) for i in range(7)]
    columns = measured(lm, [*means, *ends, DRAWN], 2, uniforms=random).columns
    first = 1 if lm.spec.name == "mamba" else 0
    texts = sampled(columns[DRAWN])
    for i, (prompt, answer) in enumerate(zip(prompts(), ANSWERS, strict=True)):
        states = plain(lm, np.asarray([*prompt, *answer]))[1][2 - first]
        n, length = len(prompt), len(answer)
        if answer:
            for mean, rows in zip(means, (states[n - 1 : n + length - 1], states[n : n + length]), strict=True):
                torch.testing.assert_close(columns[mean]["values"][i], rows.mean(0), **TOLERANCE)
        for j, ids in enumerate(texts[i]):
            hidden = plain(lm, np.asarray([*prompt, *ids]))[1]
            for end, block in zip(ends, (2 - first, -1), strict=True):
                torch.testing.assert_close(columns[end]["values"][i, j], hidden[block][-1], **TOLERANCE)


def test_inner_states_are_read_through_the_last_norm(lm: LanguageModel) -> None:
    captured: list[torch.Tensor] = []
    from bench.model.session import blocks

    handle = blocks(lm.model)[-1].register_forward_hook(
        lambda _m, _i, out: captured.append(out[0] if isinstance(out, tuple) else out)
    )
    logits, _ = plain(lm, prompts()[0])
    handle.remove()
    norm = lm.norm
    assert norm is not None
    torch.testing.assert_close(lm.head.logits(norm(captured[0].reshape(-1, 64))), logits, **TOLERANCE)


# --- through the store ------------------------------------------------------------------------------------------------

ASKED = Followup("How sure are you, from 0 to 100?", words=("1", "2"))
TOLD = Followup("How sure are you, from 0 to 100?", say=3)
OTHER = Followup("Is that so?")
STATES: set[Signal] = {
    Hidden(0.5, At.ANSWER_PREDICTING, "mean"), Hidden(0.5, At.SAMPLE_END, samples=DRAWN), Hidden(1.0, At.QUERY_END),
}  # fmt: skip


@TASKS
@pytest.mark.parametrize("said", [(), SAID], ids=["generated", "released"])
def test_replies_come_back_from_the_store_and_cost_their_own_tokens(
    small_model: Path, tmp_path: Path, task: type[Task], said: tuple[str, ...]
) -> None:
    signals = {ASKED, TOLD, OTHER, Followup(), *STATES}
    reader, split_data = read(small_model, tmp_path, task, signals, said)
    again, back = read(small_model, tmp_path, task, signals, said)
    assert (reader.forward_tokens > 0, again.forward_tokens) == (True, 0)
    first, second = batch_of(reader, split_data, *signals), batch_of(again, back, *signals)
    n = int(split_data.usable.sum())
    shapes = {ASKED: (n, 2), TOLD: (n,), OTHER: (n, 2), Followup(): (n, 2), **dict(zip(STATES, [()] * 3, strict=True))}
    for signal, shape in shapes.items():
        assert first[signal].tolist() == second[signal].tolist()
        assert first[signal].shape == shape or not shape
        assert read_from_model([signal]) == {signal}
    assert {first[signal].shape for signal in STATES} == {(n, 32), (n, 3, 32)}
    chat, lm = reader.lm.chat, reader.lm
    pairs = dict(zip([split_data.questions[row].id for row in split_data.rows], split_data.pairs(), strict=True))
    suffix = reader.prompt_settings(split_data).turns[ASKED.wording]
    ids = chat.words(reader.prompts.placeholder_prompt(split_data.task), ("1", "2")).tolist()
    for i, name in enumerate(first.ids):
        whole = np.concatenate([*pairs[name], suffix])
        logits = plain(lm, whole)[0][-1]
        np.testing.assert_allclose(first[ASKED][i], logits[ids], atol=1e-4)
        assert first[TOLD][i] == chat.decode(spoken(lm, whole.tolist(), 3))
    for stage, cost in compute_costs([split_data], reader).items():
        assert cost.forward_tokens >= cost.forward_tokens_floor, stage


def test_each_follow_up_costs_its_own_tokens_only(small_model: Path, tmp_path: Path) -> None:
    def fed(name: str, signals: set[Signal]) -> tuple[int, Any, Any]:
        reader, split_data = read(small_model, tmp_path / name, OpenRivers, signals)
        return compute_costs([split_data], reader)["query"].forward_tokens, reader, split_data

    one, _, _ = fed("one", {OTHER})
    both, reader, split_data = fed("both", {OTHER, ASKED, TOLD, Followup()})
    said = definition(TOLD).generated_reply_ids(reader.stored(split_data))
    tails = [reader.prompt_settings(split_data).turns[wording].tolist() for wording in (OTHER.wording, "")]
    long = reader.prompt_settings(split_data).turns[TOLD.wording].tolist()
    sequences = []
    for (prompt, answer), reply in zip(split_data.pairs(), said, strict=True):
        read_back = reply.tolist() if len(reply) < 3 else reply.tolist()[:-1]
        own = [*tails, [*long, *read_back]] if len(answer) else []
        sequences += [[*prompt.tolist(), *answer.tolist(), *tail] for tail in own]
    generated = [[*p.tolist(), *(a.tolist() if len(a) < 4 else a.tolist()[:-1])] for p, a in split_data.pairs()]
    assert both == len(prefixes(sequences) - prefixes(generated))
    assert one < both


def test_the_default_is_the_self_check_query_under_its_old_name(small_model: Path, tmp_path: Path) -> None:
    assert required_stored_signals({Followup(), QueryLogits()}, Format.OPEN, 30) == {QueryLogits()}
    reader, split_data = read(small_model, tmp_path, FewRivers, {Followup()})
    batch = batch_of(reader, split_data, Followup(), QueryLogits())
    assert batch[Followup()].tobytes() == batch[QueryLogits()].tobytes()
    assert definition(ASKED).note(split_data) == 'it asks after the answer: "How sure are you, from 0 to 100?"'
    assert not definition(Followup()).note(split_data)


def test_a_follow_up_that_the_context_has_no_room_for_is_a_clear_error(small_model: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"A follow-up of \d+ tokens with its reply does not fit"):
        read(small_model, tmp_path, FewRivers, {Followup("so " * 4096)})


# --- words ------------------------------------------------------------------------------------------------------------


def test_words_of_several_tokens_are_a_clear_sentence(small_model: Path, tmp_path: Path) -> None:
    reader, split_data = read(small_model, tmp_path, FewRivers, set())
    long = Followup("Well?", words=("1", "unquestionably"))
    said = definition(long).unsupported_reason(split_data.task, reader.prompts)
    assert said is not None
    assert said.startswith("Expected word 'unquestionably' to be one token of this model's tokenizer where the answer")
    assert said.endswith("Choose other words, or read the reply as text: say=N.")
    assert definition(ASKED).unsupported_reason(split_data.task, reader.prompts) is None
    assert definition(TOLD).unsupported_reason(split_data.task, reader.prompts) is None


def test_words_that_are_one_token_are_a_clear_sentence() -> None:
    chat = Chat(models.words(120, pad_token="w0"))
    made = Prompt((Message("system", "w9"), Message("user", "w10")))
    with pytest.raises(UserError, match=r"Expected words of different tokens .* got unknown, strange"):
        chat.words(made, ("unknown", "strange"))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"after": Of.PROMPT}, "after: expected one of Of.ANSWER, got Of.PROMPT"),
        ({"words": ("low", "high")}, "the self-check query has no and yes"),
        ({"wording": "Well?", "words": ("low", "high"), "say": 3}, "a reply as text has no words"),
        ({"wording": "Well?", "words": ["low"]}, r"expected a tuple of different words, got \['low'\]"),
        ({"wording": "Well?", "words": ("low", "low")}, "expected a tuple of different words"),
        ({"say": -1}, "say as a whole number of at least 0"),
        ({"say": 1.5}, "say as a whole number of at least 0"),
        ({"wording": "a\ud800b"}, "wording as text"),
        ({"wording": "Sure?", "words": ("\udfff",)}, "tuple of different words"),
    ],
)
def test_what_is_not_asked_is_refused(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(ContractError, match=said):
        Followup(**arguments)


@pytest.mark.parametrize(("at", "pool"), [(At.PROMPT_END, "mean"), (At.SAMPLE_END, "mean"), (At.ANSWER_END, "max")])
def test_what_is_not_pooled_is_refused(at: At, pool: Any) -> None:
    with pytest.raises(ContractError, match=r'expected pool=None, or "mean" at At.ANSWER_PREDICTING or At.ANSWER_END'):
        Hidden(0.5, at, pool)


def test_predict_may_read_all_of_these() -> None:
    refuse_gold("it", Needs(predict=frozenset({ASKED, TOLD, *STATES})))
    assert {signal for signal in (ASKED, *STATES) if signal.drawn} == {Hidden(0.5, At.SAMPLE_END, samples=DRAWN)}
    assert definition(SPOKEN).continuations.turns == {UserTurn(HOW, 4)}


@pytest.mark.parametrize("fmt", list(Format))
def test_stand_ins_lean_towards_the_truth(fmt: Format) -> None:
    batch = planted({SURE, SPOKEN, Followup(), Unembedding(), *STATES}, 200, seed=4, fmt=fmt)
    right = batch.correct
    leaning = batch[SURE][:, 2] - batch[SURE][:, 0]
    assert leaning[right].mean() > leaning[~right].mean() + 0.5
    percent = np.asarray([float(text.rstrip("%")) for text in batch[SPOKEN]])
    assert percent[right].mean() > percent[~right].mean() + 30
    assert batch[Followup()].shape == (200, 2)
    ends = batch[Hidden(0.5, At.SAMPLE_END, samples=DRAWN)]
    assert (ends.shape, ends.dtype) == ((200, 3, 16), np.float32)
    spread = ends.var(axis=1).sum(axis=1)
    assert spread[right].mean() < spread[~right].mean()
    norm = batch[Unembedding()].norm
    assert norm is not None
    assert float(norm(torch.randn(4, 16)).square().mean()) == pytest.approx(1.0, abs=1e-3)


def test_each_turn_grows_right_after_its_answer_as_it_always_did(
    small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Last bits depend on the order within a pass, and with them results that are there."""
    rows: list[list[int]] = []
    plain_read = ContinuationTree.read

    def noted(self: ContinuationTree, *blocks: Any) -> None:
        rows.append(list(self.tokens))
        plain_read(self, *blocks)

    monkeypatch.setattr(ContinuationTree, "read", noted)
    lm = LanguageModel(ModelSpec("small", str(small_model), local=True), LoadOptions(device="cpu"))
    answers = [[700 + i] for i in range(7)]
    stored_items = items([np.asarray(ids, dtype=np.int32) for ids in answers])
    Extractor(lm, prompt_settings(6), pass_definitions([QueryLogits(), SURE])).extract(stored_items)
    grown = [token for row in rows for token in row if token >= 0]
    first = grown.index(700)
    assert grown[first : first + 8] == [700, *SUFFIX.tolist(), *TURN.tolist()]
