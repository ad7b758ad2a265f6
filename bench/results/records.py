"""One cell of the comparison question by question: what the Parquet file beside its JSON file has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bench.api import BoolArray, FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class Records:
    """One cell question by question; all columns have n rows in the task's order."""

    id: Sequence[str]
    subject: Sequence[str]
    correct: BoolArray
    confidence: FloatArray
    """Within [0, 1]; NaN in all rows where there are scores that nothing could scale."""
    answer: Sequence[str]
    """Text that the model generated."""
    parsed: BoolArray
    score: FloatArray | None = None
    """Scores without a scale, of a method that gives such: -infinity where there is no answer."""

    @property
    def probabilities(self) -> FloatArray | None:
        """The confidences; None where there are scores that nothing could scale."""
        return None if self.score is not None and np.isnan(self.confidence).all() else self.confidence

    @property
    def order(self) -> FloatArray:
        """Numbers that the metrics of order are of: scores where there are any, else confidences."""
        return self.confidence if self.score is None else self.score

    def by_id(self) -> Records:
        """The same questions in the order of their ids, in which results of several runs can be compared."""
        return self.take(np.argsort(np.asarray(self.id, dtype=object), kind="stable"))

    def take(self, rows: IntArray) -> Records:
        """The given rows, in the given order."""
        return Records(
            id=[self.id[i] for i in rows], subject=[self.subject[i] for i in rows], correct=self.correct[rows],
            confidence=self.confidence[rows], answer=[self.answer[i] for i in rows], parsed=self.parsed[rows],
            score=None if self.score is None else self.score[rows],
        )  # fmt: skip
