"""Comparison of variants of one method with a reference variant, on the same questions and over the same seeds.

The variance of a difference has two components. The component of questions is the squared standard error of the mean
over seeds, from influences (`bench.stats.influence`). The component of seeds is the variance (ddof 1) of the difference
over seeds, divided by their number. The interaction of seeds and questions is in both components, which makes intervals
conservative. Intervals are Student's t, with Satterthwaite's degrees of freedom. P values are corrected by Holm's
method over all variants and steps, for each metric.

A path leads from a variant through others to the reference; a step is the change from one variant of the path to the
next. The share of a step in the whole difference (reference minus first variant) is a ratio of two differences. Its
interval is Fieller's (1954, "Some problems in interval estimation"): the set of ratios r for which the t test of step -
r * whole = 0 does not reject. If the whole difference is not significant, that set is unbounded, and no share is given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from bench.api import BoolArray, FloatArray, Step
from bench.metrics import METRICS
from bench.metrics.calibration import signed_root
from bench.stats.holm import with_holm
from bench.stats.influence import TESTED, Influence, influence
from bench.stats.intervals import MAX_FREEDOM, MIN_RARER, REL_TINY, TINY, Sampling
from bench.stats.settings import Average, Settings
from bench.stats.strata import strata_of, value_of

MIN_SEEDS = 5
"""Smallest number of seeds for an interval; with two, the half width of a 95 % interval is 12.7 standard errors."""
_MAX_SHARE = 1e3
"""Largest distance from a step's estimated share at which an end of its interval is searched."""


@dataclass(frozen=True)
class SeedMean:
    """A mean over seeds with its confidence interval, which covers both other questions and other seeds."""

    value: float
    low: float | None
    """Lower end of the interval. Without an interval, both ends are None."""
    high: float | None
    error: float | None
    """Standard error of the mean. None without an interval, for the share of a step, and for a value of a root metric,
    whose error is known for the square only. A difference of a root metric has an error."""
    seed_share: float | None = None
    """Share of the mean's variance that comes from seeds, the rest from questions; None without an interval,
    and for the share of a step."""

    @property
    def ends(self) -> tuple[float, float] | None:
        """Both ends of the interval; None without one."""
        return None if self.low is None or self.high is None else (self.low, self.high)


def estimate_fields(estimate: SeedMean | None, before: str = "") -> dict[str, float | None]:
    """Return the fields of an estimate as a dict whose keys start with `before`; all None if there is no estimate."""
    return {before + part.name: None if estimate is None else getattr(estimate, part.name) for part in fields(SeedMean)}


@dataclass(frozen=True)
class VariantRow:
    """One metric of one variant of a method, with its difference from the reference variant."""

    variant: str
    metric: str
    estimate: SeedMean | None
    """Mean of the metric over seeds; None where the metric is undefined for a seed."""
    difference: SeedMean | None = None
    """Reference minus this variant. None for the reference itself, and where the metric is undefined for either
    variant."""
    p: float | None = None
    """Two-sided p value of the null hypothesis of no difference. None without a test; 1 if the difference does not
    vary or too few questions differ."""
    p_corrected: float | None = None
    """The p value `p`, corrected by Holm's method over all variants and all steps of the path, for this metric."""


@dataclass(frozen=True)
class StepRow:
    """Change of one metric from one variant of a path to the next."""

    start: str
    end: str
    adds: str
    """What the end variant of the step has and the start variant lacks, in words."""
    metric: str
    difference: SeedMean | None
    """End variant minus start variant; None where the metric is undefined for either variant."""
    p: float | None = None
    p_corrected: float | None = None
    """The p value `p`, corrected by Holm's method over all variants and all steps of the path, for this metric."""
    share: SeedMean | None = None
    """Share of this step in the difference between the path's ends. None without an interval, or if the path's end is
    not significantly better than its start."""


