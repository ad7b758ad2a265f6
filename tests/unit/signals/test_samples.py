"""Samples, their scores and texts are what plain passes say, drawn once for all; options don't tell the right one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bench.api import (
    ContractError,
    Format,
    Hidden,
    Needs,
    Of,
    PromptStyle,
    Question,
    Ragged,
    SampleAgreement,
    Samples,
    Signal,
    Split,
    Task,
    Text,
    TokenIds,
    TokenScores,
    Unembedding,
    UserError,
)
from bench.api.methods import refuse_gold
from bench.model.language_model import LanguageModel
from bench.model.token_sampling import uniform_numbers
from bench.prompts.templates import context
from bench.run.costs import compute_costs
from bench.signals.batch_builder import BatchBuilder
from bench.testing import planted
from tests.unit.model.test_backbone import (
    ARCHITECTURES,
    distinct,
    extractor,
    items,
    loaded,
    plain,
    prompt_settings,
    prompts,
)
from tests.unit.run.test_costs import SAID, FewRivers, OpenRivers, read

DRAWN = Samples(3, 0.8)
CLOSE = {"atol": 1e-4, "rtol": 1e-4}
SCORED = TokenScores(Of.SAMPLES, top=2, samples=DRAWN)
GOLD, WRONG = TokenScores(Of.GOLD), TokenScores(Of.WRONG)


@pytest.fixture(scope="module", params=distinct(ARCHITECTURES))
def lm(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    return loaded(request.param, tmp_path_factory.mktemp("model"))


def scores_by_hand(lm: LanguageModel, prompt: np.ndarray, text: list[int]) -> np.ndarray:
    """Log-probability of each token of a text after a prompt, and entropy, from one plain pass in float64: (t, 2)."""
    logits = plain(lm, np.asarray([*prompt, *text]))[0].double()
    scores = logits.log_softmax(-1)[len(prompt) - 1 : len(prompt) + len(text) - 1]
    said = scores[torch.arange(len(text)), torch.as_tensor(text, dtype=torch.long)]
    return torch.stack([said, -(scores.exp() * scores).sum(-1)], dim=1).numpy()


def sampled(column: dict[str, torch.Tensor]) -> list[list[list[int]]]:
    """The ids of each question's samples as they are stored."""
    rows = [column["values"][a:b].tolist() for a, b in pairwise(column["offsets"])]
    found = []
    for row in rows:
        ends = [-1, *(k for k, token in enumerate(row) if token < 0)]
        found.append([row[a + 1 : b] for a, b in pairwise(ends)])
    return found


def check_scores(lm: LanguageModel, column: dict[str, torch.Tensor], texts: list[list[list[int]]]) -> None:
    assert column["offsets"].diff().tolist() == [sum(map(len, own)) for own in texts]
    expected = [scores_by_hand(lm, p, ids) for p, own in zip(prompts(), texts, strict=True) for ids in own if ids]
    found = torch.stack([column["log_probability"], column["entropy"]], dim=1).double().numpy()
    np.testing.assert_allclose(found, np.concatenate(expected), atol=1e-4, rtol=1e-4)


def test_scores_of_samples_and_options_are_those_of_plain_passes(lm: LanguageModel) -> None:
    random = [uniform_numbers(3, f"question {i}", 3, 3) for i in range(7)]
    gold = [np.asarray(ids, dtype=np.int32) for ids in ([20, 21], [30], [22], [23, 24, 25], [20], [26, 27], [30])]
    wrong = [(ids[::-1].copy(), np.asarray([28, 29], dtype=np.int32)) for ids in gold]
    given = items(uniforms=random, gold=gold, wrong=wrong)
    measured = extractor(lm, prompt_settings(3), [DRAWN, SCORED, GOLD, WRONG]).extract(given)
    texts = sampled(measured.columns[DRAWN])
    assert len({tuple(ids) for own in texts for ids in own}) > 5
    check_scores(lm, measured.columns[SCORED], texts)
    check_scores(lm, measured.columns[GOLD], [[ids.tolist()] for ids in gold])
    check_scores(lm, measured.columns[WRONG], [[ids.tolist() for ids in own] for own in wrong])
    # Stored samples are read again instead of being drawn.
    again = [replace(item, uniforms=None, samples=_stored(own)) for item, own in zip(given, texts, strict=True)]
    reread = extractor(lm, prompt_settings(3), [SCORED]).extract(again)
    for name, values in measured.columns[SCORED].items():
        torch.testing.assert_close(reread.columns[SCORED][name], values, **CLOSE)


