"""The CCPS features as their definitions say them: autograd, one head call per perturbed state, one token at a time.

Only the time matters here; `tests/unit/methods/ccps/test_features.py` holds the quick form to the same numbers.
"""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor

from bench.api import OutputHead


def features_by_definition(
    hidden: Tensor, ids: Tensor, head: OutputHead, *, radius: float = 20.0, steps: int = 5
) -> Tensor:
    """The 75 features `(tokens, 75)` in an order of their own."""
    rows = [_of_token(state, int(token), head, radius, steps) for state, token in zip(hidden, ids, strict=True)]
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
        overall = torch.tensor([float(norm), flip, area])
        std = table.std(0, correction=0)
        return torch.cat([
            first, original.std()[None], state.norm()[None], torch.tensor([float(original.argmax() == token)]),
            overall, table.amin(0), table.amax(0), table.mean(0), std,
        ])  # fmt: skip


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
    cosine = torch.nn.functional.cosine_similarity
    return torch.stack(
        [kl, js, cosine(original, perturbed, dim=0), cosine(state, moved, dim=0), (moved - state).norm()]
    )
