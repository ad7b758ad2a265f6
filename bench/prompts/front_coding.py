"""Front coding: store token ids of prompts without the prefixes that they share with earlier prompts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int32]
"""Array `(n,)` of token ids."""


def common_prefix(a: Ids, b: Ids) -> int:
    """Return the length of the longest common prefix of two sequences."""
    n = min(len(a), len(b))
    differs = np.flatnonzero(a[:n] != b[:n])
    return int(differs[0]) if len(differs) else n


class FrontCodedIds(Sequence[Ids]):
    """Sequence of token id arrays, stored without the prefixes that they share with earlier arrays.

    Whoever reads an array gets it whole. Of the tokens in one subject's prompts nine tenths belong to shared exemplars.
    """

    def __init__(self, sequences: Sequence[Ids]) -> None:
        """Store sequences of token ids, each of shape `(n,)`."""
        self._parts: list[tuple[Ids, int, Ids]] = []
        prefix: Ids = np.zeros(0, dtype=np.int32)
        for ids in sequences:
            shared = common_prefix(prefix, ids)
            if 2 * shared <= len(ids):
                prefix, shared = ids, len(ids)
            self._parts.append((prefix, shared, ids[shared:].copy()))

    def __len__(self) -> int:
        return len(self._parts)

    @overload
    def __getitem__(self, index: int) -> Ids: ...
    @overload
    def __getitem__(self, index: slice) -> list[Ids]: ...
    def __getitem__(self, index: int | slice) -> Ids | list[Ids]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        prefix, shared, tail = self._parts[index]
        return np.concatenate([prefix[:shared], tail])

    @property
    def total(self) -> int:
        """Total number of token ids in all sequences; shared prefixes count in each sequence."""
        return sum(shared + len(tail) for _, shared, tail in self._parts)
