"""Packed passes against plain ones: same states, same answers, same logits, whatever the architecture."""

from __future__ import annotations

import functools
import os
import weakref
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from bench.api import At, ChoiceLogits, Hidden, QueryLogits, Samples, Signal, UserError
from bench.model.continuation_specs import ModelInput
from bench.model.extractor import Extractor, ShardOutput
from bench.model.language_model import LanguageModel, LoadOptions
from bench.model.specs import ModelSpec
from bench.model.token_sampling import sample_tokens, uniform_numbers
from bench.prompts.prompt_settings import PromptSettings
from bench.signals.definition import pass_definitions
from tests.fixtures import models

VOCABULARY = 120
SHAPE: dict[str, Any] = {
    "vocab_size": VOCABULARY, "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4,
    "intermediate_size": 96, "max_position_embeddings": 512, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip
ARCHITECTURES: dict[str, Any] = {
    "llama": lambda: models.llama(**SHAPE, num_key_value_heads=2),
    "qwen2": lambda: transformers.Qwen2Config(**SHAPE, num_key_value_heads=2),
    "mistral with a window": lambda: transformers.MistralConfig(**SHAPE, num_key_value_heads=2, sliding_window=16),
    "gemma2": lambda: transformers.Gemma2Config(
        **SHAPE, num_key_value_heads=2, head_dim=16, sliding_window=16, attn_implementation="eager"
    ),
    "phi": lambda: transformers.PhiConfig(**SHAPE),
    "gpt2": lambda: transformers.GPT2Config(
        vocab_size=VOCABULARY, n_embd=64, n_layer=4, n_head=4, n_positions=512, bos_token_id=1, eos_token_id=2
    ),
    "cohere": lambda: transformers.CohereConfig(**SHAPE, num_key_value_heads=2, logit_scale=0.25),
    "mamba": lambda: transformers.MambaConfig(
        vocab_size=VOCABULARY, hidden_size=64, num_hidden_layers=4, bos_token_id=1, eos_token_id=2, pad_token_id=0
    ),
}
UNSHARED = {"mamba"}
"""Without attention there is no cache that branches could share."""

SUFFIX = np.asarray([5, 6, 7, 8], dtype=np.int32)
VERDICTS = np.asarray([10, 11], dtype=np.int32)
LETTERS = np.asarray([10, 11, 12, 13], dtype=np.int32)
SIGNALS = [
    Hidden(1.0, At.PROMPT_END), Hidden(1.0, At.ANSWER_PREDICTING), Hidden(1.0, At.ANSWER_END),
    Hidden(0.5, At.ANSWER_END), Hidden(0.75, At.ANSWER_PREDICTING), ChoiceLogits(), QueryLogits(),
]  # fmt: skip
TOLERANCE = {"atol": 1e-4, "rtol": 1e-4}


def save_model(config: Any, folder: Path) -> Path:
    return models.save(folder, config, models.words(VOCABULARY, pad_token="w0"))


ALIKE = {"qwen2", "phi", "cohere"}
"""Architectures that differ from others in their weights alone."""


def distinct(names: Iterable[str]) -> list[Any]:
    """Parameters for tests of other modules, where those that are `ALIKE` are slow."""
    return [pytest.param(name, marks=pytest.mark.slow if name in ALIKE else ()) for name in names]


def loaded(name: str, folder: Path) -> LanguageModel:
    save_model(ARCHITECTURES[name](), folder)
    return LanguageModel(ModelSpec(name, str(folder), local=True), LoadOptions(device="cpu"))


@pytest.fixture(scope="module", params=list(ARCHITECTURES))
def lm(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    return loaded(request.param, tmp_path_factory.mktemp("model"))


def prompts() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    system, exemplars = rng.integers(9, VOCABULARY, 20), rng.integers(9, VOCABULARY, (2, 30))
    tails = [rng.integers(9, VOCABULARY, size) for size in (3, 9, 14, 5, 40)]
    bodies = [[*exemplars[i % 2], *tail] for i, tail in enumerate(tails)]
    bodies.append([*bodies[2][:-4], 50, 51])  # shares most of its question with another
    bodies.append(bodies[1])  # an exact duplicate
    return [np.asarray([*system, *body], dtype=np.int32) for body in bodies]


def items(answers: list[np.ndarray] | None = None, options: list[int] | None = None, **more: Any) -> list[ModelInput]:
    stored = answers or [None] * 7
    return [
        ModelInput(prompt, (options or [4] * 7)[i], stored[i], **{name: value[i] for name, value in more.items()})
        for i, prompt in enumerate(prompts())
    ]


def prompt_settings(max_new_tokens: int, budget: int = 64) -> PromptSettings:
    return PromptSettings(max_new_tokens, LETTERS, SUFFIX, VERDICTS, budget)


def extractor(lm: LanguageModel, asked: PromptSettings, signals: Sequence[Signal]) -> Extractor:
    return Extractor(lm, asked, pass_definitions(signals))


def plain(lm: LanguageModel, ids: np.ndarray) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
    """Logits and hidden states of one whole sequence, through the model's own forward, without a cache."""
    with torch.inference_mode():
        out = lm.model(torch.as_tensor(ids, dtype=torch.long)[None], output_hidden_states=True, use_cache=False)
    return out.logits[0].float(), tuple(h[0] for h in out.hidden_states)


@functools.lru_cache(maxsize=400)
def plain_once(lm: LanguageModel, ids: tuple[int, ...]) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
    """`plain` of a sequence that several tests read."""
    return plain(lm, np.asarray(ids))


def assert_chosen(
    lm: LanguageModel, prompt: np.ndarray, said: list[int], limit: int, choose: Callable[[int, torch.Tensor], int]
) -> None:
    """Of logits of plain passes, at the i-th place, `choose` takes each token that was said, and then an end."""
    logits, _ = plain_once(lm, (*prompt.tolist(), *said, *SUFFIX.tolist()))
    chosen = [choose(i, logits[len(prompt) - 1 + i]) for i in range(min(len(said) + 1, limit))]
    assert chosen[: len(said)] == said
    assert set(chosen[len(said) :]) <= lm.stops


def assert_greedy(lm: LanguageModel, answers: list[list[int]], limit: int) -> None:
    for prompt, answer in zip(prompts(), answers, strict=True):
        assert_chosen(lm, prompt, answer, limit, lambda _, logits: int(logits.argmax()))


def check_against_plain(lm: LanguageModel, measured: ShardOutput, answers: list[list[int]]) -> None:
    """Every signal of every question equals that of a pass over the whole conversation alone."""
    first = 1 if lm.spec.name == "mamba" else 0  # its list of states has no embeddings at the front
    offsets = {s: c["offsets"].tolist() for s, c in measured.columns.items() if "offsets" in c}
    for i, (prompt, answer) in enumerate(zip(prompts(), answers, strict=True)):
        n, length = len(prompt), len(answer)
        logits, hidden = plain_once(lm, (*prompt.tolist(), *answer, *SUFFIX.tolist()))
        got = {
            s: c["values"][offsets[s][i] : offsets[s][i + 1]] if s in offsets else c["values"][i]
            for s, c in measured.columns.items()
        }
        expected = {
            Hidden(1.0, At.PROMPT_END): hidden[-1][n - 1],
            Hidden(1.0, At.ANSWER_PREDICTING): hidden[-1][n - 1 : n + length - 1],
            Hidden(1.0, At.ANSWER_END): hidden[-1][n + length - 1],
            Hidden(0.5, At.ANSWER_END): hidden[2 - first][n + length - 1],
            Hidden(0.75, At.ANSWER_PREDICTING): hidden[3 - first][n - 1 : n + length - 1],
            ChoiceLogits(): logits[n - 1][LETTERS.tolist()],
            QueryLogits(): logits[-1][VERDICTS.tolist()],
        }
        for signal, value in expected.items():
            torch.testing.assert_close(got[signal], value, **TOLERANCE, msg=lambda m, s=signal: f"{s}: {m}")


@pytest.mark.parametrize("limit", [1, 4])
def test_generated_answers_and_signals_are_those_of_plain_passes(lm: LanguageModel, limit: int) -> None:
    measured = extractor(lm, prompt_settings(limit), SIGNALS).extract(items())
    answers = [a.tolist() for a in measured.answers]
    assert_greedy(lm, answers, limit)
    check_against_plain(lm, measured, answers)


@pytest.mark.parametrize("budget", [1, 17, 4096])
def test_stored_answers_give_the_same_signals_whatever_the_budget(lm: LanguageModel, budget: int) -> None:
    answers = [[20, 21], [30], [40, 41, 42], [50], [60, 61], [70], [30]]
    stored = [np.asarray(a, dtype=np.int32) for a in answers]
    measured = extractor(lm, prompt_settings(6, budget), SIGNALS).extract(items(stored))
    assert [a.tolist() for a in measured.answers] == answers
    check_against_plain(lm, measured, answers)


def test_only_architectures_without_attention_go_unshared(lm: LanguageModel) -> None:
    assert lm.uses_packs == (lm.spec.name not in UNSHARED)


def test_the_head_gives_the_logits(lm: LanguageModel) -> None:
    logits, hidden = plain(lm, prompts()[0])
    torch.testing.assert_close(lm.head.logits(hidden[-1]), logits, **TOLERANCE)
    last = int(logits[-1].argmax())
    assert last == int(lm.head.logits(hidden[-1][-1:]).argmax())


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    return loaded("llama", tmp_path_factory.mktemp("llama"))


def test_nothing_is_read_twice(llama: LanguageModel) -> None:
    distinct = {tuple(p[:n]) for p in prompts() for n in range(1, len(p) + 1)}
    measured = extractor(llama, prompt_settings(1, 10_000), SIGNALS).extract(items())
    assert measured.costs["answers"].forward_tokens == len(distinct)
    assert measured.costs["query"].forward_tokens == 6 * (1 + len(SUFFIX))  # six distinct questions


def test_open_answers_cost_one_position_a_token(llama: LanguageModel) -> None:
    measured = extractor(llama, prompt_settings(6, 10_000), SIGNALS).extract(items())
    distinct = {tuple(p[:n]) for p in prompts() for n in range(1, len(p) + 1)}
    tokens = sum(len(a) for a in measured.answers[:6])  # the seventh question is a duplicate
    total = sum(cost.forward_tokens for cost in measured.costs.values())
    assert total == len(distinct) + tokens + 6 * len(SUFFIX)


def test_absent_options_have_no_logit(llama: LanguageModel) -> None:
    measured = extractor(llama, prompt_settings(1), [ChoiceLogits()]).extract(items(options=[4, 2, 3, 4, 4, 4, 2]))
    finite = torch.isfinite(measured.columns[ChoiceLogits()]["values"]).sum(dim=1)
    assert finite.tolist() == [4, 2, 3, 4, 4, 4, 2]


def test_a_prompt_without_an_answer_has_no_verdict(llama: LanguageModel) -> None:
    empty = [np.zeros(0, dtype=np.int32), *(np.asarray([20], dtype=np.int32) for _ in range(6))]
    measured = extractor(llama, prompt_settings(1), SIGNALS).extract(items(empty))
    verdicts = measured.columns[QueryLogits()]["values"]
    assert torch.isnan(verdicts[0]).all()
    assert torch.isfinite(verdicts[1:]).all()
    assert measured.columns[Hidden(1.0, At.ANSWER_PREDICTING)]["offsets"].tolist() == [0, 0, 1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("n_empty", [1, 7])
def test_the_query_alone_is_not_read_where_there_is_no_answer(llama: LanguageModel, n_empty: int) -> None:
    said = [np.asarray([] if i < n_empty else [20], dtype=np.int32) for i in range(7)]
    whole = extractor(llama, prompt_settings(1), SIGNALS).extract(items(said)).columns[QueryLogits()]["values"]
    llama.session.reset()
    measured = extractor(llama, prompt_settings(1), [QueryLogits()]).extract(items(said))
    assert torch.equal(measured.columns[QueryLogits()]["values"].isnan(), whole.isnan())
    torch.testing.assert_close(measured.columns[QueryLogits()]["values"], whole, equal_nan=True)
    sequences = [[*p, 20, *SUFFIX] for p in prompts()[n_empty:]]
    distinct = {tuple(ids[:n]) for ids in sequences for n in range(1, len(ids) + 1)}
    assert sum(cost.forward_tokens for cost in measured.costs.values()) == len(distinct)


def test_out_of_memory_halves_the_pack_and_changes_nothing(
    llama: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    calm = extractor(llama, prompt_settings(1, 4096), SIGNALS).extract(items())
    forward = type(llama.session).forward

    def cramped(self: Any, ids: np.ndarray, *rest: Any) -> Any:
        if len(ids) > 70:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return forward(self, ids, *rest)

    monkeypatch.setattr(type(llama.session), "forward", cramped)
    halved = extractor(llama, prompt_settings(1, 4096), SIGNALS).extract(items())
    assert halved.halvings > 0
    assert [a.tolist() for a in halved.answers] == [a.tolist() for a in calm.answers]
    for signal in SIGNALS:
        torch.testing.assert_close(halved.columns[signal]["values"], calm.columns[signal]["values"], **TOLERANCE)


def test_a_single_prompt_too_large_for_memory_is_a_clear_error(
    llama: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory")

    assert llama.uses_packs
    monkeypatch.setattr(type(llama.session), "forward", full)
    with pytest.raises(UserError, match="does not fit into the memory"):
        extractor(llama, prompt_settings(1), SIGNALS).extract(items())


def test_other_errors_of_a_pass_are_not_taken_for_lack_of_memory(
    llama: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> Any:
        raise RuntimeError("shapes differ")

    assert llama.uses_packs
    monkeypatch.setattr(type(llama.session), "forward", broken)
    with pytest.raises(RuntimeError, match="shapes differ"):
        extractor(llama, prompt_settings(1), SIGNALS).extract(items())


def test_half_precision_states_keep_their_dtype(tmp_path: Path) -> None:
    folder = save_model(ARCHITECTURES["llama"](), tmp_path)
    lm = LanguageModel(ModelSpec("llama", str(folder), local=True), LoadOptions(device="cpu", dtype="bfloat16"))
    measured = extractor(lm, prompt_settings(1), [Hidden(1.0, At.PROMPT_END)]).extract(items())
    assert measured.columns[Hidden(1.0, At.PROMPT_END)]["values"].dtype == torch.bfloat16


def test_a_head_that_is_not_the_models_is_refused(llama: LanguageModel, tmp_path: Path) -> None:
    folder = save_model(ARCHITECTURES["llama"](), tmp_path)
    lm = LanguageModel(ModelSpec("llama", str(folder), local=True), LoadOptions(device="cpu"))
    lm.head.weight.mul_(1.5)
    lm.model.lm_head = torch.nn.Linear(64, VOCABULARY, bias=False)
    with pytest.raises(UserError, match="differ from its logits"):
        _ = lm.uses_packs


def test_one_depth_is_one_block(llama: LanguageModel) -> None:
    assert [llama.block_of(depth) for depth in (0.25, 0.5, 0.75, 0.99, 1.0)] == [1, 2, 3, 3, 4]
    with pytest.raises(UserError, match="depth"):
        llama.block_of(0.1)


def test_another_split_with_the_same_exemplars_reads_them_from_the_kept_piece_to_the_same_bits(
    llama: LanguageModel,
) -> None:
    rng = np.random.default_rng(1)
    exemplars = [rng.integers(9, VOCABULARY, 100) for _ in range(2)]

    def split() -> list[ModelInput]:
        tails = rng.integers(9, VOCABULARY, (6, 12))
        return [ModelInput(np.asarray([*exemplars[i % 2], *tail], dtype=np.int32), 4) for i, tail in enumerate(tails)]

    first, second = split(), split()
    reads = extractor(llama, prompt_settings(1, 4096), SIGNALS)
    llama.session.reset()
    fresh = reads.extract(second)
    llama.session.reset()
    reads.extract(first)
    after = reads.extract(second)
    saved = fresh.costs["answers"].forward_tokens - after.costs["answers"].forward_tokens
    assert saved == 2 * 100
    for signal in SIGNALS:
        assert torch.equal(fresh.columns[signal]["values"], after.columns[signal]["values"])


# --- options and samples ----------------------------------------------------------------------------------------------


def test_states_of_right_and_wrong_answers_are_those_of_plain_passes(lm: LanguageModel) -> None:
    gold = [np.asarray(ids, dtype=np.int32) for ids in ([20, 21], [30], [40, 41, 42], [50], [20], [60, 61], [30])]
    wrong = [(np.asarray([20, 22], dtype=np.int32), np.asarray([33, 34, 35], dtype=np.int32))] * 7
    signals = [Hidden(1.0, At.GOLD_PREDICTING), Hidden(0.5, At.WRONG_PREDICTING), QueryLogits()]
    measured = extractor(lm, prompt_settings(3), signals).extract(items(gold=gold, wrong=wrong))
    first = 1 if lm.spec.name == "mamba" else 0
    for signal, options, layer in ((signals[0], [[g] for g in gold], -1), (signals[1], wrong, 2 - first)):
        column = measured.columns[signal]
        for i, prompt in enumerate(prompts()):
            got = column["values"][column["offsets"][i] : column["offsets"][i + 1]]
            expected = [
                plain_once(lm, (*prompt.tolist(), *option.tolist()))[1][layer][
                    len(prompt) - 1 : len(prompt) + len(option) - 1
                ]
                for option in options[i]
            ]
            torch.testing.assert_close(got, torch.cat(expected), **TOLERANCE)


def drawn_by_hand(number: float, logits: torch.Tensor, temperature: float) -> int:
    cumulated = torch.softmax(logits.double() / temperature, -1).cumsum(-1).numpy()
    return int(np.searchsorted(cumulated, number * cumulated[-1], side="right"))


@pytest.mark.parametrize("limit", [1, 3])
def test_samples_are_those_drawn_by_hand_and_duplicates_differ(lm: LanguageModel, limit: int) -> None:
    numbers = [uniform_numbers(3, f"q{i}", 3, limit) for i in range(7)]
    signal = Samples(3, 0.7)
    column = extractor(lm, prompt_settings(limit), [signal]).extract(items(uniforms=numbers)).columns[signal]
    for i, prompt in enumerate(prompts()):
        row = column["values"][column["offsets"][i] : column["offsets"][i + 1]].tolist()
        ends = [-1, *(k for k, token in enumerate(row) if token < 0)]
        assert (len(ends), ends[-1]) == (4, len(row) - 1)
        for own, (before, end) in zip(numbers[i], pairwise(ends), strict=True):
            said = row[before + 1 : end]
            assert_chosen(lm, prompt, said, limit, lambda k, z, own=own: drawn_by_hand(own[k], z, 0.7))
    assert numbers[1].tolist() != numbers[6].tolist()  # two questions with one prompt


def test_samples_drawn_in_two_ways_are_both_kept(llama: LanguageModel) -> None:
    numbers = [uniform_numbers(3, f"q{i}", 5, 4) for i in range(7)]
    signals = [Samples(5, 0.7), Samples(3, 2.0)]
    both = extractor(llama, prompt_settings(4), signals).extract(items(uniforms=numbers)).columns
    for signal in signals:
        alone = extractor(llama, prompt_settings(4), [signal]).extract(items(uniforms=numbers)).columns[signal]
        assert both[signal]["values"].tolist() == alone["values"].tolist()
    assert both[signals[0]]["values"].tolist() != both[signals[1]]["values"].tolist()


def test_samples_of_letters_need_no_further_pass(llama: LanguageModel) -> None:
    numbers = [uniform_numbers(0, f"q{i}", 10, 1) for i in range(7)]
    measured = extractor(llama, prompt_settings(1), [Samples()]).extract(items(uniforms=numbers))
    assert measured.costs["samples"].forward_tokens == 0


def test_samples_that_begin_alike_are_read_once(llama: LanguageModel) -> None:
    numbers = [uniform_numbers(0, f"q{i}", 10, 6) for i in range(7)]
    signal = Samples(10, 0.05)  # nearly greedy: most samples are the answer itself
    measured = extractor(llama, prompt_settings(6, 10_000), [signal]).extract(items(uniforms=numbers))
    read = {tuple(p[:n]) for p in prompts() for n in range(1, len(p) + 1)}
    column = measured.columns[signal]
    for i, prompt in enumerate(prompts()):
        row = column["values"][column["offsets"][i] : column["offsets"][i + 1]].tolist()
        ends = [k for k, token in enumerate(row) if token < 0]
        samples = [row[start + 1 : end] for start, end in zip([-1, *ends], ends, strict=False)]
        for ids in [*samples, measured.answers[i].tolist()]:
            fed = ids if len(ids) < 6 else ids[:-1]
            read |= {(*prompt, *fed[:n]) for n in range(1, len(fed) + 1)}
    assert sum(cost.forward_tokens for cost in measured.costs.values()) == len(read)


def test_a_query_that_does_not_continue_the_prompt_is_read_whole(lm: LanguageModel) -> None:
    other = [np.concatenate([prompt[:3], [40], prompt[3:]]).astype(np.int32) for prompt in prompts()]
    stored = [np.asarray([20, 21], dtype=np.int32)] * 7
    measured = extractor(lm, prompt_settings(2), [QueryLogits()]).extract(items(stored, query_prompt=other))
    for i, before in enumerate(other):
        logits, _ = plain(lm, np.asarray([*before, 20, 21, *SUFFIX]))
        torch.testing.assert_close(
            measured.columns[QueryLogits()]["values"][i], logits[-1][VERDICTS.tolist()], **TOLERANCE
        )


@pytest.mark.parametrize(("top_p", "expected"), [(1.0, [0, 1, 1, 2, 3]), (0.75, [0, 1, 1, 2, 2]), (0.3, [1] * 5)])
def test_draw_is_the_inverse_cdf(top_p: float, expected: list[int]) -> None:
    logits = torch.tensor([[0.2, 0.5, 0.2, 0.1]]).log()
    numbers = [0.1, 0.3, 0.69, 0.8, 0.999]
    assert sample_tokens(logits, [0] * 5, numbers, 1.0, top_p) == expected


def test_draws_follow_the_distribution() -> None:
    logits = torch.tensor([[1.0, 0.0, -1.0, 2.0]])
    tokens = sample_tokens(logits, [0] * 20_000, np.random.default_rng(0).random(20_000).tolist(), 2.0, 1.0)
    expected = torch.softmax(logits[0] / 2.0, -1).numpy()
    np.testing.assert_allclose(np.bincount(tokens, minlength=4) / 20_000, expected, atol=0.015)


@pytest.mark.parametrize(("device", "place"), [("cpu", None), ("cuda", "cuda"), ("cuda:1", "cuda:1"), ("mps", "mps")])
def test_weights_are_loaded_straight_to_an_accelerator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: str, place: str | None
) -> None:
    """The CPU takes the accelerator's place: the same way in, and the same bits."""
    folder = save_model(models.llama(**SHAPE), tmp_path)
    plain = LanguageModel(ModelSpec("llama", str(folder), local=True), LoadOptions(device="cpu"))
    load, asked = transformers.AutoModelForCausalLM.from_pretrained, []

    def recorded(*args: Any, **settings: Any) -> Any:
        asked.append(settings.get("device_map"))
        return load(*args, **settings | ({"device_map": {"": "cpu"}} if "device_map" in settings else {}))

    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", recorded)
    placed = LanguageModel(plain.spec, plain.options)
    placed.devices, placed.dtype = (device,), torch.float32
    there = placed._load("sdpa")
    assert asked == [None if place is None else {"": torch.device(place)}]
    weights = plain.model.state_dict()
    assert all(torch.equal(weights[name], tensor) for name, tensor in there.state_dict().items())
    assert not any(hasattr(module, "_hf_hook") for module in there.modules())  # it moves to and fro as it did


def test_weights_that_were_released_are_loaded_again_with_the_same_bits(tmp_path: Path) -> None:
    folder = save_model(models.llama(**SHAPE), tmp_path)
    lm = LanguageModel(ModelSpec("llama", str(folder), local=True), LoadOptions(device="cpu"))
    ids, read = np.arange(5, 30, dtype=np.int32), {lm.blocks: np.arange(25)}
    assert lm.uses_packs
    before = lm.head.logits(lm.session.read_alone(ids, read)[lm.blocks])
    gone = [weakref.ref(lm.model), weakref.ref(lm.head.weight), weakref.ref(lm.session)]
    layers = lm.layers
    lm.release()
    assert [each() for each in gone] == [None] * 3
    assert (lm.uses_packs, lm.layers) == (True, layers)
    assert "model" not in vars(lm)  # what is known of it needs no weights
    after = lm.head.logits(lm.session.read_alone(ids, read)[lm.blocks])
    assert torch.equal(before, after)


def test_files_that_changed_while_weights_were_released_are_not_loaded(tmp_path: Path) -> None:
    folder = save_model(models.llama(**SHAPE), tmp_path)
    lm = LanguageModel(ModelSpec("llama", str(folder), local=True), LoadOptions(device="cpu"))
    lm.model  # noqa: B018 - loads it
    lm.release()
    file = folder / "model.safetensors"
    kept, stat = file.read_bytes(), file.stat()
    file.write_bytes(kept[:-4] + bytes(4))
    with pytest.raises(
        UserError, match=r"expected the files that were loaded before, found others .* what was computed"
    ):
        lm.model  # noqa: B018
    file.unlink()
    with pytest.raises(UserError, match=r"expected weights as \*.safetensors in its folder, found none"):
        lm.model  # noqa: B018
    file.write_bytes(kept)
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert lm.model is not None
