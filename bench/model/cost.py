"""Cost of one stage of a run, reading or training, in token positions."""

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
    """Distinct nodes of the prefix tree of all sequences: the fewest positions that any order of work needs."""


def total(costs: Sequence[StageTokens]) -> StageTokens:
    """Sum the costs of stages that share no tokens."""
    return StageTokens(*map(sum, zip(*map(astuple, costs), strict=True)))