@dataclass(frozen=True)
class Variants:
    """Results of an analysis that compares variants of a method, with model, task, preset and seeds."""

    method: str
    analysis: str
    model: str
    task: str
    preset: str
    question: str
    reference: str
    seeds: tuple[int, ...]
    n: int
    """Number of test questions."""
    metrics: tuple[str, ...]
    rows: tuple[VariantRow, ...]
    """One row per variant and metric, ordered by variant, the reference first."""
    sizes: Mapping[str, int] = field(default_factory=dict)
    published: str = ""
    """CSV file with published numbers, a path below `results/paper`; empty where there is none."""
    notes: tuple[str, ...] = ()
    level: float = 0.95
    accuracy: float = 0.0
    """Share of the model's answers that are right."""
    steps: tuple[StepRow, ...] = ()
    """One row per step of the path and metric, ordered by metric."""
    average: Average = "subjects"
    """Whether metrics are pooled over questions or averaged over subjects. Stored results without this field have means
    over subjects."""

    def of(self, metric: str) -> list[VariantRow]:
        """Return the rows of all variants but the reference for one metric."""
        return [row for row in self.rows if row.metric == metric and row.variant != self.reference]


class VariantComparison(NamedTuple):
    """Comparison of variants of a method, and of the steps of a path through these variants."""

    rows: tuple[VariantRow, ...]
    """One row per variant and metric, ordered by variant, the reference first."""
    steps: tuple[StepRow, ...]
    """One row per step of the path and metric, ordered by metric."""
    notes: tuple[str, ...]
    """Sentences that say why metrics have no intervals."""


def compare_variants(
    confidence: Mapping[str, FloatArray],
    reference: str,
    correct: BoolArray,
    subjects: Sequence[str],
    metrics: Sequence[str],
    settings: Settings | None = None,
    *,
    path: Sequence[Step] = (),
) -> VariantComparison:
    """Compute metrics of all variants, differences from the reference, and corrected p values.

    Args:
        confidence: name of a variant -> confidences `(seeds, n)`, with at least `MIN_SEEDS` seeds.
        reference: name of the variant with which all others are compared.
        correct: shape `(n,)`, bool.
        subjects: subject name of each question, n of them.
        metrics: names in `bench.metrics.METRICS`; metrics outside TESTED have no intervals and no tests.
        settings: how metrics are averaged, and the level.
        path: variants in order, each with one addition to the one before, the last of them the reference; may be empty.
    """
    settings = settings or Settings()
    sampling = Sampling.of(strata_of(subjects), correct, settings.average)
    rows: list[VariantRow] = []
    steps: list[StepRow] = []
    notes: list[str] = []
    for metric in metrics:
        reason = sampling.no_interval_reason(metric) if metric in TESTED else "it stands there for comparison alone"
        if reason:
            notes.append(f"no intervals of {METRICS[metric].label}: {reason}")
        estimator = _VariantEstimator(metric, settings.level, sampling, bool(reason))
        values = {name: estimator.value(runs) for name, runs in confidence.items()}
        reference_value = values[reference]
        others = (name for name in confidence if name != reference)
        metric_rows = [
            estimator.row(reference, reference_value),
            *(estimator.row(name, values[name], estimator.gap(values[name], reference_value)) for name in others),
        ]
        # one family of tests; the last step ends at the reference, so its p value is that of its start variant
        step_rows = estimator.steps(path, values)
        tested: list[Any] = with_holm([*metric_rows, *step_rows[:-1]], "p_corrected")
        metric_rows, step_rows[:-1] = tested[: len(metric_rows)], tested[len(metric_rows) :]
        rows += metric_rows
        if step_rows:
            by_name = {row.variant: row for row in metric_rows}
            step_rows[-1] = replace(step_rows[-1], p_corrected=by_name[step_rows[-1].start].p_corrected)
            steps += estimator.shared(step_rows, by_name[step_rows[0].start], path, values)
    order = {name: k for k, name in enumerate(dict.fromkeys(row.variant for row in rows))}
    return VariantComparison(tuple(sorted(rows, key=lambda row: order[row.variant])), tuple(steps), tuple(notes))


