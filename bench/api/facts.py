"""Shapes of a model, and facts on a run, that are known before weights or data are loaded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from bench.api.question import Format


class Projection(NamedTuple):
    """A linear layer of one transformer block."""

    name: str
    """Last part of the layer's module name, e.g. `q_proj`."""
    inputs: int
    outputs: int
    part: Literal["query", "value", "fused", ""] = ""
    """Role of the layer in attention: query, value, or `fused` for query, key and value at once. Empty for all other
    layers."""


@dataclass(frozen=True)
class ModelFacts:
    """Shapes of a model that are known before its weights are loaded."""

    name: str
    hidden_size: int
    vocab_size: int
    """Number of rows of the output head, including rows that only pad the vocabulary."""
    n_layers: int
    projections: tuple[Projection, ...] = ()
    """Linear layers of all blocks, in order. If query and value layers could not be identified, all layers have an
    empty `part`. Empty if the model's blocks could not be found."""
    n_heads: int = 0
    """Number of attention heads in all layers together; 0 if it is not known."""


@dataclass(frozen=True)
class RunFacts:
    """Facts on a run, from which a method decides whether it must be skipped."""

    model: ModelFacts
    task: str
    format: Format
    n_train: int
    """Number of labelled answers that `fit` would get; 0 if the method has no `fit` or the task no training answers."""
