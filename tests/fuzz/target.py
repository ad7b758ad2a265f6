"""What is fuzzed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Target:
    """One parser."""

    prepare: Callable[[Path], Callable[[bytes], object]]
    """From an empty folder to the call that gets the inputs."""
    seeds: Callable[[], Sequence[bytes]]
    """Inputs to begin with."""
    valid: bool = True
    """Whether the parser takes all of these."""


def simple(call: Callable[[bytes], object], *seeds: bytes, valid: bool = True) -> Target:
    """A parser that needs no folder."""
    return Target(lambda _: call, lambda: seeds, valid)
