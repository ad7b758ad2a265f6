"""Metrics of the paper's tables (ECE, Brier, ACC, AUROC, AUCPR), and the ECE variants of docs/methods.md §4, §0.16-17.

Pure functions of `confidence (n,)` and `correct (n,)`. Example: `brier([0.8, 0.4], [True, False])` is 0.1.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from bench.api.protocol import ECE_BINS
from bench.metrics.validation import THRESHOLD, average_ranks, bin_of, calibration_gap, chunk_sizes, top_label, validate

FLOOR_DRAWS = 200
"""Number of times that `ece_floor` redraws the labels. With this number, the random error of the floor is about 0.2
percentage points for one subject, and about 0.03 for the mean over 57 subjects."""
FLOOR_VALUES_AT_ONCE = 4_000_000
"""Largest number of uniform random numbers held in memory at a time; results do not depend on this limit."""


def accuracy(confidence: npt.ArrayLike, correct: npt.ArrayLike) -> float:
    """Share of answers whose correctness `confidence > 0.5` predicts; not the model's accuracy (docs/methods.md §4).

    A confidence of exactly 0.5 predicts "wrong", as an argmax tie does in the official code.

    Args:
        confidence: shape (n,), float in [0, 1], P(answer is correct).
        correct: shape (n,), bool.

    Raises:
        ValueError: an input is empty or not one-dimensional, lengths differ, `correct` is not bool, or a confidence is
            NaN or outside [0, 1].

    In this example three of four predictions are right: those from 0.9, 0.2 and 0.5. The one from 0.6 is wrong.

    >>> accuracy([0.9, 0.6, 0.5, 0.2], [True, False, False, False])
    0.75
    """
    p, o = validate(confidence, correct)
    return float(np.mean((p > THRESHOLD) == o))


def ece(confidence: npt.ArrayLike, correct: npt.ArrayLike, *, bins: int = ECE_BINS) -> float:
    """Expected calibration error of P(correct) against correctness: sum over bins of n_j/n * |mean p - mean o|.

    p are the confidences, o the correctness (0 or 1), and n_j of the n answers are in bin j. Bins have equal width,
    [j/bins, (j+1)/bins); the last bin includes 1.0 (docs/methods.md §4; Naeini et al., 2015). The result is never
    larger than the square root of `brier`.

    Args:
        confidence: shape (n,), float in [0, 1].
        correct: shape (n,), bool.
        bins: number of bins.

    Raises:
        ValueError: an input is empty, lengths differ, or a confidence is NaN or outside [0, 1].

    Example: bin [0.2, 0.3) has two answers at 0.25, one of them right, so its gap is 0.25 with weight 2/3. Bin [0.9, 1]
    has a right answer at 1.0, so its gap is 0.

    >>> round(ece([0.25, 0.25, 1.0], [True, False, True]), 6)
    0.166667
    """
    p, o = validate(confidence, correct)
    return calibration_gap(p, o, bin_of(p, bins))


def ece_ref(confidence: npt.ArrayLike, correct: npt.ArrayLike, *, bins: int = ECE_BINS) -> float | None:
    """Top-label ECE as the official code computes it: confidences of exactly 0 or 1 are in no bin (docs/methods.md §4).

    With p the confidence, max(p, 1-p) is compared with whether `p > 0.5` predicts correctness. Bins are half-open, and
    weights are shares of the answers that are in a bin. The metric is for comparison with published numbers; it may
    exceed the square root of `brier`.

    Arguments and errors are those of `ece`. None where no answer is in a bin.

    In the first example, the mistake at 1.0 is in no bin. The other answer has top-label confidence 0.75 in "wrong",
    and is wrong.

    >>> ece_ref([0.25, 1.0], [False, False])
    0.25
    >>> ece_ref([0.0, 1.0], [False, False]) is None
    True
    """
    top, hit = top_label(*validate(confidence, correct))
    binned = top < 1.0
    return calibration_gap(top[binned], hit[binned], bin_of(top[binned], bins)) if binned.any() else None


def ece_ref_closed(confidence: npt.ArrayLike, correct: npt.ArrayLike, *, bins: int = ECE_BINS) -> float:
    """Top-label ECE like `ece_ref`, but with the last bin closed, so that every answer counts (docs/methods.md §4).

    Arguments and errors are those of `ece`.

    Example: the first answer is predicted wrong with 0.75 and is wrong, which gives a gap of 0.25. The second is
    predicted right with 1.0 and is wrong, a gap of 1. Each has weight one half.

    >>> ece_ref_closed([0.25, 1.0], [False, False])
    0.625
    """
    top, hit = top_label(*validate(confidence, correct))
    return calibration_gap(top, hit, bin_of(top, bins))


def n_excluded(confidence: npt.ArrayLike, correct: npt.ArrayLike) -> int:
    """Number of answers that `ece_ref` leaves out: those whose max(p, 1-p) is exactly 1 in float64.

    Such answers are common: a float32 softmax saturates to 1.0 at logit gaps of about 17 (docs/methods.md §4).

    Arguments and errors are those of `accuracy`.

    >>> n_excluded([0.0, 0.5, 1.0], [True, True, True])
    2
    """
    top, _ = top_label(*validate(confidence, correct))
    return int(np.count_nonzero(top >= 1.0))


def ece_floor(
    confidence: npt.ArrayLike, correct: npt.ArrayLike, *, bins: int = ECE_BINS, seed: int = 0, draws: int = FLOOR_DRAWS
) -> float:
    """Expected `ece` of these confidences under perfect calibration: the mean over labels redrawn as Bernoulli(p).

    This is the part of an ECE that chance explains; it is large for small subjects (docs/methods.md §0.17). `correct`
    is validated, but has no effect. The result does not depend on the order of the answers.

    Args:
        confidence: shape (n,), float in [0, 1].
        correct: shape (n,), bool.
        bins: number of bins.
        seed: seed of the label draws.
        draws: number of label draws.

    Raises:
        ValueError: an input is empty, lengths differ, or a confidence is NaN or outside [0, 1].

    Examples: labels redrawn from confidences 0 and 1 always match; a label redrawn at 0.5 is always off by one half.

    >>> ece_floor([0.0, 1.0, 1.0], [False, True, True])
    0.0
    >>> ece_floor([0.5], [True])
    0.5
    """
    p, _ = validate(confidence, correct)
    p = np.sort(p)  # makes each bin one contiguous run, and the value independent of the order
    first_of_bin = np.flatnonzero(np.diff(bin_of(p, bins), prepend=-1))  # (occupied bins,)
    expected = np.add.reduceat(p, first_of_bin)
    rng = np.random.default_rng(seed)
    total = 0.0
    for count in chunk_sizes(draws, max(1, FLOOR_VALUES_AT_ONCE // p.size)):
        labels = rng.random((count, p.size)) < p  # (count, n)
        hits = np.add.reduceat(labels, first_of_bin, axis=1, dtype=np.int64)  # (count, occupied bins)
        total += float(np.abs(hits - expected).sum())
    return total / (draws * p.size)


def ece_debiased(
    confidence: npt.ArrayLike, correct: npt.ArrayLike, *, bins: int = ECE_BINS, seed: int = 0, draws: int = FLOOR_DRAWS
) -> float:
    """`ece` minus `ece_floor`: the ECE in excess of what perfectly calibrated confidences would show.

    For calibrated confidences its expected value is 0, whatever the number of answers, while `ece` is biased upwards
    (docs/methods.md §0.17). It may be negative, and is not clipped: a mean over subjects of clipped values would be
    biased again. For miscalibrated confidences it is too small: where a bin has a large gap, chance adds nothing to the
    gap, but the floor is still subtracted.

    Arguments and errors are those of `ece_floor`.

    Examples: chance explains the gap of an answer at 0.5, but not that of a mistake at 1.0.

    >>> ece_debiased([0.5], [True])
    0.0
    >>> ece_debiased([1.0], [False])
    1.0
    """
    return ece(confidence, correct, bins=bins) - ece_floor(confidence, correct, bins=bins, seed=seed, draws=draws)


def brier(confidence: npt.ArrayLike, correct: npt.ArrayLike) -> float:
    """Mean squared difference between confidence and correctness (Brier, 1950; docs/methods.md §4).

    Arguments and errors are those of `accuracy`.

    This example is (0.5² + 1²) / 2:

    >>> brier([0.5, 1.0], [True, False])
    0.625
    """
    p, o = validate(confidence, correct)
    return float(np.mean(np.square(p - o)))


def auroc(confidence: npt.ArrayLike, correct: npt.ArrayLike) -> float | None:
    """P(a right answer has more confidence than a wrong one), ties counting half (Hanley and McNeil, 1982).

    Arguments and errors are those of `accuracy`.

    Returns:
        The probability; None where all answers are right or all are wrong.

    In this example there are four pairs of a right and a wrong answer. The right answer is above the wrong one in three
    pairs and tied in one.

    >>> auroc([0.9, 0.4, 0.4, 0.1], [True, True, False, False])
    0.875
    """
    p, o = validate(confidence, correct)
    positives = int(np.count_nonzero(o))
    negatives = o.size - positives
    if not positives or not negatives:
        return None
    wins = float(average_ranks(p)[o].sum()) - positives * (positives + 1) / 2
    return wins / (positives * negatives)


def aucpr(confidence: npt.ArrayLike, correct: npt.ArrayLike) -> float | None:
    """Average precision with right answers as positives: sum over thresholds of (R_k - R_{k-1}) * P_k.

    R_k and P_k are recall and precision at the k-th threshold from above; equal confidences are one threshold. This is
    not the trapezoidal area, which is too optimistic (Davis and Goadrich, 2006; docs/methods.md §4).

    Arguments and errors are those of `accuracy`.

    Returns:
        The average precision. None where all answers are right or all are wrong, so that its mean is over the same
            subjects as that of `auroc`.

    In this example ranks 1 and 3 are right, which gives (1/1 + 2/3) / 2.

    >>> round(aucpr([0.9, 0.8, 0.7], [True, False, True]), 6)
    0.833333
    """
    p, o = validate(confidence, correct)
    positives = int(np.count_nonzero(o))
    if positives in {0, o.size}:
        return None
    order = np.argsort(-p, kind="stable")
    last_of_tie = np.append(np.flatnonzero(np.diff(p[order])), o.size - 1)
    hits = np.cumsum(o[order])[last_of_tie]  # (thresholds,): right answers at or above each threshold
    new_hits = np.diff(hits, prepend=0)
    return float(np.sum(new_hits * hits / (last_of_tie + 1)) / positives)
