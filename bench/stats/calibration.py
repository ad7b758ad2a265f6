"""Distance of confidences from calibration, and its test against chance, by redrawing labels.

An ECE of few answers is large by chance (docs/methods.md §0.17). What it would be without can't be had by subtraction,
since chance adds much to small gaps and nothing to large ones. So labels are redrawn under models in which the true
gaps are known, from none to larger than observed, and the ECEs that come out are compared with the observed one.
Example: `calibration_error(confidence, correct, subjects).value` is near 0 for calibrated confidences whose ECE is
0.07.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bench.api import BoolArray, FloatArray, IntArray
from bench.metrics.answers import bin_of, portions
from bench.stats.intervals import Interval
from bench.stats.settings import Settings
from bench.stats.strata import Strata, checked_runs, strata_of

VALUES_AT_ONCE = 4_000_000
"""Uniforms held in memory at a time; the draws don't depend on it."""
_SCALES = (0.0, 0.015, 0.03, 0.05, 0.07, 0.1, 0.15, 0.22, 0.35, 0.6, 1.5, 1e9)
"""Sizes of true gaps (fractions) that are tried, from calibrated to as observed."""
_STRETCHES = (1.1, 1.3, 2.0, 4.0)
"""Multiples of the observed gaps that are tried beyond."""


class CalibrationError(NamedTuple):
    """The macro ECE that infinitely many answers to such questions would have."""

    value: float
    interval: Interval


def calibrated_p(
    confidence: npt.ArrayLike,
    correct: npt.ArrayLike,
    subjects: Sequence[str],
    settings: Settings | None = None,
) -> float:
    """P value of the macro ECE if the confidences were calibrated: labels redrawn as Bernoulli(p), the same questions.

    (1 + number of draws with an ECE at least as large) / (1 + draws), after the consistency resampling of Bröcker and
    Smith (2007). Above 0.05, the ECE can't be told from a perfectly calibrated method's.

    Args:
        confidence: shape (n,), or (k, n) for k seeds, whose ECEs are averaged.
        correct: shape (n,), bool.
        subjects: n names.
        settings: draws, bins and seed.

    Raises:
        ValueError: as `bench.metrics.accuracy`.

    Mistakes at certainty can't be chance:

    >>> calibrated_p([1.0, 1.0], [False, True], ["art", "art"])
    0.001
    """
    settings = settings or Settings()
    runs, o = checked_runs(confidence, correct, subjects)
    strata = strata_of(subjects)
    gaps = [_Gaps.of(p, o, strata, settings.bins) for p in runs]
    observed = float(np.mean([run.ece for run in gaps]))
    simulated = _simulated([[run.p] for run in gaps], gaps, settings.null_draws, settings.seed)[0]
    # An ECE that is as large in exact arithmetic may differ in the last bit.
    return (1 + int(np.count_nonzero(simulated >= observed - 1e-12))) / (1 + settings.null_draws)


def calibration_error(
    confidence: npt.ArrayLike,
    correct: npt.ArrayLike,
    subjects: Sequence[str],
    settings: Settings | None = None,
) -> CalibrationError:
    """Debiased macro ECE with its interval for fixed subjects, by inverting a test.

    Model of scale a: an answer in a bin with observed gap d and standard error s (of labels drawn as Bernoulli(p)) is
    right with probability p - d * a / sqrt(a^2 + s^2). If true gaps are N(0, a^2), then the shrunken ones have the
    right mean size, so each model's own macro ECE T(a) is known, and label draws give the mean M(a) and the standard
    deviation of the ECE that would be observed. To the variance comes that of drawing other questions: the variance of
    the model's gaps over the answers. The value is T where M equals the observed ECE; the interval holds the T of all
    models whose M lies within the normal quantile of it. 0 where even calibrated confidences would show as much.

    Args:
        confidence: shape (n,), or (k, n) for k seeds, whose ECEs are averaged.
        correct: shape (n,), bool.
        subjects: n names.
        settings: level, draws, bins and seed.

    Raises:
        ValueError: as `bench.metrics.accuracy`.

    A mistake of 0.5 in one answer is what calibrated confidences show.

    >>> calibration_error([0.5], [True], ["art"]).value
    0.0
    """
    settings = settings or Settings()
    runs, o = checked_runs(confidence, correct, subjects)
    strata = strata_of(subjects)
    gaps = [_Gaps.of(p, o, strata, settings.bins) for p in runs]
    tried = [(scale, 1.0) for scale in _SCALES] + [(_SCALES[-1], stretch) for stretch in _STRETCHES]
    models = [[run.model(scale, stretch) for scale, stretch in tried] for run in gaps]
    simulated = _simulated(models, gaps, settings.model_draws, settings.seed)  # (models, draws)
    truth = np.mean([[run.true_ece(pi) for pi in row] for run, row in zip(gaps, models, strict=True)], axis=0)
    # Questions are the same for all seeds, so averaging over seeds takes nothing off their variance.
    of_questions = np.mean(
        [[run.variance_of_questions(pi) for pi in row] for run, row in zip(gaps, models, strict=True)], axis=0
    )
    half = NormalDist().inv_cdf((1 + settings.level) / 2) * np.sqrt(simulated.var(axis=1, ddof=1) + of_questions)
    observed = float(np.mean([run.ece for run in gaps]))
    mean = simulated.mean(axis=1)
    ends = (_truth_where(mean + half, observed, truth), _truth_where(mean - half, observed, truth))
    interval = Interval("fixed-subjects", *ends, settings.level, "inverted test")
    return CalibrationError(_truth_where(mean, observed, truth), interval)


