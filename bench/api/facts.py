"""Facts on model, task and data that are known before anything is loaded."""

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
    """Role of the layer in attention; `fused` computes query, key and value at once; empty for any other layer."""


@dataclass(frozen=True)
class ModelFacts:
    """Shapes of a model, known before it is loaded."""

    name: str
    hidden_size: int
    vocab_size: int
    """Rows of the output head, including padding rows."""
    n_layers: int
    projections: tuple[Projection, ...] = ()
    """Linear layers of all blocks, in order; without query and value where these could not be identified."""


@dataclass(frozen=True)
class RunFacts:
    """Facts of a run, by which a method may decide to be skipped."""

    model: ModelFacts
    task: str
    format: Format
    n_train: int
    """Labelled answers that `fit` would get; 0 where the method has no `fit` or there are none."""
