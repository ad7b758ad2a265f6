"""The slow oracle of the CCPS features: the definitions of docs/methods.md §3, one token and one state at a time.

float64 throughout, gradients by autograd, and the real output head called for every perturbed state.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

Scorer = Callable[[Tensor], Tensor]


class Truth(NamedTuple):
    columns: dict[str, float]
    margin: float
    """Smallest gap by which any state decides whether its argmax is the original one."""
    jacobian: Tensor
    states: Tensor
    """(steps, d)"""


def entropy(p: Tensor, epsilon: float) -> Tensor:
    return -(p * torch.log(p + epsilon)).sum() if epsilon else -torch.special.xlogy(p, p).sum()


def kl(log_p: Tensor, log_q: Tensor) -> Tensor:
    return (log_p.exp() * (log_p - log_q)).sum()


def cosine(a: Tensor, b: Tensor) -> float:
    return float(torch.nn.functional.cosine_similarity(a, b, dim=0))


def describe(z: Tensor, token: int, epsilon: float) -> SimpleNamespace:
    log_p = z.log_softmax(0)
    first, second = z.topk(2)[0].tolist()
    p_first, p_second = log_p.exp().topk(2)[0].tolist()
    return SimpleNamespace(
        z=z,
        log_p=log_p,
        token_log_prob=float(log_p[token]),
        token_logit=float(z[token]),
        argmax=int(z.argmax()),
        max_prob=p_first,
        max_logit=first,
        entropy=float(entropy(log_p.exp(), epsilon)),
        logit_margin=first - second,
        prob_margin=p_first - p_second,
        norm=float(z.norm()),
    )


def jensen_shannon(p: Tensor, q: Tensor, variant: str) -> float:
    m = torch.logaddexp(p, q) - math.log(2)
    halves = (kl(m, p), kl(m, q)) if variant == "ref" else (kl(p, m), kl(q, m))
    return float(sum(halves) / 2)


def exact_flip(h: Tensor, d: Tensor, argmax: int, head: Scorer, radius: float) -> float:
    """Bisection on the definition, where the argmax at the radius is another one."""

    def flipped(x: float) -> bool:
        return int(head(h + x * d).argmax()) != argmax

    if not flipped(radius):
        return radius
    low, high = 0.0, radius
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if flipped(middle) else (middle, high)
    return high


@torch.no_grad()
def token_truth(
    h: Tensor, token: int, head: Scorer, *, radius: float, steps: int, along: Tensor | None = None, **options: Any
) -> Truth:
    """Truth of one token, moved along the gradient or another direction."""
    epsilon = options.get("entropy_epsilon", 0.0)
    h = h.detach().double()
    with torch.enable_grad():
        leaf = h.clone().requires_grad_()
        (jacobian,) = torch.autograd.grad(-head(leaf).log_softmax(0)[token], leaf)
    direction = jacobian if along is None else along.double()
    norm = float(jacobian.norm())
    d = direction / direction.norm() if norm > 1e-9 else torch.zeros_like(jacobian)
    if options.get("eps_relative", False):
        radius *= float(h.norm())
    z0 = describe(head(h), token, epsilon)
    c = {
        "original_log_prob_actual": z0.token_log_prob,
        "original_prob_actual": math.exp(z0.token_log_prob),
        "original_logit_actual": z0.token_logit,
        "original_prob_argmax": z0.max_prob,
        "original_logit_argmax": z0.max_logit,
        "original_entropy": z0.entropy,
        "original_margin_logit_top1_top2": z0.logit_margin,
        "original_margin_prob_top1_top2": z0.prob_margin,
        "original_norm_logits_L2": z0.norm,
        "original_std_logits": float(z0.z.std()),
        "original_norm_hidden_state_L2": float(h.norm()),
        "is_actual_token_original_argmax": float(z0.argmax == token),
        "jacobian_norm_token": norm,
        "epsilon_to_flip_token": math.inf,
        "pei_value_token": 0.0,
    }
    rows: dict[str, list[float]] = {}
    states, margin = [], z0.logit_margin
    heights = [0.0]
    for s in range(1, steps + 1):
        state = h + s * radius / steps * d
        z = describe(head(state), token, epsilon)
        heights.append(max(0.0, z0.token_log_prob - z.token_log_prob))
        if z.argmax != z0.argmax:
            c["epsilon_to_flip_token"] = min(c["epsilon_to_flip_token"], s * radius / steps)
        others = z.z.clone()
        others[z0.argmax] = -math.inf
        margin = min(margin, abs(float(z.z[z0.argmax] - others.max())))
        states.append(state)
        for name, value in {
            "perturbed_log_prob_actual": z.token_log_prob,
            "perturbed_prob_actual": math.exp(z.token_log_prob),
            "perturbed_logit_actual": z.token_logit,
            "delta_log_prob_actual_from_original": z0.token_log_prob - z.token_log_prob,
            "perturbed_prob_argmax": z.max_prob,
            "perturbed_logit_argmax": z.max_logit,
            "did_argmax_change_from_original": float(z.argmax != z0.argmax),
            "perturbed_entropy": z.entropy,
            "perturbed_margin_logit_top1_top2": z.logit_margin,
            "perturbed_norm_logits_L2": z.norm,
            "kl_div_perturbed_from_original": float(kl(z0.log_p, z.log_p)),
            "js_div_perturbed_from_original": jensen_shannon(z0.log_p, z.log_p, options.get("js", "true")),
            "cosine_sim_logits_perturbed_to_original": cosine(z0.z, z.z),
            "cosine_sim_hidden_perturbed_to_original": cosine(h, state),
            "l2_dist_hidden_perturbed_from_original": float((state - h).norm()),
        }.items():
            rows.setdefault(name, []).append(value)
    c["pei_value_token"] = sum((a + b) / 2 for a, b in itertools.pairwise(heights)) / steps
    c["epsilon_to_flip_token"] = min(c["epsilon_to_flip_token"], radius)
    if options.get("eps_flip", "grid") == "exact":
        c["epsilon_to_flip_token"] = exact_flip(h, d, z0.argmax, head, radius)
    for name, values in rows.items():
        mean = sum(values) / steps
        c[f"{name}_min"], c[f"{name}_max"], c[f"{name}_mean"] = min(values), max(values), mean
        c[f"{name}_std"] = math.sqrt(sum((v - mean) ** 2 for v in values) / steps)
    return Truth(c, margin, jacobian, torch.stack(states))


@pytest.fixture
def oracle() -> Callable[..., list[Truth]]:
    """Truths of all tokens; the head must work in float64."""

    def all_tokens(hidden: Tensor, ids: Tensor, head: Scorer, *, directions: Any = None, **options: Any) -> list[Truth]:
        ways = [None] * len(ids) if directions is None else list(directions)
        return [
            token_truth(h, int(t), head, **{"radius": 20.0, "steps": 5, "along": along, **options})
            for h, t, along in zip(hidden, ids, ways, strict=True)
        ]

    return all_tokens