class _Gaps(NamedTuple):
    """One run's answers sorted by subject and bin."""

    order: IntArray
    """Row of each sorted answer, (n,)."""
    p: FloatArray
    """Sorted confidences, (n,)."""
    starts: IntArray
    """Start of each occupied bin, (b,)."""
    gap: FloatArray
    """Mean p - o of each answer's bin, (n,)."""
    noise: FloatArray
    """Variance of that mean for labels drawn as Bernoulli(p), (n,)."""
    expected: FloatArray
    """Sum of p in each bin, (b,)."""
    weight: FloatArray
    """1 / (n_s * S) for each bin, (b,)."""
    strata: Strata
    """Strata of the answers as they came."""
    ece: float
    """The observed macro ECE."""

    @classmethod
    def of(cls, p: FloatArray, o: BoolArray, strata: Strata, bins: int) -> _Gaps:
        cell = strata.group * bins + bin_of(p, bins)
        order = np.lexsort((o, p, cell))  # nothing depends on the order in which the answers came
        starts = np.flatnonzero(np.diff(cell[order], prepend=-1))
        sizes = np.diff(starts, append=p.size)
        p, o = p[order], o[order]
        weight = 1 / (strata.sizes[cell[order][starts] // bins] * strata.sizes.size)
        residual = np.add.reduceat(p - o, starts)
        noise = np.add.reduceat(p * (1 - p), starts) / np.square(sizes)
        return cls(
            order, p, starts, np.repeat(residual / sizes, sizes), np.repeat(noise, sizes), np.add.reduceat(p, starts),
            weight, strata, float(np.abs(residual) @ weight),
        )  # fmt: skip

    def model(self, scale: float, stretch: float) -> FloatArray:
        """Probability that each sorted answer is right, (n,), if true gaps are of this scale."""
        if not scale:
            return self.p
        shrunken = self.gap * (stretch * scale / np.sqrt(scale**2 + self.noise))
        probability: FloatArray = np.clip(self.p - shrunken, 0.0, 1.0)
        return probability

    def true_ece(self, pi: FloatArray) -> float:
        """Macro ECE of infinitely many answers that are right with these probabilities (n,)."""
        return float(np.abs(np.add.reduceat(self.p - pi, self.starts)) @ self.weight)

    def variance_of_questions(self, pi: FloatArray) -> float:
        """Variance of `true_ece` if other questions were drawn."""
        size = np.empty_like(self.p)
        size[self.order] = np.abs(self.p - pi)
        spread = self.strata.means(np.square(size)) - np.square(self.strata.means(size))
        return float(np.sum(np.maximum(spread, 0) / self.strata.sizes)) / self.strata.sizes.size**2


def _simulated(models: Sequence[Sequence[FloatArray]], gaps: Sequence[_Gaps], draws: int, seed: int) -> FloatArray:
    """Macro ECE, mean over runs, of each label draw under each model: (models, draws).

    All models and runs share the uniforms of a question, so that they differ by more than chance, and seeds of a method
    have the same labels.
    """
    n = gaps[0].p.size
    place = np.argsort(gaps[0].order)  # uniforms come in the order of the first run's sorted answers
    rng = np.random.default_rng(seed)
    values: list[FloatArray] = []
    for count in portions(draws, max(1, VALUES_AT_ONCE // n)):
        uniforms = rng.random((count, n))
        portion = np.zeros((len(models[0]), count))
        for run, row in zip(gaps, models, strict=True):
            shared = uniforms if run is gaps[0] else uniforms[:, place[run.order]]
            for k, pi in enumerate(row):
                hits = np.add.reduceat(shared < pi, run.starts, axis=1, dtype=np.int32)  # (count, b)
                portion[k] += np.abs(hits - run.expected) @ run.weight
        values.append(portion / len(gaps))
    return np.concatenate(values, axis=1)


def _truth_where(curve: FloatArray, observed: float, truth: FloatArray) -> float:
    """True ECE of the model at which a curve over models reaches the observed value; at most 1."""
    rising = np.maximum.accumulate(curve)  # it does rise, but for the chance of the draws
    if rising[0] >= observed:
        return float(truth[0])
    if rising[-1] < observed:
        return 1.0
    return float(min(1.0, np.interp(observed, rising, truth)))
