"""Memory from shapes: against numbers that can be worked out by hand."""

from __future__ import annotations

import tomllib
from importlib import resources
from typing import Any

import pytest
import torch

from bench.model import training_memory

SETTINGS = tomllib.loads((resources.files("bench.cli") / "configs.toml").read_text(encoding="utf-8"))
WEIGHTS = {"llama8b": 8_030_261_248, "qwen14b": 14_770_033_664, "mistral24b": 23_572_403_200, "qwen32b": 32_763_876_352}
"""Parameters as the models' cards and files give them."""
BF16 = 2
TOKENS = 512


def config(name: str) -> Any:
    return training_memory.config_from_settings(SETTINGS[name])


@pytest.mark.parametrize("name", SETTINGS)
def test_reading_holds_the_weights_keys_and_values_and_no_copy_of_the_head(name: str) -> None:
    text = config(name)
    found = training_memory.reading_footprint(text, torch.bfloat16, TOKENS)
    assert found.weights == BF16 * WEIGHTS[name]
    assert found.blocks == text.num_hidden_layers * 2 * 8 * 128 * (2 * TOKENS) * BF16  # 8 heads of 128, two packs long
    assert 0 < found.rest < BF16 * text.vocab_size * text.hidden_size / 4
    assert found.total == found.weights + found.blocks + found.rest


def test_training_saves_what_adds_up_by_hand() -> None:
    """Llama 8B, per token and block: what the derivatives of frozen layers and of two LoRA layers need."""
    wide, inner, blocks = 4096, 14336, 32
    norms = 2 * 4 * wide
    attention = 4 * BF16 * wide  # query, keys and values repeated to as many heads, output
    lora = 2 * (4 * wide + wide)  # float32 input after dropout, and its mask, of query and value
    mlp = 3 * BF16 * inner
    by_hand = norms + attention + lora + mlp
    found = training_memory.training_footprint(config("llama8b"), torch.bfloat16, TOKENS)
    assert found.blocks / blocks / TOKENS == pytest.approx(by_hand, rel=0.05)
    assert found.trained == 16 * 3_407_872


def test_with_checkpointing_a_block_keeps_the_states_before_it_alone() -> None:
    text = config("llama8b")
    kept = training_memory.training_footprint(text, torch.bfloat16, TOKENS, checkpointing=True)
    assert kept.blocks == pytest.approx(text.num_hidden_layers * TOKENS * text.hidden_size * BF16, rel=0.01)
    whole = training_memory.training_footprint(text, torch.bfloat16, TOKENS)
    assert kept.rest >= whole.rest * 0.9
    assert kept.total < whole.total


@pytest.mark.parametrize(("name", "limit"), [("llama8b", 24), ("qwen14b", 40), ("mistral24b", 57), ("qwen32b", 78)])
def test_with_checkpointing_the_papers_models_train_on_one_large_card(name: str, limit: int) -> None:
    needed = training_memory.training_footprint(config(name), torch.bfloat16, 2048, checkpointing=True)
    assert needed.total <= limit * 1e9


def test_attention_is_put_back() -> None:
    before = torch.nn.functional.scaled_dot_product_attention
    with training_memory.use_fused_kernels():
        assert torch.nn.functional.scaled_dot_product_attention is not before
    assert torch.nn.functional.scaled_dot_product_attention is before
