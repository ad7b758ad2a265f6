"""Summary statistics of a comparison: metrics with confidence intervals, calibration tests, pairwise tests and ranks.

Example: `summary({"ccps": p, "litcab": q}, correct, subjects).methods["ccps"].estimates["auroc"].fixed.low`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from bench.metrics import METRICS
from bench.metrics.calibration import signed_root
from bench.metrics.validation import normalised_ranks
from bench.stats.calibration import calibrated_p
from bench.stats.comparison import Comparison, compare, ranks
from bench.stats.influence import TESTED, Influence, influence, mean_over_seeds
from bench.stats.intervals import Interval, Sampling
from bench.stats.settings import Settings
from bench.stats.strata import Strata, checked_runs, strata_of


@dataclass(frozen=True)
class Estimate:
    """One metric of one method, averaged over seeds.

    In each seed the metric is pooled over all questions, or a mean over subjects.
    """

    value: float | None
    """Mean of the metric over seeds; for RMSCE the root of the mean square. None where the metric is undefined for a
    seed."""
    fixed: Interval
    """Confidence interval of the metric for other questions of the tested subjects."""
    clustered: Interval
    """Confidence interval of the metric for other subjects like the tested ones."""
    by_seed: tuple[float | None, ...]
    """The metric for each seed; None where it is undefined."""
    spread: float | None
    """Standard deviation over seeds (ddof 1); not part of the intervals. None with fewer than two seeds where the
    metric is defined."""
    n_undefined: int
    """Number of subjects that a mean over subjects leaves out, because the metric is undefined there; the largest
    number if seeds differ. Seeds in which the metric is undefined in every subject are not counted; 0 if all are."""


@dataclass(frozen=True)
class MethodSummary:
    """All metrics of one method with intervals, and its test of calibration."""

    estimates: Mapping[str, Estimate]
    """Name of a metric of `TESTED` -> its estimate."""
    calibrated_p: float
    """P value of the null hypothesis that the method is calibrated. If large, chance alone could explain the ECE."""


@dataclass(frozen=True, eq=False)
class Summary:
    """Metrics, pairwise tests and ranks of all methods of a comparison, as `summary` computes them."""

    methods: Mapping[str, MethodSummary]
    """Name of a method -> its metrics, in the order of the input."""
    comparisons: Mapping[str, tuple[Comparison[str], ...]]
    """Name of a metric of `TESTED` -> comparisons of all pairs of methods for which the metric is defined."""
    ranks: Mapping[str, Mapping[str, int]]
    """Name of a metric of `TESTED` -> method -> its rank within its block, a group of methods that are ranked together.
    If a pair of a block could not be tested, none of the block's methods has a rank."""
    strata: Strata
    """Assignment of the questions to their subjects."""
    settings: Settings


def summary(
    confidence: Mapping[str, npt.ArrayLike],
    correct: npt.ArrayLike,
    subjects: Sequence[str],
    settings: Settings | None = None,
    blocks: Sequence[Sequence[str]] | None = None,
    score: Mapping[str, npt.ArrayLike] = MappingProxyType({}),
) -> Summary:
    """Compute every method's metrics with intervals, tests of calibration, and tests of all pairs of methods.

    Metrics and influences are averaged over the seeds of a method.

    Args:
        confidence: method -> shape (n,) or (seeds, n), float in [0, 1], all for the same n questions.
        correct: shape (n,), bool.
        subjects: subject name of each question, n of them.
        settings: `Settings()` by default.
        blocks: groups of methods that are ranked together; by default all methods. A method in no block has no rank.
        score: method -> scores for rank-based metrics, shaped like its confidences; by default the confidences.

    Raises:
        ValueError: there is no method, `score` names an unknown method, or the input is invalid by the rules of
            `bench.metrics.accuracy`.
    """
    if not confidence:
        raise ValueError("expected the confidences of at least one method, got none")
    if not set(score) <= set(confidence):
        raise ValueError(f"expected scores of {list(confidence)} alone, got {list(score)}")
    settings = settings or Settings()
    runs = {method: checked_runs(values, correct, subjects)[0] for method, values in confidence.items()}
    o = np.asarray(correct)
    strata = strata_of(subjects)
    sampling = Sampling.of(strata, o, settings.average)
    order = {method: np.stack([*map(normalised_ranks, np.atleast_2d(values))]) for method, values in score.items()}
    estimates: dict[str, dict[str, Estimate]] = {method: {} for method in runs}
    comparisons: dict[str, tuple[Comparison[str], ...]] = {}
    ranks_of: dict[str, dict[str, int]] = {}
    blocks = [list(runs)] if blocks is None else blocks
    undefined = "it is undefined" if settings.average == "questions" else "it is undefined in every subject"
    for metric in TESTED:
        means: dict[str, Influence | None] = {}
        as_reported = signed_root if METRICS[metric].is_root else float
        for method, run in runs.items():
            seeds = [
                influence(metric, p, ranking, o, strata, settings.average)
                for p, ranking in zip(run, order.get(method, run), strict=True)
            ]
            mean = means[method] = mean_over_seeds(seeds)
            by_seed = tuple(None if seed is None else as_reported(seed.value) for seed in seeds)
            defined = [value for value in by_seed if value is not None]
            if mean is None:
                fixed, clustered = (Interval(kind, reason=undefined) for kind in ("fixed-subjects", "clustered"))
            else:
                fixed, clustered = sampling.intervals(metric, mean, settings.level)
            estimates[method][metric] = Estimate(
                value=None if mean is None else as_reported(mean.value),
                fixed=fixed,
                clustered=clustered,
                by_seed=by_seed,
                spread=float(np.std(defined, ddof=1)) if len(defined) > 1 else None,
                n_undefined=max((int(np.isnan(seed.by_subject).sum()) for seed in seeds if seed), default=0),
            )
        comparisons[metric] = compare(metric, means, sampling, blocks, settings)
        ranks_of[metric] = {}
        for block in blocks:
            names = [name for name in block if means[name] is not None]
            ranks_of[metric] |= ranks(names, comparisons[metric], alpha=1 - settings.level)
    return Summary(
        methods={
            method: MethodSummary(estimates[method], calibrated_p(run, o, subjects, settings))
            for method, run in runs.items()
        },
        comparisons=comparisons,
        ranks=ranks_of,
        strata=strata,
        settings=settings,
    )
