"""Small classifiers on hidden states, as P(IK) and SAPLMA train them (methods.md §2.0, §2.3, §2.4).

Linear layers with ReLU between them end in two logits, the second for "correct"; AdamW on the cross-entropy; what stays
is the final step. A trained probe is a dict of numpy arrays, which predicts without torch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from bench.api import BoolArray, Context, FloatArray, UntrainableError, UserError

if TYPE_CHECKING:
    import torch
    from torch import Tensor

Weights = dict[str, npt.NDArray[np.float32]]
"""`mean` and `scale` `(d,)` of the inputs, then `0.weight` `(out, in)`, `0.bias` `(out,)`, `1.weight` and so on."""

_CLASSES = 2
_COLUMNS_AT_ONCE = 512  # whose float64 copy exists while means and deviations are taken


class Recipe(NamedTuple):
    """What a probe looks like and how it is trained."""

    hidden_layers: Sequence[int]
    """Widths between the hidden state and the two logits; none for a linear probe."""
    steps: int
    batch_size: int
    learning_rate: float
    weight_decay: float
    standardise: bool
    """Bring each input to mean 0 and deviation 1 over the training rows."""
    schedule: Literal["constant", "cosine"] = "constant"
    """How the rate goes on from its start: not at all, or along a half cosine to 0."""
    initialisation: Literal["uniform", "xavier"] = "uniform"
    """Of the weights: within 1 / sqrt(inputs), as torch's own layers, or Xavier's normal one with biases 0."""


def train_probe(who: str, features: FloatArray, correct: BoolArray, recipe: Recipe, ctx: Context) -> Weights:
    """Train a probe that tells right answers from wrong ones.

    The rows move to `ctx.device` once and all batches are drawn before the first step. Everything random comes from
    `ctx.seed`; global generators are neither read nor moved.

    Args:
        who: name of the method, for errors.
        features: `(n, d)` float32 hidden states.
        correct: `(n,)` bool.
        recipe: shape and training.
        ctx: seed and device.

    Returns:
        `Weights`, all float32.

    Raises:
        UserError: all labels are equal, fewer rows than a batch, or values that are not finite.
    """
    import torch

    check_labels(who, correct, recipe.batch_size)
    check_finite(who, features)
    inputs = torch.tensor(features, dtype=torch.float32, device=ctx.device)
    mean, scale = _mean_and_scale(inputs) if recipe.standardise else _unchanged(inputs)
    inputs.sub_(mean).div_(scale)
    generator = torch.Generator().manual_seed(ctx.seed)
    widths = (inputs.shape[1], *recipe.hidden_layers, _CLASSES)
    initial = [p.to(ctx.device) for p in _initial(widths, recipe.initialisation, generator)]
    batches = draw_batches(len(inputs), recipe.steps, recipe.batch_size, generator)
    labels = torch.tensor(correct, dtype=torch.int64)
    parameters = _minimise(initial, inputs, batches.to(ctx.device), labels[batches].to(ctx.device), recipe)
    named = {f"{i // 2}.{('weight', 'bias')[i % 2]}": parameter for i, parameter in enumerate(parameters)}
    # Copies, because numpy() shares memory with the live tensor (methods.md §6 #17).
    return {name: t.cpu().numpy().copy() for name, t in {"mean": mean, "scale": scale, **named}.items()}


def predict_probe(who: str, weights: Mapping[str, npt.NDArray[np.float32]], features: FloatArray) -> FloatArray:
    """Probability that the answer is right, shape `(n,)` float64, from features `(n, d)` float32.

    Raises:
        UserError: features that are not finite.
    """
    check_finite(who, features)
    x = (features - weights["mean"]) / weights["scale"]
    last = (len(weights) - 2) // 2 - 1
    for i in range(last + 1):
        x = x @ weights[f"{i}.weight"].T + weights[f"{i}.bias"]  # (n, width of layer i)
        if i < last:
            np.maximum(x, 0.0, out=x)
    odds = x[:, 1].astype(np.float64) - x[:, 0]
    return np.asarray(np.exp(-np.logaddexp(0.0, -odds)))  # the sigmoid, without overflow and exact in its lower tail


def n_parameters(hidden_size: int, hidden_layers: Sequence[int]) -> int:
    """Weights and biases of a probe on states of this size; the scaler is not trained and doesn't count."""
    return sum(a * b + b for a, b in pairwise((hidden_size, *hidden_layers, _CLASSES)))


