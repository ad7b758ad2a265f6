"""How good confidences are: pure numpy functions of `confidence (n,)` and `correct (n,)`, and their mean over subjects.

Definitions are those of methods.md §4 and §0.16-0.17. A value that is not defined is None, never 0 and never NaN;
input that is no confidence is an error, never squashed into range. Example: `brier([0.8, 0.4], [True, False])` is 0.1.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from bench.api import BoolArray, FloatArray, IntArray
from bench.protocol import Protocol
from bench.records import MetricSummary

THRESHOLD = 0.5
"""A confidence above it predicts that the answer is right."""
FLOOR_DRAWS = 200
"""Label draws behind `ece_floor`; its error for one subject is then about 0.2 points, for 57 about 0.03."""
FLOOR_VALUES_AT_ONCE = 4_000_000
"""Uniforms held in memory at a time; the draws don't depend on it."""


def accuracy(confidence: npt.ArrayLike, correct: npt.ArrayLike) -> float:
    """Share of answers where `confidence > 0.5` says what is true; not the model's own accuracy (methods.md §4).

    A confidence of exactly 0.5 says "wrong", as an argmax tie does in the official code.

    Args:
        confidence: shape (n,), float in [0, 1], P(answer is correct).
        correct: shape (n,), bool.

    Raises:
        ValueError: empty, not one-dimensional, unequal lengths, NaN or values outside [0, 1].

    Three of four are right here: 0.9, 0.2 and the tie; 0.6 is not.

    >>> accuracy([0.9, 0.6, 0.5, 0.2], [True, False, False, False])
    0.75
    """
    p, o = _checked(confidence, correct)
    return float(np.mean((p > THRESHOLD) == o))


def ece(confidence: npt.ArrayLike, correct: npt.ArrayLike, *, bins: int = 10) -> float:
    """Expected calibration error of P(correct) against correctness: sum over bins of n_j/n * |mean p - mean o|.

    Equal-width bins [j/bins, (j+1)/bins), the last one closed, so that 1.0 counts (`ece_paper` of methods.md §4;
    Naeini et al., 2015). Never larger than the square root of `brier`.

    Args:
        confidence: shape (n,), float in [0, 1].
        correct: shape (n,), bool.
        bins: number of bins.

    Raises:
        ValueError: as `accuracy`.

    Bin [0.2, 0.3) holds 0.25 and 0.25 with one hit: gap 0.25, weight 2/3; bin [0.9, 1] holds a sure hit: gap 0.

    >>> round(ece([0.25, 0.25, 1.0], [True, False, True]), 6)
    0.166667
    """
    p, o = _checked(confidence, correct)
    return _binned_gap(p, o, bins)


def ece_ref(confidence: npt.ArrayLike, correct: npt.ArrayLike, *, bins: int = 10) -> float | None:
    """Top-label ECE as the official code computes it: a confidence of exactly 1 falls into no bin (methods.md §4).

    Confidence is max(p, 1-p), the target is whether `p > 0.5` predicts correctness, bins are half-open, weights are
    renormalised over the binned answers. Kept for comparison; `ECE <= sqrt(Brier)` does not hold for it.

    Arguments and errors as in `ece`; None where no answer is binned.

    The sure mistake (1.0) is in no bin; what stays is 0.25, that is 0.75 sure of "wrong", and right about it.

    >>> ece_ref([0.25, 1.0], [False, False])
    0.25
    >>> ece_ref([0.0, 1.0], [False, False]) is None
    True
    """
    top, hit = _top_label(*_checked(confidence, correct))
    binned = top < 1.0
    return _binned_gap(top[binned], hit[binned], bins) if binned.any() else None


def ece_ref_closed(confidence: npt.ArrayLike, correct: npt.ArrayLike, *, bins: int = 10) -> float:
    """Top-label ECE like `ece_ref`, but with the last bin closed, so that every answer counts (methods.md §4).

    Arguments and errors as in `ece`.

    Gaps 0.25 (0.75 sure and right) and 1 (sure and wrong), each with weight one half.

    >>> ece_ref_closed([0.25, 1.0], [False, False])
    0.625
    """
    return _binned_gap(*_top_label(*_checked(confidence, correct)), bins)


