"""All statistics of a comparison in one call: each method's metrics with intervals, and every pair of methods.

Example: `summary({"ccps": p, "litcab": q}, correct, subjects).methods["ccps"].estimates["auroc"].fixed.low`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from bench.metrics import METRICS
from bench.metrics.answers import ranked
from bench.metrics.calibration import signed_root
from bench.stats.calibration import calibrated_p
from bench.stats.comparison import Comparison, compare, ranks
from bench.stats.influence import TESTED, Influence, influence, over_seeds
from bench.stats.intervals import Interval, Sampling
from bench.stats.settings import Settings
from bench.stats.strata import Strata, checked_runs, strata_of


@dataclass(frozen=True)
class Estimate:
    """One metric of one method: of all questions, or a mean over subjects; mean over seeds where there are several."""

    value: float | None
    """None where it is undefined."""
    fixed: Interval
    """Interval for these subjects and other questions."""
    clustered: Interval
    """Interval for other subjects like these."""
    by_seed: tuple[float | None, ...]
    """The value of each seed."""
    spread: float | None
    """Standard deviation (ddof 1) of `by_seed`; None with one seed. In no interval."""
    n_undefined: int
    """Subjects that a mean over subjects leaves out, because the metric is undefined there."""


@dataclass(frozen=True)
class MethodSummary:
    """All metrics of one method."""

    estimates: Mapping[str, Estimate]
    """Estimates by metric of `TESTED`."""
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
    """Every method's metrics with their intervals, tests of calibration, and all pairs of methods.

    Several seeds of a method are averaged: metrics over seeds, and their influences question by question.

    Args:
        confidence: by method, shape (n,), or (seeds, n); float in [0, 1], all for the same n answers.
        correct: shape (n,), bool.
        subjects: n names.
        settings: how; `Settings()` by default.
        blocks: methods that are ranked together; by default all of them. A method in none has no rank.
        score: by method, (n,) or (seeds, n) as its confidences, what metrics of order are of where that is not these.

    Raises:
        ValueError: no method, scores of another one, or as `bench.metrics.accuracy`.
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
    order = {method: np.stack([*map(ranked, np.atleast_2d(values))]) for method, values in score.items()}
    estimates: dict[str, dict[str, Estimate]] = {method: {} for method in runs}
    comparisons: dict[str, tuple[Comparison[str], ...]] = {}
    ranks_of: dict[str, dict[str, int]] = {}
    blocks = [list(runs)] if blocks is None else blocks
    undefined = "it is undefined" if settings.average == "questions" else "it is undefined in every subject"
    for metric in TESTED:
        means: dict[str, Influence | None] = {}
        shown = signed_root if METRICS[metric].is_root else float
        for method, run in runs.items():
            seeds = [
                influence(metric, p, by, o, strata, settings.average)
                for p, by in zip(run, order.get(method, run), strict=True)
            ]
            mean = means[method] = over_seeds(seeds)
            by_seed = tuple(None if each is None else shown(each.value) for each in seeds)
            known = [value for value in by_seed if value is not None]
            if mean is None:
                fixed, clustered = (Interval(kind, reason=undefined) for kind in ("fixed-subjects", "clustered"))
            else:
                fixed, clustered = sampling.intervals(metric, mean, settings.level)
            estimates[method][metric] = Estimate(
                value=None if mean is None else shown(mean.value),
                fixed=fixed,
                clustered=clustered,
                by_seed=by_seed,
                spread=float(np.std(known, ddof=1)) if len(known) > 1 else None,
                n_undefined=max((int(np.isnan(each.by_subject).sum()) for each in seeds if each), default=0),
            )
        comparisons[metric] = compare(metric, means, sampling, blocks, settings)
        ranks_of[metric] = {}
        for block in blocks:
            defined = [name for name in block if means[name] is not None]
            ranks_of[metric] |= ranks(defined, comparisons[metric], alpha=1 - settings.level)
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
