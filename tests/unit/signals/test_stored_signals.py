"""Signals through reader, store and batch are those of plain passes, of answers made here and elsewhere, read once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.api import (
    At,
    ChoiceLogits,
    ContractError,
    Followup,
    Format,
    Hidden,
    Of,
    PromptStyle,
    QueryLogits,
    Question,
    SampleAgreement,
    Samples,
    Signal,
    Split,
    Task,
    Text,
    TokenIds,
    TokenScores,
    UserError,
)
from bench.api.question import Message, Prompt, Released
from bench.grading.grade import same_text
from bench.model.session import Session
from bench.model.token_sampling import uniform_numbers
from bench.prompts.chat import Chat
from bench.prompts.templates import context
from bench.run.costs import compute_costs
from bench.signals.definition import definition, read_from_model, required_stored_signals
from tests.fixtures import models
from tests.kit import passes
from tests.kit.splits import SAID, FewRivers, OpenRivers, batch_of, read

DRAWN = Samples(2, 1.0, 1.0)
TEXTS, AGREES = Text(Of.SAMPLES, samples=DRAWN), SampleAgreement(2, 1.0, 1.0)
ENDS = Hidden(0.5, At.SAMPLE_END, samples=DRAWN)
HOW = "How sure are you, from 0 to 100?"
SURE, TOLD, OTHER = Followup(HOW, words=("1", "2")), Followup(HOW, say=3), Followup("Is that so?")
MEASURED: set[Signal] = {
    SURE, TOLD, OTHER, Followup(), QueryLogits(), Hidden(1.0, At.PROMPT_END), Hidden(1.0, At.ANSWER_END),
    Hidden(0.5, At.ANSWER_PREDICTING, "mean"), ENDS, Hidden(1.0, At.QUERY_END),
    TokenScores(top=2), TokenScores(Of.SAMPLES, top=2, samples=DRAWN),
    *(TokenScores(of) for of in (Of.OPTIONS, Of.GOLD, Of.WRONG)),
}  # fmt: skip
PROMPT, ANSWER, GOLD, WRONG, OPTIONS = IDS = [
    TokenIds(of) for of in (Of.PROMPT, Of.ANSWER, Of.GOLD, Of.WRONG, Of.OPTIONS)
]
TOLD_TEXTS = {Text(), Text(Of.QUESTION), Text(Of.OPTIONS), TEXTS}


def made_elsewhere(trace: Any, text: Any, samples: Any) -> Released:
    return Released(None, text, None, trace, samples)


ELSEWHERE = [
    made_elsewhere("The river ends somewhere. So ", "Tove river", ("Tove river", "Kiru")),
    made_elsewhere((40, 41, 42, 43, 44, 45), (50, 51, 52, 53, 54, 55, 56), ((60, 61), (50, 51, 52, 53, 54, 55))),
    made_elsewhere("", "Bamo", ("Bamo", "Lun")),
    made_elsewhere("Nothing comes of it.", "", ("Tove", "Lun")),
]


def tokens(reader: Any, text: Any) -> list[int]:
    return list(text if isinstance(text, tuple) else reader.lm.chat.tokenizer(text, add_special_tokens=False).input_ids)


def texts_in(column: Any, i: int) -> list[list[int]]:
    """The texts of a question, parted by their owner."""
    owner = column.owner[column.offsets[i] : column.offsets[i + 1]]
    return [column[i][owner == k].tolist() for k in np.unique(owner)]


@pytest.mark.parametrize(
    ("task", "said"),
    [
        pytest.param(OpenRivers, (), id="rivers-oe-generated"),
        pytest.param(FewRivers, SAID, id="rivers-released"),
        pytest.param(OpenRivers, ELSEWHERE, id="rivers-oe-with traces and samples"),
        pytest.param(FewRivers, (), id="rivers-generated", marks=pytest.mark.slow),
        pytest.param(OpenRivers, SAID, id="rivers-oe-released", marks=pytest.mark.slow),
        pytest.param(FewRivers, ELSEWHERE, id="rivers-with traces and samples", marks=pytest.mark.slow),
    ],
)
def test_stored_signals_are_those_of_plain_passes(
    small_model: Path, tmp_path: Path, task: type[Task], said: Any
) -> None:
    if task is FewRivers and said is ELSEWHERE:
        said = [made_elsewhere("I think it is ", "b", ("b", "a")), made_elsewhere("", "a", ("a", "a or b"))]
    signals = {*MEASURED, DRAWN, AGREES, TEXTS, *([ChoiceLogits()] if task is FewRivers else [])}
    reader, split_data = read(small_model, tmp_path, task, signals, said)
    again, back = read(small_model, tmp_path, task, signals, said)
    assert (reader.forward_tokens > 0, again.forward_tokens) == (True, 0)
    for cost in compute_costs([split_data], reader).values():
        assert cost.forward_tokens >= cost.forward_tokens_floor
    wanted = [*signals, *TOLD_TEXTS, *IDS]
    batch, stored = batch_of(reader, split_data, *wanted, labels=True), batch_of(again, back, *wanted, labels=True)
    for signal in signals:
        one, other = (getattr(each[signal], "values", each[signal]) for each in (batch, stored))
        assert one.dtype == other.dtype
        assert one.tolist() == other.tolist() if one.dtype == object else one.tobytes() == other.tobytes()
    lm, settings = reader.lm, reader.prompt_settings(split_data)
    start = reader.prompts.placeholder_prompt(split_data.task)
    settings = replace(settings, words={each.words: lm.chat.words(start, each.words) for each in (SURE, OTHER)})
    limit, released = settings.max_new_tokens, len(said) and isinstance(said[0], Released)
    by_id = {question.id: (row, question) for row, question in enumerate(split_data.questions)}
    prompts = {
        split_data.questions[row].id: pair for row, pair in zip(split_data.rows, split_data.pairs(), strict=True)
    }
    for i, name in enumerate(batch.ids):
        row, question = by_id[name]
        prompt, answer = (ids.tolist() for ids in prompts[name])
        assert (batch[PROMPT][i].tolist(), batch[ANSWER][i].tolist()) == (prompt, answer)
        if released:
            own = said[row % len(said)]
            assert prompt[len(prompt) - len(tokens(reader, own.trace)) :] == tokens(reader, own.trace)
            samples = [tokens(reader, text) if task is OpenRivers or len(text) == 1 else [] for text in own.samples]
        else:
            numbers = uniform_numbers(0, name, 2, limit)
            samples = [passes.say(lm, prompt, limit, each) for each in numbers]
        empty = task is FewRivers and [] in samples  # states are of what stands in its place
        drawn = batch[DRAWN]
        owner = drawn.owner[drawn.offsets[i] : drawn.offsets[i + 1]]
        assert [drawn[i]["id"][owner == k].tolist() for k in range(2)] == samples
        assert drawn[i]["ended"].tolist() == [released or len(samples[k]) < limit for k in owner]
        np.testing.assert_array_equal(
            drawn[i]["log_probability"], batch[TokenScores(Of.SAMPLES, top=2, samples=DRAWN)][i]["log_probability"]
        )
        assert batch[TEXTS][i].tolist() == [lm.chat.decode(text) for text in samples]
        assert batch[Text()][i] == split_data.answers[row].text
        if task is OpenRivers:
            assert batch[AGREES][i].tolist() == [same_text(text, batch[Text()][i]) for text in batch[TEXTS][i]]
        elif released:
            assert batch[AGREES][i].tolist() == [True, False]
        assert batch[Text(Of.QUESTION)][i] == context(
            question, split_data.task.style_of(question), reader.protocol.letters
        )
        assert sorted(batch[Text(Of.OPTIONS)][i]) == sorted(question.choices)
        asked = passes.Asked(
            lm, settings, prompt, answer, len(question.choices), batch[GOLD][i].tolist(), texts_in(batch[WRONG], i),
            texts_in(batch[OPTIONS], i), {DRAWN: samples},
        )  # fmt: skip
        for signal in signals - {DRAWN, AGREES, TEXTS, Followup(), *([ENDS] if empty else [])}:
            expected = asked.expected(signal)
            if signal is TOLD:
                assert batch[TOLD][i] == lm.chat.decode(expected)
            else:
                passes.assert_close(batch[signal][i], expected, (signal, name))
    assert batch[Followup()].tobytes() == batch[QueryLogits()].tobytes()


def test_sampling_happens_once_and_samples_are_reused(small_model: Path, tmp_path: Path) -> None:
    for task in (FewRivers, OpenRivers):
        reader, split_data = read(small_model, tmp_path, task, {AGREES})
        later, again = read(small_model, tmp_path, task, {DRAWN, TokenScores(Of.SAMPLES, samples=DRAWN)})
        assert (later.forward_tokens > 0) == (task is OpenRivers)
        assert batch_of(reader, split_data, TEXTS)[TEXTS].tolist() == batch_of(later, again, TEXTS)[TEXTS].tolist()
        bundled = (entry for shard in split_data.bundles for entry in shard)
        names = {name for entry in bundled for name in entry.manifest["fields"]["signals"]}
        assert any(name.startswith(f"{DRAWN!r} seed 0 drawn by") for name in names) == (task is OpenRivers)


# --- costs ------------------------------------------------------------------------------------------------------------


def test_followups_cost_their_own_tokens_only(small_model: Path, tmp_path: Path) -> None:
    def fed(name: str, signals: set[Signal]) -> tuple[int, Any, Any]:
        reader, split_data = read(small_model, tmp_path / name, OpenRivers, signals)
        return compute_costs([split_data], reader)["query"].forward_tokens, reader, split_data

    one, _, _ = fed("one", {OTHER})
    both, reader, split_data = fed("both", {OTHER, SURE, TOLD, Followup()})
    turns = reader.prompt_settings(split_data).turns
    generated, sequences = [], []
    for (prompt, answer), reply in zip(
        split_data.pairs(), definition(TOLD).generated_reply_ids(reader.stored(split_data)), strict=True
    ):
        generated.append([*prompt, *answer[:3]])  # the last of four tokens is not read back
        tails = [turns[OTHER.wording], turns[""], [*turns[HOW], *reply[:2]]]
        sequences += [[*prompt, *answer, *tail] for tail in tails if len(answer)]
    assert both == len(passes.prefixes(sequences) - passes.prefixes(generated))
    assert both > one


def test_answers_elsewhere_that_change_are_read_anew(small_model: Path, tmp_path: Path) -> None:
    signals: set[Signal] = {QueryLogits(), DRAWN, TEXTS}
    read(small_model, tmp_path, OpenRivers, signals, ELSEWHERE)
    for change in ({"trace": "Vesk "}, {"text": "Vesk "}, {"samples": ("Vesk", "Orro")}):
        other = [replace(ELSEWHERE[0], **change), *ELSEWHERE[1:]]
        assert read(small_model, tmp_path, OpenRivers, signals, other)[0].forward_tokens > 0


@pytest.mark.parametrize(
    ("task", "signal", "changed"),
    [
        (OpenRivers, Text(), {"text": "c"}),
        (FewRivers, Text(), {"text": "c"}),
        (FewRivers, TEXTS, {"samples": ("a", "a")}),
    ],
)
def test_answers_elsewhere_have_own_fits(
    small_model: Path, tmp_path: Path, task: type[Task], signal: Signal, changed: dict[str, Any]
) -> None:
    """Even where no stored file has them, and all labels are the same."""
    said = Released(None, "b", True, samples=("a", "b"))
    told = [read(small_model, tmp_path, task, {signal}, [each])[1] for each in (said, replace(said, **changed), said)]
    assert told[0].correct.tolist() == told[1].correct.tolist()
    first, second, again = (each.digest() for each in told)
    assert first == again != second


def test_long_answers_are_read_in_passes_of_few(
    small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes, forward = [], Session.forward
    monkeypatch.setattr(
        Session, "forward", lambda self, ids, *rest: sizes.append(len(ids)) or forward(self, ids, *rest)
    )
    said = [made_elsewhere("", tuple(range(40 + i, 200 + i)), ((50,), (51,))) for i in range(14)]
    read(small_model, tmp_path, OpenRivers, {QueryLogits()}, said)
    assert 160 <= max(sizes) <= 2 * 96 + 50


# --- what can't be read -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("trace", "text", "samples", "sentence"),
    [
        ("", (3, 10**6), ((3, 10**6),), r"expected token ids from 0 to [\d,]+ of this model's tokenizer, got"),
        ("", (-1,), ((-1,),), r"expected token ids from 0 to [\d,]+ of this model's tokenizer, got"),
        ("", (50,), ((50,), (51,) * 5000), "without exemplars, and its answer or sample, with a trace, 5,000: more"),
        ("", (50,), ((51,) * 5000,), "without exemplars, and its answer or sample, with a trace, 5,000: more"),
        ((40,) * 5000, (50,), ((50,), (51,)), r"has \d+ tokens without .* answer or sample, with a trace, 5,001: more"),
    ],
)
def test_answers_elsewhere_are_refused(
    small_model: Path, tmp_path: Path, trace: Any, text: Any, samples: Any, sentence: str
) -> None:
    with pytest.raises(UserError, match=sentence):
        read(small_model, tmp_path, OpenRivers, {QueryLogits(), DRAWN}, [made_elsewhere(trace, text, samples)])


def test_answers_have_no_end_tokens(small_model: Path, tmp_path: Path) -> None:
    end = passes.load(small_model).chat.tokenizer.eos_token_id
    said = [made_elsewhere("", (50, 51, end), ((50, end), (51,)))]
    _, split_data = read(small_model, tmp_path, OpenRivers, {DRAWN}, said)
    assert {tuple(ids) for answers in split_data.answer_ids for ids in answers} == {(50, 51)}
    assert {tuple(map(tuple, own)) for shard in split_data.shards for own in shard.samples} == {((50,), (51,))}


def test_followup_of_no_words_is_the_query(small_model: Path, tmp_path: Path) -> None:
    assert required_stored_signals({Followup(), QueryLogits()}, Format.OPEN, 30) == {QueryLogits()}
    assert read_from_model([Followup()]) == {Followup()}
    reader, split_data = read(small_model, tmp_path, FewRivers, {Followup()})
    assert definition(SURE).note(split_data) == 'it asks after the answer: "How sure are you, from 0 to 100?"'
    assert not definition(Followup()).note(split_data)
    long = Followup("Well?", words=("1", "unquestionably"))
    refused = [definition(each).unsupported_reason(split_data.task, reader.prompts) for each in (SURE, TOLD, long)]
    assert refused[:2] == [None, None]
    assert str(refused[2]).startswith("Expected word 'unquestionably' to be one token of this model's tokenizer where")
    assert str(refused[2]).endswith("Choose other words, or read the reply as text: say=N.")
    with pytest.raises(UserError, match=r"A follow-up of \d+ tokens with its reply does not fit"):
        read(small_model, tmp_path, FewRivers, {Followup("so " * 4096)})


def test_words_of_one_token_are_refused() -> None:
    made = Prompt((Message("system", "w9"), Message("user", "w10")))
    with pytest.raises(UserError, match=r"Expected words of different tokens .* got unknown, strange"):
        Chat(models.words(120, pad_token="w0")).words(made, ("unknown", "strange"))


# --- options ----------------------------------------------------------------------------------------------------------


class GoldFirst(OpenRivers):
    """Open questions whose right answer comes first or last."""

    name = "rivers-gold-first"
    style = PromptStyle(header="About {label}.", footer="Next.", context="{text}")
    place = 0

    def questions(self, split: Split) -> Iterator[Question]:
        for question in super().questions(split):
            others = [choice for k, choice in enumerate(question.choices) if k != question.gold]
            choices = (*others, question.answer) if self.place else (question.answer, *others)
            yield replace(question, choices=choices, gold=len(others) if self.place else 0)


class GoldLast(GoldFirst):
    """The same questions with the right answer last."""

    name = "rivers-gold-last"
    place = -1


def test_unlabelled_options_do_not_tell_the_right_one(small_model: Path, tmp_path: Path) -> None:
    ids, scores, texts = TokenIds(Of.OPTIONS), TokenScores(Of.OPTIONS, top=2), Text(Of.OPTIONS)
    one, other = (
        batch_of(*read(small_model, tmp_path / task.name, task, {ids, scores, texts}), ids, scores, texts)
        for task in (GoldFirst, GoldLast)
    )
    for signal in (ids, texts):
        assert one[signal].values.tolist() == other[signal].values.tolist()
    for signal in (ids, scores, texts):
        assert one[signal].offsets.tolist() == other[signal].offsets.tolist()
    logs = [batch[scores].values["log_probability"] for batch in (one, other)]
    np.testing.assert_allclose(*logs, atol=1e-4)
    np.testing.assert_array_equal(one[scores].owner, one[ids].owner)


class Lonely(OpenRivers):
    """Open questions of which only the right answer is known."""

    name = "rivers-lonely"

    def questions(self, split: Split) -> Iterator[Question]:
        for question in super().questions(split):
            yield replace(question, choices=(question.answer,), gold=0)


def test_options_of_one_are_refused_without_labels(small_model: Path, tmp_path: Path) -> None:
    reader, split_data = read(small_model, tmp_path, Lonely, set())
    for signal in (TokenIds(Of.OPTIONS), Text(Of.OPTIONS)):
        with pytest.raises(UserError, match=r"without labels, and question 'test/rivers/0' .* has the right one alone"):
            batch_of(reader, split_data, signal)


@pytest.mark.parametrize(
    "signal", [TokenIds(Of.GOLD), TokenIds(Of.WRONG), Hidden(at=At.GOLD_PREDICTING), Hidden(at=At.WRONG_PREDICTING)]
)
def test_right_answers_stand_in_labelled_batches_only(small_model: Path, tmp_path: Path, signal: Signal) -> None:
    reader, split_data = read(small_model, tmp_path, FewRivers, set())
    with pytest.raises(ContractError, match="which tells the right answer"):
        batch_of(reader, split_data, signal)
