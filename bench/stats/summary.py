"""All statistics of a comparison in one call: each method's metrics with intervals, and every pair of methods.

Example: `summary({"ccps": p, "litcab": q}, correct, subjects).methods["ccps"].estimates["auroc"].fixed.low`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from bench.api import BoolArray, FloatArray
from bench.metrics import METRICS, ece_floor
from bench.metrics.answers import ranked
from bench.metrics.summary import seed_of
from bench.stats.calibration import CalibrationError, calibrated_p, calibration_error
from bench.stats.comparison import Comparison, Sample, compare, ranks
from bench.stats.intervals import (
    Interval,
    basic_interval,
    clustered_interval,
    mean_interval,
    no_spread_of_ranks,
)
from bench.stats.resampling import RANKED, RESAMPLED, Resampled, losses, resample
from bench.stats.settings import Settings
from bench.stats.strata import Strata, checked_runs, strata_of

TESTED = ("ece_debiased", "brier", "acc", "aucpr", "auroc", "nll")
"""Metrics that methods are compared and ranked by. Raw calibration errors are not among them: how large an ECE is by
chance depends on how spread a method's confidences are, so it is compared less that, and as 0 where it is less."""


@dataclass(frozen=True)
class Estimate:
    """One metric of one method: a mean over subjects, and over seeds where there are several."""

    value: float | None
    """None where it is undefined in every subject."""
    fixed: Interval
    """Interval for these subjects and other questions."""
    clustered: Interval
    """Interval for other subjects like these."""
    by_seed: tuple[float | None, ...]
    """The mean over subjects for each seed."""
    spread: float | None
    """Standard deviation (ddof 1) of `by_seed`; None with one seed. In no interval."""
    n_undefined: int
    """Subjects left out because the metric is undefined there."""
    n_redrawn: int
    """Resamples of a subject, over all seeds, that were replaced because the metric is undefined in them."""


@dataclass(frozen=True)
class MethodSummary:
    """All metrics of one method."""

    estimates: Mapping[str, Estimate]
    """Estimates by metric: those of `RESAMPLED`, and `ece_debiased`."""
    calibration: CalibrationError
    """Macro ECE without what chance adds to it."""
    calibrated_p: float
    """P value of calibration; where it is large, the ECE can't be told from a perfectly calibrated method's."""


@dataclass(frozen=True, eq=False)
class Summary:
    """Result of `summary`."""

    methods: Mapping[str, MethodSummary]
    """Methods in the order given."""
    comparisons: Mapping[str, tuple[Comparison[str], ...]]
    """Comparisons by metric of `TESTED`: all pairs of methods for which it is defined."""
    ranks: Mapping[str, Mapping[str, int]]
    """Ranks by metric of `TESTED`: the methods of all blocks whose pairs could be tested."""
    replicates: Mapping[str, FloatArray]
    """Resamples by metric of `RESAMPLED`, shape (methods, replicates): macro means, paired between methods."""
    strata: Strata
    """Subjects of the questions."""
    settings: Settings


def summary(
    confidence: Mapping[str, npt.ArrayLike],
    correct: npt.ArrayLike,
    subjects: Sequence[str],
    settings: Settings | None = None,
    blocks: Sequence[Sequence[str]] | None = None,
    score: Mapping[str, npt.ArrayLike] = MappingProxyType({}),
) -> Summary:
    """Every method's macro metrics with their intervals, tests of calibration, and all pairs of methods.

    Several seeds of a method are averaged: metrics over seeds, and losses question by question.

    Args:
        confidence: by method, shape (n,), or (seeds, n); float in [0, 1], all for the same n answers.
        correct: shape (n,), bool.
        subjects: n names.
        settings: how; `Settings()` by default.
        blocks: methods that are ranked together; by default all of them. A method in none has no rank.
        score: by method, of the shape of its confidences, what metrics of order are of where that is not these.

    Raises:
        ValueError: no method, or as `bench.metrics.accuracy`.
    """
    if not confidence:
        raise ValueError("expected the confidences of at least one method, got none")
    settings = settings or Settings()
    runs = {method: checked_runs(values, correct, subjects)[0] for method, values in confidence.items()}
    o = np.asarray(correct)
    strata = strata_of(subjects)
    order = {method: np.stack([*map(ranked, np.atleast_2d(values))]) for method, values in score.items()}
    values = resample(runs, o, strata, settings, order)
    methods = {
        method: MethodSummary(
            _estimates(p, o, strata, values[method], settings),
            calibration_error(p, o, subjects, settings),
            calibrated_p(p, o, subjects, settings),
        )
        for method, p in runs.items()
    }
    blocks = [list(runs)] if blocks is None else blocks
    comparisons = {
        metric: compare(
            metric,
            {name: _sample(metric, runs[name], o, values[name], methods[name]) for name in runs},
            strata,
            blocks,
            level=settings.level,
        )
        for metric in TESTED
    }
    ranks_of: dict[str, dict[str, int]] = {metric: {} for metric in comparisons}
    for metric, pairs in comparisons.items():
        for block in blocks:
            known = [name for name in block if methods[name].estimates[metric].value is not None]
            ranks_of[metric] |= ranks(known, pairs, alpha=1 - settings.level)
    return Summary(
        methods=methods,
        comparisons=comparisons,
        ranks=ranks_of,
        replicates={name: np.stack([values[m][name].replicates for m in runs]) for name in RESAMPLED},
        strata=strata,
        settings=settings,
    )


