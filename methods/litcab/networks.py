"""The LitCab layer: adjusted logits Z' = Z + B h + b, their loss and its gradient (docs/methods.md §2.7).

The loss of a step, over all tokens of its questions, with c the mean cross-entropy of right answers' tokens and w that
of wrong options' tokens:

    c - w + cap + penalty |B|     where w < cap
    c     + cap + penalty |B|     elsewhere, and where the step has no wrong option

Memory is what limits this method: for d = 4,096 and V = 128,256 the layer has 525 million weights. Weights, gradient
and the two moments of AdamW take 16 bytes each in float32, the frozen head 2 in half precision: 9.5 GB (14 GB for
d = 5,120 and V = 152,064). Nothing else of that size is ever made: the gradient is written where it stays, logits exist
for at most 256 tokens at a time (0.13 GB; on an accelerator 768 and 0.39 GB) and are recomputed from the hidden states,
and a head in half precision is widened slice by slice. The training states stay in the computer's memory; a step's own
go to the device.

An accelerator multiplies bfloat16 ten times as fast as float32, with sums in float32. States and head of a bfloat16
model lose nothing in it, so their products are the same up to the order of sums. What is float32, the layer and the
gradient in the logits, is the sum of two bfloat16 numbers up to 2^-17 of it, and a product of it is two products. Few
states wait for memory in any case, and are multiplied in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

if TYPE_CHECKING:
    from bench.api import IntArray, OutputHead

CHUNK_TOKENS = 256
"""Hidden states whose logits exist at one time (docs/methods.md §0.13)."""
_CHUNK_ACCELERATED = 768  # the same where each chunk costs a pass over layer and gradient, and memory is not the CPU's
_SLICE_ELEMENTS = 1 << 23  # of a half-precision head that are widened at once: 32 MiB in float32
_ACCELERATED = ("cuda", "meta")  # kinds of device that multiply bfloat16 numbers into a float32 result
_MANY = 128  # states from which on float32 products take longer than splitting the layer
_SPLIT_ELEMENTS = 1 << 26  # that are split at once: 256 MiB in two halves


class Layer(NamedTuple):
    """The trained layer, float32, on the device of the head."""

    weight: Tensor
    """B, (v, d)"""
    bias: Tensor
    """b, (v,)"""

    @classmethod
    def zeros(cls, head: OutputHead) -> Layer:
        """A layer that changes nothing."""
        rows, width = head.weight.shape
        return cls(*(torch.zeros(shape, device=head.weight.device) for shape in ((rows, width), (rows,))))

    def arrays(self) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """Copies on the host."""
        return self.weight.cpu().numpy().copy(), self.bias.cpu().numpy().copy()


class Targets(NamedTuple):
    """Tokens, and the hidden states that predicted them; on the host."""

    states: npt.NDArray[np.float32]
    """(m, d); options that share their beginning share its states."""
    state: IntArray
    """(t,) row of `states` that predicted each token."""
    ids: IntArray
    """(t,)"""


class Objective(NamedTuple):
    """The constants of the loss."""

    cap: float
    penalty: float
    relu_input: bool


# --- reading ----------------------------------------------------------------------------------------------------------


class _Chunk(NamedTuple):
    """Chunk of states and the tokens that they predicted, on the device."""

    states: Tensor
    """(m, d) float32, or bfloat16 where they are multiplied as such."""
    rows: Tensor
    """(t,) state of each token, within the chunk."""
    ids: Tensor
    """(t,)"""
    tokens: IntArray
    """(t,) which of all tokens these are; on the host."""


def _chunks(tokens: Targets, head: OutputHead) -> Iterator[_Chunk]:
    device = head.weight.device
    accelerated = device.type in _ACCELERATED
    size = _CHUNK_ACCELERATED if accelerated else CHUNK_TOKENS
    short = accelerated and head.weight.dtype == torch.bfloat16
    if short:  # in states of a model in bfloat16 the lower halves of all numbers are 0
        short = not np.bitwise_or.reduce(np.ascontiguousarray(tokens.states).view(np.uint32), axis=None) & 0xFFFF
    for start in range(0, len(tokens.states), size):
        inside = np.flatnonzero((tokens.state >= start) & (tokens.state < start + size))
        states = torch.tensor(tokens.states[start : start + size])
        yield _Chunk(
            (states.bfloat16() if short else states).to(device),
            torch.tensor(tokens.state[inside] - start, device=device),
            torch.tensor(tokens.ids[inside], dtype=torch.int64, device=device),
            inside,
        )


def _layer_input(states: Tensor, *, relu_input: bool) -> Tensor:
    return states.relu() if relu_input else states


def _adjusted_logits(layer: Layer, head: OutputHead, chunk: _Chunk, *, relu_input: bool) -> Tensor:
    """`(m, v)` of a chunk's states."""
    states = chunk.states
    if states.dtype == torch.bfloat16:
        logits = head.logits(states)
    else:  # without a float32 copy of the whole head
        rows, width = head.weight.shape
        step = rows if head.weight.dtype == torch.float32 else max(1, _SLICE_ELEMENTS // width)
        logits = torch.empty(len(states), rows, device=states.device)
        for start in range(0, rows, step):
            torch.mm(states, head.weight[start : start + step].float().T, out=logits[:, start : start + step])
        if head.bias is not None:
            logits.add_(head.bias.float())
        if head.scale != 1.0:
            logits.mul_(head.scale)
        if head.softcap is not None:
            logits.div_(head.softcap).tanh_().mul_(head.softcap)
    states = _layer_input(states, relu_input=relu_input)
    if not _is_split(states):
        return logits.addmm_(states.float(), layer.weight.T).add_(layer.bias)
    twice = states.repeat(1, 2)
    for piece in _split_slices(layer.weight):
        logits[:, piece].add_(_product(twice, _halves(layer.weight[piece], dim=1).T))
    return logits.add_(layer.bias)


def _is_split(states: Tensor) -> bool:
    """Whether float32 factors of these states are split."""
    return states.dtype == torch.bfloat16 and len(states) >= _MANY


def _split_slices(weight: Tensor) -> Iterator[slice]:
    step = max(1, _SPLIT_ELEMENTS // weight.shape[1])
    return (slice(start, start + step) for start in range(0, len(weight), step))


def _halves(x: Tensor, dim: int) -> Tensor:
    """Two bfloat16 matrices whose sum is a float32 one, up to 2^-17 of each number; joined along this dimension."""
    shape = [*x.shape[:dim], 2, *x.shape[dim:]]
    halves = torch.empty(shape, dtype=torch.bfloat16, device=x.device)
    high, low = halves.unbind(dim)
    high.copy_(x)
    torch.sub(x, high, out=low)  # exact before it is rounded
    return halves.flatten(dim, dim + 1)


def _product(a: Tensor, b: Tensor) -> Tensor:
    """Product of bfloat16 matrices in float32."""
    return torch.mm(a, b, out_dtype=torch.float32)


def log_probabilities(layer: Layer, head: OutputHead, tokens: Targets, *, relu_input: bool) -> npt.NDArray[np.float64]:
    """Adjusted log-probability of each token, shape `(t,)` float64, at most 0."""
    out = np.zeros(len(tokens.ids))
    for chunk in _chunks(tokens, head):
        logits = _adjusted_logits(layer, head, chunk, relu_input=relu_input)
        top, argmax = logits.max(dim=1, keepdim=True)
        logits.sub_(top)
        actual = logits[chunk.rows, chunk.ids]
        # The largest term is exactly 1 and would swallow the small ones: with it apart, a token of probability 1 - 1e-9
        # keeps its digits.
        rest = logits.exp_().scatter_(1, argmax, 0.0).sum(dim=1, keepdim=True)
        out[chunk.tokens] = (actual - rest.log1p()[chunk.rows, 0]).cpu().numpy()
    return out


# --- training ---------------------------------------------------------------------------------------------------------


def _read(layer: Layer, head: OutputHead, chunk: _Chunk, *, relu_input: bool) -> tuple[Tensor, Tensor]:
    """Softmax `(m, v)` of the adjusted logits, and each token's log-probability `(t,)`."""
    log_p = _adjusted_logits(layer, head, chunk, relu_input=relu_input).log_softmax(dim=1)
    read = log_p[chunk.rows, chunk.ids]
    return log_p.exp_(), read


def write_gradient(
    layer: Layer, gradient: Layer, head: OutputHead, tokens: Targets, wrong: npt.NDArray[np.bool_], objective: Objective
) -> float:
    """Overwrite the gradient with that of one step's loss, and return the loss.

    By hand, since autograd would hold two more matrices of the layer's size. The softmax's gradient in a token's logits
    is p - e_t; the norm's in B is B / |B|, and 0 at B = 0.

    Args:
        layer: the weights; unchanged.
        gradient: of the layer's shapes.
        head: the frozen head.
        tokens: all tokens of the step.
        wrong: `(t,)` which of them are of wrong options.
        objective: constants.
    """
    norm = torch.linalg.vector_norm(layer.weight)
    # A hand-written norm / 0 would be NaN; the branch not taken may be.
    factor = torch.where(norm > 0, objective.penalty / norm, 0.0)
    torch.mul(layer.weight, factor, out=gradient.weight)
    gradient.bias.zero_()

    def add(softmax: Tensor, chunk: _Chunk) -> None:
        """Add sum over tokens of share * (p - e_t), times the layer's input; uses the softmax `(m, v)` up."""
        share = torch.tensor(shares[chunk.tokens], device=softmax.device)
        totals = torch.zeros(len(chunk.states), device=share.device).index_add_(0, chunk.rows, share)
        softmax.mul_(totals[:, None]).index_put_((chunk.rows, chunk.ids), -share, accumulate=True)
        gradient.bias.add_(softmax.sum(dim=0))
        states = _layer_input(chunk.states, relu_input=objective.relu_input)
        if not _is_split(states):
            gradient.weight.addmm_(softmax.T, states.float())
            return
        twice = states.repeat(2, 1)
        for rows in _split_slices(gradient.weight):
            gradient.weight[rows].add_(_product(_halves(softmax[:, rows], dim=0).T, twice))

    first, *others = _chunks(tokens, head)
    losses = np.zeros(len(wrong))
    for chunk in others:
        losses[chunk.tokens] = -_read(layer, head, chunk, relu_input=objective.relu_input)[1].cpu().numpy()
    softmax, read = _read(layer, head, first, relu_input=objective.relu_input)
    losses[first.tokens] = -read.cpu().numpy()
    n_right, n_wrong = max(1, int((~wrong).sum())), max(1, int(wrong.sum()))
    right_mean, wrong_mean = losses[~wrong].sum() / n_right, losses[wrong].sum() / n_wrong
    pushed = bool(wrong.any() and wrong_mean < objective.cap)
    loss = float(right_mean - pushed * wrong_mean + objective.cap)
    shares = np.where(wrong, -pushed / n_wrong, 1 / n_right).astype(np.float32)  # derivative in each cross-entropy
    add(softmax, first)
    del softmax  # before the next one is made
    for chunk in others:  # which side of the cap the step is on was not known before all were read
        add(_read(layer, head, chunk, relu_input=objective.relu_input)[0], chunk)
    return loss + objective.penalty * float(norm)


def train_layer(
    head: OutputHead,
    steps: Iterable[tuple[Targets, npt.NDArray[np.bool_]]],
    objective: Objective,
    after: Callable[[Layer], None],
    *,
    learning_rate: float,
    weight_decay: float,
) -> None:
    """Train a layer from zero, one step of AdamW for each (tokens, wrong); `after` sees the layer after each step."""
    layer, gradient = Layer.zeros(head), Layer.zeros(head)
    adamw = torch.optim.AdamW(list(layer), lr=learning_rate, weight_decay=weight_decay, betas=(0.9, 0.999), fused=True)
    for parameter, its_gradient in zip(layer, gradient, strict=True):
        parameter.grad = its_gradient
    for tokens, wrong in steps:
        write_gradient(layer, gradient, head, tokens, wrong, objective)
        adamw.step()
        after(layer)
