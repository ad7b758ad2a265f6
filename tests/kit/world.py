"""Planted results: answers whose truth is known, rows and question records, in memory or in a results folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench.api import BoolArray, FloatArray
from bench.api.protocol import PRESETS
from bench.results import files
from bench.results.question_records import QuestionRecords
from bench.results.row import ResultRow
from bench.results.submissions.recomputation import recompute_row

COLUMNS = frozenset({"id", "subject", "answer", "parsed", "score"})
"""Fields of `QuestionRecords` that `write_result` takes beside those of a row."""


@dataclass(frozen=True)
class Answers:
    """Answers of one model to n questions, and what tells right ones from wrong ones."""

    evidence: FloatArray
    """`(n,)`: high where the answer is likely to be right."""
    correct: BoolArray

    @classmethod
    def drawn(cls, n: int = 240, *, seed: int = 0, noise: float = 0.6, threshold: float = 0.0) -> Answers:
        """Draw answers; fewer are right with a higher threshold, and evidence says less of them with more noise."""
        rng = np.random.default_rng(seed)
        evidence = rng.normal(size=n)
        return cls(evidence, evidence + noise * rng.normal(size=n) > threshold)

    def confidences(self, skill: float, seed: int = 0, *, slope: float = 2.5) -> FloatArray:
        """Confidences, `(n,)`, of a method that knows the evidence (skill 1) or nothing of it (skill 0).

        With the seed of `drawn` the noise is the evidence itself, so that skill makes no difference: take another.
        """
        noise = np.random.default_rng(seed).normal(size=len(self.evidence))
        return np.asarray(1 / (1 + np.exp(-slope * (skill * self.evidence + (1 - skill) * noise))))


def result_row(method: str = "ccps", **fields: Any) -> ResultRow:
    """A result of `tiny` on `atlas-choice` with preset `demo`; one whose status is not ok has no numbers."""
    usual: dict[str, Any] = {
        "model": "tiny", "task": "atlas-choice", "preset": "demo", "seed": 0, "protocol": PRESETS["demo"].digest(),
        "task_version": 1, "status": "ok",
    }  # fmt: skip
    if fields.get("status", "ok") == "ok":
        usual |= {"n": 240, "n_unparsed": 0, "n_empty": 0, "llm_accuracy": 0.6}
    return ResultRow(method=method, **{**usual, **fields})


def question_records(
    confidence: FloatArray | Sequence[float],
    correct: BoolArray | Sequence[bool],
    *,
    subjects: int = 3,
    task: str = "atlas-choice",
    **columns: Any,
) -> QuestionRecords:
    """Records of n questions in so many subjects by turns; the answers are a and b by turns."""
    n = len(correct)
    usual: dict[str, Any] = {
        "id": [f"{task}/test/{i}" for i in range(n)], "subject": [f"subject {i % subjects}" for i in range(n)],
        "answer": ["ab"[i % 2] for i in range(n)], "parsed": np.ones(n, dtype=np.bool_),
    }  # fmt: skip
    truth, probability = np.asarray(correct, dtype=np.bool_), np.asarray(confidence, dtype=np.float64)
    return QuestionRecords(correct=truth, confidence=probability, **{**usual, **columns})


def write_result(
    folder: Path,
    method: str,
    confidence: FloatArray | Sequence[float],
    correct: BoolArray | Sequence[bool],
    *,
    subjects: int = 3,
    **fields: Any,
) -> ResultRow:
    """Write a result with the metrics of its records, as a run does; returns its row.

    Args:
        folder: folder of results.
        method: registered name of the method.
        confidence: `(n,)` confidences.
        correct: `(n,)` labels.
        subjects: number of subjects, which take turns.
        fields: fields of the row, and columns of the records.
    """
    columns = {name: fields.pop(name) for name in COLUMNS & fields.keys()}
    row = result_row(method, **{"n": len(correct), "llm_accuracy": float(np.mean(correct)), **fields})
    records = question_records(confidence, correct, subjects=subjects, task=row.task, **columns)
    row = recompute_row(row, records)
    files.write(row, records, folder)
    return row


def write_failure(folder: Path, method: str, reason: str, **fields: Any) -> ResultRow:
    """Write a failed result, or with `status="skipped"` a skipped one; returns its row."""
    row = result_row(method, **{"status": "failed", "reason": reason, **fields})
    files.write(row, None, folder)
    return row