def n_excluded(confidence: npt.ArrayLike, correct: npt.ArrayLike) -> int:
    """Number of answers that `ece_ref` leaves out: those whose max(p, 1-p) is exactly 1 in float64.

    float32 softmax saturates to 1.0 at logit gaps of about 17, so this is no corner case (methods.md §4).

    Arguments and errors as in `accuracy`.

    >>> n_excluded([0.0, 0.5, 1.0], [True, True, True])
    2
    """
    top, _ = _top_label(*_checked(confidence, correct))
    return int(np.count_nonzero(top >= 1.0))


def ece_floor(
    confidence: npt.ArrayLike, correct: npt.ArrayLike, *, bins: int = 10, seed: int = 0, draws: int = FLOOR_DRAWS
) -> float:
    """Mean `ece` of these confidences if they were perfectly calibrated: labels redrawn as Bernoulli(p), seeded.

    What an ECE of this many answers can't be told from; large for small subjects (methods.md §0.17). `correct` is only
    checked. The value does not depend on the order of the answers.

    Args:
        confidence: shape (n,), float in [0, 1].
        correct: shape (n,), bool.
        bins: number of bins.
        seed: of the label draws.
        draws: number of label draws.

    Raises:
        ValueError: as `accuracy`.

    Certain forecasts leave nothing to chance; one answer at 0.5 is always half off.

    >>> ece_floor([0.0, 1.0, 1.0], [False, True, True])
    0.0
    >>> ece_floor([0.5], [True])
    0.5
    """
    p, _ = _checked(confidence, correct)
    p = np.sort(p)  # makes each bin one contiguous run, and the value independent of the order
    starts = np.flatnonzero(np.diff(_bin_of(p, bins), prepend=-1))  # (occupied bins,)
    expected = np.add.reduceat(p, starts)
    rng = np.random.default_rng(seed)
    total = 0.0
    for count in _portions(draws, max(1, FLOOR_VALUES_AT_ONCE // p.size)):
        labels = rng.random((count, p.size)) < p  # (count, n)
        hits = np.add.reduceat(labels, starts, axis=1, dtype=np.int64)  # (count, occupied bins)
        total += float(np.abs(hits - expected).sum())
    return total / (draws * p.size)


def brier(confidence: npt.ArrayLike, correct: npt.ArrayLike) -> float:
    """Mean squared difference between confidence and correctness (Brier, 1950; methods.md §4).

    Args:
        confidence: shape (n,), float in [0, 1].
        correct: shape (n,), bool.

    Raises:
        ValueError: as `accuracy`.

    (0.5² + 1²) / 2:

    >>> brier([0.5, 1.0], [True, False])
    0.625
    """
    p, o = _checked(confidence, correct)
    return float(np.mean(np.square(p - o)))


def auroc(confidence: npt.ArrayLike, correct: npt.ArrayLike) -> float | None:
    """P(a right answer has more confidence than a wrong one), ties counting half (Hanley and McNeil, 1982).

    Args:
        confidence: shape (n,), float in [0, 1].
        correct: shape (n,), bool.

    Returns:
        None where all answers are right or all are wrong.

    Raises:
        ValueError: as `accuracy`.

    Of four pairs, 0.9 wins two, 0.4 wins one and ties one:

    >>> auroc([0.9, 0.4, 0.4, 0.1], [True, True, False, False])
    0.875
    """
    p, o = _checked(confidence, correct)
    positives = int(np.count_nonzero(o))
    negatives = o.size - positives
    if not positives or not negatives:
        return None
    _, group, size = np.unique(p, return_inverse=True, return_counts=True)
    rank = np.cumsum(size) - (size - 1) / 2  # (distinct values,): average rank of each, from 1
    wins = float(rank[group][o].sum()) - positives * (positives + 1) / 2
    return wins / (positives * negatives)


def aucpr(confidence: npt.ArrayLike, correct: npt.ArrayLike) -> float | None:
    """Average precision with right answers as positives: sum over thresholds of (R_k - R_{k-1}) * P_k.

    Not the trapezoidal area, which interpolates too kindly (Davis and Goadrich, 2006; methods.md §4). Equal confidences
    are one threshold.

    Args:
        confidence: shape (n,), float in [0, 1].
        correct: shape (n,), bool.

    Returns:
        None where all answers are right or all are wrong, so that it is averaged over the same subjects as `auroc`.

    Raises:
        ValueError: as `accuracy`.

    Hits at ranks 1 and 3: (1/1 + 2/3) / 2.

    >>> round(aucpr([0.9, 0.8, 0.7], [True, False, True]), 6)
    0.833333
    """
    p, o = _checked(confidence, correct)
    positives = int(np.count_nonzero(o))
    if positives in {0, o.size}:
        return None
    order = np.argsort(-p, kind="stable")
    last_of_tie = np.append(np.flatnonzero(np.diff(p[order])), o.size - 1)
    hits = np.cumsum(o[order])[last_of_tie]  # (thresholds,): right answers at or above each threshold
    gained = np.diff(hits, prepend=0)
    return float(np.sum(gained * hits / (last_of_tie + 1)) / positives)


# --- the registry of metrics ------------------------------------------------------------------------------------------


HIGHER = True
LOWER = False


@dataclass(frozen=True)
class Metric:
    """A metric with what a table or a figure must know about it."""

    name: str
    """Key in results."""
    label: str
    """Column heading."""
    compute: Callable[..., float | None]
    """(confidence, correct[, bins=][, seed=]) -> value, a fraction."""
    reference: str
    """Where the definition comes from."""
    higher_is_better: bool | None
    """None for a yardstick, which is neither good nor bad."""
    binned: bool = False
    """Takes `bins`."""
    drawn: bool = False
    """Takes `seed`."""
    bounds: tuple[float, float] = (0.0, 1.0)
    """Smallest and largest possible value."""


METRICS: Mapping[str, Metric] = MappingProxyType(
    {
        metric.name: metric
        for metric in (
            Metric("ece", "ECE", ece, "doi:10.1609/aaai.v29i1.9602; methods.md §4", LOWER, binned=True),
            Metric("ece_ref", "ECE (ref)", ece_ref, "methods.md §4", LOWER, binned=True),
            Metric("ece_ref_closed", "ECE (ref, closed)", ece_ref_closed, "methods.md §4", LOWER, binned=True),
            Metric("ece_floor", "ECE floor", ece_floor, "methods.md §0.17", None, binned=True, drawn=True),
            Metric("brier", "Brier", brier, "doi:10.1175/1520-0493(1950)078<0001:VOFEIT>2.0.CO;2", LOWER),
            Metric("acc", "ACC", accuracy, "methods.md §4", HIGHER),
            Metric("aucpr", "AUCPR", aucpr, "doi:10.1145/1143844.1143874", HIGHER),
            Metric("auroc", "AUROC", auroc, "doi:10.1148/radiology.143.1.7063747", HIGHER),
        )
    }
)


# --- over subjects ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Scores:
    """All metrics of one method on one task."""

    metrics: Mapping[str, MetricSummary]
    """By name, in the order of METRICS."""
    per_subject: Mapping[str, Mapping[str, float | None]]
    """Subject (sorted) -> `n` and each metric."""
    n_excluded: int
    """Answers that `ece_ref` leaves out."""


def summarise(confidence: npt.ArrayLike, correct: npt.ArrayLike, subjects: Sequence[str], protocol: Protocol) -> Scores:
    """All metrics per subject, their unweighted mean and standard deviation over subjects, and the pooled value.

    Subjects where a metric is undefined are left out of its mean and counted (methods.md §4).

    Args:
        confidence: shape (n,), float in [0, 1].
        correct: shape (n,), bool.
        subjects: n names.
        protocol: gives the number of bins and the standard deviation's ddof.

    Raises:
        ValueError: as `accuracy`, or n differs between confidences and subjects.

    >>> scores = summarise([1.0, 0.0, 0.5], [True, False, True], ["art", "art", "biology"], Protocol())
    >>> scores.metrics["brier"].mean, scores.metrics["auroc"].n_undefined
    (0.125, 1)
    """
    p, o = _checked(confidence, correct)
    if len(subjects) != p.size:
        raise ValueError(f"expected one subject for each of {p.size} answers, got {len(subjects)}")
    rows = dict(_rows_of_subjects(subjects))
    per_subject = {
        subject: {"n": index.size, **_all_metrics(p[index], o[index], protocol, zlib.crc32(subject.encode()))}
        for subject, index in rows.items()
    }
    pooled = _all_metrics(p, o, protocol, 0)
    metrics = {
        name: _over_subjects([values[name] for values in per_subject.values()], pooled[name], protocol.std_ddof)
        for name in METRICS
    }
    return Scores(metrics, per_subject, n_excluded(p, o))


def _all_metrics(p: FloatArray, o: BoolArray, protocol: Protocol, seed: int) -> dict[str, float | None]:
    """Each metric; `seed` differs between subjects, or their floors would share their chance errors."""
    return {
        name: metric.compute(
            p, o, **({"bins": protocol.ece_bins} if metric.binned else {}), **({"seed": seed} if metric.drawn else {})
        )
        for name, metric in METRICS.items()
    }


def _over_subjects(values: Sequence[float | None], pooled: float | None, ddof: int) -> MetricSummary:
    defined = np.array([value for value in values if value is not None])
    return MetricSummary(
        mean=float(defined.mean()) if defined.size else None,
        std=float(defined.std(ddof=ddof)) if defined.size > ddof else None,
        pooled=pooled,
        n_undefined=len(values) - defined.size,
    )


def _rows_of_subjects(subjects: Sequence[str]) -> Iterator[tuple[str, IntArray]]:
    names, group, size = np.unique(np.asarray(subjects, dtype=object), return_inverse=True, return_counts=True)
    order = np.argsort(group, kind="stable")
    yield from zip(map(str, names), np.split(order, np.cumsum(size)[:-1]), strict=True)


# --- what the metrics share -------------------------------------------------------------------------------------------


def _checked(confidence: npt.ArrayLike, correct: npt.ArrayLike) -> tuple[FloatArray, BoolArray]:
    """Both as arrays (n,), float64 and bool, or a ValueError that says what is wrong with them."""
    p = np.asarray(confidence, dtype=np.float64)
    o = np.asarray(correct)
    if p.ndim != 1 or p.shape != o.shape:
        raise ValueError(f"expected confidence and correct of one shape (n,), got {p.shape} and {o.shape}")
    if not p.size:
        raise ValueError("expected at least one answer, got none; a metric of nothing is not 0")
    if o.dtype != np.bool_:
        raise ValueError(f"expected correct as bool, got {o.dtype}")
    bad = np.flatnonzero(~((p >= 0.0) & (p <= 1.0)))  # NaN is neither
    if bad.size:
        raise ValueError(f"expected confidences in [0, 1], got {p[bad[0]]} at row {bad[0]} ({bad.size} such rows)")
    return p, o


def _top_label(p: FloatArray, o: BoolArray) -> tuple[FloatArray, BoolArray]:
    """Confidence in the predicted side, (n,), and whether that prediction holds, (n,)."""
    return np.maximum(p, 1.0 - p), (p > THRESHOLD) == o


def _bin_of(p: FloatArray, bins: int) -> IntArray:
    """Bin number of each value, (n,).

    Edges are j/bins, each rounded once: `floor(p * bins)` and `linspace` put decimals such as 0.3 or 0.7, which
    sampling-based methods produce all the time, on the wrong side.
    """
    return np.searchsorted(np.arange(1, bins) / bins, p, side="right")


def _binned_gap(p: FloatArray, target: BoolArray, bins: int) -> float:
    """Sum over bins of n_j/n * |mean target - mean p|, which is the sum of |sum of (p - target)| over n."""
    return float(np.abs(np.bincount(_bin_of(p, bins), weights=p - target)).sum() / p.size)


def _portions(total: int, largest: int) -> Iterator[int]:
    """Split a count into parts of at most `largest`."""
    for start in range(0, total, largest):
        yield min(largest, total - start)
