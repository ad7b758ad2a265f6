"""Cost of one stage of a run, in token positions; a stage reads prompts and continuations, or trains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass


@dataclass(frozen=True, slots=True)
class StageTokens:
    """Token positions that the model processed in one stage of a run (bench/DESIGN.md, Costs belong to the request)."""

    forward_tokens: int
    """Token positions without padding."""
    padded_tokens: int
    """Token positions, padding included."""
    forward_tokens_floor: int
    """Number of distinct prefixes of all sequences: the fewest positions that any order of forward passes needs."""


def total(costs: Sequence[StageTokens]) -> StageTokens:
    """Return the summed costs of stages that have no tokens in common."""
    return StageTokens(*map(sum, zip(*map(astuple, costs), strict=True)))
