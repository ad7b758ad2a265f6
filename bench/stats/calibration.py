"""Test of calibration by redrawing labels: is an ECE larger than calibrated confidences would show by chance?

Example: `calibrated_p(confidence, correct, subjects)` is large for calibrated confidences, also where these are so few
that their ECE is large (docs/methods.md §0.17).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from bench.api import BoolArray, FloatArray
from bench.metrics.answers import bin_of, portions
from bench.stats.settings import Settings
from bench.stats.strata import checked_runs, strata_of

VALUES_AT_ONCE = 4_000_000
"""Uniforms held in memory at a time; the draws don't depend on it."""


def calibrated_p(
    confidence: npt.ArrayLike,
    correct: npt.ArrayLike,
    subjects: Sequence[str],
    settings: Settings | None = None,
) -> float:
    """P value of the ECE if the confidences were calibrated: labels redrawn as Bernoulli(p), the same questions.

    (1 + number of draws with an ECE at least as large) / (1 + draws), after the consistency resampling of Bröcker and
    Smith (2007). Above 0.05, the ECE can't be told from a perfectly calibrated method's.

    Args:
        confidence: shape (n,), or (k, n) for k seeds, whose ECEs are averaged; a draw's labels are theirs together.
        correct: shape (n,), bool.
        subjects: n names.
        settings: draws, bins, seed, and whether the ECE is of all questions or a mean over subjects.

    Raises:
        ValueError: as `bench.metrics.accuracy`.

    Mistakes at certainty can't be chance:

    >>> calibrated_p([1.0, 1.0], [False, True], ["art", "art"])
    0.001
    """
    settings = settings or Settings()
    runs, o = checked_runs(confidence, correct, subjects)
    strata = strata_of(subjects if settings.average == "subjects" else [""] * o.size)
    order = np.lexsort((o, *runs, strata.group))  # nothing depends on the order in which the answers came
    runs, o = runs[:, order], o[order]
    ends = np.cumsum(strata.sizes)
    members = [np.equal.outer(bin_of(p, settings.bins), np.arange(settings.bins)).astype(np.float32) for p in runs]

    def error(labels: Sequence[BoolArray]) -> FloatArray:
        """ECEs (draws,), summed over the runs, each of which has labels (draws, n) of its own."""
        total = np.zeros(len(labels[0]))
        for p, given, of in zip(runs, labels, members, strict=True):
            for start, end in zip(ends - strata.sizes, ends, strict=True):
                gaps = given[:, start:end].astype(np.float32) @ of[start:end] - p[start:end] @ of[start:end]
                total += np.abs(gaps).sum(axis=1) / (end - start) / ends.size
        return total

    (observed,) = error([o[None]] * len(runs))
    rng = np.random.default_rng(settings.seed)
    reached = 0
    for count in portions(settings.null_draws, max(1, VALUES_AT_ONCE // o.size)):
        uniforms = rng.random((count, o.size))
        drawn = error([uniforms < p for p in runs])
        reached += int(np.count_nonzero(drawn >= observed - 1e-12))  # 1e-12: what is equal may differ in the last bit
    return (1 + reached) / (1 + settings.null_draws)
