"""Assignment of questions to subjects (strata), metrics per subject, and input checks for several seeds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bench.api import BoolArray, FloatArray, IntArray
from bench.api.protocol import ECE_BINS
from bench.metrics.summary import METRICS, rows_of_subjects, seed_of
from bench.metrics.validation import validate
from bench.stats.settings import Average


class Strata(NamedTuple):
    """Assignment of n questions to S subjects, which are the strata of all statistics."""

    names: tuple[str, ...]
    """Names of the S subjects, sorted."""
    rows: tuple[IntArray, ...]
    """For each subject, the indices of its n_s questions, ascending, shape (n_s,)."""
    group: IntArray
    """Index of each question's subject, shape (n,)."""
    sizes: IntArray
    """Number of questions in each of the S subjects, shape (S,)."""

    def by_name(self) -> Iterator[tuple[str, IntArray]]:
        """Iterate over pairs of a subject's name and the indices of its questions."""
        return zip(self.names, self.rows, strict=True)

    def means(self, values: FloatArray) -> FloatArray:
        """Return the mean of `values` (n,) over the questions of each subject, shape (S,)."""
        return np.bincount(self.group, weights=values, minlength=self.sizes.size) / self.sizes


def strata_of(subjects: Sequence[str]) -> Strata:
    """Assign n questions to subjects, given the subject name of each."""
    names, rows = zip(*rows_of_subjects(subjects), strict=True)
    sizes = np.array([row.size for row in rows])
    group = np.empty(len(subjects), dtype=np.int64)
    group[np.concatenate(rows)] = np.repeat(np.arange(len(rows)), sizes)
    return Strata(names, rows, group, sizes)


def value_of(
    name: str, values: FloatArray, correct: BoolArray, strata: Strata, average: Average, bins: int = ECE_BINS
) -> float | None:
    """Compute a metric: pooled over all questions, or averaged over the subjects where it is defined.

    Args:
        name: name of the metric in `bench.metrics.METRICS`.
        values: shape (n,), within [0, 1]: confidences, or for a rank-based metric `normalised_ranks` of scores.
        correct: shape (n,), bool.
        strata: subjects of the n questions.
        average: `questions` pools, `subjects` takes the mean.
        bins: number of bins of a binned metric.

    Returns:
        The metric, equal to that of `bench.metrics.summarise`; None where it is undefined.
    """
    metric = METRICS[name]
    parts = strata.by_name() if average == "subjects" else [("", np.arange(correct.size))]
    results = [metric.value(values[rows], correct[rows], bins, seed_of(subject)) for subject, rows in parts]
    return metric.mean(value for value in results if value is not None)


def checked_runs(
    confidence: npt.ArrayLike, correct: npt.ArrayLike, subjects: Sequence[str]
) -> tuple[FloatArray, BoolArray]:
    """Validate confidences of one seed (n,) or of k seeds (k, n); return them as (k, n), and the labels as (n,).

    Args:
        confidence: shape (n,) or (k, n), float in [0, 1].
        correct: shape (n,), bool.
        subjects: subject name of each question, n of them.

    Raises:
        ValueError: k is 0, the numbers of answers and subjects differ, or the input is invalid by the rules of
            `bench.metrics.accuracy`.
    """
    runs = np.atleast_2d(np.asarray(confidence, dtype=np.float64))
    if runs.ndim != 2 or not len(runs):  # seeds and questions
        raise ValueError(f"expected confidences of shape (n,) or (seeds, n), got {np.shape(confidence)}")
    for run in runs:
        validate(run, correct)
    if len(subjects) != runs.shape[1]:
        raise ValueError(f"expected one subject for each of {runs.shape[1]} answers, got {len(subjects)}")
    return runs, np.asarray(correct)
