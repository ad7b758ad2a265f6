"""Influence functions of the metrics: how far each question moves a metric; intervals and paired tests use them.

Up to terms of order 1/n, a metric of n answers is its true value plus the sum of the questions' influences (Hampel,
1974). So its standard error is that of a sum over questions. The same holds for a paired difference of two methods, and
for a mean over seeds. Example: `influence("brier", p, p, correct, strata, "questions").value` is the Brier score of the
confidences p.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from bench.api import BoolArray, FloatArray
from bench.metrics import METRICS, THRESHOLD
from bench.metrics.calibration import Bins, log_losses
from bench.metrics.validation import average_ranks, count_distinct
from bench.stats.settings import Average
from bench.stats.strata import Strata

TESTED = ("rmsce", "brier", "acc", "aucpr", "auroc", "nll")
"""Names of the metrics that have influences, and therefore intervals and tests."""
RANKED = ("auroc", "aucpr")
"""Names of the rank-based metrics in TESTED, which need both right and wrong answers."""


class Influence(NamedTuple):
    """The value of a metric for one method, and the influence of each of n questions on it."""

    value: float
    """The metric of the method. For a root metric this is its square, whose estimate may be below 0."""
    by_question: FloatArray
    """Influence of each question on `value`, shape (n,); the influences sum to 0."""
    by_subject: FloatArray = np.empty(0)
    """The metric in each of S subjects, shape (S,), NaN where undefined; empty if the metric is pooled over all
    questions."""
    second_order: float = 0.0
    """Variance term of second order, added to the variance from influences in the interval of one method. It is above 0
    for RMSCE only, see `_rmsce`."""
    inputs: FloatArray = np.empty(0)
    """What the metric is computed from, one number for each question, e.g. its confidence p, or -1 - p if the answer
    is wrong; shape (n,), of a mean over seeds (seeds, n), empty if unknown. Two methods differ on a question if these
    numbers differ. In a mean over subjects, p of subject s (from 0) has 2 (s + 1) added, so that p has the same order
    across subjects in all methods, and questions of subjects without value have 0."""


def influence(
    metric: str, confidence: FloatArray, order: FloatArray, correct: BoolArray, strata: Strata, average: Average
) -> Influence | None:
    """Compute a metric and its influences.

    Args:
        metric: one of TESTED.
        confidence: shape (n,), float64 in [0, 1].
        order: shape (n,), scores or confidences that rank-based metrics use.
        correct: shape (n,), bool.
        strata: subjects of the n questions.
        average: `questions` pools all questions, `subjects` takes the mean over the subjects where the metric is
            defined.

    Returns:
        The metric and its influences; None where the metric is undefined.
    """
    values = order if METRICS[metric].is_rank_based else confidence
    compute, inputs = _INFLUENCES[metric], 1.0 * (values > THRESHOLD) if metric == "acc" else values
    inputs = inputs + 2 * (1 + strata.group) * (average == "subjects")  # means over subjects read no order across them
    inputs = np.where(correct, inputs, -1.0 - inputs)  # answers of two models differ, too
    if average == "questions":
        result = compute(values, correct)
        return None if result is None else result._replace(inputs=inputs)
    by_subject = np.full(strata.sizes.size, np.nan)
    by_question, second_order = np.zeros(correct.size), 0.0
    for s, (_, rows) in enumerate(strata.by_name()):
        result = compute(values[rows], correct[rows])
        if result is not None:
            by_subject[s], by_question[rows] = result.value, result.by_question
            second_order += result.second_order
    defined = ~np.isnan(by_subject)
    if not defined.any():
        return None
    mean, n = float(by_subject[defined].mean()), int(defined.sum())
    # `between` is constant within a subject, so that it adds variance between subjects only
    between = np.where(defined, (by_subject - mean) / strata.sizes, 0.0)
    by_question = (by_question + between[strata.group]) / n
    return Influence(mean, by_question, by_subject, second_order / n**2, np.where(defined[strata.group], inputs, 0.0))


def mean_over_seeds(runs: Iterable[Influence | None]) -> Influence | None:
    """Return the mean over seeds of a metric and of its influences; None if the metric is undefined for a seed."""
    influences = list(runs)
    defined = [i for i in influences if i is not None]
    if len(defined) < len(influences):
        return None
    *means, inputs = zip(*defined, strict=True)
    value, by_question, by_subject, second_order = (np.mean(part, axis=0) for part in means)
    return Influence(float(value), by_question, by_subject, float(second_order), np.vstack(inputs))


# --- metrics: confidences or scores (n,), correctness (n,) -> value, influences (n,) ----------------------------------


def _mean(loss: FloatArray) -> Influence:
    mean = float(loss.mean())
    return Influence(mean, (loss - mean) / loss.size)


def _auroc(p: FloatArray, o: BoolArray) -> Influence | None:
    """Return AUROC and its influences by placements (DeLong, 1988).

    The placement of a right answer is the share of wrong answers ranked below it. The placement of a wrong answer is
    the share of right answers ranked above it.
    """
    right, wrong = int(o.sum()), int((~o).sum())
    if not right or not wrong:
        return None
    above = average_ranks(p)  # among all
    placement = np.empty(o.size)
    placement[o] = (above[o] - average_ranks(p[o])) / wrong
    placement[~o] = 1 - (above[~o] - average_ranks(p[~o])) / right
    area = float(placement[o].mean())
    return Influence(area, _rescale((placement - area) / np.where(o, right, wrong), o))


def _aucpr(p: FloatArray, o: BoolArray) -> Influence | None:
    """Return average precision AP and its influences.

    AP is the mean, over right answers, of the precision at their confidence. o_i is the correctness (0 or 1) of answer
    i. N_j is the number of answers at least as confident as answer j, and P_j the share of right answers among these.
    The influence of answer i is (o_i (P_i - AP) + sum over j of (o_i - P_j) / N_j) / (number of right answers). Here j
    runs over the right answers that are not more confident than i.
    """
    right = int(o.sum())
    if not right or right == o.size:
        return None
    _, size, hits = (part[::-1] for part in count_distinct(p, o))  # the most confident first
    reached = np.cumsum(size)
    precision = np.cumsum(hits) / reached
    area = float(hits @ precision / right)
    below, below_precise = (np.cumsum(part[::-1]) for part in (hits / reached, hits * precision / reached))
    group = np.unique(p, return_inverse=True)[1]  # ascending, as the two sums are
    moved = o * (precision[::-1][group] - area + below[group]) - below_precise[group]
    return Influence(area, _rescale(moved / right, o))


def _rescale(influences: FloatArray, o: BoolArray) -> FloatArray:
    """Apply a small-sample correction to influences, separately for right and for wrong answers.

    In a class of k answers, deviations from the class mean are multiplied by the root of k / (k - 1).
    """
    mean = np.where(o, influences[o].mean(), influences[~o].mean())
    right, wrong = (np.sqrt(k / (k - 1)) if k > 1 else 1.0 for k in (int(o.sum()), int((~o).sum())))
    scaled: FloatArray = mean + (influences - mean) * np.where(o, right, wrong)
    return scaled


def _rmsce(p: FloatArray, o: BoolArray) -> Influence | None:
    """Return m, the square of `rmsce`, and its influences.

    The residual r of an answer is confidence minus correctness. The gap g of a bin is the mean residual, and e
    estimates the square of the bin's true gap. An answer then has the influence (2 g (r - g) + e - m) / n.

    Let w be a bin's share of the answers and v the variance of its gap. These influences give the bin a variance of 4
    w^2 g^2 v. For calibrated confidences that is twice the true variance on average, as observed gaps exceed true gaps.
    But this variance is near 0 where g is near 0. So a bin's variance is at least the second-order term, 2 w^2 v^2.
    """
    bins = Bins.of(p, o)
    if bins is None:
        return None
    value = bins.mean_square
    influences = (2 * bins.gap[bins.group] * bins.within + bins.square[bins.group] - value) / p.size
    shortfall = np.maximum(0.0, 2 * np.square(bins.noise) - 4 * np.square(bins.gap) * bins.noise)
    return Influence(value, influences, second_order=float(np.square(np.bincount(bins.group) / p.size) @ shortfall))


_INFLUENCES: Mapping[str, Callable[[FloatArray, BoolArray], Influence | None]] = MappingProxyType({
    "auroc": _auroc,
    "aucpr": _aucpr,
    "rmsce": _rmsce,
    "brier": lambda p, o: _mean(np.square(p - o)),
    "acc": lambda p, o: _mean(((p > THRESHOLD) == o).astype(np.float64)),
    "nll": lambda p, o: _mean(log_losses(p, o)),
})  # fmt: skip
