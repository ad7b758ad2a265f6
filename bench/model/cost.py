"""Token positions that one stage of reading or training fed to the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass


@dataclass(frozen=True, slots=True)
class StageCost:
    """Token positions that one stage of a run fed to the model (bench/DESIGN.md, Costs belong to the request)."""

    forward_tokens: int
    """Without padding."""
    padded_tokens: int
    """Token positions, padding included."""
    forward_tokens_floor: int
    """Distinct nodes of the prefix tree: what no order of work can go below."""


def total(costs: Sequence[StageCost]) -> StageCost:
    """Sum of the costs of works that share nothing."""
    return StageCost(*map(sum, zip(*map(astuple, costs), strict=True)))
