"""The stored answers and signals of a split -> the `Batch` that a method sees."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from bench.api import Batch, IntArray, Needs, Ragged, Signal
from bench.api.batch import Column
from bench.api.methods import refuse_gold
from bench.signals.definition import definition, reads_own_adapter
from bench.signals.reader import Reader
from bench.signals.split_data import SplitData

_AT_ONCE = 4_096
"""Questions of one prediction, about: whole shards are joined until there are as many."""


@dataclass(frozen=True)
class Batches:
    """Makes batches from what a reader has read."""

    reader: Reader

    def batch(self, split_data: SplitData, signals: frozenset[Signal], *, labels: bool) -> Batch:
        """The usable questions of a split with these signals, in the split's order.

        Args:
            split_data: the split, graded.
            signals: what the method reads.
            labels: whether `correct` can be read.

        Raises:
            ContractError: a signal that tells the right answer, in a batch without labels.
        """
        if not labels:
            refuse_gold(str(split_data.where), Needs(predict=signals))
        return self._of(np.flatnonzero(split_data.usable), split_data, signals, None, labels=labels)

    def pieces(
        self, split_data: SplitData, signals: frozenset[Signal], adapted: SplitData | None = None
    ) -> Iterator[tuple[IntArray, Batch]]:
        """The usable questions of a split without labels, some shards at a time: rows and batch.

        A large split's signals are never in memory at once. Pieces depend on the split alone.

        Args:
            split_data: the split, graded.
            signals: what the method reads.
            adapted: the split as it was read through the method's adapter.

        Raises:
            ContractError: a signal that tells the right answer.
        """
        refuse_gold(str(split_data.where), Needs(predict=signals))
        usable, joined = split_data.usable, []
        for k, shard in enumerate(split_data.shards, 1):
            joined.append(shard.rows)
            if sum(map(len, joined)) < _AT_ONCE and k < len(split_data.shards):
                continue
            rows = np.sort(np.concatenate(joined))
            joined = []
            chosen = rows[usable[rows]]
            if len(chosen):
                yield chosen, self._of(chosen, split_data, signals, adapted, labels=False)

    def _of(
        self,
        rows: IntArray,
        split_data: SplitData,
        signals: frozenset[Signal],
        adapted: SplitData | None,
        *,
        labels: bool,
    ) -> Batch:
        frozen = replace(self.reader.stored(split_data), chosen=rows)
        own = frozen if adapted is None else replace(self.reader.stored(adapted), chosen=rows)
        columns: dict[Signal, Column] = {}
        for signal in signals:
            column = columns[signal] = definition(signal).column(own if reads_own_adapter([signal]) else frozen)
            arrays = (column.values, column.offsets, column.owner) if isinstance(column, Ragged) else (column,)
            for array in arrays:
                if isinstance(array, np.ndarray):  # nobody can write it any more: else a view's `base` could be written
                    array.flags.writeable = False
        return Batch(
            [question.id for question in frozen.questions], columns, split_data.correct[rows] if labels else None
        )
