"""Token scores are those of a plain forward pass, cost no token of their own, and come back from the store."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bench.api import (
    At,
    ChoiceLogits,
    ContractError,
    Hidden,
    Of,
    QueryLogits,
    Ragged,
    Signal,
    Task,
    TokenIds,
    TokenScores,
    UserError,
)
from bench.model.continuation_specs import ModelInput
from bench.model.extractor import Extractor
from bench.model.language_model import LanguageModel, LoadOptions
from bench.model.specs import ModelSpec
from bench.prompts.prompt_settings import PromptSettings
from bench.signals import token_scores
from bench.signals.batch_builder import BatchBuilder
from bench.signals.definition import continuation_specs_of, definition, pass_definitions
from tests.fixtures import models
from tests.unit.run.test_costs import SAID, FewRivers, OpenRivers, read

VOCABULARY = 120
CLOSE = {"atol": 1e-5, "rtol": 1e-5}


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    config = models.llama(vocab_size=VOCABULARY, hidden_size=64, num_hidden_layers=3, max_position_embeddings=128)
    words = models.words(VOCABULARY, pad_token="w0")
    folder = models.save(tmp_path_factory.mktemp("llama"), config, words)
    return LanguageModel(ModelSpec("llama", str(folder), local=True), LoadOptions(device="cpu"))


def prompts() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    shared = rng.integers(9, VOCABULARY, 20)
    bodies = [rng.integers(9, VOCABULARY, size) for size in (3, 9, 14, 5)]
    return [np.asarray([*shared, *body], dtype=np.int32) for body in (*bodies, bodies[1])]


def prompt_settings(limit: int) -> PromptSettings:
    return PromptSettings(limit, np.asarray([10, 11]), np.asarray([5, 6], dtype=np.int32), np.asarray([10, 11]), 64)


def measured(lm: LanguageModel, signals: list[Signal], limit: int, answers: list[list[int]] | None = None) -> Any:
    said = [None] * 5 if answers is None else [np.asarray(ids, dtype=np.int32) for ids in answers]
    items = [ModelInput(prompt, 2 if limit == 1 else 0, ids) for prompt, ids in zip(prompts(), said, strict=True)]
    return Extractor(lm, prompt_settings(limit), pass_definitions(signals)).extract(items)


def by_hand(lm: LanguageModel, prompt: np.ndarray, answer: list[int], top: int) -> dict[str, torch.Tensor]:
    """Scores from one plain forward pass over prompt and answer, in float64."""
    ids = torch.as_tensor([*prompt, *answer])
    with torch.inference_mode():
        logits = lm.model(ids[None], use_cache=False).logits[0].double()
    scores = logits.log_softmax(-1)[len(prompt) - 1 : len(ids) - 1]
    ordered = scores.sort(dim=-1, descending=True)
    return {
        "log_probability": scores[torch.arange(len(answer)), ids[len(prompt) :]],
        "entropy": -(scores.exp() * scores).sum(-1),
        "divergence": -scores.mean(-1) - math.log(VOCABULARY),
        "top_ids": ordered.indices[:, :top],
        "top_log_probabilities": ordered.values[:, :top],
    }


def check(lm: LanguageModel, column: dict[str, torch.Tensor], answers: list[list[int]], top: int) -> None:
    assert column["offsets"].diff().tolist() == [len(answer) for answer in answers]
    assert set(column) - {"divergence"} == {*(TokenScores(top=top).dtype.names or ()), "offsets"}
    for i, (prompt, answer) in enumerate(zip(prompts(), answers, strict=True)):
        rows = slice(*column["offsets"][i : i + 2].tolist())
        for name, expected in by_hand(lm, prompt, answer, top).items():
            if name in column:
                torch.testing.assert_close(column[name][rows], expected.to(column[name].dtype), **CLOSE)


@pytest.mark.parametrize("limit", [1, 6])
@pytest.mark.parametrize("top", [0, 3, VOCABULARY])
def test_scores_of_generated_answers_are_those_of_a_plain_pass(llama: LanguageModel, limit: int, top: int) -> None:
    found = measured(llama, [TokenScores(top=top)], limit)
    answers = [ids.tolist() for ids in found.answers]
    assert max(map(len, answers)) == limit
    check(llama, found.columns[TokenScores(top=top)], answers, top)


@pytest.mark.parametrize("top", [0, 3])
def test_the_divergence_from_uniform_is_kept_where_it_is_asked_for(llama: LanguageModel, top: int) -> None:
    signal = TokenScores(top=top, divergence=True)
    found = measured(llama, [signal, TokenScores(top=top)], 6)
    check(llama, found.columns[signal], [ids.tolist() for ids in found.answers], top)
    assert set(found.columns[signal]) - set(found.columns[TokenScores(top=top)]) == {"divergence"}


def test_impossible_tokens_are_none_of_those_that_a_divergence_is_of() -> None:
    logits = torch.full((1, 8), -math.inf)
    logits[0, :4] = torch.tensor([0.7, 0.1, 0.1, 0.1]).log()
    found = token_scores._divergence(logits.log_softmax(-1))
    assert found.item() == pytest.approx(-math.log(0.7 * 0.1**3) / 4 - math.log(4))


@pytest.mark.parametrize("others", [[], [QueryLogits(), Hidden(0.5, At.ANSWER_END)]], ids=["alone", "beside others"])
def test_scores_of_stored_answers_are_those_of_a_plain_pass(llama: LanguageModel, others: list[Signal]) -> None:
    answers = [[20, 21], [30], [], [50, 51, 52], [31, 30]]
    found = measured(llama, [TokenScores(top=2), *others], 6, answers)
    check(llama, found.columns[TokenScores(top=2)], answers, 2)


def test_answers_longer_than_what_is_scored_at_once(llama: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_scores, "CHUNK", 4)
    answers = [[20, 21, 22, 23, 24], [30], [], [50, 51, 52], [31, 30]]
    check(llama, measured(llama, [TokenScores(top=2)], 6, answers).columns[TokenScores(top=2)], answers, 2)


def test_where_nothing_was_answered_nothing_is_read_or_scored(llama: LanguageModel) -> None:
    found = measured(llama, [TokenScores(top=2)], 6, [[]] * 5)
    assert sum(cost.forward_tokens for cost in found.costs.values()) == 0
    check(llama, found.columns[TokenScores(top=2)], [[]] * 5, 2)


def test_more_tokens_than_there_are_is_a_clear_error(llama: LanguageModel) -> None:
    with pytest.raises(UserError, match=r"TokenScores\(top=121\): expected at most 120 tokens"):
        measured(llama, [TokenScores(top=121)], 1)


@pytest.mark.parametrize("limit", [1, 6])
def test_scores_cost_no_token_beyond_generating_the_answer(llama: LanguageModel, limit: int) -> None:
    def tokens(signals: list[Signal]) -> int:
        llama.session.reset()
        return sum(cost.forward_tokens for cost in measured(llama, signals, limit).costs.values())

    assert tokens([TokenScores(top=3)]) == tokens([])
    states: list[Signal] = [Hidden(1.0, At.ANSWER_END), QueryLogits()]
    assert tokens([TokenScores(top=3), *states]) == tokens(states)


# --- through the store ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("said", [(), SAID], ids=["generated", "released"])
@pytest.mark.parametrize("task", [FewRivers, OpenRivers], ids=lambda t: t.name)
def test_scores_come_back_from_the_store(
    small_model: Path, tmp_path: Path, task: type[Task], said: tuple[str, ...]
) -> None:
    signal = TokenScores(top=2)
    reader, split_data = read(small_model, tmp_path, task, {signal}, said)
    again, stored = read(small_model, tmp_path, task, {signal}, said)
    assert (reader.forward_tokens > 0, again.forward_tokens) == (True, 0)
    first, second = (
        BatchBuilder(each).batch(of, frozenset({signal}), labels=False)[signal]
        for each, of in ((reader, split_data), (again, stored))
    )
    assert isinstance(first, Ragged)
    assert first.values.tobytes() == second.values.tobytes()
    assert first.values.dtype == signal.dtype
    lengths = [len(ids) for _, ids in split_data.pairs()]
    assert first.lengths.tolist() == [lengths[k] for k in split_data.order[split_data.usable]]
    probabilities = np.exp(first.values["top_log_probabilities"])
    assert (np.exp(first.values["log_probability"]) <= probabilities[:, 0] + 1e-6).all()
    if not said:  # greedy decoding chose the likeliest token each time
        np.testing.assert_allclose(first.values["log_probability"], first.values["top_log_probabilities"][:, 0])


# --- the declaration --------------------------------------------------------------------------------------------------


def test_a_record_has_the_fields_that_are_asked_for() -> None:
    assert TokenScores().dtype == np.dtype([("log_probability", "f4"), ("entropy", "f4")])
    wide = [("top_ids", "i8", (3,)), ("top_log_probabilities", "f4", (3,))]
    assert TokenScores(top=3).dtype == np.dtype([("log_probability", "f4"), ("entropy", "f4"), *wide])
    far = TokenScores(divergence=True)
    assert far.dtype.names == ("log_probability", "entropy", "divergence")
    named = [repr(TokenScores()), repr(TokenScores(top=3)), repr(far)]
    assert named == ["TokenScores()", "TokenScores(top=3)", "TokenScores(divergence=True)"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"of": Of.PROMPT}, "expected one of Of.ANSWER, .* got Of.PROMPT"),
        ({"top": -1}, "at least 0, got -1"),
        ({"top": 1.5}, "at least 0, got 1.5"),
    ],
)
def test_what_is_not_measured_is_refused(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(ContractError, match=said):
        TokenScores(**arguments)


def test_the_stand_in_is_what_the_planted_head_says() -> None:
    from bench.api import TokenIds, Unembedding
    from bench.signals.synthetic import planted

    signal = TokenScores(top=4)
    batch = planted({signal, TokenIds(), Hidden(), Unembedding()}, 50, seed=3)
    scores = batch[signal]
    logits = batch[Unembedding()].logits(torch.tensor(batch[Hidden()].values)).double()
    expected = logits.log_softmax(-1)
    ids = torch.tensor(batch[TokenIds()].values)
    np.testing.assert_allclose(scores.values["log_probability"], expected.gather(-1, ids[:, None])[:, 0], atol=1e-5)
    np.testing.assert_allclose(scores.values["entropy"], -(expected.exp() * expected).sum(-1), atol=1e-5)
    assert scores.values["top_ids"].tolist() == expected.topk(4).indices.tolist()
    assert definition(signal).continuations == definition(Hidden()).continuations


def test_a_signal_of_the_prompts_end_alone_is_not_taken_for_none() -> None:
    assert continuation_specs_of({ChoiceLogits()}) != continuation_specs_of({TokenIds()})
