"""Speed of a model on its device, measured in a second and without its weights: what a pass of so many tokens takes.

A model of the same widths with few blocks stands in for it. Everything is timed until the device has done it.
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
from bench.model.devices import default_budget, kind_of
from bench.model.sampling import draw
from bench.model.session import Session, blocks
from bench.model.training_memory import cut

_FEW = 8
"""Tokens of the narrow pass, about those of a step of decoding."""
_WIDEST = 512
"""Tokens of the wide pass on a CPU, which is full long before; an accelerator is given a whole pack."""
_LONG_ENOUGH = 0.04
"""Seconds of a wide pass from which on no wider one is tried on a CPU."""
_WEIGHTS = {"cpu": 1 << 25}
"""Kind of device -> weights of the stand-in, about, at most; on other kinds _MANY_WEIGHTS."""
_MANY_WEIGHTS = 1 << 29
_HEAD = 1 << 23
"""Weights of the part of the output head that is timed."""
_ROWS = 16
_REPEATS = 3
_VOCABULARY = 64


@dataclass(frozen=True)
class Speed:
    """Seconds of the parts of reading."""

    one_pass: float
    """A forward pass, however few its tokens: launches, Python, reading the weights."""
    token: float
    """Each token in it."""
    pair: float
    """Each token and each column of the cache that stands beside it, whether it may see it or not."""
    greedy: float
    """The likeliest next token of one state, among the whole vocabulary."""
    drawn: float
    """A drawn one."""
    held: int
    """Bytes of the keys and values of a token."""

    def seconds(self, passes: float, tokens: float, pairs: float) -> float:
        """Time of so many passes with so many tokens and pairs in all."""
        return passes * self.one_pass + tokens * self.token + pairs * self.pair


_KNOWN: dict[tuple[Any, ...], Speed] = {}


def known(config: Any, dtype: torch.dtype, device: str, attention: str, *, trust_remote_code: bool = False) -> Speed:
    """Speed as `measured` finds it, once in a process for each configuration: it takes a second of every run."""
    key = (config.to_json_string(use_diff=False), dtype, device, attention, trust_remote_code, torch.get_num_threads())
    if key not in _KNOWN:
        _KNOWN[key] = measured(config, dtype, device, attention, trust_remote_code=trust_remote_code)
    return _KNOWN[key]


def measured(config: Any, dtype: torch.dtype, device: str, attention: str, *, trust_remote_code: bool = False) -> Speed:
    """The speed of a model with this configuration.

    Args:
        config: the model's.
        dtype: of its weights.
        device: where it is read.
        attention: its implementation.
        trust_remote_code: whether code that comes with the model may run.

    Raises:
        Exception: one of `REFUSALS` or an ImportError; it can't be built so, or has no room on the device.
    """
    model, share = _stand_in(config, dtype, device, attention, trust_remote_code=trust_remote_code)
    session = Session(model)
    one_pass, token, pair = (seconds * share for seconds in _passes(session, device))
    held = round(session.measure_bytes_per_token() * share)
    del session, model  # its memory is needed for the head
    text = config.get_text_config()
    width, vocabulary = int(text.hidden_size), int(text.vocab_size)
    rows = min(vocabulary, max(_VOCABULARY, _HEAD // width))
    head = OutputHead(torch.full((rows, width), 0.01, dtype=dtype, device=device))
    states = torch.full((_ROWS, width), 0.01, dtype=dtype, device=device)
    numbers, one = [0.5] * _ROWS, vocabulary / rows / _ROWS
    greedy = _seconds(lambda: head.logits(states).argmax(dim=-1).tolist(), device) * one
    drawn = _seconds(lambda: draw(head.logits(states), list(range(_ROWS)), numbers, 1.0, 1.0), device) * one
    return Speed(one_pass, token, pair, greedy, drawn, held)


def _stand_in(
    config: Any, dtype: torch.dtype, device: str, attention: str, *, trust_remote_code: bool = False
) -> tuple[Any, float]:
    """A model with some of the blocks and a small vocabulary, and how many times as many blocks the whole one has."""
    whole = int(config.get_text_config().num_hidden_layers)
    small = cut(config, 1)
    text = small.get_text_config()
    text.vocab_size = _VOCABULARY
    for name in ("pad_token_id", "bos_token_id", "eos_token_id"):
        setattr(text, name, None)
    with torch.device("meta"):
        one = transformers.AutoModelForCausalLM.from_config(small, trust_remote_code=trust_remote_code)
    weights = sum(parameter.numel() for parameter in blocks(one).parameters())
    count = min(whole, max(1, _WEIGHTS.get(kind_of(device), _MANY_WEIGHTS) // weights))
    some = cut(config, count).get_text_config()
    text.num_hidden_layers, kinds = count, getattr(some, "layer_types", None)
    if kinds:
        text.layer_types = kinds
    with torch.random.fork_rng(devices=[]), torch.device(device), no_init_weights():  # drawing takes longest
        model = transformers.AutoModelForCausalLM.from_config(
            small, attn_implementation=attention, dtype=dtype, trust_remote_code=trust_remote_code
        )
    for parameter in model.parameters():
        parameter.detach().fill_(0.01)  # memory as it was found may hold numbers that are slow to compute with
    return model.eval().requires_grad_(requires_grad=False), whole / count


def _passes(session: Session, device: str) -> tuple[float, float, float]:
    """Seconds of a pass, of a token and of a pair: three passes tell three numbers."""

    def read(tokens: int, before: int) -> float:
        session.rewind(before)
        ids, places = np.zeros(tokens, dtype=np.int32), np.arange(before, before + tokens)
        visible = partial(session.causal, before, before + tokens)
        last = {int(session.model.config.get_text_config().num_hidden_layers): np.arange(1)}

        def work() -> None:
            session.rewind(before)
            session.forward(ids, places, visible, last)

        return _seconds(work, device)

    narrow = read(_FEW, 0)
    wide, most = 4 * _FEW, _WIDEST if kind_of(device) == "cpu" else default_budget(device)
    seconds = read(wide, 0)
    while wide < most and (seconds < _LONG_ENOUGH or kind_of(device) != "cpu"):
        wide = min(2 * wide, most)
        seconds = read(wide, 0)
    behind = read(wide, wide)  # what stands before it is the pass just read
    pair = max(0.0, (behind - seconds) / wide**2)
    token = max(0.0, (seconds - narrow) / (wide - _FEW) - pair * (wide + _FEW))
    return max(0.0, narrow - _FEW * token), token, pair


def _seconds(work: Callable[[], object], device: str) -> float:
    """Least seconds of a call after a first one, the device waited for: what else goes on only makes it longer."""
    times, kind = [], kind_of(device)
    wait = getattr(torch, kind).synchronize if kind in {"cuda", "mps"} else lambda: None
    for _ in range(_REPEATS + 1):
        wait()
        start = time.perf_counter()
        work()
        wait()
        times.append(time.perf_counter() - start)
    return min(times[1:])
