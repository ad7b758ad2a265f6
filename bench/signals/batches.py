"""The stored answers and signals of a split -> the `Batch` that a method sees."""

from __future__ import annotations

from dataclasses import dataclass

from bench.api import Batch, Needs, Signal
from bench.api.methods import refuse_gold
from bench.signals.definition import definition, reads_own_adapter
from bench.signals.reader import Reader
from bench.signals.reading import Reading


@dataclass(frozen=True)
class Batches:
    """Makes batches from what a reader has read."""

    reader: Reader

    def batch(
        self, reading: Reading, signals: frozenset[Signal], *, labels: bool, adapted: Reading | None = None
    ) -> Batch:
        """The usable questions of a split with these signals, in the split's order.

        Args:
            reading: the split, graded.
            signals: what the method reads.
            labels: whether `correct` can be read.
            adapted: the split as it was read through the method's adapter.

        Raises:
            ContractError: a signal that tells the right answer, in a batch without labels.
        """
        if not labels:
            refuse_gold(str(reading.where), Needs(predict=signals))
        frozen = self.reader.stored(reading)
        own = frozen if adapted is None else self.reader.stored(adapted)
        columns = {
            signal: definition(signal).column(own if reads_own_adapter([signal]) else frozen) for signal in signals
        }
        joined = Batch([question.id for question in frozen.questions], columns)
        batch = joined.take(reading.order[reading.usable])
        if not labels:
            return batch
        return Batch(batch.ids, {s: batch[s] for s in batch.signals}, reading.correct[reading.usable])
