"""CCPS features: against their definitions, and against the forward pass."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from functools import partial

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from bench.api import OutputHead
from benchmarks.performance.measure import Line, interleaved
from methods.ccps.features import perturbation_features

VOCABULARY, WIDTH, TOKENS = 128_256, 512, 64
BY_DEFINITION = 8
"""Tokens of which the slow side takes the features; its time is linear in them, the quick side's is not."""


def lines(repeats: int) -> Iterator[Line]:
    """Definitions ÷ ours, for a vocabulary of 128,256."""
    hidden, ids, head = _tokens(TOKENS, VOCABULARY, WIDTH)
    slowly = partial(features_by_definition, hidden[:BY_DEFINITION], ids[:BY_DEFINITION], head)
    slow, quick = interleaved([slowly, partial(perturbation_features, hidden, ids, head)], max(3, repeats))
    slow *= TOKENS / BY_DEFINITION
    shape = f"V = {VOCABULARY:,}, d = {WIDTH}, {TOKENS} tokens"
    yield Line("CCPS features: definitions ÷ ours", slow / quick, ">= 12", f"{slow:.2f} s ÷ {quick:.2f} s; {shape}")


def lines_of_pass(repeats: int) -> Iterator[Line]:
    """Features of the answer ÷ the forward pass over a prompt of 1,000 tokens, d = 576, 30 layers, V = 49,152."""
    import transformers

    config = transformers.LlamaConfig(
        hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9, num_key_value_heads=3,
        vocab_size=49_152,
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.LlamaModel(config).eval()
    prompt = torch.randint(0, config.vocab_size, (1, 1000))

    @torch.inference_mode()
    def forward() -> None:
        model(input_ids=prompt, use_cache=False)

    for tokens, kind in ((1, "a letter"), (8, "an answer of 8 tokens")):
        answer = _tokens(tokens, config.vocab_size, config.hidden_size)
        ours, bare = interleaved([partial(perturbation_features, *answer), forward], repeats)
        note = f"{ours * 1e3:.0f} ms ÷ {bare * 1e3:.0f} ms; {kind} after 1,000 tokens, 30 layers of 576"
        yield Line(f"CCPS features ÷ forward pass, {kind}", ours / bare, "<= 0.10", note)


def _tokens(n: int, vocabulary: int, width: int) -> tuple[Tensor, Tensor, OutputHead]:
    """States of about a language model's size, so that distributions are neither flat nor one-hot."""
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(n, width, generator=generator) * 2
    head = OutputHead(torch.randn(vocabulary, width, generator=generator) * (3 / (2 * np.sqrt(width))))
    return hidden, torch.randint(0, vocabulary, (n,), generator=generator), head


def features_by_definition(
    hidden: Tensor, ids: Tensor, head: OutputHead, *, radius: float = 20.0, steps: int = 5
) -> Tensor:
    """The 75 features `(tokens, 75)` in an order of their own."""
    rows = [_of_token(hidden[i], int(ids[i]), head, radius, steps) for i in range(len(ids))]
    return torch.stack(rows)


def _of_token(state: Tensor, token: int, head: OutputHead, radius: float, steps: int) -> Tensor:
    leaf = state.clone().requires_grad_()
    logits = head.logits(leaf)
    (gradient,) = torch.autograd.grad(-logits.log_softmax(0)[token], leaf)
    with torch.no_grad():
        norm = gradient.norm()
        direction = gradient / norm if float(norm) > 1e-9 else torch.zeros_like(gradient)
        original = logits.detach()
        first = _describe(original, token)
        states, flip, drops = [], radius, [0.0]
        for step in range(1, steps + 1):
            moved = state + step * radius / steps * direction
            perturbed = head.logits(moved)
            one = _describe(perturbed, token)
            changed = int(perturbed.argmax()) != int(original.argmax())
            flip = min(flip, step * radius / steps) if changed else flip
            drop = float(first[0] - one[0])
            drops.append(max(0.0, drop))
            relation = _relate(original, perturbed, state, moved)
            states.append(torch.cat([one[:-1], torch.tensor([drop, float(changed)]), relation]))
        table = torch.stack(states)  # (steps, 15)
        area = sum((a + b) / 2 for a, b in itertools.pairwise(drops)) / steps
        top = float(original.argmax() == token)
        overall = torch.tensor([float(original.std()), float(state.norm()), top, float(norm), flip, area])
        spread = (table.amin(0), table.amax(0), table.mean(0), table.std(0, correction=0))
        return torch.cat([first, overall, *spread])


def _describe(logits: Tensor, token: int) -> Tensor:
    """Nine numbers of one distribution; the last one is asked for of the original only."""
    log_p = logits.log_softmax(0)
    p = log_p.exp()
    top, top_p = logits.topk(2)[0], p.topk(2)[0]
    entropy = -torch.special.xlogy(p, p).sum()
    return torch.stack([
        log_p[token], p[token], logits[token], top_p[0], top[0], entropy, top[0] - top[1], logits.norm(),
        top_p[0] - top_p[1],
    ])  # fmt: skip


def _relate(original: Tensor, perturbed: Tensor, state: Tensor, moved: Tensor) -> Tensor:
    """Divergences, cosines and the distance between an original and a perturbed state."""
    p, q = original.log_softmax(0), perturbed.log_softmax(0)
    m = torch.logaddexp(p, q) - math.log(2)
    kl = (p.exp() * (p - q)).sum()
    js = ((p.exp() * (p - m)).sum() + (q.exp() * (q - m)).sum()) / 2
    cosines = (cosine_similarity(original, perturbed, dim=0), cosine_similarity(state, moved, dim=0))
    return torch.stack([kl, js, *cosines, (moved - state).norm()])