def _stored(samples: list[list[int]]) -> dict[Any, list[np.ndarray]]:
    return {DRAWN: [np.asarray(ids, dtype=np.int32) for ids in samples]}


def test_letters_are_scored_where_the_answer_begins(lm: LanguageModel) -> None:
    shown = [4, 2, 3, 4, 4, 4, 2]
    column = extractor(lm, prompt_settings(1), [TokenScores(Of.OPTIONS)]).extract(items(options=shown))
    letters = [[[letter] for letter in prompt_settings(1).letter_ids[:count].tolist()] for count in shown]
    check_scores(lm, column.columns[TokenScores(Of.OPTIONS)], letters)


# --- through the store ------------------------------------------------------------------------------------------------

TASKS = pytest.mark.parametrize("task", [FewRivers, OpenRivers], ids=lambda t: t.name)


def batch_of(reader: Any, split_data: Any, *signals: Signal) -> Any:
    return BatchBuilder(reader).batch(split_data, frozenset(signals), labels=False)


def prompts_of(split_data: Any) -> dict[str, np.ndarray]:
    names = [split_data.questions[row].id for row in split_data.rows]
    return dict(zip(names, (ids for ids, _ in split_data.pairs()), strict=True))


@TASKS
@pytest.mark.parametrize("said", [(), SAID], ids=["generated", "released"])
def test_all_signals_of_samples_are_of_the_same_samples(
    small_model: Path, tmp_path: Path, task: type[Task], said: tuple[str, ...]
) -> None:
    texts, agrees = Text(Of.SAMPLES, samples=DRAWN), SampleAgreement(3, 0.8)
    reader, split_data = read(small_model, tmp_path, task, {DRAWN, SCORED, texts, agrees}, said)
    batch = batch_of(reader, split_data, DRAWN, SCORED, texts, agrees)
    samples, scores = batch[DRAWN], batch[SCORED]
    assert (samples.values.dtype, scores.values.dtype) == (DRAWN.dtype, SCORED.dtype)
    assert samples.owner.tolist() == scores.owner.tolist()
    assert samples.offsets.tolist() == scores.offsets.tolist()
    np.testing.assert_array_equal(samples.values["log_probability"], scores.values["log_probability"])
    limit = reader.prompt_settings(split_data).max_new_tokens
    prompts = prompts_of(split_data)
    for i, name in enumerate(batch.ids):
        owner = samples.owner[samples.offsets[i] : samples.offsets[i + 1]]
        for j in range(3):
            own = samples[i][owner == j]
            assert batch[texts][i, j] == reader.lm.chat.decode(own["id"].tolist())
            assert own["ended"].tolist() == [len(own) < limit] * len(own)
            if len(own):
                expected = scores_by_hand(reader.lm, prompts[name], own["id"].tolist())
                np.testing.assert_allclose(own["log_probability"], expected[:, 0], atol=1e-4)
                np.testing.assert_allclose(scores[i]["entropy"][owner == j], expected[:, 1], atol=1e-4)
    for cost in compute_costs([split_data], reader).values():
        assert cost.forward_tokens >= cost.forward_tokens_floor


@TASKS
def test_samples_are_drawn_once_and_read_again_for_what_is_asked_later(
    small_model: Path, tmp_path: Path, task: type[Task]
) -> None:
    reader, split_data = read(small_model, tmp_path, task, {SampleAgreement(3, 0.8)})
    later, again = read(small_model, tmp_path, task, {DRAWN, SCORED})
    assert (later.forward_tokens > 0) == (task.format is Format.OPEN)
    texts = Text(Of.SAMPLES, samples=DRAWN)
    before, after = batch_of(reader, split_data, texts)[texts], batch_of(later, again, texts)[texts]
    assert before.tolist() == after.tolist()
    names = {name for shard in split_data.bundles for entry in shard for name in entry.manifest["fields"]["signals"]}
    assert any(name.startswith(f"{DRAWN!r} seed 0 drawn by") for name in names) == (task.format is Format.OPEN)


