"""Facts that a method may know of model, task and data before anything is loaded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from bench.api.question import Format


class Projection(NamedTuple):
    """A linear layer of one transformer block."""

    name: str
    """Its last name, e.g. `q_proj`."""
    inputs: int
    outputs: int
    part: Literal["query", "value", "fused", ""] = ""
    """Part that it plays in attention; `fused` makes query, key and value at once; empty for any other layer."""


@dataclass(frozen=True)
class ModelFacts:
    """Shapes of a model, as a method may need them before anything is loaded."""

    name: str
    hidden_size: int
    vocab_size: int
    """Rows of the output head, padding rows included."""
    n_layers: int
    projections: tuple[Projection, ...] = ()
    """Linear layers of all blocks, in order; without query and value where these could not be told from the rest."""


@dataclass(frozen=True)
class RunFacts:
    """Facts of a run by which a method may decide to be skipped."""

    model: ModelFacts
    task: str
    format: Format
    n_train: int
    """Labelled answers that `fit` would see; 0 where the method does not learn or nothing is there to learn from."""