def check_finite(who: str, features: FloatArray) -> None:
    """Refuse hidden states `(n, d)` that overflowed.

    Raises:
        UserError: some are not finite.
    """
    bad = ~np.isfinite(features).all(axis=1)
    if bad.any():
        raise UserError(
            f"{who}: expected finite hidden states; {bad.sum()} of {len(features)} hold infinity or NaN;"
            " load the model in another precision, e.g. --dtype float32"
        )


def draw_batches(n: int, steps: int, batch_size: int, generator: torch.Generator) -> Tensor:
    """Row indices `(steps, batch_size)` int64: one permutation of the n rows after another, cut into batches."""
    import torch

    needed = steps * batch_size
    epochs = [torch.randperm(n, generator=generator) for _ in range(-(-needed // n))]
    return torch.cat([*epochs, torch.empty(0, dtype=torch.int64)])[:needed].view(steps, batch_size)


def check_labels(who: str, correct: BoolArray, batch_size: int) -> None:
    """Refuse to learn from fewer answers than a batch, or from answers that are all right or all wrong.

    Raises:
        UserError: says what was expected, what came and what to do.
    """
    if len(correct) < batch_size:
        raise UserError(
            f"{who}: expected at least {batch_size} training answers, a batch; got {len(correct)};"
            " raise --limit, or lower batch_size with --set"
        )
    if correct.all() or not correct.any():
        raise UntrainableError(
            f"{who}: expected right and wrong answers to learn from; all {len(correct)} training answers are"
            f" {'right' if correct.all() else 'wrong'}; raise --limit or name another task with --train-on"
        )


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


def _initial(widths: Sequence[int], initialisation: str, generator: torch.Generator) -> list[Tensor]:
    """Weight `(out, in)` and bias `(out,)` of each layer, drawn on the CPU so that every device starts alike."""
    import torch

    parameters = []
    for inputs, outputs in pairwise(widths):
        if initialisation == "xavier":
            weight = torch.randn(outputs, inputs, generator=generator) * math.sqrt(2 / (inputs + outputs))
            bias = torch.zeros(outputs)
        else:
            bound = 1 / math.sqrt(inputs)
            weight = (2 * torch.rand(outputs, inputs, generator=generator) - 1) * bound
            bias = (2 * torch.rand(outputs, generator=generator) - 1) * bound
        parameters += [weight, bias]
    return parameters


def _minimise(initial: list[Tensor], inputs: Tensor, batches: Tensor, labels: Tensor, recipe: Recipe) -> list[Tensor]:
    """The trained parameters; batches `(steps, batch)` are rows of inputs, labels `(steps, batch)` belong to them."""
    import torch

    from methods._shared.networks import Dense, Parameters, indicators, layers_of, logistic_gradient, threads_for

    parameters = Parameters(initial)
    network = Dense(layers_of(parameters), "relu")
    targets = indicators(labels)
    with torch.inference_mode(), threads_for((inputs.shape[1], *recipe.hidden_layers, _CLASSES)):
        for step, (rows, wanted) in enumerate(zip(batches.unbind(), targets.unbind(), strict=True)):
            logits = network.forward(inputs.index_select(0, rows))
            network.backward(logistic_gradient(logits, wanted))
            parameters.step(_rate(recipe, step), recipe.weight_decay)
    return parameters.values


def _rate(recipe: Recipe, step: int) -> float:
    if recipe.schedule == "constant":
        return recipe.learning_rate
    return recipe.learning_rate * (1 + math.cos(math.pi * step / recipe.steps)) / 2
