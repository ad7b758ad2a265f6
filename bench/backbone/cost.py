"""Token positions that one stage of reading or training fed to the model."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StageCost:
    """Token positions that one stage of a run fed to the backbone (bench/DESIGN.md, 5)."""

    forward_tokens: int
    """Without padding."""
    padded_tokens: int
    """Token positions, padding included."""
    forward_tokens_floor: int
    """Distinct nodes of the prefix tree: what no order of work can go below."""