@TASKS
def test_samples_alone_meet_the_floor(small_model: Path, tmp_path: Path, task: type[Task]) -> None:
    reader, split_data = read(small_model, tmp_path, task, {DRAWN, SCORED, TokenScores(Of.OPTIONS)})
    costs = compute_costs([split_data], reader)
    assert set(costs) == ({"answers"} if task is FewRivers else {"answers", "continuations", "samples"})
    for stage in set(costs) - {"answers"}:
        assert costs[stage].forward_tokens == costs[stage].forward_tokens_floor > 0
    assert sum(cost.forward_tokens for cost in costs.values()) == reader.forward_tokens


# --- options ----------------------------------------------------------------------------------------------------------

OPTIONS: dict[type[Signal], Any] = {
    TokenIds: TokenIds(Of.OPTIONS), TokenScores: TokenScores(Of.OPTIONS, top=2), Text: Text(Of.OPTIONS),
}  # fmt: skip


class GoldFirst(OpenRivers):
    """Open questions whose right answer comes first or last."""

    name = "rivers-gold-first"
    style = PromptStyle(header="About {label}.", footer="Next.", context="{text}")
    place = 0

    def questions(self, split: Split) -> Iterator[Question]:
        for question in super().questions(split):
            others = [choice for k, choice in enumerate(question.choices) if k != question.gold]
            choices = (question.answer, *others) if not self.place else (*others, question.answer)
            yield replace(question, choices=choices, gold=0 if not self.place else len(others))


class GoldLast(GoldFirst):
    """The same questions with the right answer last."""

    name = "rivers-gold-last"
    place = -1


def test_unlabelled_options_are_the_same_wherever_the_right_one_stands(small_model: Path, tmp_path: Path) -> None:
    found = []
    for task in (GoldFirst, GoldLast):
        reader, split_data = read(small_model, tmp_path / task.name, task, set(OPTIONS.values()))
        found.append(batch_of(reader, split_data, *OPTIONS.values()))
    one, other = found
    for signal in OPTIONS.values():
        assert one[signal].offsets.tolist() == other[signal].offsets.tolist()
        if signal.__class__ is TokenScores:
            np.testing.assert_allclose(
                one[signal].values["log_probability"], other[signal].values["log_probability"], atol=1e-4
            )
        else:
            assert one[signal].values.tolist() == other[signal].values.tolist()
    np.testing.assert_array_equal(one[OPTIONS[TokenScores]].owner, one[OPTIONS[TokenIds]].owner)


@TASKS
def test_options_are_scored_as_plain_passes_say(small_model: Path, tmp_path: Path, task: type[Task]) -> None:
    signals = {TokenScores(of) for of in (Of.OPTIONS, Of.GOLD, Of.WRONG)}
    reader, split_data = read(small_model, tmp_path, task, signals)
    ids = [TokenIds(signal.of) for signal in signals]
    batch = BatchBuilder(reader).batch(split_data, frozenset({*signals, *ids}), labels=True)
    prompts = prompts_of(split_data)
    for signal in signals:
        texts, scores = batch[TokenIds(signal.of)], batch[signal]
        assert texts.offsets.tolist() == scores.offsets.tolist()
        np.testing.assert_array_equal(texts.owner, scores.owner)
        for i, name in enumerate(batch.ids):
            owner = scores.owner[scores.offsets[i] : scores.offsets[i + 1]]
            for k in np.unique(owner):
                expected = scores_by_hand(reader.lm, prompts[name], texts[i][owner == k].tolist())
                np.testing.assert_allclose(scores[i]["log_probability"][owner == k], expected[:, 0], atol=1e-4)


class Lonely(OpenRivers):
    """Open questions of which only the right answer is known."""

    name = "rivers-lonely"

    def questions(self, split: Split) -> Iterator[Question]:
        for question in super().questions(split):
            yield replace(question, choices=(question.answer,), gold=0)


def test_an_option_that_stands_alone_is_not_told(small_model: Path, tmp_path: Path) -> None:
    reader, split_data = read(small_model, tmp_path, Lonely, set())
    for signal in (TokenIds(Of.OPTIONS), Text(Of.OPTIONS)):
        with pytest.raises(UserError, match=r"without labels, and question 'test/rivers/0' .* has the right one alone"):
            batch_of(reader, split_data, signal)


