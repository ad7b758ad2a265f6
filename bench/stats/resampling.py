"""The bootstrap as counts: how often each question is drawn in each replicate, and all metrics of such resamples.

Questions are resampled within their subject. A replicate is a column of whole numbers, the same for all methods, so
that differences between methods are paired, and one sort of a method's confidences serves all replicates. Example:
`resampled_metrics(confidence, correct, counts)["auroc"][m, r]` is the AUROC of method m on replicate r.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from bench.api import BoolArray, FloatArray, IntArray
from bench.api.protocol import ECE_BINS
from bench.metrics import THRESHOLD
from bench.metrics.answers import bin_of, portions, top_label
from bench.metrics.calibration import log_losses
from bench.metrics.summary import seed_of
from bench.stats.settings import Settings
from bench.stats.strata import Strata

VALUES_AT_ONCE = 1_000_000
"""Counts held in memory at a time; the draws don't depend on it."""
_FEW_COLUMNS = 100
"""Resamples below which a call for each row costs more than it saves."""
RESAMPLED = ("ece", "ece_ref", "ece_ref_closed", "brier", "acc", "aucpr", "auroc", "nll")
"""Metrics that `resampled_metrics` computes, by their names in `bench.metrics.METRICS`."""
RANKED = ("auroc", "aucpr")
"""Resampled metrics that need right and wrong answers."""
_BINNED = ("ece", "ece_ref", "ece_ref_closed")


