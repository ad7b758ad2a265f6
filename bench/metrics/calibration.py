"""Calibration metrics beyond the paper's tables: smooth and equal-mass ECE, RMSCE, NLL, Brier decomposition.

Pure functions of `confidence (n,)` and `correct (n,)`. Example for confidences [0.8, 0.4] and labels [True, False]:
miscalibration 0.1, discrimination 0.25 and uncertainty 0.25 (the three `brier_*` functions); `brier` is 0.1 - 0.25 +
0.25.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bench.api import BoolArray, FloatArray, IntArray
from bench.api.protocol import ECE_BINS, NLL_CLIP
from bench.metrics.validation import average_ranks, calibration_gap, count_distinct, validate

NLL_WORST = -float(np.log(NLL_CLIP))
"""Largest loss that one answer can have in `nll`: 16.64 nats, for a mistake at confidence 1."""
MASS_BINS = 15
"""Largest number of bins that `rmsce` uses."""
ANSWERS_A_BIN = 10
"""Number of answers per bin in `rmsce`; bins get larger where this would give more than MASS_BINS bins."""
MIN_ANSWERS = 3 * ANSWERS_A_BIN
"""Smallest number of answers for which `rmsce` is defined. Fewer give one or two bins, which show little more than the
error of the mean confidence."""
_GRID = 2048
"""Number of intervals of [0, 1] on which `smece` computes the smoothed gap."""
_PRECISION = 1e-6
"""Absolute precision of the bandwidth that `smece` searches."""


def smece(confidence: npt.ArrayLike, correct: npt.ArrayLike) -> float:
    """Smooth ECE: the kernel-smoothed calibration gap where it equals the kernel's width (Błasiok and Nakkiran, 2023).

    Let p_i be the confidence and o_i the correctness (0 or 1) of answer i. Let K_s be the Gaussian kernel of standard
    deviation s, reflected at 0 and 1 (arXiv:2309.12236, section 3). The gap is g(s) = integral over t in [0, 1] of |1/n
    sum_i K_s(t, p_i) (p_i - o_i)|. As g falls when s grows, g(s) = s has one solution s, the result. Without bins, the
    result is continuous in the confidences.

    g(s) is computed on a grid of 2,048 intervals by a cosine transform, with an error of at most 1e-4.

    Arguments and errors are those of `accuracy`.

    In this example all residuals have one sign. Smoothing can't cancel them, and the result is their mean, (0.5 + 0.1)
    / 2:

    >>> round(smece([0.5, 0.9], [True, True]), 6)
    0.3
    """
    p, o = validate(confidence, correct)
    order = np.lexsort((o, p))  # sums don't depend on the order of the answers, not even in their last bit
    p, o = p[order], o[order]
    left = np.minimum(np.floor(p * _GRID).astype(np.int64), _GRID - 1)
    right_share = p * _GRID - left
    residual = (p - o) / p.size
    nodes = np.bincount(left, weights=residual * (1 - right_share), minlength=_GRID + 1)
    nodes += np.bincount(left + 1, weights=residual * right_share, minlength=_GRID + 1)  # (_GRID + 1,)
    low, high = abs(float(nodes.sum())), float(np.abs(nodes).sum())  # the gaps at infinite and at no bandwidth
    spectrum = np.fft.rfft(np.concatenate([2 * nodes[:1], nodes[1:-1], 2 * nodes[-1:], nodes[-2:0:-1]]))
    frequency = np.pi * np.arange(_GRID + 1)
    while high - low > _PRECISION:
        bandwidth = (low + high) / 2
        smoothed = np.fft.irfft(spectrum * np.exp(-np.square(bandwidth * frequency) / 2))  # [0, 1] and its mirror image
        if np.abs(smoothed).sum() / 2 > bandwidth:
            low = bandwidth
        else:
            high = bandwidth
    return (low + high) / 2


def ece_mass(confidence: npt.ArrayLike, correct: npt.ArrayLike, *, bins: int = ECE_BINS) -> float:
    """Equal-mass ECE, over bins of equally many answers: sum over bins of n_j/n * |mean p - mean o|.

    p are the confidences, o the correctness (0 or 1), and n_j of the n answers are in bin j. An answer of rank r (from
    0) by confidence goes to bin floor((r + 1/2) * bins / n) (Nguyen and O'Connor, 2015). Equal confidences go to one
    bin, that of their mean rank, so bins differ in size where there are ties. The result is never larger than the
    square root of `brier`.

    Args:
        confidence: shape (n,), float in [0, 1].
        correct: shape (n,), bool.
        bins: number of bins.

    Raises:
        ValueError: an input is empty, lengths differ, or a confidence is NaN or outside [0, 1].

    Example with two bins of two answers: the gaps are |0.15 - 0.5| and |0.85 - 1|, each with weight one half.

    >>> round(ece_mass([0.1, 0.2, 0.8, 0.9], [False, True, True, True], bins=2), 6)
    0.25
    """
    p, o = validate(confidence, correct)
    return calibration_gap(p, o, equal_mass(p, bins))


def equal_mass(p: FloatArray, bins: int) -> IntArray:
    """Return the bin index (n,) of each of n confidences, for bins of equally many answers (see `ece_mass`)."""
    twice_middle = (2 * average_ranks(p) - 1).astype(np.int64)  # twice (mean rank from 0 + 1/2), an integer
    return twice_middle * bins // (2 * p.size)


def rmsce(confidence: npt.ArrayLike, correct: npt.ArrayLike) -> float | None:
    """Root mean squared calibration error over equal-mass bins, without the bias that chance adds.

    The result is the square root of sum over bins of n_j/n * (g_j^2 - s_j^2/n_j). n_j of the n answers are in bin j.
    g_j and s_j are the mean and the standard deviation (ddof 1), in bin j, of p - o, confidence minus correctness.
    Kumar, Liang and Ma (2019) use the variance of the labels in place of s_j^2. The bracket estimates the square of the
    true gap without bias: it is the mean of (p_i - o_i)(p_k - o_k) over pairs of different answers of the bin.

    The sum can be below 0; for calibrated confidences that happens half the time. The result then is minus the root of
    its absolute value. Bins are those of `ece_mass`, one for every ten answers, at most MASS_BINS; a bin of one answer
    counts as 0.

    Arguments and errors are those of `accuracy`.

    Returns:
        The error; None for fewer than MIN_ANSWERS answers.

    Example: one bin has 18 residuals p - o of -0.2 and 12 of 0.8. Their mean product over pairs is (6^2 - 8.4) / (30 *
    29).

    >>> round(rmsce([0.8] * 30, [True] * 18 + [False] * 12), 6), rmsce([0.8] * 29, [True] * 29)
    (0.178113, None)
    """
    bins = Bins.of(*validate(confidence, correct))
    return None if bins is None else signed_root(bins.mean_square)


def signed_root(square: float) -> float:
    """Return the root of |square| with the sign of `square`: an estimate of a square may be negative.

    >>> signed_root(0.09), signed_root(-0.04)
    (0.3, -0.2)
    """
    return math.copysign(math.sqrt(abs(square)), square)


class Bins(NamedTuple):
    """The b bins of equally many answers that `rmsce` uses, over n answers, with the calibration gap of each bin."""

    group: IntArray
    """Index of the bin of each answer, shape (n,)."""
    gap: FloatArray
    """Mean of confidence minus correctness in each bin, shape (b,)."""
    within: FloatArray
    """Confidence minus correctness of each answer, minus the gap of its bin, shape (n,)."""
    noise: FloatArray
    """Estimated sampling variance of each bin's gap, shape (b,); 0 for a bin of one answer."""
    square: FloatArray
    """Unbiased estimate of the square of each bin's true gap, shape (b,)."""

    @classmethod
    def of(cls, p: FloatArray, o: BoolArray) -> Bins | None:
        """Assign n answers to bins, given validated confidences `p` and labels `o`.

        None for fewer than MIN_ANSWERS answers.
        """
        if p.size < MIN_ANSWERS:
            return None
        bins = min(MASS_BINS, p.size // ANSWERS_A_BIN)
        _, group, size = np.unique(equal_mass(p, bins), return_inverse=True, return_counts=True)
        gap = np.bincount(group, weights=p - o) / size
        within = p - o - gap[group]
        noise = np.bincount(group, weights=np.square(within)) / (size * np.maximum(size - 1, 1))
        return cls(group, gap, within, noise, np.where(size > 1, np.square(gap) - noise, 0.0))

    @property
    def mean_square(self) -> float:
        """Estimated squared calibration gap, averaged over bins with their numbers of answers as weights."""
        return float(self.square[self.group].mean())


def nll(confidence: npt.ArrayLike, correct: npt.ArrayLike) -> float:
    """Mean negative log-likelihood in nats (Good, 1952): -ln p for right answers, -ln(1 - p) for wrong ones.

    Probabilities below 2^-24 count as 2^-24. So a mistake at confidence 1 costs 16.64 nats, not infinity; `n_clipped`
    counts such mistakes. A right answer at confidence 1 costs nothing.

    Arguments and errors are those of `accuracy`.

    These examples are (ln 2 + 0) / 2 and 24 ln 2:

    >>> round(nll([0.5, 1.0], [True, True]), 6)
    0.346574
    >>> round(nll([1.0], [False]), 6)
    16.635532
    """
    p, o = validate(confidence, correct)
    return float(np.mean(log_losses(p, o)))


def log_losses(confidence: FloatArray, correct: BoolArray) -> FloatArray:
    """Return the negative log-likelihood of each answer, (n,), in nats, from 0 to `NLL_WORST`; `nll` is their mean.

    The arguments are not validated.
    """
    losses: FloatArray = -np.log(np.maximum(np.where(correct, confidence, 1.0 - confidence), NLL_CLIP))
    return losses


def n_clipped(confidence: npt.ArrayLike, correct: npt.ArrayLike) -> int:
    """Number of answers whose loss `nll` clips at 24 ln 2 nats.

    These are mistakes with a confidence of almost 1, and right answers with a confidence of almost 0. Arguments and
    errors are those of `accuracy`.

    >>> n_clipped([1.0, 1.0, 0.0, 0.5], [True, False, True, False])
    2
    """
    p, o = validate(confidence, correct)
    return int(np.count_nonzero(np.where(o, p, 1.0 - p) < NLL_CLIP))


# --- Brier decomposition ----------------------------------------------------------------------------------------------


class Decomposition(NamedTuple):
    """Decomposition of the Brier score into three terms: `brier = mcb - dsc + unc`."""

    mcb: float
    """Miscalibration, at least 0: how much isotonic recalibration lowers the Brier score."""
    dsc: float
    """Discrimination, at least 0: `unc` minus the Brier score of the isotonically recalibrated confidences."""
    unc: float
    """Uncertainty of the outcome: the Brier score that a constant confidence has, if it equals the share of right
    answers."""


def corp(confidence: npt.ArrayLike, correct: npt.ArrayLike) -> Decomposition:
    """Decompose the Brier score by isotonic recalibration (CORP: Dimitriadis, Gneiting and Jordan, 2021).

    Let p be the confidences, q their isotonic recalibration (equal confidences get one value), and r the share of right
    answers. The terms are mcb = brier(p) - brier(q), dsc = brier(r) - brier(q), and unc = brier(r) = r (1 - r). So
    brier(p) = mcb - dsc + unc, without bins.

    Arguments and errors are those of `accuracy`.

    In this example the order is right, so q is perfect: brier(q) = 0, and brier(p) = (0.2^2 + 0.4^2) / 2.

    >>> [round(term, 6) for term in corp([0.8, 0.4], [True, False])]
    [0.1, 0.25, 0.25]
    """
    p, o = validate(confidence, correct)
    _, size, hits = count_distinct(p, o)
    rate = float(np.mean(o))
    recalibrated = isotonic(hits, size)
    best = float(np.sum(hits * (1 - recalibrated))) / p.size  # each block's q is its own base rate
    unc = rate * (1 - rate)
    return Decomposition(max(0.0, float(np.mean(np.square(p - o))) - best), max(0.0, unc - best), unc)


def brier_mcb(confidence: npt.ArrayLike, correct: npt.ArrayLike) -> float:
    """Miscalibration part of `brier`: how much isotonic recalibration of these answers lowers the score (CORP).

    Example: a constant confidence of 0.9, with one half of the answers right, has miscalibration (0.9 - 0.5)^2.

    >>> round(brier_mcb([0.9, 0.9], [True, False]), 6)
    0.16
    """
    return corp(confidence, correct).mcb


def brier_dsc(confidence: npt.ArrayLike, correct: npt.ArrayLike) -> float:
    """Discrimination part of `brier`: gain of the isotonically recalibrated confidences over a constant (CORP).

    Examples: a constant confidence separates no answers; right answers all above the wrong ones give the largest value.

    >>> brier_dsc([0.9, 0.9], [True, False]), brier_dsc([0.9, 0.8], [True, False])
    (0.0, 0.25)
    """
    return corp(confidence, correct).dsc


def brier_unc(confidence: npt.ArrayLike, correct: npt.ArrayLike) -> float:
    """Uncertainty part of `brier`: the score of a constant confidence that equals the share of right answers (CORP).

    This part is the same for all methods. Example: one of four answers is right, which gives 1/4 * 3/4.

    >>> brier_unc([0.1, 0.2, 0.3, 0.4], [True, False, False, False])
    0.1875
    """
    return corp(confidence, correct).unc


def isotonic(hits: IntArray, size: IntArray) -> FloatArray:
    """Fit non-decreasing values to the rates hits/size by pooling adjacent violators (Ayer et al., 1955).

    The fit is by least squares with `size` as weights.

    Args:
        hits: shape (d,), int, number of right answers at each of d ascending confidences.
        size: shape (d,), int, number of answers at each confidence, at least 1.

    Returns:
        Fitted rates, shape (d,), float in [0, 1].

    In this example the first two rates, 1 and 0, are in the wrong order; pooled they are one half.

    >>> isotonic(np.array([1, 0, 3]), np.array([1, 1, 4])).tolist()
    [0.5, 0.5, 0.75]
    """
    blocks: list[tuple[int, int, int]] = []  # (hits, answers, confidences) of each block; rates increase
    for block_hits, block_size in zip(hits.tolist(), size.tolist(), strict=True):
        block = (block_hits, block_size, 1)
        # integers compare exactly; equal rates could differ by rounding
        while blocks and blocks[-1][0] * block[1] >= block[0] * blocks[-1][1]:
            before = blocks.pop()
            block = (before[0] + block[0], before[1] + block[1], before[2] + block[2])
        blocks.append(block)
    pooled = np.array(blocks, dtype=np.int64)  # (blocks, 3)
    return np.repeat(pooled[:, 0] / pooled[:, 1], pooled[:, 2])
