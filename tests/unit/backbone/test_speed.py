"""The measured speed of a model explains passes that it was not measured on."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from bench.backbone import speed
from bench.backbone.session import Session
from tests.fixtures import models

SHAPES: dict[str, Any] = {
    "llama": models.llama(num_hidden_layers=4, hidden_size=96, intermediate_size=256),
    "gemma": transformers.Gemma3TextConfig(
        vocab_size=500, hidden_size=64, intermediate_size=128, num_hidden_layers=7, num_attention_heads=4,
        num_key_value_heads=2, head_dim=16, sliding_window=64,
    ),
    "gpt2": transformers.GPT2Config(vocab_size=500, n_embd=64, n_layer=4, n_head=4),
}  # fmt: skip


@pytest.fixture(autouse=True)
def processor_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other processes must not count: they come and go between an estimate and what it is compared with."""
    monkeypatch.setattr(time, "perf_counter", time.process_time)


@pytest.mark.parametrize("name", SHAPES)
def test_passes_that_were_not_measured_take_as_long_as_was_said(name: str) -> None:
    config = SHAPES[name]
    found = speed.measured(config, torch.float32, "cpu", "sdpa")
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").eval()
    session = Session(model)

    def passes(tokens: int, before: int, times: int) -> float:
        visible = partial(session.causal, before, before + tokens)
        places = np.arange(before, before + tokens)
        start = time.perf_counter()
        for _ in range(times):
            session.rewind(before)
            session.forward(np.zeros(tokens, dtype=np.int32), places, visible, {})
        return time.perf_counter() - start

    passes(300, 0, 2)
    for tokens, before, times in ((300, 0, 20), (20, 300, 60), (200, 300, 20)):
        expected = found.seconds(times, times * tokens, times * tokens * (tokens + before))
        measured = passes(tokens, before, times)
        assert expected / 3 < measured < expected * 3, (tokens, before, expected, measured)


def test_few_blocks_stand_for_all_of_a_deep_model(monkeypatch: pytest.MonkeyPatch) -> None:
    config = models.llama(num_hidden_layers=24, hidden_size=128, intermediate_size=384)
    whole = speed.measured(config, torch.float32, "cpu", "sdpa")
    monkeypatch.setitem(speed._WEIGHTS, "cpu", 1 << 20)
    model, share = speed._stand_in(config, torch.float32, "cpu", "sdpa")
    assert model.config.num_hidden_layers == 4
    assert share == 6
    part = speed.measured(config, torch.float32, "cpu", "sdpa")
    for passes, tokens in ((100, 100), (1, 1000)):
        a, b = (one.seconds(passes, tokens, 0) for one in (whole, part))
        assert a / 3 < b < 3 * a


def test_a_large_vocabulary_is_measured_in_part() -> None:
    few, many = (
        speed.measured(models.llama(vocab_size=size), torch.float32, "cpu", "sdpa") for size in (1 << 18, 1 << 25)
    )
    assert 128 / 3 < many.greedy / few.greedy < 128 * 3  # that many times the words
    assert many.drawn > many.greedy > 0