# --- what is compared -------------------------------------------------------------------------------------------------


def _sample(metric: str, p: FloatArray, o: BoolArray, values: Mapping[str, Resampled], method: MethodSummary) -> Sample:
    """One method's metric (seeds, n) as it is compared."""
    estimate = method.estimates[metric]
    refused = estimate.fixed if estimate.fixed.reason else None
    if metric == "ece_debiased":
        return excess(estimate.value, values["ece"], refused)
    by_question = losses(p, o).get(metric)
    return Sample(
        estimate.value, values[metric].replicates, None if by_question is None else by_question.mean(axis=0),
        values[metric].over_seeds, refused,
    )  # fmt: skip


def excess(value: float | None, ece: Resampled, refused: Interval | None) -> Sample:
    """ECE less its floor, as 0 where it is less; resamples lie around what was observed, without their own chance.

    Args:
        value: macro mean of it; None where undefined.
        ece: the ECE itself.
        refused: why resamples say nothing; None where they do.
    """
    if value is None:
        return Sample(None, ece.replicates)
    around = value + ece.replicates - ece.replicates.mean()
    return Sample(max(0.0, value), np.maximum(0.0, around), refused=refused)


# --- statistics of one method ---------------------------------------------------------------------------------------


def _estimates(
    p: FloatArray, o: BoolArray, strata: Strata, values: Mapping[str, Resampled], settings: Settings
) -> dict[str, Estimate]:
    """Every metric of one method from its confidences (seeds, n) and their resampled values."""
    by_question = {name: loss.mean(axis=0) for name, loss in losses(p, o).items()}
    fixed = {
        name: mean_interval(by_question[name], strata, level=settings.level)
        if name in by_question
        else _bootstrapped(values[name], METRICS[name].bounds, strata, settings)
        for name in RESAMPLED
    }
    refused = no_spread_of_ranks(o, strata)
    if refused:
        fixed.update({name: refused for name in RANKED if values[name].mean is not None})
    estimates = {name: _estimate(values[name], fixed[name], settings) for name in RESAMPLED}
    floors = np.array(
        [
            [ece_floor(run[rows], o[rows], bins=settings.bins, seed=seed_of(name)) for name, rows in strata.by_name()]
            for run in p
        ]
    )  # (seeds, S), the same as in results
    excess = Resampled(values["ece"].by_subject - floors, values["ece"].replicates - floors.mean(), 0)
    interval = _bootstrapped(excess, METRICS["ece_debiased"].bounds, strata, settings)
    return {**estimates, "ece_debiased": _estimate(excess, interval, settings)}


def _bootstrapped(values: Resampled, bounds: tuple[float, float], strata: Strata, settings: Settings) -> Interval:
    value = values.mean
    if value is None:
        return Interval("fixed-subjects", reason="it is undefined in every subject")
    return basic_interval(value, values.replicates, strata, level=settings.level, bounds=bounds)


def _estimate(values: Resampled, fixed: Interval, settings: Settings) -> Estimate:
    seeds = values.by_seed
    known = [value for value in seeds if value is not None]
    return Estimate(
        value=values.mean,
        fixed=fixed,
        clustered=clustered_interval(values.over_seeds, level=settings.level),
        by_seed=seeds,
        spread=float(np.std(known, ddof=1)) if len(known) > 1 else None,
        n_undefined=int(np.isnan(values.by_subject).sum(axis=1).max()),
        n_redrawn=values.n_redrawn,
    )
