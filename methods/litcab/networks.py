"""The LitCab layer: adjusted logits Z' = Z + B h + b, their loss and its gradient (docs/methods.md §2.7).

Z are the frozen output head's logits for the hidden state h. B `(v, d)` and b `(v,)` are the layer's weights and
biases. The loss of a step covers all tokens of its questions. c is the mean cross-entropy of tokens of right answers, w
that of tokens of wrong options:

    c - w + cap + penalty |B|     where w < cap
    c     + cap + penalty |B|     elsewhere, and where the step has no wrong option

Memory limits this method: for d = 4,096 and v = 128,256 the layer has 525 million weights. In float32, each weight
takes 16 bytes, for value, gradient and the two moments of AdamW. The frozen head takes 2 bytes per weight in half
precision. The sum is 9.5 GB (14 GB for d = 5,120 and v = 152,064). No other array of that size is allocated. The
gradient is written in place. Logits exist for at most 256 tokens at a time (0.13 GB; on an accelerator 768 and 0.39
GB), and are recomputed from the hidden states. A head in half precision is cast to float32 slice by slice. The training
states stay on the host, and those of a step are copied to the device.

An accelerator multiplies bfloat16 ten times as fast as float32, with sums in float32. Hidden states and head of a
bfloat16 model are exact in bfloat16, so their products are the same up to the order of summation. Float32 factors, i.e.
the layer and the gradient of the logits, are split into the sum of two bfloat16 numbers, exact to 2^-17, and need two
products. With few states memory bandwidth is the limit, and float32 is used.
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
"""Number of hidden states whose logits are in memory at once (docs/methods.md §0.13)."""
_CHUNK_ACCELERATED = 768  # on accelerators, where each chunk costs a pass over layer and gradient
_SLICE_ELEMENTS = 1 << 23  # elements of a half-precision head that are cast at a time: 32 MiB in float32
_ACCELERATED = ("cuda", "meta")  # device types that multiply bfloat16 into float32
_SPLIT_MIN_STATES = 128  # number of states from which float32 products take longer than splitting the layer
_SPLIT_ELEMENTS = 1 << 26  # elements that are split at a time: 256 MiB in two halves


class Layer(NamedTuple):
    """The trained layer Z' = Z + B h + b, float32, on the device of the output head."""

    weight: Tensor
    """`(v, d)` weights B."""
    bias: Tensor
    """`(v,)` biases b."""

    @classmethod
    def zeros(cls, head: OutputHead) -> Layer:
        """Return a layer of zeros, which leaves all logits unchanged."""
        rows, width = head.weight.shape
        return cls(*(torch.zeros(shape, device=head.weight.device) for shape in ((rows, width), (rows,))))

    def arrays(self) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """Return copies of weight and bias on the host."""
        return self.weight.cpu().numpy().copy(), self.bias.cpu().numpy().copy()


class Targets(NamedTuple):
    """Tokens, and the hidden states that predict them; the arrays are on the host."""

    states: npt.NDArray[np.float32]
    """`(m, d)` hidden states; options that begin alike share the states of their common tokens."""
    state: IntArray
    """`(t,)` index of the row of `states` that predicts each token."""
    ids: IntArray
    """(t,) token ids."""


class Objective(NamedTuple):
    """Constants of LitCab's loss and of its layer."""

    cap: float
    penalty: float
    relu_input: bool


# --- reading ----------------------------------------------------------------------------------------------------------


class _Chunk(NamedTuple):
    """Some of the hidden states, on the device, and the tokens that they predict."""

    states: Tensor
    """`(m, d)` float32, or bfloat16 where products are computed in bfloat16."""
    rows: Tensor
    """`(t,)` index of the row of `states` that predicts each token."""
    ids: Tensor
    """(t,) token ids."""
    tokens: IntArray
    """`(t,)` indices of the chunk's tokens among all tokens; on the host."""


def _chunks(tokens: Targets, head: OutputHead) -> Iterator[_Chunk]:
    device = head.weight.device
    accelerated = device.type in _ACCELERATED
    size = _CHUNK_ACCELERATED if accelerated else CHUNK_TOKENS
    short = accelerated and head.weight.dtype == torch.bfloat16
    if short:  # states of a bfloat16 model have zeros in the lower halves of their float32 values
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
    """Return the adjusted logits `(m, v)` of a chunk's m hidden states."""
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
    """Return whether float32 factors of products with these states are split into two bfloat16 matrices."""
    return states.dtype == torch.bfloat16 and len(states) >= _SPLIT_MIN_STATES