class OverSeeds(NamedTuple):
    """A metric for each seed, or a difference of two metric values.

    Values of root metrics are represented by their squares; a difference from `_VariantEstimator.gap` is one of roots.
    """

    by_seed: FloatArray
    """Metric or difference for each seed, shape (seeds,)."""
    influences: FloatArray
    """Influence of each question on the mean over seeds, (n,). Empty where unknown, and for a difference of two root
    metrics that are both 0."""
    inputs: FloatArray
    """`Influence.inputs`, (n,), mean over seeds; of a difference, their differences, 0 where two variants agree."""

    @classmethod
    def of(cls, seeds: Sequence[Influence]) -> OverSeeds:
        """Combine the influence results of several seeds."""
        return cls(np.array([i.value for i in seeds]), *np.mean([(i.by_question, i.inputs) for i in seeds], axis=0))

    def minus(self, times: float, other: OverSeeds) -> OverSeeds:
        """Return this quantity minus `times` the quantity `other`."""
        return OverSeeds(*(mine - times * theirs for mine, theirs in zip(self, other, strict=True)))


def estimate_over_seeds(
    metric: str, estimate: OverSeeds, sampling: Sampling, *, level: float, bounds: tuple[float, float]
) -> tuple[SeedMean, float]:
    """Return the mean over seeds with its interval, and the two-sided p value of the null that the mean is 0.

    If the standard error is 0, or fewer than MIN_RARER questions differ, there is no interval, and the p value is 1,
    even if the mean is not 0.

    Args:
        metric: name of the metric, one of TESTED.
        estimate: the metric or a difference, with at least two seeds.
        sampling: sampling design of the n questions.
        level: confidence level of the interval.
        bounds: smallest and largest possible value; the interval is clipped to them.
    """
    from scipy.special import stdtr, stdtrit

    _, (error,), (freedom,) = sampling.standard_errors(metric, estimate.influences[None])
    value, seeds = float(estimate.by_seed.mean()), len(estimate.by_seed)
    question_var, seed_var = float(error) ** 2, float(estimate.by_seed.var(ddof=1)) / seeds
    variance = question_var + seed_var
    error = float(np.sqrt(variance))
    if error <= max(TINY, REL_TINY * abs(value)) or np.count_nonzero(np.abs(estimate.inputs) > TINY) < MIN_RARER:
        return SeedMean(value, None, None, None), 1.0
    df = min(MAX_FREEDOM, variance**2 / (question_var**2 / freedom + seed_var**2 / (seeds - 1)))
    half = float(stdtrit(df, (1 + level) / 2)) * error
    low, high = (float(np.clip(end, *bounds)) for end in (value - half, value + half))
    return SeedMean(value, low, high, error, seed_var / variance), float(2 * stdtr(df, -abs(value) / error))


