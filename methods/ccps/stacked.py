"""Many CCPS networks that learn together, each from columns of its own: one training that equals single ones.

Networks of one shape, with the same initial weights, the same batches and the same pairs, as one seed gives them. Their
weights are stacked, a layer of all of them is one batched product, and the optimisers work element by element. Each has
its own `EarlyStopping`; those that have ended leave the stack.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from bench.api import EarlyStopping
from methods._shared.training import limited_threads
from methods.ccps.networks import (
    OPTIMISERS,
    Evaluate,
    Forward,
    Learning,
    Network,
    RowsAtOnce,
    StageSettings,
    Weights,
    likely,
)

_VALUES_AT_ONCE = 1 << 22
"""Features of all networks that go through them together where nothing is learned; bounds the memory."""


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

    def probabilities(self, features: Tensor) -> Tensor:
        """Probabilities `(k, n)`, float64, that answers with all their features `(n, ...)` are right."""
        with torch.no_grad():
            return likely(_evaluate(self.template, self.weights, self.columns), features, _at_once(len(self.columns)))

    def train(self, learning: Learning, stage: StageSettings, stoppings: Sequence[EarlyStopping]) -> None:
        """Train all networks, and leave each with the weights of the step that it keeps."""
        module: nn.Module = self.template.get_submodule(learning.part)
        beginning = f"{learning.part}." if learning.part else ""
        own = {name.removeprefix(beginning): w for name, w in self.weights.items() if name.startswith(beginning)}
        weights = {name: tensor.clone().requires_grad_() for name, tensor in own.items()}
        optimiser = OPTIMISERS[stage.optimiser](
            weights.values(), lr=stage.learning_rate, weight_decay=stage.weight_decay, fused=True
        )
        steps = [iter(stopping) for stopping in stoppings]
        going = list(range(len(stoppings)))
        with limited_threads(module):
            while left := [place for place, i in enumerate(going) if next(steps[i], None) is not None]:
                if len(left) < len(going):
                    going = [going[place] for place in left]
                    weights = _narrowed(weights, optimiser, left)
                evaluate = _evaluate(module, weights, self.columns[going])
                optimiser.zero_grad()
                evaluate(learning.loss, next(learning.batches)).sum().backward()  # type: ignore[no-untyped-call]
                optimiser.step()
                if stoppings[going[0]].due:
                    with torch.no_grad():
                        values = learning.on_validation(evaluate, _at_once(len(going)))
                    for place, i in enumerate(going):
                        value = None if values is None else values[place].cpu()
                        learning.record(stoppings[i], value, partial(_weights_of, weights, place))
        for i, stopping in enumerate(stoppings):
            for name, tensor in stopping.kept.items():
                self.weights[beginning + name][i] = tensor


def _evaluate(module: nn.Module, weights: Weights, columns: Tensor) -> Evaluate:
    """Evaluate functions of one network for all of a stack at once; each takes its own of all columns."""

    def evaluate(of: Callable[[Forward, Tensor], Tensor], x: Tensor) -> Tensor:
        def one(weights: Weights, columns: Tensor) -> Tensor:
            return of(lambda features: functional_call(module, weights, (features[..., columns],)), x)

        result: Tensor = vmap(one)(weights, columns)
        return result

    return evaluate


def _at_once(k: int) -> RowsAtOnce:
    """Rows that go through k networks together where nothing is learned."""
    return lambda features: max(1, _VALUES_AT_ONCE // (k * features[0].numel()))


def _weights_of(weights: Weights, place: int) -> Weights:
    return {name: tensor[place].detach().clone() for name, tensor in weights.items()}


def _narrowed(weights: Weights, optimiser: torch.optim.Optimizer, left: Sequence[int]) -> Weights:
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
