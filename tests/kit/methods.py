"""The tester of methods: fitted on planted answers, their predictions equal those of an independent reference."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bench.api import (
    At,
    Batch,
    ConfidenceMethod,
    Context,
    Format,
    Hidden,
    Of,
    OutputHead,
    Ragged,
    Related,
    Signal,
    TokenIds,
    Unembedding,
)
from bench.signals.synthetic import planted

CONSTANT = np.sqrt(np.float32(7))
"""Value of a constant column, whose computed deviation is not exactly 0."""


def hard_batch(
    signals: Iterable[Signal], n: int = 60, *, seed: int = 1, fmt: Format = Format.OPEN, head: OutputHead | None = None
) -> Batch:
    """Planted answers of which some are what goes wrong easily.

    Columns of a state have very different scales, and the last one is constant. Relations are one-sided, or of 0 and 1
    in every fourth question, which has no wrong option either. Samples of the second question end alike.
    """
    batch = planted(signals, n, seed=seed, fmt=fmt)
    columns = {signal: batch[signal] for signal in batch.signals}
    rng = np.random.default_rng(seed)
    fourth = np.arange(n) % 4 == 0
    for signal, column in columns.items():
        match signal:
            case Hidden(at=At.SAMPLE_END):
                column[1] = column[1, :1]
            case Hidden() if isinstance(column, np.ndarray):
                column[:] = column * 10.0 ** (np.arange(column.shape[1]) % 4 - 1) + 5
                column[:, -1] = CONSTANT
            case Related():
                drawn = rng.dirichlet([0.5, 0.5, 1.0], column.shape[:3]).astype(np.float32)
                entails = signal.by == "entailment"
                certain = np.eye(3)[np.where(column[..., 2] > 0.5, 2, 1)] if entails else column > 0.5
                column[:] = drawn if entails else drawn[..., 0]
                column[fourth] = certain[fourth]
            case Hidden(at=At.WRONG_PREDICTING) | TokenIds(of=Of.WRONG):
                columns[signal] = without(column, fourth)
            case Unembedding() if head is not None:
                columns[signal] = head
    return Batch(batch.ids, columns, batch.correct)


def without(column: Ragged, rows: npt.NDArray[np.bool_]) -> Ragged:
    """The same with nothing in these rows."""
    kept = ~np.repeat(rows, column.lengths)
    owner = None if column.owner is None else column.owner[kept]
    return Ragged(column.values[kept], np.cumsum([0, *np.where(rows, 0, column.lengths)]), owner)


def unlabelled(batch: Batch, signals: Iterable[Signal] | None = None) -> Batch:
    """The batch as `predict` gets it, with these signals or all."""
    return Batch(batch.ids, {signal: batch[signal] for signal in (signals or batch.signals)})


def with_column(batch: Batch, signal: Signal, change: Callable[[Any], Any]) -> Batch:
    """The batch with one column changed; ragged columns are changed in their values."""
    columns = {each: batch[each] for each in batch.signals}
    column = columns[signal]
    ragged = isinstance(column, Ragged)
    changed = change((column.values if ragged else column).copy())
    columns[signal] = Ragged(changed, column.offsets, column.owner) if ragged else changed
    return Batch(batch.ids, columns, batch._correct)


@dataclass(frozen=True)
class MethodCase:
    """A method, what it has to predict, and the batches on which both are compared."""

    method: ConfidenceMethod
    oracle: Callable[..., npt.ArrayLike]
    """Function from the batch to predict, the batch to fit on and the fitted method to predictions."""
    batches: Callable[..., Batch] = hard_batch
    """Function from signals and `seed=` to a batch."""
    tolerance: float = 1e-6

    def check(self, **context: Any) -> ConfidenceMethod:
        """Fit the method, compare its predictions with the reference, and return it."""
        reads = self.method.reads()
        train, test = (self.batches(reads.fit | reads.predict, seed=seed) for seed in (1, 2))
        fitted = type(self.method)(**self.method.params()).fit(train, Context(**{"seed": 5, **context}))
        found = fitted.predict(unlabelled(test, reads.predict))
        expected = np.asarray(self.oracle(test, train, fitted), dtype=np.float64)
        assert found.dtype == np.float64
        assert np.ptp(expected) > 1000 * self.tolerance
        np.testing.assert_allclose(found, expected, rtol=self.tolerance, atol=self.tolerance)
        assert fitted.predict(unlabelled(test, reads.predict).take(np.zeros(0, dtype=np.int64))).shape == (0,)
        return fitted
