"""The 75 CCPS features of an answer token, computed from its hidden state and the model's output head.

The hidden state H_0 that predicts token t is moved by steps eps_s along the direction d in which the token's
log-probability falls fastest. The features describe how the output distribution changes (arXiv:2505.21772;
docs/methods.md §2.8, §3). The output head has the weight matrix W with rows w_j, and a factor `scale` of its logits.
The logits before the soft cap are u_0 = scale * W H_0 (plus a bias), and p is the softmax after the cap. The head is
linear up to the cap, so the direction has a closed form, and all perturbed logits lie on one line before the cap:

    J   = scale * sum over j != t of p_j (g_j w_j - g_t w_t)      gradient of -log p_t; g = slope of the soft cap, or 1
    Z_s = cap(u_0 + eps_s * scale * W d),  d = J / |J|            no backward pass, one more product per token

Tokens are processed in chunks, large enough for efficient matrix products. Within a chunk, Z_s and its softmax exist
for one block of r tokens at a time, as they take a dozen buffers. Hidden states are copied to the device once per
chunk. Features are copied back to the host after many blocks on an accelerator, after each block on a CPU.
1 minus the largest probability is computed as the sum of all other probabilities: a token with probability 1 - 1e-9
then keeps its digits in float32.
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
"""Norm of the gradient J up to which the hidden state is not perturbed (docs/methods.md §6 #30)."""


class _Sizes(NamedTuple):
    """Limits on the sizes of large matrices."""

    chunk: int
    """Most elements (tokens x vocabulary) of one matrix product with the output head."""
    block: int
    """Most elements (tokens x steps x vocabulary) of the perturbed logits of one block of tokens."""
    copied_blocks: int
    """Number of blocks whose features are copied to the host at once."""


# On a CPU a product has 32 MiB, as much narrower ones run at half speed, and a block fits into the processor's cache.
# Features are copied after each block: between the block's freed buffers they would fragment the memory (300 MB).
_SIZES = {"cpu": _Sizes(1 << 23, 1 << 19, 1)}
_ACCELERATED = _Sizes(1 << 25, 1 << 24, 1 << 10)  # small blocks would wait for kernel launches
_FEWEST_ROWS = 8  # fewer tokens are padded with rows of zeros: a product of one row is rounded differently
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
    """Compute the features `FEATURES` of each answer token (docs/methods.md §3), with natural logarithms.

    Args:
        hidden: `(t, d)` float states after the final norm; row i predicts token i. Preferably on the host.
        token_ids: `(t,)` integer ids of the predicted tokens.
        head: the model's output head; everything is computed on its device.
        radius: largest distance by which a state is moved.
        steps: number of equal steps up to the radius.
        variant: variant of the feature definitions.
        directions: `(t, d)` float directions of the perturbation, of any norm but 0; None: along the gradient. Step
            lengths, and the feature that is the gradient's norm, are the same with and without `directions`.

    Returns:
        `(t, 75)` float32 on the host. The distance at which the argmax changes is the radius if no step changes it.
        With zero gradient the state is not moved: distances are 0, and features of perturbed states equal those of the
        original state.

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
            chunk_directions = None if directions is None else directions[chunk].to(device).float()
            line = _compute_line(hidden[chunk].to(device).float(), ids[chunk], head, grid, variant, chunk_directions)
            block = max(1, sizes.block // (steps * vocabulary))
            for group in _slices(len(line.ids), block * sizes.copied_blocks):
                blocks = _slices(len(line.ids[group]), block)
                readings = [_features(_Line(*(x[group][rows] for x in line)), head.softcap, variant) for rows in blocks]
                out[chunk][group] = assemble(_copy_to_host(readings))
                del readings
            del line  # frees its memory for the next chunk's line
    return torch.from_numpy(out)


def _sizes(weight: Tensor) -> _Sizes:
    return _SIZES.get(weight.device.type, _ACCELERATED)


def _copy_to_host(blocks: Sequence[Mapping[str, Tensor]]) -> dict[str, Array]:
    """Concatenate the features of blocks of tokens, and copy them from the device to the host in one transfer."""
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
    """Line of perturbed hidden states H_0 + eps_s d of n tokens, with |d| = 1.

    The logits before the soft cap are u_0 + eps_s * slope.
    """

    ids: Tensor  # (n, 1, 1)
    epsilons: Tensor  # (n, s, 1)
    hidden: Tensor  # (n, 1, d), H_0
    direction: Tensor  # (n, 1, d), d; 0 without gradient
    jacobian_norm: Tensor  # (n, 1, 1), |J|
    u_0: Tensor  # (n, 1, v)
    slope: Tensor  # (n, 1, v), scale * W d


def _compute_line(
    hidden: Tensor, ids: Tensor, head: OutputHead, grid: Tensor, variant: Variant, directions: Tensor | None
) -> _Line:
    """Compute the perturbed states of n tokens, with hidden states `(n, d)` and token ids `(n,)`.

    States are moved by the distances `grid` `(s,)` along the gradient, or along `directions` `(n, d)`. A state whose
    gradient is zero is not moved in either case.
    """
    n, n_pad = len(hidden), max(0, _FEWEST_ROWS - len(hidden))
    hidden, ids = pad(hidden, (0, 0, 0, n_pad)), pad(ids, (0, n_pad))[:, None]
    directions = None if directions is None else pad(directions, (0, 0, 0, n_pad), value=1.0)
    u_0 = _times_transposed(head.scale * hidden, head.weight)
    if head.bias is not None:
        u_0 += head.scale * head.bias.float()
    # J, the gradient of -log p_t; p of the tokens j != t, as 1 - p_t cancels if p_t is near 1
    p = _cap(u_0, head.softcap).softmax(1).scatter_(1, ids, 0.0)
    p_others = p.sum(1, keepdim=True)
    if head.softcap is not None:
        g = (u_0 / head.softcap).cosh_().pow_(-2)  # 1 - tanh^2 without its cancellation
        p, p_others = p.mul_(g), p_others * g.gather(1, ids)
    jacobian = head.scale * (_times(p, head.weight) - p_others * head.weight[ids[:, 0]].float())
    del p  # as large as u_0, and not needed beside the slope
    norm = _norm(jacobian)[:, None]
    unit_direction = jacobian / norm if directions is None else directions / _norm(directions)[:, None]
    direction = torch.where(norm > ZERO_JACOBIAN, unit_direction, 0.0)
    slope = _times_transposed(head.scale * direction, head.weight)
    unit = _norm(hidden)[:, None] if variant.eps_relative else torch.ones_like(norm)
    epsilons = (unit * grid)[:, :, None]
    return _Line(ids[:n, None], epsilons[:n], *(x[:n, None] for x in (hidden, direction, norm, u_0, slope)))


def _cap(u: Tensor, softcap: float | None) -> Tensor:
    return u if softcap is None else (u / softcap).tanh_().mul_(softcap)


def _times_transposed(states: Tensor, weight: Tensor) -> Tensor:
    """Return states `(n, d)` times the transpose of a weight `(v, d)`, without a float32 copy of the whole weight."""
    out = states.new_empty(len(states), len(weight))
    for rows in _weight_slices(weight):
        torch.mm(states, weight[rows].float().T, out=out[:, rows])
    return out


def _times(factors: Tensor, weight: Tensor) -> Tensor:
    """Return factors `(n, v)` times a weight `(v, d)`, without a float32 copy of the whole weight."""
    out = factors.new_zeros(len(factors), weight.shape[1])
    for rows in _weight_slices(weight):
        out.addmm_(factors[:, rows], weight[rows].float())
    return out


def _weight_slices(weight: Tensor) -> Iterator[slice]:
    """Return slices of the weight's rows, each to be converted to float32 in turn.

    A float32 weight has one slice of all rows. Others have several, so that no float32 copy of the whole exists.
    """
    whole = weight.dtype == torch.float32
    return _slices(len(weight), len(weight) if whole else _sizes(weight).chunk // weight.shape[1])


class _States(NamedTuple):
    """Logits Z `(r, s, v)` of r tokens, each in s states, and their softmax P; s is 1 for the original state."""

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


def _features(line: _Line, softcap: float | None, variant: Variant) -> dict[str, Tensor]:
    """Compute the inputs of `assemble` for r tokens.

    Arrays are `(r, 1)` for the original state, and `(r, s)` for the s perturbed states.
    """
    original = _states(_cap(line.u_0, softcap))
    perturbed = _states(_cap(line.u_0 + line.epsilons * line.slope, softcap))
    argmax = original.top_ids[:, :, :1]
    changed = _gather(argmax, perturbed.z) < perturbed.top[:, :, 0]
    is_moved = line.jacobian_norm > ZERO_JACOBIAN
    radius = line.epsilons[:, -1:]
    if variant.eps_flip == "grid":
        flip = torch.where(changed, line.epsilons[:, :, 0], radius[:, :, 0]).amin(1, keepdim=True)
    else:  # distance at which another token overtakes the argmax; the soft cap keeps the order
        rate = line.slope - line.slope.gather(2, argmax)
        flip = torch.where(rate > 0, (line.u_0.gather(2, argmax) - line.u_0) / rate, radius).amin(2)
    # H(M) - (H(P0) + H(Ps)) / 2 with M = (P0 + Ps) / 2; in the official code (KL(M|P0) + KL(M|Ps)) / 2
    m = (original.p + perturbed.p) / 2
    entropy = -_dot(m, m.clamp(min=torch.finfo(m.dtype).tiny).log())  # finite where both underflow
    if variant.js == "ref":
        divergence = (-_dot(m, original.log_p + perturbed.log_p) / 2 - entropy).clamp(min=0)
    else:
        divergence = (entropy - (original.entropy + perturbed.entropy) / 2).clamp(0, math.log(2))
    del m
    return {
        **_state_features(original, line.ids, "original", variant),
        "original_margin_prob_top1_top2": -original.p.gather(2, original.top_ids).diff(dim=2)[:, :, 0],
        "original_std_logits": _norm(original.z - original.z.mean(2, keepdim=True)) / math.sqrt(line.u_0.shape[2] - 1),
        "original_norm_hidden_state_L2": _norm(line.hidden),
        "is_actual_token_original_argmax": (_gather(line.ids, original.z) == original.top[:, :, 0]).float(),
        "jacobian_norm_token": line.jacobian_norm[:, :, 0],
        "epsilon_to_flip_token": flip,
        **_state_features(perturbed, line.ids, "perturbed", variant),
        "did_argmax_change_from_original": changed.float(),
        "kl_div_perturbed_from_original": (-_dot(original.p, perturbed.log_p) - original.entropy).clamp(min=0),
        "js_div_perturbed_from_original": divergence,
        "cosine_sim_logits_perturbed_to_original": _cosine(original.z, perturbed.z),
        "cosine_sim_hidden_perturbed_to_original": _cosine(line.hidden, line.hidden + line.epsilons * line.direction),
        "l2_dist_hidden_perturbed_from_original": (line.epsilons * is_moved)[:, :, 0],
    }


def _state_features(states: _States, ids: Tensor, prefix: str, variant: Variant) -> dict[str, Tensor]:
    """Compute the features, `(r, s)` each, that exist for each state; s is 1 for the original state."""
    epsilon = variant.entropy_epsilon
    return {
        f"{prefix}_log_prob_actual": _gather(ids, states.log_p),
        f"{prefix}_prob_actual": _gather(ids, states.p),
        f"{prefix}_logit_actual": _gather(ids, states.z),
        f"{prefix}_prob_argmax": _gather(states.top_ids[:, :, :1], states.p),
        f"{prefix}_logit_argmax": states.top[:, :, 0],
        f"{prefix}_entropy": -_dot(states.p, torch.log(states.p + epsilon)) if epsilon else states.entropy,
        f"{prefix}_margin_logit_top1_top2": -states.top.diff(dim=2)[:, :, 0],
        f"{prefix}_norm_logits_L2": _norm(states.z, dtype=torch.float64),  # varies little from state to state
    }


def _gather(ids: Tensor, x: Tensor) -> Tensor:
    """Return the elements `(r, s)` of x `(r, s, v)` at token ids.

    The ids are `(r, s, 1)`, or `(r, 1, 1)` if all s states of a token have the same id.
    """
    return torch.take_along_dim(x, ids, dim=2)[:, :, 0]


def _dot(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum(2)


def _cosine(a: Tensor, b: Tensor) -> Tensor:
    return torch.clamp(_dot(a, b) / (_norm(a) * _norm(b)).clamp(min=1e-8), -1, 1)  # 0 with a zero vector
