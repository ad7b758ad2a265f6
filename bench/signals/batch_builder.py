"""Build the `Batch` that a method gets from the stored answers and signals of a split."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from bench.api import Batch, IntArray, Needs, Ragged, Signal
from bench.api.batch import Column
from bench.api.methods import refuse_gold
from bench.signals.definition import definition, uses_adapter
from bench.signals.reader import Reader
from bench.signals.split_data import SplitData

_MIN_QUESTIONS = 4_096
"""Whole shards are joined to a batch for prediction until it has at least this many questions."""


@dataclass(frozen=True)
class BatchBuilder:
    """Builds batches from the splits that a reader has read."""

    reader: Reader

    def batch(self, split_data: SplitData, signals: frozenset[Signal], *, labels: bool) -> Batch:
        """Return a batch of the split's usable questions (answered and not left out), in the split's order.

        Args:
            split_data: the graded split.
            signals: columns of the batch.
            labels: whether the batch has labels (`correct`), which only `fit` may read.

        Raises:
            ContractError: the batch has no labels, and a signal reveals the right answer.
        """
        if not labels:
            refuse_gold(str(split_data.where), Needs(predict=signals))
        return self._build_batch(np.flatnonzero(split_data.usable), split_data, signals, None, labels=labels)

    def pieces(
        self, split_data: SplitData, signals: frozenset[Signal], adapted: SplitData | None = None
    ) -> Iterator[tuple[IntArray, Batch]]:
        """Yield unlabelled batches of a split's usable questions, each with the indices of its questions in the split.

        Usable questions are answered and not left out. Each batch has the questions of a few shards, so that memory
        never holds all signals of a large split. Which questions share a batch depends on the split alone.

        Args:
            split_data: the graded split.
            signals: columns of the batches.
            adapted: the same split, with signals that were computed with the method's adapter.

        Raises:
            ContractError: a signal reveals the right answer.
        """
        refuse_gold(str(split_data.where), Needs(predict=signals))
        usable, joined = split_data.usable, []
        for k, shard in enumerate(split_data.shards, 1):
            joined.append(shard.rows)
            if sum(map(len, joined)) < _MIN_QUESTIONS and k < len(split_data.shards):
                continue
            rows = np.sort(np.concatenate(joined))
            joined = []
            selected = rows[usable[rows]]
            if len(selected):
                yield selected, self._build_batch(selected, split_data, signals, adapted, labels=False)

    def _build_batch(
        self,
        rows: IntArray,
        split_data: SplitData,
        signals: frozenset[Signal],
        adapted: SplitData | None,
        *,
        labels: bool,
    ) -> Batch:
        frozen = replace(self.reader.stored(split_data), selected_rows=rows)
        tuned = frozen if adapted is None else replace(self.reader.stored(adapted), selected_rows=rows)
        columns: dict[Signal, Column] = {}
        for signal in signals:
            column = columns[signal] = definition(signal).column(tuned if uses_adapter([signal]) else frozen)
            arrays = (column.values, column.offsets, column.owner) if isinstance(column, Ragged) else (column,)
            for array in arrays:
                if isinstance(array, np.ndarray):  # not a read-only view of it: a method could write to its `base`
                    array.flags.writeable = False
        return Batch(
            [question.id for question in frozen.questions], columns, split_data.correct[rows] if labels else None
        )