@TASKS
def test_texts_are_those_of_question_and_answer(small_model: Path, tmp_path: Path, task: type[Task]) -> None:
    reader, split_data = read(small_model, tmp_path, task, set())
    batch = batch_of(reader, split_data, Text(), Text(Of.QUESTION), Text(Of.OPTIONS))
    letters = reader.protocol.letters
    for i, row in enumerate(np.flatnonzero(split_data.usable)):
        question = split_data.questions[row]
        assert batch[Text()][i] == split_data.answers[row].text
        assert batch[Text(Of.QUESTION)][i] == context(question, split_data.task.style_of(question), letters)
        assert sorted(batch[Text(Of.OPTIONS)][i]) == sorted(question.choices)
    assert not batch[Text()].flags.writeable
    assert batch.take([0])[Text()].tolist() == [batch[Text()][0]]


# --- the declaration --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Text(Of.GOLD), "Text: of: expected one of Of.QUESTION, .* got Of.GOLD"),
        (lambda: TokenIds(Of.SAMPLES), "TokenIds: of: expected one of .* got Of.SAMPLES"),
        (lambda: Samples(0), r"expected n of at least 1, .* got Samples\(n=0\)"),
        (lambda: Samples(2.5), r"expected n of at least 1, .* got Samples\(n=2.5\)"),  # type: ignore[arg-type]
        (lambda: Samples("3"), "expected n of at least 1"),  # type: ignore[arg-type]
        (lambda: Samples(True), "expected n of at least 1"),
        (lambda: Samples(temperature=0.0), "temperature above 0"),
        (lambda: Samples(temperature=float("inf")), "temperature above 0"),
        (lambda: Samples(top_p="all"), "top_p in"),  # type: ignore[arg-type]
        (lambda: SampleAgreement(0), "expected n of at least 1"),
        (lambda: Hidden(float("nan")), "Hidden: expected depth as a fraction of the blocks, got nan"),
        (lambda: Hidden("0.5"), "Hidden: expected depth as a fraction of the blocks, got '0.5'"),  # type: ignore[arg-type]
        (lambda: Samples(top_p=1.5), r"top_p in \(0, 1\]"),
    ],
)
def test_what_is_not_told_is_refused(make: Any, said: str) -> None:
    with pytest.raises(ContractError, match=said):
        make()


def test_only_fit_may_read_the_scores_of_the_right_answer() -> None:
    refuse_gold("it", Needs(frozenset({GOLD, WRONG}), frozenset({TokenScores(Of.OPTIONS), DRAWN, Text(Of.OPTIONS)})))
    with pytest.raises(ContractError, match=r"predict would read TokenScores\(of=Of.GOLD\), which tells"):
        refuse_gold("it", Needs(predict=frozenset({GOLD})))


class Disguised(Samples):
    """Samples that are none."""


def test_samples_within_a_signal_are_plain_too() -> None:
    with pytest.raises(ContractError, match=r"expected signals of bench.api as they are, got TokenScores"):
        refuse_gold("it", Needs(predict=frozenset({TokenScores(Of.SAMPLES, samples=Disguised())})))


# --- stand-ins --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fmt", list(Format))
def test_stand_ins_are_of_the_same_samples_and_options(fmt: Format) -> None:
    texts, agrees = Text(Of.SAMPLES, samples=DRAWN), SampleAgreement(3, 0.8)
    wanted = {DRAWN, SCORED, texts, agrees, *OPTIONS.values(), Text(), TokenIds(), Hidden(), Unembedding()}
    batch = planted(wanted, 200, seed=4, fmt=fmt)
    samples: Ragged = batch[DRAWN]
    np.testing.assert_array_equal(samples.owner, batch[SCORED].owner)
    np.testing.assert_array_equal(samples.values["log_probability"], batch[SCORED].values["log_probability"])
    said = batch[texts] == batch[Text()][:, None]
    assert (said >= batch[agrees]).all()
    assert said.mean() < batch[agrees].mean() + 0.02
    assert batch[agrees][batch.correct].mean() > batch[agrees][~batch.correct].mean() + 0.2
    assert (batch[texts] == "").any()
    np.testing.assert_array_equal(batch[OPTIONS[TokenScores]].owner, batch[OPTIONS[TokenIds]].owner)
    for i in range(200):
        options = [tuple(text.split()) for text in batch[OPTIONS[Text]][i]]
        assert len(options) >= 3
        ids = batch[OPTIONS[TokenIds]]
        owner = ids.owner[ids.offsets[i] : ids.offsets[i + 1]]
        assert options == [tuple(f"w{t}" for t in ids[i][owner == k]) for k in range(len(options))]
