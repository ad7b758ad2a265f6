"""The measured speed of a model explains passes that it was not measured on."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from bench.api import OutputHead
from bench.model import session, speed
from bench.model.session import Session
from tests.fixtures import models
from tests.kit import passes

SHAPES: dict[str, Any] = {
    "llama": models.llama(num_hidden_layers=4, hidden_size=96, intermediate_size=256),
    "gemma": transformers.Gemma3TextConfig(
        vocab_size=500, hidden_size=64, intermediate_size=128, num_hidden_layers=7, num_attention_heads=4,
        num_key_value_heads=2, head_dim=16, sliding_window=64,
    ),
    "gpt2": transformers.GPT2Config(vocab_size=500, n_embd=64, n_layer=4, n_head=4),
}  # fmt: skip
PASS, TOKEN, PAIR = 1e-3, 1e-4, 1e-8
"""Seconds of a block on the counted clock: for a pass, each token, and each token and column beside it."""
WORD, DRAW = 1e-7, 3e-7
"""Seconds of each word of the vocabulary: for a state's logits, and for a token drawn from them."""


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock on which nothing takes time but blocks, logits and draws, by their sizes; and at times a neighbour."""
    seconds, busy = [0.0], itertools.cycle([0.0, 0.0, 5.0])

    def forward(model: Any, _read: Any, **inputs: Any) -> float:
        tokens, columns = inputs["input_ids"].numel(), int(inputs["position_ids"].max()) + 1
        each = PASS + TOKEN * tokens + PAIR * tokens * columns
        return model.config.get_text_config().num_hidden_layers * each + next(busy)

    def timed(owner: Any, name: str, cost: Callable[..., float]) -> None:
        plain = getattr(owner, name)

        def call(*args: Any, **inputs: Any) -> Any:
            seconds[0] += cost(*args, **inputs)
            return plain(*args, **inputs)

        monkeypatch.setattr(owner, name, call)

    timed(session, "run_blocks", forward)
    timed(OutputHead, "logits", lambda head, states: WORD * len(states) * len(head.weight))
    timed(speed, "sample_tokens", lambda found, *_: DRAW * found.numel())
    monkeypatch.setattr(speed, "time", SimpleNamespace(perf_counter=lambda: seconds[0]))


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize("name", SHAPES)
def test_speed_is_that_of_each_block(name: str) -> None:
    config = SHAPES[name]
    found = speed.measure_speed(config, torch.float32, "cpu", "sdpa")
    per_block = np.asarray([found.one_pass, found.token, found.pair]) / config.num_hidden_layers
    np.testing.assert_allclose(per_block, [PASS, TOKEN, PAIR], rtol=1e-3)
    heads = getattr(config, "num_key_value_heads", config.num_attention_heads)
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    assert found.kv_bytes == config.num_hidden_layers * 2 * heads * width * 4


@pytest.mark.usefixtures("clock")
def test_speed_of_few_blocks_stands_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    config = models.llama(num_hidden_layers=24, hidden_size=128, intermediate_size=384)
    whole = speed.measure_speed(config, torch.float32, "cpu", "sdpa")
    monkeypatch.setitem(speed._WEIGHTS, "cpu", 1 << 20)
    model, share = speed._stand_in(config, torch.float32, "cpu", "sdpa")
    assert model.config.num_hidden_layers == 4
    assert share == 6
    few = speed.measure_speed(config, torch.float32, "cpu", "sdpa")
    assert vars(few) == pytest.approx(vars(whole))


@pytest.mark.usefixtures("clock")
def test_speed_of_models_without_sdpa_is_measured() -> None:
    found = speed.measure_speed(passes.ARCHITECTURES["gpt-oss"](), torch.float32, "cpu", "sdpa")
    assert found.one_pass == pytest.approx(passes.BLOCKS * PASS, rel=1e-3)


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize("words", [500, 1 << 18, 1 << 25])
def test_speed_of_large_vocabularies_is_measured_in_part(words: int) -> None:
    found = speed.measure_speed(models.llama(vocab_size=words), torch.float32, "cpu", "sdpa")
    assert (found.greedy, found.sampled) == pytest.approx((words * WORD, words * (WORD + DRAW)))


@pytest.mark.slow
@pytest.mark.parametrize("name", SHAPES)
def test_speed_foretells_passes_not_measured(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By this process's own time: others come and go between an estimate and what it is compared with."""
    monkeypatch.setattr(time, "perf_counter", time.process_time)
    config = SHAPES[name]
    found = speed.measure_speed(config, torch.float32, "cpu", "sdpa")
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").eval()
    timed = Session(model)

    def passes(tokens: int, before: int, times: int) -> float:
        visible = partial(timed.causal, before, before + tokens)
        places = np.arange(before, before + tokens)
        start = time.perf_counter()
        for _ in range(times):
            timed.row.rewind(before)
            timed.forward(np.zeros(tokens, dtype=np.int32), places, visible, {})
        return time.perf_counter() - start

    passes(300, 0, 2)
    for tokens, before, times in ((300, 0, 8), (20, 300, 24), (200, 300, 8)):
        expected = found.seconds(times, times * tokens, times * tokens * (tokens + before))
        measured = passes(tokens, before, times)
        assert expected / 3 < measured < expected * 3, (tokens, before, expected, measured)
