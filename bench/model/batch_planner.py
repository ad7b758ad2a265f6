"""Plan decode batches: which packs of a shard's prompts are read and decoded together.

A pack is a piece of the prompts' prefix tree that one forward pass reads. A decode batch has one or more packs; the
answers to all its prompts are decoded side by side. A decoding step for a hundred sequences takes hardly longer than
for one, so small packs share a decode batch. The plan depends only on the shard and on fixed limits, so every run makes
the same forward passes.
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
    """A pack, with the indices of the prompts that it contains."""

    pack: Pack
    rows: list[int]
    """Indices in `BatchPlanner.prompts` of the pack's prompts; equal prompts each have their own index."""
    leaves: IntArray
    """`(len(rows),)` index in `pack.tokens` of the last token of each prompt in `rows`."""


PackGroup = list[PlannedPack]


class BatchPlanner:
    """Iterable of decode batches. Each is a list of packs that are decoded together; each prompt is in one batch."""

    def __init__(
        self,
        prompts: Sequence[Ids],
        budget: int,
        limits: BatchLimits,
        bytes_per_token: int,
        too_long: Callable[[Sequence[int]], bool] = lambda _: False,
        kept: Sequence[int] = (),
    ) -> None:
        """Plan the decode batches.

        Args:
            prompts: token ids of the prompts; equal prompts are read once.
            budget: maximum number of tokens of a pack.
            limits: maximum sequences and bytes of keys and values of a decode batch.
            bytes_per_token: bytes of the keys and values of one token.
            too_long: function that says whether the stored answers to the prompts with the given indices have too many
                tokens for one decode batch.
            kept: number of last tokens of each prompt that must be in its pack; if not given, the last one alone.
        """
        self.prompts = prompts
        self.kept = kept or [1] * len(prompts)
        self.too_long = too_long
        self.limits = limits
        self.max_tokens = limits.bytes // max(1, bytes_per_token)
        self._waiting: list[PackGroup] = []
        tokens, batch_segments = 0, dict[str, int]()
        for planned in self._plan(range(len(prompts)), budget):
            size, segments = len(planned.pack.tokens), dict(Session.prefix_segments(planned.pack))
            added = size + sum(n for name, n in segments.items() if name not in batch_segments)
            batch = self._waiting[-1] if self._waiting else []
            full = sum(len(member.rows) for member in batch) >= limits.sequences or tokens + added > self.max_tokens
            if not batch or full:
                self._waiting.append([])
                tokens, batch_segments, added = 0, {}, size + len(planned.pack.shared)
            self._waiting[-1].append(planned)
            tokens, batch_segments = tokens + added, batch_segments | segments

    def __iter__(self) -> Iterator[PackGroup]:
        """Yield the decode batches in order; after a batch that `halve` has split, its parts are yielded next."""
        while self._waiting:
            decode_batch = self._waiting.pop(0)
            rows = [row for planned in decode_batch for row in planned.rows]
            if not (self.too_long(rows) and self.halve(decode_batch)):
                yield decode_batch

    def halve(self, decode_batch: PackGroup) -> bool:
        """Split a decode batch that is too large; the smaller batches are yielded next.

        A batch of several packs is divided into two. A batch of one pack is divided into packs of at most half its
        tokens.

        Returns:
            Whether the batch was split; False for a pack with a single prompt, which can't be split.
        """
        if len(decode_batch) > 1:
            middle = len(decode_batch) // 2
            self._waiting[:0] = [decode_batch[:middle], decode_batch[middle:]]
            return True
        (planned,) = decode_batch
        if len(planned.pack.rows) == 1:
            return False
        smaller = self._plan(planned.rows, max(1, len(planned.pack.tokens) // 2))
        self._waiting[:0] = [[part] for part in smaller]
        return True

    def _plan(self, rows: Sequence[int], budget: int) -> list[PlannedPack]:
        rows_by_prompt: dict[bytes, list[int]] = {}
        for row in rows:
            rows_by_prompt.setdefault(self.prompts[row].tobytes(), []).append(row)
        row_groups = list(rows_by_prompt.values())
        planned_packs = []
        kept = [max(self.kept[row] for row in group) for group in row_groups]
        for pack in plan_packs([self.prompts[group[0]] for group in row_groups], budget, kept):
            groups = [row_groups[row] for row in pack.rows]
            leaves = np.repeat(pack.leaves, [len(group) for group in groups])
            planned_packs.append(PlannedPack(pack, [row for group in groups for row in group], leaves))
        return planned_packs
