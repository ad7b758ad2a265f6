"""Small networks trained by hand: dense layers with their gradients, and one AdamW step over all parameters at once.

Networks this small spend most of a step in autograd, in modules and in an optimiser that visits each parameter; the
arithmetic is a tenth. Here parameters and gradients are one vector each, and gradients are written where the optimiser
reads them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.optim.adam import adam
from torch.optim.adamw import adamw

Activation = Literal["relu", "elu"]
Optimiser = Literal["adamw", "adam"]
"""With decoupled weight decay, or with L2."""

_RULES = {"adamw": adamw, "adam": adam}

_MANY_WEIGHTS = 1 << 18  # from here on a product is worth a second thread


class Parameters:
    """Tensors as views of one vector, with gradients and moments in the same layout."""

    def __init__(self, values: Sequence[Tensor]) -> None:
        """Copy these values; gradients and moments are zero."""
        self._shapes = [value.shape for value in values]
        self._flat = torch.cat([value.detach().reshape(-1) for value in values])
        self._gradient, self._mean, self._square = (torch.zeros_like(self._flat) for _ in range(3))
        self._steps = torch.zeros((), device=self._flat.device)
        self.values = self._views(self._flat)
        """The parameters."""
        self.gradients = self._views(self._gradient)
        """To be written before each step."""

    def _views(self, flat: Tensor) -> list[Tensor]:
        parts = torch.split(flat, [math.prod(shape) for shape in self._shapes])
        return [part.view(shape) for part, shape in zip(parts, self._shapes, strict=True)]

    def step(self, rate: float, weight_decay: float, optimiser: Optimiser = "adamw") -> None:
        """One step with betas 0.9 and 0.999."""
        _RULES[optimiser](
            [self._flat], [self._gradient], [self._mean], [self._square], [], [self._steps],
            fused=True, amsgrad=False, maximize=False, beta1=0.9, beta2=0.999, eps=1e-8,
            lr=rate, weight_decay=weight_decay,
        )  # fmt: skip


class Layer(NamedTuple):
    """One dense layer and where its gradient is written."""

    weight: Tensor
    """(outputs, inputs)"""
    bias: Tensor
    """(outputs,)"""
    weight_gradient: Tensor
    bias_gradient: Tensor


def layers_of(parameters: Parameters, start: int = 0, stop: int | None = None) -> list[Layer]:
    """Parameters number start ... stop-1, which alternate between weight and bias, as layers."""
    values, gradients = parameters.values[start:stop], parameters.gradients[start:stop]
    return [Layer(*each) for each in zip(values[::2], values[1::2], gradients[::2], gradients[1::2], strict=True)]


class Dense:
    """Layers with an activation, and dropout if any, after each but the last."""

    def __init__(self, layers: Sequence[Layer], activation: Activation, dropout: float = 0.0) -> None:
        self.layers = list(layers)
        self.activation: Activation = activation
        self.dropout = dropout

    def forward(self, x: Tensor) -> Tensor:
        """`(n, inputs)` -> `(n, outputs)`; remembers what `backward` needs."""
        self._inputs = [x]
        self._activated: list[Tensor] = []
        self._masks: list[Tensor] = []
        last = len(self.layers) - 1
        for i, layer in enumerate(self.layers):
            x = torch.addmm(layer.bias, x, layer.weight.T)
            if i < last:
                x = x.relu_() if self.activation == "relu" else torch.nn.functional.elu_(x)
                self._activated.append(x)
                if self.dropout:
                    self._masks.append(dropout_mask(x, self.dropout))
                    x = x * self._masks[-1]
                self._inputs.append(x)
        return x

    def backward(self, gradient: Tensor, *, to_inputs: bool = False) -> Tensor:
        """Write the gradients of all layers, given the loss's in the outputs `(n, outputs)`.

        Returns:
            The loss's gradient in the inputs, `(n, inputs)`, where it is asked for; else in the first layer's outputs.
        """
        for i in reversed(range(len(self.layers))):
            layer = self.layers[i]
            torch.mm(gradient.T, self._inputs[i], out=layer.weight_gradient)
            torch.sum(gradient, 0, out=layer.bias_gradient)
            if i:
                gradient = torch.mm(gradient, layer.weight)
                if self.dropout:
                    gradient *= self._masks[i - 1]
                gradient *= _slope(self._activated[i - 1], self.activation)
            elif to_inputs:
                gradient = torch.mm(gradient, layer.weight)
        return gradient


def _slope(activated: Tensor, activation: Activation) -> Tensor:
    """The activation's derivative, from its output: 1 above 0; below, 0 for ReLU and exp(x) = output + 1 for ELU."""
    return activated > 0 if activation == "relu" else activated.clamp(max=0).add_(1)


def dropout_mask(like: Tensor, share: float) -> Tensor:
    """0 for this share of the places, 1 / (1 - share) for the others; drawn from torch's global generator."""
    return torch.empty_like(like).bernoulli_(1 - share).div_(1 - share)


def logistic_gradient(logits: Tensor, targets: Tensor) -> Tensor:
    """Gradient `(n, classes)` of the mean cross-entropy; targets are `(n, classes)` indicators divided by n."""
    return torch.softmax(logits, 1).div_(len(logits)).sub_(targets)


def indicators(labels: Tensor, classes: int = 2) -> Tensor:
    """Labels `(steps, n)` as the `(steps, n, classes)` targets of `logistic_gradient`."""
    return torch.nn.functional.one_hot(labels, classes).float().div_(labels.shape[1])


@contextmanager
def threads_for(widths: Sequence[int]) -> Iterator[None]:
    """One thread where no layer between these widths has many weights.

    Smaller products gain nothing from a second thread, and on a busy machine waiting for it costs fifty times as much.
    """
    threads = torch.get_num_threads()
    if max(a * b for a, b in pairwise(widths)) < _MANY_WEIGHTS:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
