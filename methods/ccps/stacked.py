"""Many CCPS networks that learn together, each from columns of its own: one training that equals single ones.

Networks of one shape, with the same initial weights, the same batches and the same pairs, as one seed gives them. Their
weights are stacked, a layer of all of them is one batched product, and the optimisers work element by element. Each has
its own `EarlyStopping`; those that have ended leave the stack.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn import functional

from bench.api import EarlyStopping
from methods._shared.training import batches_of, threads_for
from methods.ccps.networks import OPTIMISERS, Data, Network, Splits, Stage, Weights, hadsell_loss, paired

_VALUES_AT_ONCE = 1 << 22
"""Features of all networks that go through them together where nothing is learned; bounds the memory."""
Stacked = Mapping[str, Tensor]
"""Weights of k networks, `(k, ...)` each."""
Forward = Callable[[Tensor], Tensor]


class _Learning(NamedTuple):
    """Loss of a stage, and what is looked at on validation."""

    loss: Callable[[Forward, Tensor], Tensor]
    """Loss of one network in a batch."""
    on_validation: Callable[[_Together], Tensor | None]
    """Values of all networks there, `(k, ...)`."""
    record: Callable[[EarlyStopping, Tensor | None, Callable[[], Weights]], None]
    """Takes what one of them gave."""


class Stack:
    """k networks of one shape; network i reads the columns `columns[i]`."""

    def __init__(self, network: Network, columns: Tensor) -> None:
        """All begin with this network's weights.

        Args:
            network: reads m features.
            columns: `(k, m)` int64.
        """
        self.template = network.eval()  # what training changes is dropout alone, and there is none
        self.columns = columns
        self.weights: dict[str, Tensor] = {
            name: tensor.detach().expand(len(columns), *tensor.shape).clone()
            for name, tensor in network.state_dict().items()
        }

    def train_contrastive(self, splits: Splits, stage: Stage, stoppings: Sequence[EarlyStopping], seed: int) -> None:
        """The first stage of all; as `methods.ccps.networks.train_contrastive`."""
        generator = torch.Generator().manual_seed(seed)
        train, validation = splits
        n = len(train.labels)
        batches = (paired(rows, n, generator) for rows in batches_of(n, stage.batch_size, generator))
        tested = None
        if validation:
            tested = paired(torch.arange(len(validation.labels)), len(validation.labels), generator)

        def loss(data: Data, encoder: Forward, pairs: Tensor) -> Tensor:
            return hadsell_loss(encoder, data, pairs, stage.margin)

        def on_validation(together: _Together) -> Tensor | None:
            if validation is None or tested is None:
                return None
            return together(partial(loss, validation), tested)

        def record(stopping: EarlyStopping, value: Tensor | None, keep: Callable[[], Weights]) -> None:
            stopping.record_loss(lambda _: math.nan if value is None else float(value), keep=keep)

        self._train("encoder", stage, stoppings, batches, _Learning(partial(loss, train), on_validation, record))

    def train_classifier(self, splits: Splits, stage: Stage, stoppings: Sequence[EarlyStopping], seed: int) -> None:
        """The second stage of all; as `methods.ccps.networks.train_classifier`."""
        train, validation = splits
        batches = batches_of(len(train.labels), stage.batch_size, torch.Generator().manual_seed(seed))

        def loss(network: Forward, rows: Tensor) -> Tensor:
            return functional.cross_entropy(network(train.features[rows]), train.labels[rows])

        def on_validation(together: _Together) -> Tensor | None:
            return _likely(together, validation.features) if validation else None

        def record(stopping: EarlyStopping, value: Tensor | None, keep: Callable[[], Weights]) -> None:
            stopping.record(lambda _: np.zeros(0) if value is None else value.cpu().numpy(), keep=keep)

        self._train("", stage, stoppings, batches, _Learning(loss, on_validation, record))

    def probabilities(self, features: Tensor) -> Tensor:
        """Probabilities `(k, n)`, float64, that answers with all their features `(n, ...)` are right."""
        with torch.no_grad():
            return _likely(_Together(self.template, self.weights, self.columns), features)

    def _train(
        self,
        part: str,
        stage: Stage,
        stoppings: Sequence[EarlyStopping],
        batches: Iterator[Tensor],
        learning: _Learning,
    ) -> None:
        """Train a part of all networks ("": the whole), and leave each with the weights of the step that it keeps."""
        module: nn.Module = self.template.get_submodule(part)
        beginning = f"{part}." if part else ""
        own = {name.removeprefix(beginning): w for name, w in self.weights.items() if name.startswith(beginning)}
        weights = {name: tensor.clone().requires_grad_() for name, tensor in own.items()}
        optimiser = OPTIMISERS[stage.optimiser](
            weights.values(), lr=stage.learning_rate, weight_decay=stage.weight_decay, fused=True
        )
        steps = [iter(stopping) for stopping in stoppings]
        going = list(range(len(stoppings)))
        with threads_for(module):
            while left := [place for place, i in enumerate(going) if next(steps[i], None) is not None]:
                if len(left) < len(going):
                    going = [going[place] for place in left]
                    weights = _narrowed(weights, optimiser, left)
                together = _Together(module, weights, self.columns[going])
                rows = next(batches)
                optimiser.zero_grad()
                together(learning.loss, rows).sum().backward()  # type: ignore[no-untyped-call]
                optimiser.step()
                if stoppings[going[0]].due:
                    with torch.no_grad():
                        values = learning.on_validation(together)
                    for place, i in enumerate(going):
                        value = None if values is None else values[place].cpu()
                        learning.record(stoppings[i], value, partial(_of, weights, place))
        for i, stopping in enumerate(stoppings):
            for name, tensor in stopping.kept.items():
                self.weights[beginning + name][i] = tensor


class _Together:
    """Functions of one network, of all of a stack at once."""

    def __init__(self, module: nn.Module, weights: Stacked, columns: Tensor) -> None:
        self.module, self.weights, self.columns = module, dict(weights), columns

    def __call__(self, of: Callable[[Forward, Tensor], Tensor], x: Tensor) -> Tensor:
        """`(k, ...)` of what a function of a network and x gives; a network takes its own of all columns."""

        def one(weights: Weights, columns: Tensor) -> Tensor:
            return of(lambda features: functional_call(self.module, weights, (features[..., columns],)), x)

        result: Tensor = vmap(one)(self.weights, self.columns)
        return result


def _likely(together: _Together, features: Tensor) -> Tensor:
    at_once = max(1, _VALUES_AT_ONCE // (len(together.columns) * features[0].numel()))
    parts = torch.split(features, at_once)
    logits = torch.cat([together(lambda forward, x: forward(x), part).cpu() for part in parts], 1)
    return logits.double().softmax(dim=2)[:, :, 1]


def _of(weights: Stacked, place: int) -> Weights:
    return {name: tensor[place].detach().clone() for name, tensor in weights.items()}


def _narrowed(weights: Stacked, optimiser: torch.optim.Optimizer, left: Sequence[int]) -> dict[str, Tensor]:
    """Weights of the networks that go on; the optimiser goes on with what it knows of these."""
    (group,) = optimiser.param_groups
    narrowed = {}
    for k, (name, old) in enumerate(weights.items()):
        new = old.detach()[left].clone().requires_grad_()
        state = optimiser.state.pop(old)
        optimiser.state[new] = {
            key: value[left].clone() if value.shape == old.shape else value for key, value in state.items()
        }
        group["params"][k] = narrowed[name] = new
    return narrowed
