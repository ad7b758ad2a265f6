"""Memory of reading and training, from shapes: by hand, on the card as built, and the sentence on what can't fit."""

from __future__ import annotations

import tomllib
from importlib import resources
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from bench.api import UserError
from bench.model import training_memory
from bench.model.training_memory import TrainingPlan, plan_training
from tests.kit import passes

SETTINGS = tomllib.loads((resources.files("bench.cli") / "configs.toml").read_text(encoding="utf-8"))
WEIGHTS = {"llama8b": 8_030_261_248, "qwen14b": 14_770_033_664, "mistral24b": 23_572_403_200, "qwen32b": 32_763_876_352}
"""Parameters as the models' cards and files give them."""
BF16, TOKENS = 2, 512
WHOLE, LESS = TrainingPlan(checkpointing=False), TrainingPlan(checkpointing=True)


def config(name: str) -> Any:
    return training_memory.config_from_settings(SETTINGS[name])


@pytest.mark.parametrize("name", SETTINGS)
def test_reading_holds_weights_keys_and_values(name: str) -> None:
    text = config(name)
    found = training_memory.reading_footprint(text, torch.bfloat16, TOKENS)
    assert found.weights == BF16 * WEIGHTS[name]
    assert found.blocks == text.num_hidden_layers * 2 * 8 * 128 * (2 * TOKENS) * BF16  # 8 heads of 128, two packs long
    assert 0 < found.rest < BF16 * text.vocab_size * text.hidden_size / 4  # no copy of the head
    assert found.total == found.weights + found.blocks + found.rest


@pytest.mark.parametrize("name", ["gemma2", "gpt-oss"])
def test_memory_is_told_of_models_without_sdpa(name: str) -> None:
    text = passes.ARCHITECTURES[name]()
    text._attn_implementation = "sdpa"  # as an earlier call may leave it
    model = training_memory.build_on_meta(text, torch.bfloat16)
    assert model.config._attn_implementation == "eager"
    weights = sum(p.nbytes for p in model.parameters())
    assert training_memory.reading_footprint(text, torch.bfloat16, 64).weights == weights
    assert training_memory.training_footprint(text, torch.bfloat16, 64).weights == weights


def test_reading_is_estimated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each plan asks for it, as do the plans of several seeds."""
    first = training_memory.reading_footprint(config("llama8b"), torch.bfloat16, TOKENS)
    other = training_memory.Footprint(1, 2, 3)
    monkeypatch.setattr(training_memory, "_READING", dict(training_memory._READING))
    monkeypatch.setattr(training_memory, "_footprint", lambda *_: other)
    assert training_memory.reading_footprint(config("llama8b"), torch.bfloat16, TOKENS) is first
    assert training_memory.reading_footprint(config("llama8b"), torch.float16, TOKENS) is other


def test_training_holds_what_adds_up_by_hand() -> None:
    """Llama 8B, per token and block: what the derivatives of frozen layers and of two LoRA layers need."""
    text, wide, inner, blocks = config("llama8b"), 4096, 14336, 32
    norms = 2 * 4 * wide
    attention = 4 * BF16 * wide  # query, keys and values repeated to as many heads, output
    lora = 2 * (4 * wide + wide)  # float32 input after dropout, and its mask, of query and value
    mlp = 3 * BF16 * inner
    whole = training_memory.training_footprint(text, torch.bfloat16, TOKENS)
    assert whole.blocks / blocks / TOKENS == pytest.approx(norms + attention + lora + mlp, rel=0.05)
    assert whole.trained == 16 * 3_407_872
    kept = training_memory.training_footprint(text, torch.bfloat16, TOKENS, checkpointing=True)
    assert kept.blocks == pytest.approx(blocks * TOKENS * wide * BF16, rel=0.01)  # the states before each block
    assert kept.rest >= whole.rest * 0.9
    assert kept.total < whole.total


@pytest.mark.parametrize(
    ("name", "limit"),
    [
        ("llama8b", 24),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (("qwen14b", 40), ("mistral24b", 57), ("qwen32b", 78))
        ),
    ],
)
def test_training_with_checkpointing_takes_one_large_card(name: str, limit: int) -> None:
    needed = training_memory.training_footprint(config(name), torch.bfloat16, 2048, checkpointing=True)
    assert needed.total <= limit * 1e9


def test_fused_attention_is_put_back() -> None:
    before = torch.nn.functional.scaled_dot_product_attention
    with training_memory.use_fused_kernels():
        assert torch.nn.functional.scaled_dot_product_attention is not before
    assert torch.nn.functional.scaled_dot_product_attention is before


def plan(patch: pytest.MonkeyPatch, gigabytes: int, name: str, *devices: str, tokens: int = 2048) -> TrainingPlan:
    """The plan for a model before its weights are there, on cards of a size."""
    patch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(total_memory=gigabytes * 10**9))
    devices = devices or ("cuda:1",)
    spec, dtype = SimpleNamespace(name=name), torch.bfloat16
    lm: Any = SimpleNamespace(spec=spec, config=config(name), dtype=dtype, device=devices[0], devices=devices)
    return plan_training(lm, tokens)


@pytest.mark.parametrize(
    ("name", "gigabytes", "devices", "expected"),
    [
        ("llama8b", 85, "", WHOLE), ("llama8b", 25, "", LESS), ("mistral24b", 141, "", LESS),
        pytest.param("qwen14b", 85, "", WHOLE, marks=pytest.mark.slow),
        pytest.param("qwen14b", 42, "", LESS, marks=pytest.mark.slow),
        pytest.param("qwen32b", 85, "", LESS, marks=pytest.mark.slow),
        ("qwen32b", 40, "cuda:0 cuda:1", LESS),
        ("qwen32b", 1, "cpu", WHOLE), ("qwen32b", 1, "mps", LESS), ("llama8b", 1, "mps", WHOLE),
    ],
)  # fmt: skip
def test_plans_checkpoint_where_cards_have_no_room(
    monkeypatch: pytest.MonkeyPatch, name: str, gigabytes: int, devices: str, expected: TrainingPlan
) -> None:
    assert plan(monkeypatch, gigabytes, name, *devices.split()) == expected


@pytest.mark.parametrize(
    ("name", "gigabytes", "devices", "tokens", "said"),
    [
        ("qwen32b", 40, "", 2048, r"qwen32b takes about 7\d GB .* 2,048 tokens .* cuda:1 has 40 GB: use a smaller"),
        ("llama8b", 21, "", 16_384, r"llama8b takes .* use fewer tokens a pass \(--training-budget\) or a larger"),
        pytest.param(
            "qwen32b",
            25,
            "cuda:0 cuda:1",
            2048,
            r"qwen32b takes about 7\d GB .* cuda:0 \+ cuda:1 has 50 GB: use a sm",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_plans_that_do_not_fit_are_refused(
    monkeypatch: pytest.MonkeyPatch, name: str, gigabytes: int, devices: str, tokens: int, said: str
) -> None:
    with pytest.raises(UserError, match=said):
        plan(monkeypatch, gigabytes, name, *devices.split(), tokens=tokens).check()


def test_plans_that_fit_or_are_unknown_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    plan(monkeypatch, 21, "llama8b", tokens=256).check()

    def unknown(*_: Any) -> Any:
        raise ValueError("code of its own")

    monkeypatch.setattr(training_memory, "build_on_meta", unknown)
    assert plan(monkeypatch, 1, "llama8b") == WHOLE
