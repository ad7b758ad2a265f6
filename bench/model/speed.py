"""Measure the speed of a model's forward passes and sampling on its device in about a second, without its weights.

The model that is timed has the true widths but few blocks. The time to synchronise the device is included.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
import transformers
from transformers.initialization import no_init_weights

from bench.api import OutputHead
from bench.model.devices import default_budget, device_kind
from bench.model.folder import LOADING, on_meta
from bench.model.session import Session, blocks
from bench.model.token_sampling import sample_tokens
from bench.model.training_memory import with_n_blocks

_FEW = 8
"""Number of tokens of the shorter of the timed forward passes, about as many as a decoding step has."""
_WIDEST = 512
"""Largest number of tokens of the longer timed forward pass on a CPU.

On an accelerator this pass has as many tokens as a pack may have.
"""
_LONG_ENOUGH = 0.04
"""On a CPU, after a forward pass that takes more than this many seconds, none with more tokens is timed."""
_WEIGHTS = {"cpu": 1 << 25}
"""Approximate limit of the number of weights in the timed blocks, by kind of device; for others `_MANY_WEIGHTS`."""
_MANY_WEIGHTS = 1 << 29
_HEAD = 1 << 23
"""Approximate limit of the number of weights in the part of the output head that is timed."""
_ROWS = 16
_REPEATS = 3
_VOCABULARY = 64


@dataclass(frozen=True)
class Speed:
    """Seconds that each operation of reading and generating takes."""

    one_pass: float
    """Seconds that every forward pass takes whatever its size: kernel launches, Python, reading the weights."""
    token: float
    """Additional seconds for each token of a forward pass."""
    pair: float
    """Additional seconds for each pair of a query token and a position of the KV cache, masked or not."""
    greedy: float
    """Seconds of choosing one token greedily: logits of the whole vocabulary, and argmax."""
    sampled: float
    """Seconds of sampling one token."""
    kv_bytes: int
    """Bytes of the keys and values of one token."""

    def seconds(self, passes: float, tokens: float, pairs: float) -> float:
        """Return the seconds of forward passes from their total numbers of passes, tokens and query-key pairs."""
        return passes * self.one_pass + tokens * self.token + pairs * self.pair


_KNOWN: dict[tuple[Any, ...], Speed] = {}


def cached_speed(
    config: Any, dtype: torch.dtype, device: str, attention: str, *, trust_remote_code: bool = False
) -> Speed:
    """Return `measure_speed` of these arguments; within a process the first result is reused."""
    key = (config.to_json_string(use_diff=False), dtype, device, attention, trust_remote_code, torch.get_num_threads())
    if key not in _KNOWN:
        _KNOWN[key] = measure_speed(config, dtype, device, attention, trust_remote_code=trust_remote_code)
    return _KNOWN[key]


def measure_speed(
    config: Any, dtype: torch.dtype, device: str, attention: str, *, trust_remote_code: bool = False
) -> Speed:
    """Measure the speed of a model with this configuration.

    Args:
        config: configuration of the model.
        dtype: dtype of the weights.
        device: device of the model.
        attention: attention implementation; an architecture that lacks sdpa gets eager.
        trust_remote_code: whether code that comes with the model may run.

    Raises:
        ImportError: a package that the model needs is missing.
        Exception: one of `ARCHITECTURE_ERRORS`: the model can't be built, or does not fit on the device.
    """
    model, share = _stand_in(config, dtype, device, attention, trust_remote_code=trust_remote_code)
    session = Session(model)
    one_pass, token, pair = (seconds * share for seconds in _passes(session, device))
    kv_bytes = round(session.measure_bytes_per_token() * share)
    del session, model  # free the memory for the head
    text = config.get_text_config()
    width, vocabulary = int(text.hidden_size), int(text.vocab_size)
    rows = min(vocabulary, max(_VOCABULARY, _HEAD // width))
    head = OutputHead(torch.full((rows, width), 0.01, dtype=dtype, device=device))
    states = torch.full((_ROWS, width), 0.01, dtype=dtype, device=device)
    numbers, one = [0.5] * _ROWS, vocabulary / rows / _ROWS
    greedy = _seconds(lambda: head.logits(states).argmax(dim=-1).tolist(), device) * one
    sampled = _seconds(lambda: sample_tokens(head.logits(states), list(range(_ROWS)), numbers, 1.0, 1.0), device) * one
    return Speed(one_pass, token, pair, greedy, sampled, kv_bytes)


def _stand_in(
    config: Any, dtype: torch.dtype, device: str, attention: str, *, trust_remote_code: bool = False
) -> tuple[Any, float]:
    """Return a model with the true widths, fewer blocks and a small vocabulary; and a ratio.

    The ratio is the full model's number of blocks divided by the returned model's.
    """
    whole = int(config.get_text_config().num_hidden_layers)
    small = with_n_blocks(config, whole)
    text = small.get_text_config()
    text.vocab_size = _VOCABULARY
    for name in ("pad_token_id", "bos_token_id", "eos_token_id"):
        setattr(text, name, None)
    one = on_meta(with_n_blocks(small, 1), trust_remote_code=trust_remote_code)
    weights = sum(parameter.numel() for parameter in blocks(one).parameters())
    count = min(whole, max(1, _WEIGHTS.get(device_kind(device), _MANY_WEIGHTS) // weights))
    asked = None if attention == "sdpa" else attention  # else transformers refuses architectures that lack sdpa
    with LOADING, torch.random.fork_rng(devices=[]), torch.device(device), no_init_weights():  # they take longest
        model = transformers.AutoModelForCausalLM.from_config(
            with_n_blocks(small, count), attn_implementation=asked, dtype=dtype, trust_remote_code=trust_remote_code
        )
    for parameter in model.parameters():
        parameter.detach().fill_(0.01)  # uninitialised memory may contain subnormal numbers, which are slow
    return model.eval().requires_grad_(requires_grad=False), whole / count


def _passes(session: Session, device: str) -> tuple[float, float, float]:
    """Time forward passes of growing size; return the fields `one_pass`, `token` and `pair` of `Speed`, in seconds."""

    def read(tokens: int, before: int) -> float:
        session.row.rewind(before)
        ids, places = np.zeros(tokens, dtype=np.int32), np.arange(before, before + tokens)
        visible = partial(session.causal, before, before + tokens)
        last = {int(session.model.config.get_text_config().num_hidden_layers): np.arange(1)}

        def work() -> None:
            session.row.rewind(before)
            session.forward(ids, places, visible, last)

        return _seconds(work, device)

    narrow = read(_FEW, 0)
    wide, most = 4 * _FEW, _WIDEST if device_kind(device) == "cpu" else default_budget(device)
    seconds = read(wide, 0)
    while wide < most and (seconds < _LONG_ENOUGH or device_kind(device) != "cpu"):
        wide = min(2 * wide, most)
        seconds = read(wide, 0)
    behind = read(wide, wide)  # after the tokens of the previous pass
    pair = max(0.0, (behind - seconds) / wide**2)
    token = max(0.0, (seconds - narrow) / (wide - _FEW) - pair * (wide + _FEW))
    return max(0.0, narrow - _FEW * token), token, pair


def _seconds(work: Callable[[], object], device: str) -> float:
    """Return the seconds of the fastest of several calls of `work` after a warm-up, with device synchronisation."""
    times, kind = [], device_kind(device)
    wait = getattr(torch, kind).synchronize if kind in {"cuda", "mps"} else lambda: None
    for _ in range(_REPEATS + 1):
        wait()
        start = time.perf_counter()
        work()
        wait()
        times.append(time.perf_counter() - start)
    return min(times[1:])
