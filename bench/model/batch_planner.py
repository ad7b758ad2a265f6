"""Decode batches: which packs of a shard are read and continued together.

A decode batch is one or several packs of a shard whose continuations are decoded side by side. A step of decoding costs
nearly the same for one sequence as for a hundred, so packs of few questions each are decoded together. Which ones
follows from the packs and two limits alone, so that a shard always gives the same forward passes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from bench.api import IntArray
from bench.model.devices import BatchLimits
from bench.model.prefix_tree import Pack, plan_packs
from bench.model.session import Session
from bench.prompts.front_coding import Ids


@dataclass(frozen=True, eq=False)
class PlannedPack:
    """A pack, and whose prompts are in it."""

    pack: Pack
    rows: list[int]
    """Which of the given prompts; two may be the same."""
    leaves: IntArray
    """`(len(rows),)` the token of the pack at which each ends."""


PackGroup = list[PlannedPack]


class BatchPlanner:
    """Decode batches that cover given prompts, in order."""

    def __init__(
        self,
        prompts: Sequence[Ids],
        budget: int,
        limits: BatchLimits,
        bytes_per_token: int,
        too_long: Callable[[Sequence[int]], bool] = lambda _: False,
    ) -> None:
        """Plan.

        Args:
            prompts: what is read; those that are the same are read once.
            budget: tokens of a pack.
            limits: of a decode batch.
            bytes_per_token: size of the keys and values of a token.
            too_long: says of prompts whether what follows them is too much for one decode batch.
        """
        self.prompts = prompts
        self.too_long = too_long
        self.limits = limits
        self.most_tokens = limits.bytes // max(1, bytes_per_token)
        self._waiting: list[PackGroup] = []
        tokens, held = 0, dict[str, int]()
        for planned in self._planned(range(len(prompts)), budget):
            own, pieces = len(planned.pack.tokens), dict(Session.path(planned.pack))
            more = own + sum(size for name, size in pieces.items() if name not in held)
            decode_batch = self._waiting[-1] if self._waiting else []
            full = sum(len(each.rows) for each in decode_batch) >= limits.sequences or tokens + more > self.most_tokens
            if not decode_batch or full:
                self._waiting.append([])
                tokens, held, more = 0, {}, own + len(planned.pack.shared)
            self._waiting[-1].append(planned)
            tokens, held = tokens + more, held | pieces

    def __iter__(self) -> Iterator[PackGroup]:
        """Each in turn; what is put back by `halve` comes next."""
        while self._waiting:
            decode_batch = self._waiting.pop(0)
            if not self.too_long([row for planned in decode_batch for row in planned.rows]) or not self.halve(
                decode_batch
            ):
                yield decode_batch

    def halve(self, decode_batch: PackGroup) -> bool:
        """Put back a decode batch that was too large: as two, or its only pack as packs of half the size.

        Returns:
            False for a single prompt, which can't be made smaller; nothing is put back then.
        """
        if len(decode_batch) > 1:
            middle = len(decode_batch) // 2
            self._waiting[:0] = [decode_batch[:middle], decode_batch[middle:]]
            return True
        (planned,) = decode_batch
        if len(planned.pack.rows) == 1:
            return False
        smaller = self._planned(planned.rows, max(1, len(planned.pack.tokens) // 2))
        self._waiting[:0] = [[each] for each in smaller]
        return True

    def _planned(self, rows: Sequence[int], budget: int) -> list[PlannedPack]:
        alike: dict[bytes, list[int]] = {}
        for row in rows:
            alike.setdefault(self.prompts[row].tobytes(), []).append(row)
        owners = list(alike.values())
        found = []
        for pack in plan_packs([self.prompts[same[0]] for same in owners], budget):
            here = [owners[row] for row in pack.rows]
            leaves = np.repeat(pack.leaves, [len(same) for same in here])
            found.append(PlannedPack(pack, [row for same in here for row in same], leaves))
        return found
