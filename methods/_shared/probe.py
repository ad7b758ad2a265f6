"""Small classifiers on hidden states, as P(IK) and SAPLMA train them (docs/methods.md §2.0, §2.3, §2.4).

Linear layers with ReLU between them end in two logits, for "wrong" and "correct". AdamW minimises the cross-entropy. A
trained probe is a dict of numpy arrays, and predictions need no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from bench.api import Batch, ConfidenceMethod, Context, FloatArray, NumpyFormula, Search
from methods._shared.logistic import Arrays, probability
from methods._shared.training import (
    RATE_AND_DECAY,
    check_finite,
    check_fitted,
    iterate_batches,
    limited_threads,
    run_steps,
    seeded_torch,
)

if TYPE_CHECKING:
    from torch import Tensor

Weights = dict[str, npt.NDArray[np.float32]]
"""Arrays of a trained probe: `mean` and `scale` `(d,)` of the inputs, then each layer's `0.weight` `(out, in)`,
`0.bias` `(out,)`, `1.weight` and so on."""

_CLASSES = 2
_COLUMNS_AT_ONCE = 512  # columns whose float64 copy exists at a time


class ProbeSettings(NamedTuple):
    """Layers of a probe, and settings of its training."""

    steps: int
    """Largest number of steps; early stopping on validation may end the training before."""
    batch_size: int
    learning_rate: float
    weight_decay: float
    standardise: bool
    """Whether each input is shifted and scaled to mean 0 and deviation 1 over the training rows."""
    hidden_layers: Sequence[int] = ()
    """Widths of the layers between the hidden state and the two logits; empty for a linear probe."""
    schedule: Literal["constant", "cosine"] = "constant"
    """Learning rate schedule: constant, or half a cosine to 0."""
    initialisation: Literal["uniform", "xavier"] = "uniform"
    """Initial weights: torch's default for linear layers, or Xavier normal. Biases start at torch's default."""


def train_probe(
    who: str, train: Batch, states: Callable[[Batch], FloatArray], settings: ProbeSettings, ctx: Context
) -> Weights:
    """Train a probe to classify answers as right or wrong.

    The rows move to `ctx.device` once. Everything random comes from `ctx.seed`.

    Args:
        who: name of the method, for errors.
        train: labelled answers.
        states: function from a batch to the hidden states `(n, d)` float32 that the probe reads.
        settings: shape and training.
        ctx: seed, device and validation answers.

    Returns:
        `Weights` of the selected step, all float32.

    Raises:
        UserError: hidden states are not finite.
    """
    import torch
    from torch import nn
    from torch.nn.functional import cross_entropy

    features, correct = states(train), train.correct
    check_finite(who, features)
    inputs = torch.tensor(features, dtype=torch.float32, device=ctx.device)
    labels = torch.tensor(correct, dtype=torch.int64, device=ctx.device)
    mean, scale = inputs.new_zeros(inputs.shape[1]), inputs.new_ones(inputs.shape[1])
    if settings.standardise:
        mean, scale = _mean_and_scale(inputs)
    inputs.sub_(mean).div_(scale)
    with seeded_torch(ctx.seed, ctx.device):
        layers: list[nn.Module] = []  # initialised on the CPU, the same for every device
        for a, b in pairwise((inputs.shape[1], *settings.hidden_layers, _CLASSES)):
            linear = nn.Linear(a, b)
            if settings.initialisation == "xavier":
                nn.init.xavier_normal_(linear.weight)
            layers += [linear, nn.ReLU()]
        network = nn.Sequential(*layers[:-1]).to(ctx.device)
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

    with limited_threads(network):
        run_steps(
            stopping,
            optimiser,
            iterate_batches(len(inputs), batch_size, torch.Generator().manual_seed(ctx.seed)),
            loss=lambda rows: cross_entropy(network(inputs[rows]), labels[rows]),
            record=lambda: stopping.record(lambda batch: predict_probe(who, weights(), states(batch)), keep=weights),
            schedule=cosine if settings.schedule == "cosine" else None,
        )
    best: Weights = stopping.kept
    return best


def predict_probe(who: str, weights: Arrays, features: FloatArray) -> FloatArray:
    """Probability that the answer is right, shape `(n,)` float64, from features `(n, d)` float32.

    Raises:
        UserError: features are not finite.
    """
    check_finite(who, features)
    return probe_confidence(weights, features)


def probe_confidence(weights: Arrays, features: FloatArray) -> FloatArray:
    """Probability that the answer is right, `(n,)`: linear layers with ReLU between them, from states `(n, d)`."""
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
    """Return the number of weights and biases of a probe's layers; the scaler's numbers are not counted."""
    return sum(a * b + b for a, b in pairwise((hidden_size, *hidden_layers, _CLASSES)))


def _mean_and_scale(inputs: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and standard deviation (ddof 0) of each column, `(d,)` float32; constant columns get deviation 1.

    A column is constant if all its values are equal. Its computed deviation may be 1e-16, which would amplify rounding.
    """
    import torch

    means, scales = [], []
    for block in torch.split(inputs, _COLUMNS_AT_ONCE, dim=1):
        deviation, mean = torch.std_mean(block.double(), dim=0, correction=0)
        means.append(mean)
        scales.append(torch.where(block.amax(0) == block.amin(0), 1.0, deviation))
    return torch.cat(means).float(), torch.cat(scales).float()


@dataclass(kw_only=True, eq=False)
class StateProbe(ConfidenceMethod):
    """A classifier on one hidden state, of the prompt or the answer, the only signal in `needs`.

    In the sources of its constants, "paper" is arXiv:2505.21772, whose baselines P(IK) and SAPLMA are.
    """

    small: ClassVar[Mapping[str, object]] = {"steps": 200, "learning_rate": 1e-2}
    search: ClassVar[Mapping[str, Search]] = RATE_AND_DECAY

    steps: int = 10_000
    """Largest number of training steps. Paper, Training Details (docs/methods.md §2.0, §0.19)."""
    batch_size: int = 32
    """Largest number of rows in a step. Paper, Training Details (docs/methods.md §2.0, §0.19)."""
    learning_rate: float = 1e-4
    """Learning rate of AdamW. Paper, Training Details (docs/methods.md §2.0), which names no schedule."""
    weight_decay: float = 0.1
    """Weight decay of AdamW, betas 0.9 and 0.999. Paper, Training Details (docs/methods.md §2.0, §6 #51)."""
    standardise: bool = True
    """Whether inputs are scaled to mean 0 and deviation 1 over the training rows. Paper: not mentioned; on in preset
    fixed (docs/methods.md §0.8)."""

    def fit(self, train: Batch, ctx: Context) -> Self:
        """Train the probe on the labels.

        Raises:
            UserError: hidden states are not finite.
        """
        settings = ProbeSettings(**self.params())  # type: ignore[arg-type]  # the fields have the arguments' names
        self.weights_ = train_probe(self.name, train, self._states, settings, ctx)
        return self

    def predict(self, batch: Batch) -> FloatArray:
        """Probability that the answer is right, shape (n,), float64."""
        check_fitted(self)
        return predict_probe(self.name, self.weights_, self._states(batch))

    def export(self) -> NumpyFormula:
        """Return the probe's layers with the learned arrays."""
        check_fitted(self)
        return NumpyFormula((probability, probe_confidence), self.weights_)

    def _states(self, batch: Batch) -> FloatArray:
        (signal,) = self.needs.predict
        states: FloatArray = batch[signal]  # (n, d)
        return states