def _split_slices(weight: Tensor) -> Iterator[slice]:
    step = max(1, _SPLIT_ELEMENTS // weight.shape[1])
    return (slice(start, start + step) for start in range(0, len(weight), step))


def _halves(x: Tensor, dim: int) -> Tensor:
    """Return two bfloat16 matrices, concatenated along `dim`, whose sum is `x` to a relative error of 2^-17."""
    shape = [*x.shape[:dim], 2, *x.shape[dim:]]
    halves = torch.empty(shape, dtype=torch.bfloat16, device=x.device)
    high, low = halves.unbind(dim)
    high.copy_(x)
    torch.sub(x, high, out=low)  # exact before it is rounded
    return halves.flatten(dim, dim + 1)


def _product(a: Tensor, b: Tensor) -> Tensor:
    """Return the product of two bfloat16 matrices, summed in float32."""
    return torch.mm(a, b, out_dtype=torch.float32)


def log_probabilities(layer: Layer, head: OutputHead, tokens: Targets, *, relu_input: bool) -> npt.NDArray[np.float64]:
    """Adjusted log-probability of each token, shape `(t,)` float64, at most 0."""
    out = np.zeros(len(tokens.ids))
    for chunk in _chunks(tokens, head):
        logits = _adjusted_logits(layer, head, chunk, relu_input=relu_input)
        top, argmax = logits.max(dim=1, keepdim=True)
        logits.sub_(top)
        actual = logits[chunk.rows, chunk.ids]
        # The largest term is exactly 1 and would absorb the small ones: summed without it, the log-probability of a
        # token of probability 1 - 1e-9 keeps its digits.
        rest = logits.exp_().scatter_(1, argmax, 0.0).sum(dim=1, keepdim=True)
        out[chunk.tokens] = (actual - rest.log1p()[chunk.rows, 0]).cpu().numpy()
    return out


# --- training ---------------------------------------------------------------------------------------------------------


def _softmax_and_log_p(layer: Layer, head: OutputHead, chunk: _Chunk, *, relu_input: bool) -> tuple[Tensor, Tensor]:
    """Return the softmax `(m, v)` of a chunk's adjusted logits, and the log-probabilities `(t,)` of its tokens."""
    log_p = _adjusted_logits(layer, head, chunk, relu_input=relu_input).log_softmax(dim=1)
    token_log_p = log_p[chunk.rows, chunk.ids]
    return log_p.exp_(), token_log_p


def write_gradient(
    layer: Layer, gradient: Layer, head: OutputHead, tokens: Targets, wrong: npt.NDArray[np.bool_], objective: Objective
) -> float:
    """Write the gradient of one step's loss with respect to the layer into `gradient`, and return the loss.

    Autograd is not used, as it would hold two more matrices of the layer's size. The gradient of a token's
    cross-entropy with respect to its logits is p - e_t. Here p is their softmax, and e_t is 1 at the token, else 0. The
    gradient of |B| is B / |B|, and 0 at B = 0.

    Args:
        layer: the trained layer, which stays unchanged.
        gradient: tensors of the layer's shapes.
        head: the frozen head.
        tokens: all tokens of the step.
        wrong: `(t,)` mask of the tokens of wrong options.
        objective: constants of the loss.
    """
    norm = torch.linalg.vector_norm(layer.weight)
    # the branch with norm 0 may be NaN: it is not selected
    factor = torch.where(norm > 0, objective.penalty / norm, 0.0)
    torch.mul(layer.weight, factor, out=gradient.weight)
    gradient.bias.zero_()

    def add_chunk(softmax: Tensor, chunk: _Chunk) -> None:
        """Add the gradient of a chunk's tokens to `gradient`; their softmax `(m, v)` is overwritten."""
        weight = torch.tensor(weights[chunk.tokens], device=softmax.device)
        state_weights = torch.zeros(len(chunk.states), device=weight.device).index_add_(0, chunk.rows, weight)
        softmax.mul_(state_weights[:, None]).index_put_((chunk.rows, chunk.ids), -weight, accumulate=True)
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
        losses[chunk.tokens] = -_softmax_and_log_p(layer, head, chunk, relu_input=objective.relu_input)[1].cpu().numpy()
    softmax, log_p = _softmax_and_log_p(layer, head, first, relu_input=objective.relu_input)
    losses[first.tokens] = -log_p.cpu().numpy()
    n_right, n_wrong = max(1, int((~wrong).sum())), max(1, int(wrong.sum()))
    right_mean, wrong_mean = losses[~wrong].sum() / n_right, losses[wrong].sum() / n_wrong
    is_pushed = bool(wrong.any() and wrong_mean < objective.cap)
    loss = float(right_mean - is_pushed * wrong_mean + objective.cap)
    weights = np.where(wrong, -is_pushed / n_wrong, 1 / n_right).astype(np.float32)  # derivative in each cross-entropy
    add_chunk(softmax, first)
    del softmax  # before the next one is allocated
    for chunk in others:  # the side of the cap is known only after all losses
        add_chunk(_softmax_and_log_p(layer, head, chunk, relu_input=objective.relu_input)[0], chunk)
    return loss + objective.penalty * float(norm)


def train_layer(
    head: OutputHead,
    steps: Iterable[tuple[Targets, npt.NDArray[np.bool_]]],
    objective: Objective,
    callback: Callable[[Layer], None],
    *,
    learning_rate: float,
    weight_decay: float,
) -> None:
    """Train a layer, which starts at zeros, by AdamW; `callback` is called with the layer after each step.

    Each item of `steps` is the batch of one step: t target tokens with the hidden states that predict them, and a bool
    mask `(t,)` that is true for tokens of wrong options.
    """
    layer, gradient = Layer.zeros(head), Layer.zeros(head)
    adamw = torch.optim.AdamW(list(layer), lr=learning_rate, weight_decay=weight_decay, betas=(0.9, 0.999), fused=True)
    for parameter, grad in zip(layer, gradient, strict=True):
        parameter.grad = grad
    for tokens, wrong in steps:
        write_gradient(layer, gradient, head, tokens, wrong, objective)
        adamw.step()
        callback(layer)
