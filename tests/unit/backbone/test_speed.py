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


@pytest.mark.parametrize("name", ["llama", "gemma", pytest.param("gpt2", marks=pytest.mark.slow)])
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
    for tokens, before, times in ((300, 0, 8), (20, 300, 24), (200, 300, 8)):
        expected = found.seconds(times, times * tokens, times * tokens * (tokens + before))
        measured = passes(tokens, before, times)
        assert expected / 3 < measured < expected * 3, (tokens, before, expected, measured)


def test_few_blocks_stand_for_all_of_a_deep_model(monkeypatch: pytest.MonkeyPatch) -> None:
    config = models.llama(num_hidden_layers=24, hidden_size=128, intermediate_size=384)
    few, all_of_them = 1 << 20, speed._WEIGHTS["cpu"]
    monkeypatch.setitem(speed._WEIGHTS, "cpu", few)
    model, share = speed._stand_in(config, torch.float32, "cpu", "sdpa")
    assert model.config.num_hidden_layers == 4
    assert share == 6
    apart = []
    for _ in range(6):  # passes of four blocks take half a millisecond, which a busy neighbour can make several
        found = []
        for weights in (all_of_them, few):
            monkeypatch.setitem(speed._WEIGHTS, "cpu", weights)
            found.append(speed.measured(config, torch.float32, "cpu", "sdpa"))
        ratios = [
            found[1].seconds(passes, tokens, 0) / found[0].seconds(passes, tokens, 0)
            for passes, tokens in ((100, 100), (1, 1000))
        ]
        apart.append(max(max(ratio, 1 / max(ratio, 1e-9)) for ratio in ratios))
        if apart[-1] < 3:
            break
    assert apart[-1] < 3, apart


def test_a_large_vocabulary_is_measured_in_part() -> None:
    few, many = (
        speed.measured(models.llama(vocab_size=size), torch.float32, "cpu", "sdpa") for size in (1 << 18, 1 << 25)
    )
    assert 128 / 3 < many.greedy / few.greedy < 128 * 3  # that many times the words
    assert many.drawn > many.greedy > 0
