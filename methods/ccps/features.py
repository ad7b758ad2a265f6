"""The 75 CCPS features of an answer token, from its hidden state and the model's output head alone.

The state H_0 that predicted token t is pushed along the direction d in which the token's log-probability falls fastest,
by steps eps_s; the features describe what the head's logits do (arXiv:2505.21772; docs/methods.md §2.8 and §3). The
head is linear up to a soft cap, so the direction has a closed form and all perturbed logits lie on one line:

    J   = scale * sum over j != t of p_j (g_j w_j - g_t w_t)      gradient of -log p_t; g = slope of the soft cap, or 1
    Z_s = cap(u_0 + eps_s * scale * W d),  d = J / |J|            no backward pass, one more product per token

Tokens are processed in chunks, wide enough for the matrix products. Z_s and its softmax exist for one block of r tokens
at a time, as they take a dozen buffers. A chunk's states go to the device in one copy, and what was read of them comes
back in one. What is left beside the largest probability is summed without it, never as its
difference from 1: a token with probability 1 - 1e-9 keeps its digits in float32.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from bench.api import OutputHead
from methods.ccps.columns import FEATURES, Array, Variant, assemble

__all__ = ["FEATURES", "Variant", "perturbation_features"]

ZERO_JACOBIAN = 1e-9
"""A gradient of at most this norm has no direction: the state stays where it is (docs/methods.md §6 #30)."""


class _Sizes(NamedTuple):
    """Most elements of the large matrices."""

    chunk: int
    """Tokens x vocabulary of a product."""
    block: int
    """Tokens x steps x vocabulary."""
    together: int
    """Blocks whose readings come to the host in one copy."""


# On a CPU 32 MiB, as much narrower products run at half speed, and what a cache holds. Readings that were kept from one
# block to the next would lie among its freed buffers, so that the allocator could not join these: 300 MB.
_SIZES = {"cpu": _Sizes(1 << 23, 1 << 19, 1)}
_ACCELERATED = _Sizes(1 << 25, 1 << 24, 1 << 10)  # small ones would wait for the host that launches them
_FEWEST_ROWS = 8  # zero rows are added below it: products of one row are rounded otherwise than those of many
_DEFAULT = Variant()
_norm = partial(torch.linalg.vector_norm, dim=-1)


def perturbation_features(
    hidden: Tensor,
    token_ids: Tensor,
    head: OutputHead,
    *,
    radius: float = 20.0,
    steps: int = 5,
    variant: Variant = _DEFAULT,
    directions: Tensor | None = None,
) -> Tensor:
    """The features `FEATURES` of each answer token (docs/methods.md §3), with natural logarithms.

    Args:
        hidden: `(t, d)` float states after the final norm; row i predicted token i. Best left on the host.
        token_ids: `(t,)` integer ids of the tokens that came.
        head: the model's output head; on its device all is computed.
        radius: largest distance by which a state is moved, in the units of its coordinates.
        steps: number of equal steps up to the radius.
        variant: readings of the definitions.
        directions: `(t, d)` float directions in which states are moved, of any length but 0; None: that of the
            gradient. Lengths of moves and the norm of the gradient stay what they are; all else is of these states.

    Returns:
        `(t, 75)` float32 on the host. A token whose argmax never changes has the radius as its distance
        to the change. A token with zero gradient keeps its state: distances 0, everything perturbed as the original.

    Raises:
        ValueError: shapes don't fit each other, steps or radius are not positive, or a direction has no length.
    """
    vocabulary, width = head.weight.shape
    if hidden.shape != (len(token_ids), width):
        raise ValueError(
            f"expected hidden states of shape {(len(token_ids), width)}, for {len(token_ids)} token ids and a head of"
            f" width {width}; got {tuple(hidden.shape)}"
        )
    if steps < 1 or radius <= 0:
        raise ValueError(f"expected at least one step and a positive radius; got steps={steps}, radius={radius}")
    if directions is not None:
        if directions.shape != hidden.shape:
            raise ValueError(f"expected directions of shape {tuple(hidden.shape)}, got {tuple(directions.shape)}")
        lengths = _norm(directions.float())
        if not bool(((lengths > 0) & lengths.isfinite()).all()):
            raise ValueError("expected directions of finite length above 0; some have none")
    device, sizes = head.weight.device, _sizes(head.weight)
    out = np.empty((len(hidden), len(FEATURES)), dtype=np.float32)
    grid = torch.tensor([radius * s / steps for s in range(1, steps + 1)], device=device)
    ids = token_ids.to(device)
    with torch.no_grad():
        for chunk in _slices(len(hidden), max(_FEWEST_ROWS, sizes.chunk // vocabulary)):
            given = None if directions is None else directions[chunk].to(device).float()
            line = _line(hidden[chunk].to(device).float(), ids[chunk], head, grid, variant, given)
            block = max(1, sizes.block // (steps * vocabulary))
            for some in _slices(len(line.ids), block * sizes.together):
                blocks = _slices(len(line.ids[some]), block)
                readings = [_readings(_Line(*(x[some][rows] for x in line)), head.softcap, variant) for rows in blocks]
                out[chunk][some] = assemble(_on_host(readings))
                del readings
            del line  # its memory is needed for the next one
    return torch.from_numpy(out)


def _sizes(weight: Tensor) -> _Sizes:
    return _SIZES.get(weight.device.type, _ACCELERATED)


def _on_host(blocks: Sequence[Mapping[str, Tensor]]) -> dict[str, Array]:
    """Readings of a chunk in one copy, from those of its blocks."""
    widths = {name: values.shape[1] for name, values in blocks[0].items()}
    by_precision = sorted(widths, key=lambda name: blocks[0][name].dtype == torch.float64)
    kinds = [list(names) for _, names in groupby(by_precision, key=lambda name: blocks[0][name].dtype)]
    parts = [torch.cat([torch.cat([block[name] for name in names], 1) for block in blocks]) for names in kinds]
    table = torch.cat([part.double() for part in parts], 1).cpu().numpy()
    ends = np.cumsum([widths[name] for name in by_precision])
    return dict(zip(by_precision, np.split(table, ends[:-1], axis=1), strict=True))


def _slices(length: int, step: int) -> Iterator[slice]:
    step = max(1, step)
    return (slice(start, min(start + step, length)) for start in range(0, length, step))


class _Line(NamedTuple):
    """The states H_0 + eps_s d of n tokens, d of length 1, and their logits before the cap, u_0 + eps_s * slope."""

    ids: Tensor  # (n, 1, 1)
    epsilons: Tensor  # (n, s, 1)
    hidden: Tensor  # (n, 1, d), H_0
    direction: Tensor  # (n, 1, d), d; 0 without gradient
    jacobian_norm: Tensor  # (n, 1, 1), |J|
    u_0: Tensor  # (n, 1, v)
    slope: Tensor  # (n, 1, v), scale * W d


def _line(hidden: Tensor, ids: Tensor, head: OutputHead, grid: Tensor, variant: Variant, given: Tensor | None) -> _Line:
    """The line of n tokens with states `(n, d)` and ids `(n,)`, at the distances grid `(s,)`.

    Its direction is the gradient's, or a given one `(n, d)`; then too a token without gradient stays where it is.
    """
    n, missing = len(hidden), max(0, _FEWEST_ROWS - len(hidden))
    hidden, ids = pad(hidden, (0, 0, 0, missing)), pad(ids, (0, missing))[:, None]
    given = None if given is None else pad(given, (0, 0, 0, missing), value=1.0)
    u_0 = _times_transposed(head.scale * hidden, head.weight)
    if head.bias is not None:
        u_0 += head.scale * head.bias.float()
    # J, the gradient of -log p_t; p of the tokens j != t, as 1 - p_t has no digits left where p_t is near 1
    p = _cap(u_0, head.softcap).softmax(1).scatter_(1, ids, 0.0)
    others = p.sum(1, keepdim=True)
    if head.softcap is not None:
        g = (u_0 / head.softcap).cosh_().pow_(-2)  # 1 - tanh^2 without its cancellation
        p, others = p.mul_(g), others * g.gather(1, ids)
    jacobian = head.scale * (_times(p, head.weight) - others * head.weight[ids[:, 0]].float())
    del p  # as large as u_0, and not needed beside the slope
    norm = _norm(jacobian)[:, None]
    ahead = jacobian / norm if given is None else given / _norm(given)[:, None]
    direction = torch.where(norm > ZERO_JACOBIAN, ahead, 0.0)
    slope = _times_transposed(head.scale * direction, head.weight)
    unit = _norm(hidden)[:, None] if variant.eps_relative else torch.ones_like(norm)
    epsilons = (unit * grid)[:, :, None]
    return _Line(ids[:n, None], epsilons[:n], *(x[:n, None] for x in (hidden, direction, norm, u_0, slope)))


def _cap(u: Tensor, softcap: float | None) -> Tensor:
    return u if softcap is None else (u / softcap).tanh_().mul_(softcap)


def _times_transposed(states: Tensor, weight: Tensor) -> Tensor:
    """States `(n, d)` times the transpose of weight `(v, d)`."""
    out = states.new_empty(len(states), len(weight))
    for rows in _weight_slices(weight):
        torch.mm(states, weight[rows].float().T, out=out[:, rows])
    return out


def _times(factors: Tensor, weight: Tensor) -> Tensor:
    """Factors `(n, v)` times weight `(v, d)`."""
    out = factors.new_zeros(len(factors), weight.shape[1])
    for rows in _weight_slices(weight):
        out.addmm_(factors[:, rows], weight[rows].float())
    return out


def _weight_slices(weight: Tensor) -> Iterator[slice]:
    """All rows at once in float32; elsewhere slices, so that no float32 copy of the whole matrix is made."""
    whole = weight.dtype == torch.float32
    return _slices(len(weight), len(weight) if whole else _sizes(weight).chunk // weight.shape[1])


class _States(NamedTuple):
    """Logits Z of r tokens, each in s states, and their softmax P."""

    z: Tensor  # (r, s, v)
    p: Tensor  # (r, s, v)
    log_p: Tensor  # (r, s, v)
    top: Tensor  # (r, s, 2), the two largest logits
    top_ids: Tensor  # (r, s, 2)
    entropy: Tensor  # (r, s)


def _states(z: Tensor) -> _States:
    top, top_ids = z.topk(2)
    argmax = top_ids[:, :, :1]
    p = z.softmax(2)
    p_others = p.scatter(2, argmax, 0.0).sum(2, keepdim=True)  # 1 - max P
    log_p = z - top[:, :, :1] - torch.log1p(p_others / p.gather(2, argmax))
    return _States(z, p, log_p, top, top_ids, entropy=-_dot(p, log_p))


def _readings(line: _Line, softcap: float | None, variant: Variant) -> dict[str, Tensor]:
    """Readings that `assemble` turns into columns: `(r, 1)` of the original state, `(r, s)` of the perturbed ones."""
    original = _states(_cap(line.u_0, softcap))
    perturbed = _states(_cap(line.u_0 + line.epsilons * line.slope, softcap))
    argmax = original.top_ids[:, :, :1]
    changed = _at(argmax, perturbed.z) < perturbed.top[:, :, 0]
    moved = line.jacobian_norm > ZERO_JACOBIAN
    radius = line.epsilons[:, -1:]
    if variant.eps_flip == "grid":
        flip = torch.where(changed, line.epsilons[:, :, 0], radius[:, :, 0]).amin(1, keepdim=True)
    else:  # where another token overtakes the argmax; a cap changes no order
        gain = line.slope - line.slope.gather(2, argmax)
        flip = torch.where(gain > 0, (line.u_0.gather(2, argmax) - line.u_0) / gain, radius).amin(2)
    # H(M) - (H(P0) + H(Ps)) / 2 with M = (P0 + Ps) / 2; in the official code (KL(M|P0) + KL(M|Ps)) / 2
    m = (original.p + perturbed.p) / 2
    entropy = -_dot(m, m.clamp(min=torch.finfo(m.dtype).tiny).log())  # finite where both underflow
    if variant.js == "ref":
        divergence = (-_dot(m, original.log_p + perturbed.log_p) / 2 - entropy).clamp(min=0)
    else:
        divergence = (entropy - (original.entropy + perturbed.entropy) / 2).clamp(0, math.log(2))
    del m
    return {
        **_describe(original, line.ids, "original", variant),
        "original_margin_prob_top1_top2": -original.p.gather(2, original.top_ids).diff(dim=2)[:, :, 0],
        "original_std_logits": _norm(original.z - original.z.mean(2, keepdim=True)) / math.sqrt(line.u_0.shape[2] - 1),
        "original_norm_hidden_state_L2": _norm(line.hidden),
        "is_actual_token_original_argmax": (_at(line.ids, original.z) == original.top[:, :, 0]).float(),
        "jacobian_norm_token": line.jacobian_norm[:, :, 0],
        "epsilon_to_flip_token": flip,
        **_describe(perturbed, line.ids, "perturbed", variant),
        "did_argmax_change_from_original": changed.float(),
        "kl_div_perturbed_from_original": (-_dot(original.p, perturbed.log_p) - original.entropy).clamp(min=0),
        "js_div_perturbed_from_original": divergence,
        "cosine_sim_logits_perturbed_to_original": _cosine(original.z, perturbed.z),
        "cosine_sim_hidden_perturbed_to_original": _cosine(line.hidden, line.hidden + line.epsilons * line.direction),
        "l2_dist_hidden_perturbed_from_original": (line.epsilons * moved)[:, :, 0],
    }


def _describe(states: _States, ids: Tensor, prefix: str, variant: Variant) -> dict[str, Tensor]:
    """Readings that original and perturbed states have alike, `(r, s)` each."""
    epsilon = variant.entropy_epsilon
    return {
        f"{prefix}_log_prob_actual": _at(ids, states.log_p),
        f"{prefix}_prob_actual": _at(ids, states.p),
        f"{prefix}_logit_actual": _at(ids, states.z),
        f"{prefix}_prob_argmax": _at(states.top_ids[:, :, :1], states.p),
        f"{prefix}_logit_argmax": states.top[:, :, 0],
        f"{prefix}_entropy": -_dot(states.p, torch.log(states.p + epsilon)) if epsilon else states.entropy,
        f"{prefix}_margin_logit_top1_top2": -states.top.diff(dim=2)[:, :, 0],
        f"{prefix}_norm_logits_L2": _norm(states.z, dtype=torch.float64),  # varies little from state to state
    }


def _at(ids: Tensor, x: Tensor) -> Tensor:
    """The elements `(r, s)` of x `(r, s, v)` at ids `(r, s or 1, 1)`."""
    return torch.take_along_dim(x, ids, dim=2)[:, :, 0]


def _dot(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum(2)


def _cosine(a: Tensor, b: Tensor) -> Tensor:
    return torch.clamp(_dot(a, b) / (_norm(a) * _norm(b)).clamp(min=1e-8), -1, 1)  # 0 with a zero vector
