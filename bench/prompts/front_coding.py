"""Token ids of prompts, of which neighbours begin alike: kept without their shared beginnings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int32]
"""Token ids, `(n,)`."""


def common_prefix(a: Ids, b: Ids) -> int:
    """Number of leading ids that are equal."""
    n = min(len(a), len(b))
    differs = np.flatnonzero(a[:n] != b[:n])
    return int(differs[0]) if len(differs) else n


class FrontCodedIds(Sequence[Ids]):
    """Sequences of which neighbours begin alike, kept as beginnings and tails, and put together when asked for.

    The exemplars of a benchmark's subject are nine tenths of its prompts.
    """

    def __init__(self, sequences: Sequence[Ids]) -> None:
        """Keep sequences, each of shape `(n,)`."""
        self._parts: list[tuple[Ids, int, Ids]] = []
        beginning: Ids = np.zeros(0, dtype=np.int32)
        for ids in sequences:
            shared = common_prefix(beginning, ids)
            if 2 * shared <= len(ids):
                beginning, shared = ids, len(ids)
            self._parts.append((beginning, shared, ids[shared:].copy()))

    def __len__(self) -> int:
        return len(self._parts)

    @overload
    def __getitem__(self, index: int) -> Ids: ...
    @overload
    def __getitem__(self, index: slice) -> list[Ids]: ...
    def __getitem__(self, index: int | slice) -> Ids | list[Ids]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        beginning, shared, tail = self._parts[index]
        return np.concatenate([beginning[:shared], tail])

    @property
    def total(self) -> int:
        """Ids in all of them, those that are shared counted each time."""
        return sum(shared + len(tail) for _, shared, tail in self._parts)
