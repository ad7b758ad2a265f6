"""Content of a result's Parquet file: label, answer and confidence for each question."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bench.api import BoolArray, FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class QuestionRecords:
    """Values per question of one result. Each column has one value for each of n questions, in the task's order."""

    id: Sequence[str]
    subject: Sequence[str]
    correct: BoolArray
    confidence: FloatArray
    """Confidences within [0, 1]. All are NaN if the method gives scores and there were no labels to scale them with."""
    answer: Sequence[str]
    """Texts that the model generated."""
    parsed: BoolArray
    score: FloatArray | None = None
    """Scores before they are scaled to confidences, -infinity where there is no answer; None for a method that gives
    probabilities."""

    @property
    def probabilities(self) -> FloatArray | None:
        """The confidences; None if scores could not be scaled to probabilities."""
        return None if self.score is not None and np.isnan(self.confidence).all() else self.confidence

    @property
    def ranking_values(self) -> FloatArray:
        """What rank-based metrics are computed from: the scores of a method that gives scores, else the confidences."""
        return self.confidence if self.score is None else self.score

    @property
    def labels(self) -> tuple[tuple[str, ...], tuple[str, ...], bytes]:
        """Questions, subjects and labels; equal for results that can be compared row by row."""
        return tuple(self.id), tuple(self.subject), self.correct.tobytes()

    def by_id(self) -> QuestionRecords:
        """Return the columns sorted by question id, so that several results can be compared."""
        return self.take(np.argsort(np.asarray(self.id, dtype=object), kind="stable"))

    def take(self, rows: IntArray) -> QuestionRecords:
        """Return the columns for the questions with these indices, in the given order."""
        return QuestionRecords(
            id=[self.id[i] for i in rows], subject=[self.subject[i] for i in rows], correct=self.correct[rows],
            confidence=self.confidence[rows], answer=[self.answer[i] for i in rows], parsed=self.parsed[rows],
            score=None if self.score is None else self.score[rows],
        )  # fmt: skip
