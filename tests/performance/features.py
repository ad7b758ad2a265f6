"""CCPS features: against their definitions, and against the forward pass."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from bench.api import OutputHead
from methods.ccps.features import perturbation_features
from tests.performance.definitions import features_by_definition
from tests.performance.measure import Line, Options, interleaved

VOCABULARY, WIDTH, TOKENS = 128_256, 512, 64
BY_DEFINITION = 8
"""Tokens of which the slow side takes the features; its time is linear in them, the quick side's is not."""


def lines(options: Options) -> Iterator[Line]:
    """Definitions ÷ ours, for a vocabulary of 128,256."""
    hidden, ids, head = _tokens(TOKENS, VOCABULARY, WIDTH)

    def slowly() -> None:
        features_by_definition(hidden[:BY_DEFINITION], ids[:BY_DEFINITION], head)

    slow, quick = interleaved([slowly, lambda: perturbation_features(hidden, ids, head)], max(3, options.repeats))
    slow *= TOKENS / BY_DEFINITION
    shape = f"V = {VOCABULARY:,}, d = {WIDTH}, {TOKENS} tokens"
    yield Line("CCPS features: definitions ÷ ours", slow / quick, ">= 12", f"{slow:.2f} s ÷ {quick:.2f} s; {shape}")


def lines_of_pass(options: Options) -> Iterator[Line]:
    """Features of the answer ÷ the forward pass over a prompt of 1,000 tokens, d = 576, 30 layers, V = 49,152."""
    import transformers

    config = transformers.LlamaConfig(
        hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9, num_key_value_heads=3,
        vocab_size=49_152,
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.LlamaModel(config).eval()
    prompt = torch.randint(0, config.vocab_size, (1, 1000))
    for tokens, kind in ((1, "a letter"), (8, "an answer of 8 tokens")):
        hidden, ids, head = _tokens(tokens, config.vocab_size, config.hidden_size)

        def forward() -> None:
            with torch.inference_mode():
                model(input_ids=prompt, use_cache=False)

        def extract(hidden: Tensor = hidden, ids: Tensor = ids, head: OutputHead = head) -> None:
            perturbation_features(hidden, ids, head)

        ours, bare = interleaved([extract, forward], options.repeats)
        note = f"{ours * 1e3:.0f} ms ÷ {bare * 1e3:.0f} ms; {kind} after 1,000 tokens, 30 layers of 576"
        yield Line(f"CCPS features ÷ forward pass, {kind}", ours / bare, "<= 0.10", note)


def _tokens(n: int, vocabulary: int, width: int) -> tuple[Tensor, Tensor, OutputHead]:
    """States of about a language model's size, so that distributions are neither flat nor one-hot."""
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(n, width, generator=generator) * 2
    head = OutputHead(torch.randn(vocabulary, width, generator=generator) * (3 / (2 * np.sqrt(width))))
    return hidden, torch.randint(0, vocabulary, (n,), generator=generator), head
