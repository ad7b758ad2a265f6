"""The 75 CCPS features of an answer token, from its hidden state and the model's output head alone.

The state H_0 that predicted token t is pushed along the direction d in which the token's log-probability falls fastest,
by steps eps_s; the features describe what the head's logits do (arXiv:2505.21772; docs/methods.md §2.8 and §3). The
head is linear up to a soft cap, so the direction has a closed form and all perturbed logits lie on one line:

    J   = scale * sum over j != t of p_j (g_j w_j - g_t w_t)      gradient of -log p_t; g = slope of the soft cap, or 1
    Z_s = cap(u_0 + eps_s * scale * W d),  d = J / |J|            no backward pass, one more product per token

Tokens are processed in chunks (wide enough for the matrix products) and their statistics in blocks of rows (small
enough for the processor's cache), so Z_s exists for one block at a time. Logits are read relative to a maximum, and the
maximum's own term stays out of every sum: a token with probability 1 - 1e-9 keeps its digits in float32.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Self

import torch
from torch import Tensor
from torch.nn.functional import pad

from methods.ccps.columns import FEATURES, Array, Motion, State, Variant, assemble

if TYPE_CHECKING:
    from bench.api import OutputHead

__all__ = ["FEATURES", "Variant", "perturbation_features"]

ZERO_JACOBIAN = 1e-9
"""A gradient of at most this norm has no direction: the state stays where it is (docs/methods.md §6 #30)."""
_CHUNK_ELEMENTS = 1 << 23  # tokens x vocabulary of a product: 32 MiB in float32; much narrower ones run at half speed
_BLOCK_ELEMENTS = {"cpu": 1 << 19}  # rows x vocabulary whose statistics are taken at once: what a CPU's cache holds
_FEWEST_ROWS = 8  # zero rows are added below it: products of one row are rounded otherwise than those of many
_TINY_PROBABILITY = 1e-37  # keeps p * log p finite where p underflows
_DEFAULT = Variant()


def perturbation_features(
    hidden: Tensor,
    token_ids: Tensor,
    head: OutputHead,
    *,
    radius: float = 20.0,
    steps: int = 5,
    variant: Variant = _DEFAULT,
) -> Tensor:
    """The features `FEATURES` of each answer token (docs/methods.md §3), with natural logarithms.

    Args:
        hidden: `(t, d)` float states after the final norm; row i predicted token i.
        token_ids: `(t,)` integer ids of the tokens that came.
        head: the model's output head, on the device of `hidden`.
        radius: largest distance by which a state is moved, in the units of its coordinates.
        steps: number of equal steps up to the radius.
        variant: readings of the definitions.

    Returns:
        `(t, 75)` float32 on the device of `hidden`. A token whose argmax never changes has the radius as its distance
        to the change. A token with zero gradient keeps its state: distances 0, everything perturbed as the original.

    Raises:
        ValueError: shapes don't fit each other, or steps or radius are not positive.
    """
    vocabulary, width = head.weight.shape
    if hidden.shape != (len(token_ids), width):
        raise ValueError(
            f"expected hidden states of shape {(len(token_ids), width)}, for {len(token_ids)} token ids and a head of"
            f" width {width}; got {tuple(hidden.shape)}"
        )
    if steps < 1 or radius <= 0:
        raise ValueError(f"expected at least one step and a positive radius; got steps={steps}, radius={radius}")
    out = torch.empty(len(hidden), len(FEATURES), device=hidden.device)
    rows = max(_FEWEST_ROWS, min(len(hidden), _CHUNK_ELEMENTS // vocabulary))
    with torch.no_grad():
        scratch = _Scratch.allocate(rows, vocabulary, hidden.device)
        grid = torch.tensor([radius * s / steps for s in range(1, steps + 1)], device=hidden.device)
        for chunk in _slices(len(hidden), rows):
            states, ids = hidden[chunk].float(), token_ids[chunk].to(hidden.device)[:, None]
            missing = (0, 0, 0, max(0, _FEWEST_ROWS - len(states)))
            columns = _chunk_features(pad(states, missing), pad(ids, missing), head, grid, variant, scratch)
            out[chunk] = torch.from_numpy(columns)[: len(states)].to(torch.float32).to(hidden.device)
    return out


def _chunk_features(
    hidden: Tensor, ids: Tensor, head: OutputHead, grid: Tensor, variant: Variant, scratch: _Scratch
) -> Array:
    """Features `(n, 75)` of n tokens; ids `(n, 1)`, grid `(s,)`."""
    n = len(hidden)
    logits, slopes, probabilities = scratch.logits[:n], scratch.slopes[:n], scratch.probabilities[:n]
    blocks = list(_slices(n, len(scratch.shifted)))

    _multiply(hidden, head.weight, logits)
    if head.bias is not None:
        logits.add_(head.bias.float())
    logits.mul_(head.scale)  # u_0: before the cap
    originals = [
        _read_original(logits[b], ids[b], head.softcap, variant, scratch.block(probabilities[b])) for b in blocks
    ]
    argmax = torch.cat([o.argmax for o in originals])

    jacobian = _jacobian(logits, probabilities, ids, head, buffer=slopes)
    norm = torch.linalg.vector_norm(jacobian, dim=1, keepdim=True)
    direction = torch.where(norm > ZERO_JACOBIAN, jacobian / norm, 0.0)
    hidden_norm = torch.linalg.vector_norm(hidden, dim=1, keepdim=True)
    epsilons = grid * (hidden_norm if variant.eps_relative else torch.ones_like(hidden_norm))  # (n, s)

    _multiply(direction, head.weight, slopes)
    slopes.mul_(head.scale)
    perturbed, flips = [], []
    for b in blocks:
        line = _line(logits[b], slopes[b], probabilities[b], argmax[b], head.softcap)
        perturbed.append(_read_perturbed(line, ids[b], epsilons[b], variant, scratch.block()))
        flips.append(_exact_flip(logits[b], slopes[b], argmax[b], variant))
    std = torch.cat([o.std for o in originals])
    motion = (std, norm, torch.cat(flips), hidden_norm, _dot(hidden, direction), norm > ZERO_JACOBIAN, epsilons)
    return assemble(
        _to_state(torch.cat([o.state for o in originals])),
        _to_state(torch.cat(perturbed)),
        Motion(*map(_to_array, motion)),
        variant,
    )


def _slices(length: int, step: int) -> Iterator[slice]:
    return (slice(start, min(start + step, length)) for start in range(0, length, max(1, step)))


def _to_array(tensor: Tensor) -> Array:
    array: Array = tensor.to("cpu").double().numpy()
    return array


def _to_state(readings: Tensor) -> State:
    """Readings `(t, s, fields)` as one array `(t, s)` per field."""
    return State(*_to_array(readings.movedim(2, 0)))


# --- the head ---------------------------------------------------------------------------------------------------------


def _multiply(states: Tensor, weight: Tensor, out: Tensor) -> None:
    """Write states `(n, d)` times the transpose of weight `(v, d)` into out `(n, v)`."""
    for rows in _weight_slices(weight):
        torch.mm(states, weight[rows].float().T, out=out[:, rows])


def _weight_slices(weight: Tensor) -> Iterator[slice]:
    """All rows at once in float32; elsewhere slices, so that no float32 copy of the whole matrix is made."""
    whole = weight.dtype == torch.float32
    return _slices(weight.shape[0], weight.shape[0] if whole else _CHUNK_ELEMENTS // weight.shape[1])


def _cap(u: Tensor, softcap: float | None) -> Tensor:
    """Apply c * tanh(u / c) in place."""
    return u if softcap is None else u.div_(softcap).tanh_().mul_(softcap)


def _jacobian(uncapped: Tensor, probabilities: Tensor, ids: Tensor, head: OutputHead, buffer: Tensor) -> Tensor:
    """Gradient `(n, d)` of -log p_t: scale * sum over j != t of p_j (g_j w_j - g_t w_t); buffer `(n, v)`.

    The token's own probability stays out of the sum, as 1 - p_t has no digits left where p_t is near 1.
    """
    own = probabilities.gather(1, ids)
    probabilities.scatter_(1, ids, 0.0)
    others = probabilities.sum(1, keepdim=True)  # (n, 1): 1 - p_t
    factors = probabilities
    if head.softcap is not None:
        torch.div(uncapped, head.softcap, out=buffer)
        slope = buffer.cosh_().square_().reciprocal_()  # 1 - tanh^2 without its cancellation
        others = others * slope.gather(1, ids)
        factors = slope.mul_(probabilities)
    jacobian = -others * head.weight[ids[:, 0]].float()  # (n, d)
    for rows in _weight_slices(head.weight):
        jacobian.addmm_(factors[:, rows], head.weight[rows].float())
    probabilities.scatter_(1, ids, own)
    return jacobian.mul_(head.scale)


# --- reading one state's logits ---------------------------------------------------------------------------------------


class _Block(NamedTuple):
    """Buffers for a block of rows; `shifted` is a view of `padded`, whose columns beyond the vocabulary are -inf."""

    padded: Tensor
    shifted: Tensor
    probabilities: Tensor
    width: int


@dataclass(frozen=True)
class _Scratch:
    """Memory that is allocated once for all chunks: fresh pages would cost as much as the arithmetic."""

    logits: Tensor
    slopes: Tensor
    probabilities: Tensor
    padded: Tensor
    shifted: Tensor
    spare: Tensor
    width: int

    @classmethod
    def allocate(cls, rows: int, vocabulary: int, device: torch.device) -> Self:
        """Room for chunks `(rows, v)` and for blocks of at most as many rows."""
        width = max(16, 1 << vocabulary.bit_length() // 2)  # about the square root: as many groups as members
        groups = max(2, -(-vocabulary // width))
        height = max(1, min(rows, _BLOCK_ELEMENTS.get(device.type, _CHUNK_ELEMENTS) // vocabulary))
        logits, slopes, probabilities = (torch.empty(rows, vocabulary, device=device) for _ in range(3))
        padded = torch.full((height, groups * width), -torch.inf, device=device)
        spare = torch.empty(height, vocabulary, device=device)
        return cls(logits, slopes, probabilities, padded, padded[:, :vocabulary], spare, width)

    def block(self, probabilities: Tensor | None = None) -> _Block:
        """Buffers for a block; its softmax goes where the caller wants it, or into spare memory."""
        return _Block(self.padded, self.shifted, self.spare if probabilities is None else probabilities, self.width)


class _Shape(NamedTuple):
    """The fields of `State` that don't depend on the original state, and where the maximum is; each `(r, 1)`."""

    top: Tensor
    margin: Tensor
    log_total: Tensor
    actual: Tensor
    entropy: Tensor
    reported_entropy: Tensor
    argmax: Tensor


def _read_shape(ids: Tensor, variant: Variant, block: _Block) -> tuple[_Shape, Tensor]:
    """Read the logits in `block.shifted`, which is used up.

    Leaves exp(Z - max Z) in `block.probabilities`; returns also what makes it a softmax, `(r, 1)`, as a pass over the
    vocabulary costs more than to multiply sums.
    """
    shifted, probabilities = block.shifted[: len(ids)], block.probabilities[: len(ids)]
    top, margin, argmax = _top_two(block.padded[: len(ids)], block.width)
    shifted.sub_(top)
    torch.exp(shifted, out=probabilities)
    probabilities.scatter_(1, argmax, 0.0)  # the largest term is exactly 1 and would swallow the small ones
    rest = probabilities.sum(1, keepdim=True)
    probabilities.scatter_(1, argmax, 1.0)
    share = 1 / (1 + rest)
    log_total = rest.log1p()
    entropy = log_total - _dot(probabilities, shifted) * share
    actual = shifted.gather(1, ids)
    reported = entropy
    if variant.entropy_epsilon:
        logs = torch.mul(probabilities, share, out=shifted).add_(variant.entropy_epsilon).log_()
        reported = -_dot(probabilities, logs) * share
    return _Shape(top, margin, log_total, actual, entropy, reported, argmax), share


def _top_two(padded: Tensor, width: int) -> tuple[Tensor, Tensor, Tensor]:
    """Maximum, its lead over the second, and its index, each `(r, 1)`, of rows `(r, groups * width)`.

    The two largest lie in the two groups with the largest maxima, and group maxima cost a tenth of a `topk` or an
    `argmax` over the vocabulary.
    """
    groups = padded.view(len(padded), -1, width)  # (r, groups, width)
    best = groups.amax(2).topk(2, dim=1).indices  # (r, 2)
    candidates = groups.gather(1, best[:, :, None].expand(-1, -1, width)).flatten(1)  # (r, 2 * width)
    values, places = candidates.topk(2, dim=1)
    place = places[:, :1]
    argmax = best.gather(1, place // width) * width + place % width
    return values[:, :1], values[:, :1] - values[:, 1:], argmax


def _dot(a: Tensor, b: Tensor) -> Tensor:
    """Row-wise dot products, `(r, 1)`."""
    product: Tensor = torch.linalg.vecdot(a, b)
    return product[:, None]


class _Original(NamedTuple):
    """The unperturbed state: `State` fields `(r, 1, fields)`, and `(r, 1)` each."""

    state: Tensor
    std: Tensor
    argmax: Tensor


def _read_original(uncapped: Tensor, ids: Tensor, softcap: float | None, variant: Variant, block: _Block) -> _Original:
    """Read Z_0; leaves its softmax in `block.probabilities`."""
    rows, vocabulary = uncapped.shape
    logits, spread = block.shifted[:rows], block.probabilities
    _cap(logits.copy_(uncapped), softcap)
    squared_norm = _dot(logits, logits)
    torch.sub(logits, logits.mean(1, keepdim=True), out=spread)
    std = torch.sqrt(_dot(spread, spread) / (vocabulary - 1))
    shape, share = _read_shape(ids, variant, block)
    block.probabilities.mul_(share).clamp_(min=_TINY_PROBABILITY)
    none = torch.zeros_like(std)
    moments = _Moments(shape.top, squared_norm, squared_norm, none)
    return _Original(_pack(shape._replace(top=none), moments, shape.entropy, none), std, shape.argmax)


def _pack(shape: _Shape, moments: _Moments, mixture_entropy: Tensor, backward: Tensor) -> Tensor:
    """The fields of one `State`, `(r, 1, fields)`."""
    fields = {**shape._asdict(), **moments._asdict(), "mixture_entropy": mixture_entropy, "backward": backward}
    return torch.stack([fields[name] for name in State._fields], dim=2)


# --- the line of perturbed logits -------------------------------------------------------------------------------------


class _Moments(NamedTuple):
    """The fields of `State` that relate a state to the original one; each `(r, 1)`."""

    level: Tensor
    squared_norm: Tensor
    alignment: Tensor
    drift: Tensor


class _StraightLine:
    """Z_s = Z_0 + eps * slope: inner products are polynomials in eps, whose coefficients are taken once.

    Turns base and slope into differences to the original argmax, in place: while that token leads, it reads exactly 0.
    """

    def __init__(self, base: Tensor, slope: Tensor, probabilities: Tensor, argmax: Tensor) -> None:
        self.base, self.slope, self.probabilities = base, slope, probabilities
        self._level, self._rise = base.gather(1, argmax), slope.gather(1, argmax)
        self._norm, self._cross, self._steep = _dot(base, base), _dot(base, slope), _dot(slope, slope)
        base.sub_(self._level)
        slope.sub_(self._rise)
        self._drift = _dot(probabilities, slope)

    def write(self, epsilon: Tensor, out: Tensor) -> _Moments:
        """Write Z_s - Z_s[a0] into out `(r, v)`; epsilon `(r, 1)`."""
        torch.addcmul(self.base, self.slope, epsilon, out=out)
        return _Moments(
            self._level + epsilon * self._rise,
            self._norm + 2 * epsilon * self._cross + epsilon**2 * self._steep,
            self._norm + epsilon * self._cross,
            epsilon * self._drift,
        )

    def backward(self, probabilities: Tensor) -> Tensor:
        """`State.backward` of a state with these probabilities `(r, v)`, or multiples of them."""
        return _dot(probabilities, self.base)


class _CappedLine:
    """Z_s = cap(u_0 + eps * slope): inner products are taken in every state."""

    def __init__(self, base: Tensor, slope: Tensor, probabilities: Tensor, argmax: Tensor, softcap: float) -> None:
        self.base, self.slope, self.probabilities = base, slope, probabilities
        self._argmax, self._softcap = argmax, softcap
        self._logits = _cap(base.clone(), softcap)
        self._relative = self._logits - self._logits.gather(1, argmax)

    def write(self, epsilon: Tensor, out: Tensor) -> _Moments:
        """Write Z_s - Z_s[a0] into out `(r, v)`; epsilon `(r, 1)`."""
        logits = _cap(torch.addcmul(self.base, self.slope, epsilon, out=out), self._softcap)
        squared_norm, alignment = _dot(logits, logits), _dot(logits, self._logits)
        level = logits.gather(1, self._argmax)
        logits.sub_(level)
        return _Moments(level, squared_norm, alignment, _dot(self.probabilities, logits - self._relative))

    def backward(self, probabilities: Tensor) -> Tensor:
        """`State.backward` of a state with these probabilities `(r, v)`."""
        return _dot(probabilities, self._relative)


def _line(
    base: Tensor, slope: Tensor, probabilities: Tensor, argmax: Tensor, softcap: float | None
) -> _StraightLine | _CappedLine:
    if softcap is None:
        return _StraightLine(base, slope, probabilities, argmax)
    return _CappedLine(base, slope, probabilities, argmax, softcap)


def _read_perturbed(
    line: _StraightLine | _CappedLine, ids: Tensor, epsilons: Tensor, variant: Variant, block: _Block
) -> Tensor:
    """The fields of `State` for Z_1 ... Z_S of a block of r tokens, `(r, s, fields)`; epsilons `(r, s)`."""
    states = []
    probabilities, scratch = block.probabilities[: len(ids)], block.shifted[: len(ids)]
    for epsilon in torch.split(epsilons, 1, dim=1):
        moments = line.write(epsilon, out=scratch)
        shape, share = _read_shape(ids, variant, block)
        backward = line.backward(probabilities) * share if variant.js == "ref" else torch.zeros_like(epsilon)
        # 2 m, so that H(m) = ln 2 - sum 2m log 2m / 2
        mixture = torch.addcmul(line.probabilities, probabilities, share, out=probabilities)
        entropy = _dot(torch.log(mixture, out=scratch), mixture).mul_(-0.5).add_(math.log(2))
        states.append(_pack(shape, moments, entropy, backward))
    return torch.cat(states, dim=1)


def _exact_flip(base: Tensor, slope: Tensor, argmax: Tensor, variant: Variant) -> Tensor:
    """Distance `(r, 1)` at which another token overtakes the argmax, inf where none does; a cap changes no order."""
    if variant.eps_flip == "grid":
        return torch.full_like(base[:, :1], torch.inf)
    gain = slope - slope.gather(1, argmax)
    lead = base.gather(1, argmax) - base
    return torch.where(gain > 0, lead / gain, torch.inf).amin(1, keepdim=True)
