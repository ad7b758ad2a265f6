"""Small classifiers on hidden states, as P(IK) and SAPLMA train them (docs/methods.md §2.0, §2.3, §2.4).

Linear layers with ReLU between them end in two logits, the second for "correct"; AdamW on the cross-entropy. A trained
probe is a dict of numpy arrays, which predicts without torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from bench.api import Batch, Context, FloatArray
from methods._shared.logistic import probability
from methods._shared.training import batches_of, check_finite, descend, drawing_from, threads_for

if TYPE_CHECKING:
    from torch import Tensor, nn

Weights = dict[str, npt.NDArray[np.float32]]
"""`mean` and `scale` `(d,)` of the inputs, then `0.weight` `(out, in)`, `0.bias` `(out,)`, `1.weight` and so on."""

_CLASSES = 2
_COLUMNS_AT_ONCE = 512  # whose float64 copy exists while means and deviations are taken


class ProbeSettings(NamedTuple):
    """Shape and training of a probe."""

    hidden_layers: Sequence[int]
    """Widths between the hidden state and the two logits; none for a linear probe."""
    steps: int
    """Most steps; validation may end the training before."""
    batch_size: int
    learning_rate: float
    weight_decay: float
    standardise: bool
    """Bring each input to mean 0 and deviation 1 over the training rows."""
    schedule: Literal["constant", "cosine"] = "constant"
    """Course of the rate from its start: constant, or along a half cosine to 0."""
    initialisation: Literal["uniform", "xavier"] = "uniform"
    """Initial weights: torch's own for linear layers, or Xavier's normal one; biases are torch's own."""


def train_probe(
    who: str, train: Batch, states: Callable[[Batch], FloatArray], settings: ProbeSettings, ctx: Context
) -> Weights:
    """Train a probe that tells right answers from wrong ones.

    The rows move to `ctx.device` once. Everything random comes from `ctx.seed`.

    Args:
        who: name of the method, for errors.
        train: labelled answers.
        states: gives the `(n, d)` float32 hidden states that the probe reads of a batch.
        settings: shape and training.
        ctx: seed, device and validation answers.

    Returns:
        `Weights` of the kept step, all float32.

    Raises:
        UserError: values that are not finite.
    """
    import torch
    from torch.nn.functional import cross_entropy

    features, correct = states(train), train.correct
    check_finite(who, features)
    inputs = torch.tensor(features, dtype=torch.float32, device=ctx.device)
    labels = torch.tensor(correct, dtype=torch.int64, device=ctx.device)
    mean, scale = _mean_and_scale(inputs) if settings.standardise else _unchanged(inputs)
    inputs.sub_(mean).div_(scale)
    with drawing_from(ctx.seed, ctx.device):
        network = _network((inputs.shape[1], *settings.hidden_layers, _CLASSES), settings.initialisation).to(ctx.device)
    batch_size = min(settings.batch_size, len(inputs))
    stopping = ctx.early_stopping(settings.steps, epochs_per_step=batch_size / len(inputs))
    optimiser = torch.optim.AdamW(
        network.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay, fused=True
    )
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, settings.steps)

    def weights() -> Weights:
        tensors = {"mean": mean, "scale": scale}
        for number, linear in enumerate(list(network)[::2]):  # every second module is a ReLU
            tensors |= {f"{number}.{name}": parameter for name, parameter in linear.named_parameters()}
        # copies, because numpy() shares memory with the live tensor (docs/methods.md §6 #17)
        return {name: tensor.detach().cpu().numpy().copy() for name, tensor in tensors.items()}

    with threads_for(network):
        descend(
            stopping,
            optimiser,
            batches_of(len(inputs), batch_size, torch.Generator().manual_seed(ctx.seed)),
            loss=lambda rows: cross_entropy(network(inputs[rows]), labels[rows]),
            record=lambda: stopping.record(lambda some: predict_probe(who, weights(), states(some)), keep=weights),
            schedule=cosine if settings.schedule == "cosine" else None,
        )
    kept: Weights = stopping.kept
    return kept


def predict_probe(who: str, weights: Mapping[str, npt.NDArray[np.float32]], features: FloatArray) -> FloatArray:
    """Probability that the answer is right, shape `(n,)` float64, from features `(n, d)` float32.

    Raises:
        UserError: features that are not finite.
    """
    check_finite(who, features)
    x = features - weights["mean"]
    x /= weights["scale"]
    last = (len(weights) - 2) // 2 - 1
    for i in range(last + 1):
        x = x @ weights[f"{i}.weight"].T + weights[f"{i}.bias"]  # (n, width of layer i)
        if i < last:
            np.maximum(x, 0.0, out=x)
    odds = x[:, 1].astype(np.float64) - x[:, 0]
    return probability(odds)


def n_parameters(hidden_size: int, hidden_layers: Sequence[int]) -> int:
    """Weights and biases of a probe on states of this size; the scaler is not trained and doesn't count."""
    return sum(a * b + b for a, b in pairwise((hidden_size, *hidden_layers, _CLASSES)))


def _network(widths: Sequence[int], initialisation: str) -> nn.Sequential:
    """The layers, drawn on the CPU so that every device starts alike."""
    from torch import nn

    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        linear = nn.Linear(inputs, outputs)
        if initialisation == "xavier":
            nn.init.xavier_normal_(linear.weight)
        layers += [linear, nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def _mean_and_scale(inputs: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and population deviation of each column, `(d,)` float32, taken in float64; 1 where a column is constant.

    Constancy is read off the values: a computed deviation of 1e-16 would blow rounding noise up to a feature.
    """
    import torch

    means, scales = [], []
    for block in torch.split(inputs, _COLUMNS_AT_ONCE, dim=1):
        deviation, mean = torch.std_mean(block.double(), dim=0, correction=0)
        means.append(mean)
        scales.append(torch.where(block.amax(0) == block.amin(0), 1.0, deviation))
    return torch.cat(means).float(), torch.cat(scales).float()


def _unchanged(inputs: Tensor) -> tuple[Tensor, Tensor]:
    return inputs.new_zeros(inputs.shape[1]), inputs.new_ones(inputs.shape[1])
