"""The answers of several runs, question by question and subject by subject, as every statistic here reads them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bench.api import BoolArray, FloatArray, IntArray
from bench.api.protocol import ECE_BINS
from bench.metrics.answers import checked
from bench.metrics.summary import METRICS, rows_of_subjects, seed_of
from bench.stats.settings import Average


class Strata(NamedTuple):
    """Assignment of questions to S subjects."""

    names: tuple[str, ...]
    """Subjects, sorted; S of them."""
    rows: tuple[IntArray, ...]
    """Rows of each subject, ascending, shape (n_s,)."""
    group: IntArray
    """Number of each question's subject, shape (n,)."""
    sizes: IntArray
    """Questions of each subject, shape (S,)."""

    def by_name(self) -> Iterator[tuple[str, IntArray]]:
        """Each subject with its rows."""
        return zip(self.names, self.rows, strict=True)

    def means(self, values: FloatArray) -> FloatArray:
        """Mean over the questions of each subject: (n,) -> (S,)."""
        return np.bincount(self.group, weights=values, minlength=self.sizes.size) / self.sizes


def strata_of(subjects: Sequence[str]) -> Strata:
    """The subjects of n questions, given one name for each."""
    names, rows = zip(*rows_of_subjects(subjects), strict=True)
    sizes = np.array([row.size for row in rows])
    group = np.empty(len(subjects), dtype=np.int64)
    group[np.concatenate(rows)] = np.repeat(np.arange(len(rows)), sizes)
    return Strata(names, rows, group, sizes)


def value_of(
    name: str, values: FloatArray, correct: BoolArray, strata: Strata, average: Average, bins: int = ECE_BINS
) -> float | None:
    """Any metric, without influences: of all questions, or its mean over the subjects where it is defined.

    Args:
        name: in `bench.metrics.METRICS`.
        values: shape (n,), confidences, or what metrics of order are of.
        correct: shape (n,), bool.
        strata: of the n questions.
        average: which of the two.
        bins: of a metric that has bins.

    Returns:
        As `bench.metrics.summarise` has it; None where it is undefined.
    """
    metric = METRICS[name]
    parts = strata.by_name() if average == "subjects" else [("", np.arange(correct.size))]
    found = [metric.value(values[rows], correct[rows], bins, seed_of(subject)) for subject, rows in parts]
    return metric.mean(value for value in found if value is not None)


def checked_runs(
    confidence: npt.ArrayLike, correct: npt.ArrayLike, subjects: Sequence[str]
) -> tuple[FloatArray, BoolArray]:
    """Confidences of one run (n,) or of k seeds (k, n) as (k, n) float64, and correctness (n,), checked.

    Raises:
        ValueError: as `bench.metrics.accuracy`, no run at all, or n differs between answers and subjects.
    """
    runs = np.atleast_2d(np.asarray(confidence, dtype=np.float64))
    if runs.ndim != 2 or not len(runs):  # noqa: PLR2004 - seeds and questions
        raise ValueError(f"expected confidences of shape (n,) or (seeds, n), got {np.shape(confidence)}")
    for run in runs:
        checked(run, correct)
    if len(subjects) != runs.shape[1]:
        raise ValueError(f"expected one subject for each of {runs.shape[1]} answers, got {len(subjects)}")
    return runs, np.asarray(correct)
