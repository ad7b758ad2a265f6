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
    """Fewest token positions that any order of forward passes needs: the number of distinct prefixes of all
    sequences."""


def total(costs: Sequence[StageTokens]) -> StageTokens:
    """Return the sum of the costs of stages; the stages must have no tokens in common."""
    return StageTokens(*map(sum, zip(*map(astuple, costs), strict=True)))