def resample_counts(n: int, replicates: int, rng: np.random.Generator) -> Iterator[FloatArray]:
    """Number of times each of n questions is drawn when n are drawn with replacement, `replicates` times.

    Yields:
        Shape (n, r), float64 whole numbers, r summing to `replicates`; columns sum to n.
    """
    for count in portions(replicates, max(1, VALUES_AT_ONCE // n)):
        drawn = rng.integers(n, size=(count, n))
        cell = drawn * count + np.arange(count)[:, None]  # of the table with one row for each question
        yield np.bincount(cell.ravel(), minlength=n * count).reshape(n, count).astype(np.float64)


def losses(confidence: FloatArray, correct: BoolArray) -> Mapping[str, FloatArray]:
    """Share of each answer in the metrics that are means: `brier`, `acc`, `nll`, each of the shape of `confidence`.

    Args:
        confidence: shape (..., n), float64 in [0, 1].
        correct: shape (n,), bool.
    """
    return {
        "brier": np.square(confidence - correct),
        "acc": ((confidence > THRESHOLD) == correct).astype(np.float64),
        "nll": log_losses(confidence, correct),
    }


def resampled_metrics(
    confidence: FloatArray,
    correct: BoolArray,
    counts: FloatArray,
    *,
    bins: int = ECE_BINS,
    order: FloatArray | None = None,
    metrics: Collection[str] = RESAMPLED,
) -> dict[str, FloatArray]:
    """Metrics of several methods on several resamples of the same questions.

    Each value is what the function in `bench.metrics` gives for the sample in which question i stands counts[i, r]
    times, ties included.

    Args:
        confidence: shape (m, n), float64 in [0, 1], a row for each method.
        correct: shape (n,), bool.
        counts: shape (n, r), float64 whole numbers, no column all 0.
        bins: of the ECEs.
        order: shape (m, n), what metrics of order are of; by default the confidences.
        metrics: names among RESAMPLED.

    Returns:
        By name, shape (m, r); NaN where the metric is undefined.
    """
    methods = len(confidence)
    total = counts.sum(axis=0)  # (r,)
    by_answer = {name: loss for name, loss in losses(confidence, correct).items() if name in metrics}
    values: dict[str, FloatArray] = {}
    if by_answer:
        means = np.concatenate(list(by_answer.values())) @ counts / total  # (k m, r)
        values.update(zip(by_answer, means.reshape(len(by_answer), methods, -1), strict=True))
    if set(_BINNED) & set(metrics):
        values.update(_calibration_errors(confidence, correct, counts, bins))
    if set(RANKED) & set(metrics):
        ranked = [_rank_metrics(p, correct, counts) for p in (confidence if order is None else order)]
        values.update({name: np.stack([row[name] for row in ranked]) for name in RANKED})
    return {name: values[name] for name in metrics}


def _calibration_errors(
    confidence: FloatArray, correct: BoolArray, counts: FloatArray, bins: int
) -> dict[str, FloatArray]:
    total = counts.sum(axis=0)
    top, hit = top_label(confidence, correct)
    sure = top >= 1.0  # (m, n): in no bin of `ece_ref`, in the last one of `ece_ref_closed`
    lowest = bins // 2  # a top-label confidence is at least one half
    row = np.where(sure, bins, bin_of(top, bins)) - lowest
    gaps = _sums_by_bin(top - hit, row, bins - lowest + 1, counts)  # (m, bins - lowest + 1, r)
    binned = total - sure.astype(np.float64) @ counts  # (m, r)
    with np.errstate(invalid="ignore"):  # 0/0 where nothing is binned: undefined
        ece_ref = np.abs(gaps[:, :-1]).sum(axis=1) / binned
    gaps[:, -2] += gaps[:, -1]
    return {
        "ece": np.abs(_sums_by_bin(confidence - correct, bin_of(confidence, bins), bins, counts)).sum(axis=1) / total,
        "ece_ref": ece_ref,
        "ece_ref_closed": np.abs(gaps[:, :-1]).sum(axis=1) / total,
    }


def _sums_by_bin(residual: FloatArray, row: IntArray, rows: int, counts: FloatArray) -> FloatArray:
    """Residuals (m, n) summed within each bin of each resample: (m, rows, r)."""
    methods, n = residual.shape
    spread = np.zeros((methods, rows, n))
    spread[np.arange(methods)[:, None], row, np.arange(n)] = residual
    return (spread.reshape(methods * rows, n) @ counts).reshape(methods, rows, -1)


def _rank_metrics(p: FloatArray, correct: BoolArray, counts: FloatArray) -> dict[str, FloatArray]:
    """AUROC and average precision of one method, (r,) each; NaN where a resample has one class only."""
    order = np.argsort(-p, kind="stable")
    right, wrong = order[correct[order]], order[~correct[order]]
    weight = counts[right]  # (right, r)
    right_so_far, wrong_so_far = _cumulated(weight), _cumulated(counts[wrong])  # row k: in the first k
    all_right, all_wrong = right_so_far[-1], wrong_so_far[-1]
    above = np.searchsorted(-p[wrong], -p[right], side="left")  # (right,): wrong answers with more confidence
    upto = np.searchsorted(-p[wrong], -p[right], side="right")  # and those with as much
    ties = np.searchsorted(-p[right], -p[right], side="right")  # right answers with at least as much
    beaten_by = wrong_so_far[upto]
    found = right_so_far[ties]
    with np.errstate(invalid="ignore", divide="ignore"):
        precision = found / np.maximum(found + beaten_by, 1.0)  # 1: an answer that isn't drawn has weight 0
        if not np.array_equal(above, upto):
            beaten_by += wrong_so_far[above]
            beaten_by /= 2
        auroc = 1.0 - np.einsum("ir,ir->r", weight, beaten_by) / (all_right * all_wrong)
        aucpr = np.einsum("ir,ir->r", weight, precision) / all_right
    defined = (all_right > 0) & (all_wrong > 0)
    return {"auroc": np.where(defined, auroc, np.nan), "aucpr": np.where(defined, aucpr, np.nan)}


def _cumulated(rows: FloatArray) -> FloatArray:
    """Sums of the first k rows, for k from 0: (k, r) -> (k + 1, r)."""
    sums = np.empty((len(rows) + 1, rows.shape[1]))
    sums[0] = 0.0
    if rows.shape[1] < _FEW_COLUMNS:
        np.cumsum(rows, axis=0, out=sums[1:])
        return sums
    for k, row in enumerate(rows):  # np.cumsum along the first axis takes several times as long where rows are long
        np.add(sums[k], row, out=sums[k + 1])
    return sums


# --- all methods, all subjects ----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Resampled:
    """One metric of one method, in the sample and in all resamples."""

    by_subject: FloatArray
    """(seeds, S); NaN where undefined."""
    replicates: FloatArray
    """Macro mean over the subjects where it is defined, mean over seeds, (replicates,); NaN where there is none."""
    n_redrawn: int
    """Resamples of a subject that were replaced by others because the metric is undefined in them."""

    @property
    def by_seed(self) -> tuple[float | None, ...]:
        """Mean over the subjects where it is defined."""
        return tuple(float(row[~np.isnan(row)].mean()) if not np.isnan(row).all() else None for row in self.by_subject)

    @property
    def mean(self) -> float | None:
        """Mean over seeds of these; None where one of them is."""
        known = [value for value in self.by_seed if value is not None]
        return float(np.mean(known)) if len(known) == len(self.by_subject) else None

    @property
    def over_seeds(self) -> FloatArray:
        """Mean over the seeds in which it is defined, (S,); NaN where it is in none."""
        defined = ~np.isnan(self.by_subject)
        total, times = np.where(defined, self.by_subject, 0.0).sum(axis=0), defined.sum(axis=0)
        mean: FloatArray = np.divide(total, times, out=np.full(times.size, np.nan), where=times > 0)
        return mean


def resample(
    runs: Mapping[str, FloatArray],
    correct: BoolArray,
    strata: Strata,
    settings: Settings,
    order: Mapping[str, FloatArray] = MappingProxyType({}),
    metrics: Collection[str] = RESAMPLED,
) -> dict[str, dict[str, Resampled]]:
    """Each method's metrics in every subject and every replicate; resamples are the same for all methods.

    Draws depend on the seed and on a subject's name and size, neither on the other subjects nor on the methods.

    Args:
        runs: by method, shape (seeds, n), float64 in [0, 1].
        correct: shape (n,), bool.
        strata: of the n questions.
        settings: replicates, bins and seed.
        order: by method, shape (seeds, n), what metrics of order are of where that is not the confidence.
        metrics: names among RESAMPLED.

    Returns:
        By method and metric.
    """
    stacked = np.concatenate(list(runs.values()))  # (runs, n)
    ordered = np.concatenate([order.get(method, p) for method, p in runs.items()])
    by_subject = {name: np.empty((len(stacked), strata.sizes.size)) for name in metrics}
    total = {name: np.zeros((len(stacked), settings.replicates)) for name in metrics}
    redrawn = {name: np.zeros(len(stacked), dtype=np.int64) for name in metrics}
    for s, (subject, rows) in enumerate(strata.by_name()):
        p, ranked, labels = stacked[:, rows], ordered[:, rows], correct[rows]
        once = np.ones((rows.size, 1))
        observed = resampled_metrics(p, labels, once, bins=settings.bins, order=ranked, metrics=metrics)
        rng = np.random.default_rng([settings.seed, seed_of(subject)])
        parts = [
            resampled_metrics(p, labels, counts, bins=settings.bins, order=ranked, metrics=metrics)
            for counts in resample_counts(labels.size, settings.replicates, rng)
        ]
        drawn = {name: np.concatenate([part[name] for part in parts], axis=1) for name in metrics}
        for name in metrics:
            by_subject[name][:, s] = observed[name][:, 0]
            defined = ~np.isnan(observed[name][:, 0])
            redrawn[name] += _redraw_undefined(drawn[name], observed[name][:, 0])
            total[name][defined] += drawn[name][defined]
    places = np.split(np.arange(len(stacked)), np.cumsum([len(p) for p in runs.values()])[:-1])
    return {
        method: {
            name: Resampled(
                by_subject[name][place],
                _mean_over_seeds(total[name][place], by_subject[name][place]),
                int(redrawn[name][place].sum()),
            )
            for name in metrics
        }
        for method, place in zip(runs, places, strict=True)
    }


def _redraw_undefined(drawn: FloatArray, observed: FloatArray) -> IntArray:
    """Replace NaN in each row (runs, r) by the row's first defined values; returns how many, (runs,).

    As if such a resample had been drawn again. A class that is missing is missing for all methods, so pairs stay pairs.
    Without a defined resample, what was observed (runs,) stands for all; it is NaN itself where nothing can be defined.
    """
    missing: BoolArray = np.isnan(drawn)
    if not missing.any():
        return np.zeros(len(drawn), dtype=np.int64)
    for row, holes, value in zip(drawn, missing, observed, strict=True):
        defined = row[~holes]
        row[holes] = np.resize(defined if defined.size else value, int(holes.sum()))
    return np.where(np.isnan(observed), 0, missing.sum(axis=1))


def _mean_over_seeds(total: FloatArray, by_subject: FloatArray) -> FloatArray:
    """Sums over subjects (seeds, r) -> means over subjects and seeds (r,)."""
    defined = np.count_nonzero(~np.isnan(by_subject), axis=1)  # (seeds,)
    with np.errstate(invalid="ignore", divide="ignore"):
        means: FloatArray = (total / defined[:, None]).mean(axis=0)
    return means
