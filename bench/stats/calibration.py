"""Monte Carlo test of calibration: is the ECE larger than expected by chance if confidences are calibrated?

Labels are redrawn from the confidences. Example: `calibrated_p(confidence, correct, subjects)` is large for calibrated
confidences, even where a small sample makes their ECE large (docs/methods.md §0.17).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from bench.api import BoolArray, FloatArray
from bench.metrics.validation import bin_of, chunk_sizes
from bench.stats.settings import Settings
from bench.stats.strata import checked_runs, strata_of

VALUES_AT_ONCE = 4_000_000
"""Largest number of uniform random numbers held in memory at a time; p values do not depend on this limit."""


def calibrated_p(
    confidence: npt.ArrayLike, correct: npt.ArrayLike, subjects: Sequence[str], settings: Settings | None = None
) -> float:
    """Return the p value of an ECE under the null hypothesis that the confidences are calibrated.

    In each draw, the label of every question is redrawn as Bernoulli(confidence). The p value is (1 + number of draws
    whose ECE is at least as large as the observed one) / (1 + number of draws), after the consistency resampling of
    Bröcker and Smith (2007). Above 0.05, the ECE does not differ significantly from that of a calibrated method.

    Args:
        confidence: shape (n,), or (k, n) for k seeds, whose ECEs are averaged. Within a draw all seeds use the same
            uniform random numbers.
        correct: shape (n,), bool.
        subjects: subject name of each question, n of them.
        settings: numbers of draws and bins, seed, and whether the ECE is pooled over questions or averaged over
            subjects.

    Raises:
        ValueError: an input is empty, lengths differ, or a confidence is NaN or outside [0, 1].

    In this example both confidences are 1, so redrawn labels are all right. The observed mistake makes the observed ECE
    larger than that of every draw, which gives the smallest possible p value:

    >>> calibrated_p([1.0, 1.0], [False, True], ["art", "art"])
    0.001
    """
    settings = settings or Settings()
    runs, o = checked_runs(confidence, correct, subjects)
    strata = strata_of(subjects if settings.average == "subjects" else [""] * o.size)
    order = np.lexsort((o, *runs, strata.group))  # the result must not depend on the order of the answers
    runs, o = runs[:, order], o[order]
    ends = np.cumsum(strata.sizes)
    bins = [np.equal.outer(bin_of(p, settings.bins), np.arange(settings.bins)).astype(np.float32) for p in runs]

    def summed_ece(labels: Sequence[BoolArray]) -> FloatArray:
        """Return the ECE of each draw, summed over seeds, shape (draws,), given the labels (draws, n) for each seed."""
        total = np.zeros(len(labels[0]))
        for p, redrawn, onehot in zip(runs, labels, bins, strict=True):
            for start, end in zip(ends - strata.sizes, ends, strict=True):
                gaps = redrawn[:, start:end].astype(np.float32) @ onehot[start:end] - p[start:end] @ onehot[start:end]
                total += np.abs(gaps).sum(axis=1) / (end - start) / ends.size
        return total

    (observed,) = summed_ece([o[None]] * len(runs))
    rng = np.random.default_rng(settings.seed)
    n_at_least = 0
    for count in chunk_sizes(settings.null_draws, max(1, VALUES_AT_ONCE // o.size)):
        uniforms = rng.random((count, o.size))
        null_ece = summed_ece([uniforms < p for p in runs])
        n_at_least += int(np.count_nonzero(null_ece >= observed - 1e-12))  # 1e-12: rounding
    return (1 + n_at_least) / (1 + settings.null_draws)
