"""How far each question moves a metric: from these influences all intervals and tests are made.

A metric of n answers is, but for terms of order 1/n, its true value plus a sum with one term for each question, its
influence (Hampel, 1974). So the error of a metric, of a difference between two methods, and of a mean over seeds is
that of a sum, and what methods have in common on a question cancels. Example:
`influence("auroc", p, p, correct, strata, "questions").by_question.sum()` is 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from bench.api import BoolArray, FloatArray
from bench.metrics import METRICS, THRESHOLD
from bench.metrics.answers import average_ranks, distinct
from bench.metrics.calibration import Bins, log_losses
from bench.stats.settings import Average
from bench.stats.strata import Strata

TESTED = ("rmsce", "brier", "acc", "aucpr", "auroc", "nll")
"""Metrics that have influences, hence intervals and tests."""
RANKED = ("auroc", "aucpr")
"""Those that need right and wrong answers."""


class Influence(NamedTuple):
    """A metric of one method and how far each question moves it."""

    value: float
    """The metric; of a root its square, which may be below 0."""
    by_question: FloatArray
    """Influences, shape (n,). They sum to 0 over these questions; over others their sum varies as the value does."""
    by_subject: FloatArray = np.empty(0)
    """The metric in each subject, shape (S,), NaN where undefined; empty if it is of all questions at once."""
    second_order: float = 0.0
    """Variance of the value beyond that of its influences; above 0 for RMSCE alone, see `_rmsce`."""
    of: FloatArray = np.empty(0)
    """What it looks at, shape (n,): two methods differ on the questions where this does; empty if that isn't known."""


def influence(
    metric: str, confidence: FloatArray, order: FloatArray, correct: BoolArray, strata: Strata, average: Average
) -> Influence | None:
    """A metric and its influences.

    Args:
        metric: one of TESTED.
        confidence: shape (n,), float64 in [0, 1].
        order: shape (n,), what metrics of order are of.
        correct: shape (n,), bool.
        strata: subjects of the n questions.
        average: `questions` for the metric of all, `subjects` for its mean over the subjects where it is defined.

    Returns:
        None where it is undefined.
    """
    values = order if METRICS[metric].of_order else confidence
    compute, of = _INFLUENCES[metric], 1.0 * (values > THRESHOLD) if metric == "acc" else values
    if average == "questions":
        found = compute(values, correct)
        return None if found is None else found._replace(of=of)
    by_subject = np.full(strata.sizes.size, np.nan)
    by_question, second_order = np.zeros(correct.size), 0.0
    for s, (_, rows) in enumerate(strata.by_name()):
        found = compute(values[rows], correct[rows])
        if found is not None:
            by_subject[s], by_question[rows] = found.value, found.by_question
            second_order += found.second_order
    defined = ~np.isnan(by_subject)
    if not defined.any():
        return None
    mean, count = float(by_subject[defined].mean()), int(defined.sum())
    # alike for all questions of a subject: spread between subjects, also of small ones in one group, but not within
    apart = np.where(defined, (by_subject - mean) / strata.sizes, 0.0)
    by_question = (by_question + apart[strata.group]) / count
    return Influence(mean, by_question, by_subject, second_order / count**2, np.where(defined[strata.group], of, 0.0))


def over_seeds(runs: Iterable[Influence | None]) -> Influence | None:
    """Mean over seeds; None where one of them is undefined."""
    every = list(runs)
    known = [each for each in every if each is not None]
    if len(known) < len(every):
        return None
    value, by_question, by_subject, second_order, of = (np.mean(part, axis=0) for part in zip(*known, strict=True))
    return Influence(float(value), by_question, by_subject, float(second_order), of)


# --- metrics: (n,), (n,) -> value, influences (n,) --------------------------------------------------------------------


def _of_mean(loss: FloatArray) -> Influence:
    mean = float(loss.mean())
    return Influence(mean, (loss - mean) / loss.size)


def _auroc(p: FloatArray, o: BoolArray) -> Influence | None:
    """Placements: share of the other class that an answer is on the right side of (DeLong et al., 1988)."""
    right, wrong = int(o.sum()), int((~o).sum())
    if not right or not wrong:
        return None
    above = average_ranks(p)  # among all
    placement = np.empty(o.size)
    placement[o] = (above[o] - average_ranks(p[o])) / wrong
    placement[~o] = 1 - (above[~o] - average_ranks(p[~o])) / right
    area = float(placement[o].mean())
    return Influence(area, _by_class((placement - area) / np.where(o, right, wrong), o))


def _aucpr(p: FloatArray, o: BoolArray) -> Influence | None:
    """Average precision is a mean over right answers of the precision at their confidence, which all answers move.

    With precision P_j and number N_j of the answers down to a right answer j: (o_i (P_i - AP) + sum over the right
    answers j that are not above i of (o_i - P_j) / N_j) / (number of right answers).
    """
    right = int(o.sum())
    if not right or right == o.size:
        return None
    _, size, hits = (part[::-1] for part in distinct(p, o))  # the most confident first
    reached = np.cumsum(size)
    precision = np.cumsum(hits) / reached
    area = float(hits @ precision / right)
    below, below_precise = (np.cumsum(part[::-1]) for part in (hits / reached, hits * precision / reached))
    group = np.unique(p, return_inverse=True)[1]  # ascending, as the two sums are
    moved = o * (precision[::-1][group] - area + below[group]) - below_precise[group]
    return Influence(area, _by_class(moved / right, o))


def _by_class(influences: FloatArray, o: BoolArray) -> FloatArray:
    """Influences, each farther from the mean of its class by the root of k/(k - 1), since that mean is of its own k."""
    mean = np.where(o, influences[o].mean(), influences[~o].mean())
    right, wrong = (np.sqrt(k / (k - 1)) if k > 1 else 1.0 for k in (int(o.sum()), int((~o).sum())))
    scaled: FloatArray = mean + (influences - mean) * np.where(o, right, wrong)
    return scaled


def _rmsce(p: FloatArray, o: BoolArray) -> Influence | None:
    """Square of `rmsce`: in a bin of gap g and residuals r, 2 g (r - g), and the bin's share of the mean.

    With w a bin's share of the answers and v the variance of its gap, the influences give the bin a variance of
    4 w^2 g^2 v. For calibrated confidences that is twice the true one on average, as observed gaps are larger than true
    ones; but it is near 0 where g happens to be. So a bin has at least the second-order term, 2 w^2 v^2.
    """
    bins = Bins.of(p, o)
    if bins is None:
        return None
    value = bins.mean_square
    influences = (2 * bins.gap[bins.group] * bins.within + bins.square[bins.group] - value) / p.size
    lacking = np.maximum(0.0, 2 * np.square(bins.noise) - 4 * np.square(bins.gap) * bins.noise)
    return Influence(value, influences, second_order=float(np.square(np.bincount(bins.group) / p.size) @ lacking))


_INFLUENCES: Mapping[str, Callable[[FloatArray, BoolArray], Influence | None]] = MappingProxyType({
    "auroc": _auroc,
    "aucpr": _aucpr,
    "rmsce": _rmsce,
    "brier": lambda p, o: _of_mean(np.square(p - o)),
    "acc": lambda p, o: _of_mean(((p > THRESHOLD) == o).astype(np.float64)),
    "nll": lambda p, o: _of_mean(log_losses(p, o)),
})  # fmt: skip