class _VariantEstimator(NamedTuple):
    """Estimator of the rows of variants and steps for one metric."""

    metric: str
    level: float
    sampling: Sampling
    no_intervals: bool
    """Whether intervals and tests are left out for this metric."""

    def value(self, runs: FloatArray) -> OverSeeds | None:
        """Return the metric for confidences (seeds, n) of one variant; None where it is undefined for a seed."""
        sampling, defined = self.sampling, list[Influence]()
        for p in runs:
            if self.metric in TESTED:
                result = influence(self.metric, p, p, sampling.correct, sampling.strata, sampling.average)
            else:  # such a metric has no influences
                value = value_of(self.metric, p, sampling.correct, sampling.strata, sampling.average)
                result = None if value is None else Influence(value, np.empty(0), np.empty(0))
            defined += [] if result is None else [result]
        return OverSeeds.of(defined) if len(defined) == len(runs) else None

    def gap(self, start: OverSeeds | None, end: OverSeeds | None) -> OverSeeds | None:
        """Return the metric of variant `end` minus that of variant `start`; None where it is undefined for either."""
        if start is None or end is None:
            return None
        gap = end.minus(1.0, start)
        if not METRICS[self.metric].is_root:
            return gap
        # as in `compare`: a - b is (a^2 - b^2) / (a + b), where a square below 0 counts as 0
        squares = [max(0.0, float(side.by_seed.mean())) for side in (end, start)]
        unit = float(np.sqrt(squares).sum())
        if unit <= TINY:
            return OverSeeds(np.zeros(len(gap.by_seed)), np.empty(0), gap.inputs)
        by_seed = gap.by_seed - gap.by_seed.mean() + squares[0] - squares[1]
        return OverSeeds(by_seed / unit, gap.influences / unit, gap.inputs)

    def row(self, name: str, value: OverSeeds | None, gap: OverSeeds | None = None) -> VariantRow:
        """Return the row of a variant. `gap` is the reference minus the variant; None for the reference itself."""
        if value is None:
            return VariantRow(name, self.metric, None)
        estimate, _ = self._estimate(value, METRICS[self.metric].bounds)
        if METRICS[self.metric].is_root:
            low, high = (end and signed_root(max(0.0, end)) for end in (estimate.low, estimate.high))
            estimate = SeedMean(signed_root(estimate.value), low, high, None, estimate.seed_share)
        return VariantRow(name, self.metric, estimate, *self._difference(gap))

    def steps(self, path: Sequence[Step], values: Mapping[str, OverSeeds | None]) -> list[StepRow]:
        """Return the rows of the path's steps, with differences and p values, but still without shares."""
        return [
            StepRow(start.variant, end.variant, end.adds, self.metric, *self._difference(gap))
            for (start, end), gap in zip(pairwise(path), self._gaps(path, values), strict=True)
        ]

    def shared(
        self, steps: Sequence[StepRow], whole: VariantRow, path: Sequence[Step], values: Mapping[str, OverSeeds | None]
    ) -> list[StepRow]:
        """Return the steps with their shares of the difference between the path's ends, if that is a significant gain.

        Args:
            steps: rows of the path's steps.
            whole: row of the path's first variant, with its corrected p value.
            path: variants of the path.
            values: name of a variant -> its metric.
        """
        gain, metric = whole.difference, METRICS[self.metric]
        (whole_gap,) = self._gaps((path[0], path[-1]), values)
        if whole_gap is None or gain is None or (gain.value > 0) is not bool(metric.higher_is_better):
            return list(steps)
        if whole.p_corrected is None or whole.p_corrected >= 1 - self.level:
            return list(steps)
        return [
            replace(step, share=None if gap is None or not gap.influences.size else self._share(gap, whole_gap))
            for step, gap in zip(steps, self._gaps(path, values), strict=True)
        ]

    def _difference(self, gap: OverSeeds | None) -> tuple[SeedMean | None, float | None]:
        low, high = METRICS[self.metric].bounds
        return (None, None) if gap is None else self._estimate(gap, (low - high, high - low))

    def _share(self, part: OverSeeds, whole: OverSeeds) -> SeedMean | None:
        """Return the ratio `part` / `whole` of two differences with Fieller's interval; None if it is unbounded."""
        value = float(part.by_seed.mean() / whole.by_seed.mean())

        def acceptance(share: float) -> float:
            """Return p value minus alpha for the null that the share has this value; positive if not rejected."""
            _, p = self._estimate(part.minus(share, whole), (-np.inf, np.inf))
            return (p or 0.0) - (1 - self.level)

        low, high = (_crossing(acceptance, value, sign) for sign in (-1, 1))
        return None if low is None or high is None else SeedMean(value, low, high, None)

    def _gaps(self, path: Sequence[Step], values: Mapping[str, OverSeeds | None]) -> list[OverSeeds | None]:
        """Return the differences of the metric between consecutive variants of a path."""
        return [self.gap(*(values[step.variant] for step in pair)) for pair in pairwise(path)]

    def _estimate(self, gap: OverSeeds, bounds: tuple[float, float]) -> tuple[SeedMean, float | None]:
        """Return the mean of a difference over seeds with its interval, and the p value of the null that it is 0."""
        if self.no_intervals or not gap.influences.size:
            return SeedMean(float(gap.by_seed.mean()), None, None, None), None if self.no_intervals else 1.0
        return estimate_over_seeds(self.metric, gap, self.sampling, level=self.level, bounds=bounds)


def _crossing(function: Callable[[float], float], begin: float, sign: int) -> float | None:
    """Return a root of a continuous function, searched from `begin`, where it is positive, upwards or downwards.

    `sign` is 1 for upwards, -1 for downwards. None if no root is found within a distance of _MAX_SHARE.
    """
    from scipy.optimize import brentq

    inner, width = begin, 2.0**-10
    while width < _MAX_SHARE:
        outer = begin + sign * width
        if function(outer) <= 0:
            return float(brentq(function, inner, outer, xtol=1e-9))
        inner, width = outer, 2 * width
    return None
