"""Train many CCPS networks at once by `vmap`, each on its own feature columns.

Results equal those of networks trained one by one. All networks have the same shape, initial weights, batches and
pairs, since a seed determines them. Their weights are stacked: one batched product computes a layer of all networks,
and the optimiser works element by element. Each network has its own `EarlyStopping`, which ends its training.
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
    MaxRows,
    Network,
    StageObjective,
    StageSettings,
    Weights,
    predict_proba,
)

_VALUES_AT_ONCE = 1 << 22
"""Largest number of input values of all networks in one evaluation pass, which bounds the memory."""


class Stack:
    """k networks of one shape; network i reads the feature columns `columns[i]`."""

    def __init__(self, network: Network, columns: Tensor) -> None:
        """Start all k networks from the weights of the given network.

        Args:
            network: a network that reads m features.
            columns: `(k, m)` int64 indices of the columns that each network reads.
        """
        self.template = network.eval()  # train mode would change only dropout, which is not used
        self.columns = columns
        self.weights: dict[str, Tensor] = {
            name: tensor.detach().expand(len(columns), *tensor.shape).clone()
            for name, tensor in network.state_dict().items()
        }

    def probabilities(self, x: Tensor) -> Tensor:
        """Return probabilities `(k, n)`, float64, that answers with features x `(n, ..., all columns)` are right."""
        with torch.no_grad():
            return predict_proba(_evaluate(self.template, self.weights, self.columns), x, _n_rows(len(self.columns)))

    def train(self, objective: StageObjective, stage: StageSettings, stoppings: Sequence[EarlyStopping]) -> None:
        """Train all networks, and restore for each the weights of the step that its early stopping selects."""
        module: nn.Module = self.template.get_submodule(objective.part)
        prefix = f"{objective.part}." if objective.part else ""
        module_weights = {name.removeprefix(prefix): w for name, w in self.weights.items() if name.startswith(prefix)}
        weights = {name: tensor.clone().requires_grad_() for name, tensor in module_weights.items()}
        optimiser = OPTIMISERS[stage.optimiser](
            weights.values(), lr=stage.learning_rate, weight_decay=stage.weight_decay, fused=True
        )
        steps = [iter(stopping) for stopping in stoppings]
        active = list(range(len(stoppings)))
        with limited_threads(module):
            while remaining := [slot for slot, i in enumerate(active) if next(steps[i], None) is not None]:
                if len(remaining) < len(active):
                    active = [active[slot] for slot in remaining]
                    weights = _select_networks(weights, optimiser, remaining)
                evaluate = _evaluate(module, weights, self.columns[active])
                optimiser.zero_grad()
                evaluate(objective.loss, next(objective.batches)).sum().backward()  # type: ignore[no-untyped-call]
                optimiser.step()
                if stoppings[active[0]].due:
                    with torch.no_grad():
                        values = objective.on_validation(evaluate, _n_rows(len(active)))
                    for slot, i in enumerate(active):
                        value = None if values is None else values[slot].cpu()
                        objective.record(stoppings[i], value, partial(_weights_at, weights, slot))
        for i, stopping in enumerate(stoppings):
            for name, tensor in stopping.kept.items():
                self.weights[prefix + name][i] = tensor


def _evaluate(module: nn.Module, weights: Weights, columns: Tensor) -> Evaluate:
    """Return a function that evaluates all networks of a stack at once, each on its own columns."""

    def evaluate(function: Callable[[Forward, Tensor], Tensor], x: Tensor) -> Tensor:
        def evaluate_one(weights: Weights, columns: Tensor) -> Tensor:
            return function(lambda features: functional_call(module, weights, (features[..., columns],)), x)

        result: Tensor = vmap(evaluate_one)(weights, columns)
        return result

    return evaluate


def _n_rows(k: int) -> MaxRows:
    """Return a function from features to the number of rows that one evaluation pass through k networks takes."""
    return lambda features: max(1, _VALUES_AT_ONCE // (k * features[0].numel()))


def _weights_at(weights: Weights, slot: int) -> Weights:
    return {name: tensor[slot].detach().clone() for name, tensor in weights.items()}


def _select_networks(weights: Weights, optimiser: torch.optim.Optimizer, slots: Sequence[int]) -> Weights:
    """Return the weights of the networks in the given slots of the stack.

    The optimiser's state is reduced to these networks, too.
    """
    (group,) = optimiser.param_groups
    selected = {}
    for k, (name, old) in enumerate(weights.items()):
        new = old.detach()[slots].clone().requires_grad_()
        state = optimiser.state.pop(old)
        optimiser.state[new] = {
            key: value[slots].clone() if value.shape == old.shape else value for key, value in state.items()
        }
        group["params"][k] = selected[name] = new
    return selected
