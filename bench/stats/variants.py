"""Variants of one method compared with one of them, on the same questions and over the same seeds.

A difference varies for two reasons. Other questions: the standard error of its mean over the seeds, from influences
(`bench.stats.influence`). Other seeds: the standard deviation (ddof 1) of the difference from seed to seed, over the
square root of their number. Squares are added. What a seed changes on some questions and not on others is in both, so
that an interval is never too narrow for it. The interval is Student's t, with degrees of freedom after Satterthwaite:
those of the seeds where the seeds decide. P values are corrected by Holm's rule over all variants.

A path leads from a variant over others to the reference. The share of a step in the whole difference is a ratio of two
differences, whose interval is the set of shares r that the same t test does not reject: of step - r * whole being 0
(Fieller, 1954, "Some problems in interval estimation"). It is bounded where the whole differs from 0, and else there
is no share.
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
from bench.stats.intervals import MANY, SAME, TINY, Sampling
from bench.stats.settings import Average, Settings
from bench.stats.strata import strata_of, value_of

MIN_SEEDS = 5
"""Seeds from which on their spread says something: with two, an interval of 95 % is 12.7 standard errors to a side."""
_FAR = 1e3
"""Share beyond which an interval says nothing."""


@dataclass(frozen=True)
class SeedMean:
    """A mean over seeds with its interval for other questions and other seeds."""

    value: float
    low: float | None
    """None where there is no interval."""
    high: float | None
    error: float | None
    """Standard error; None without interval, and of a root, as it is known of its square alone."""
    seed_share: float | None = None
    """Share of its square that is the seeds'."""


def parts_of(estimate: SeedMean | None, before: str = "") -> dict[str, float | None]:
    """Numbers of an estimate by name, with something before each name; None where there is no estimate."""
    return {before + part.name: None if estimate is None else getattr(estimate, part.name) for part in fields(SeedMean)}


@dataclass(frozen=True)
class VariantRow:
    """One metric of one variant."""

    variant: str
    metric: str
    estimate: SeedMean | None
    """Mean over seeds; None where it is undefined."""
    difference: SeedMean | None = None
    """The reference's minus its own; None of the reference, and where one of the two is undefined."""
    p: float | None = None
    """Two-sided, of no difference; None without interval."""
    p_corrected: float | None = None
    """The same after Holm, over all variants that have one."""


@dataclass(frozen=True)
class StepRow:
    """One metric of one step of a path."""

    start: str
    end: str
    adds: str
    """Words for what the variant at its end has and the one at its start lacks."""
    metric: str
    difference: SeedMean | None
    """That of its end minus that of its start; None where one of the two is undefined."""
    p: float | None = None
    p_corrected: float | None = None
    """After Holm, over all variants and steps."""
    share: SeedMean | None = None
    """Its part of the whole difference; None where the path is not shown to be a gain."""


@dataclass(frozen=True)
class Variants:
    """Numbers of an analysis, and of what they are."""

    method: str
    analysis: str
    model: str
    task: str
    preset: str
    question: str
    reference: str
    seeds: tuple[int, ...]
    n: int
    """Questions."""
    metrics: tuple[str, ...]
    rows: tuple[VariantRow, ...]
    """Variant by variant, the reference first."""
    sizes: Mapping[str, int] = field(default_factory=dict)
    published: str = ""
    """File of published numbers below `results/paper`; empty: there is none."""
    notes: tuple[str, ...] = ()
    level: float = 0.95
    accuracy: float = 0.0
    """Share of right answers."""
    steps: tuple[StepRow, ...] = ()
    """Steps of the path, metric by metric, in order."""
    average: Average = "subjects"
    """What metrics are of; files that don't say have means over subjects."""

    def of(self, metric: str) -> list[VariantRow]:
        """Rows of a metric without the reference's."""
        return [row for row in self.rows if row.metric == metric and row.variant != self.reference]


class Compared(NamedTuple):
    """Numbers of variants and of the steps between some of them."""

    rows: tuple[VariantRow, ...]
    """Variant by variant, the reference first."""
    steps: tuple[StepRow, ...]
    """Metric by metric."""
    refused: tuple[str, ...]
    """Why there are no intervals, where there are none."""


def rows_of(
    confidence: Mapping[str, FloatArray],
    reference: str,
    correct: BoolArray,
    subjects: Sequence[str],
    metrics: Sequence[str],
    settings: Settings | None = None,
    *,
    path: Sequence[Step] = (),
) -> Compared:
    """Values, differences and corrected p values.

    Args:
        confidence: by variant, `(seeds, n)`; at least `MIN_SEEDS` of them.
        reference: the variant with which others are compared.
        correct: `(n,)`.
        subjects: of the n questions.
        metrics: names in `bench.metrics.METRICS`; those that are not of TESTED have values alone.
        settings: average and level.
        path: variants of which the last one is the reference.
    """
    settings = settings or Settings()
    sampling = Sampling.of(strata_of(subjects), correct, settings.average)
    rows: list[VariantRow] = []
    steps: list[StepRow] = []
    notes: list[str] = []
    for metric in metrics:
        reason = sampling.refused(metric) if metric in TESTED else "it stands there for comparison alone"
        if reason:
            notes.append(f"no intervals of {METRICS[metric].label}: {reason}")
        rule = _VariantRule(metric, settings.level, sampling, bool(reason))
        values = {name: rule.value(runs) for name, runs in confidence.items()}
        against = values[reference]
        others = (name for name in confidence if name != reference)
        own = [
            rule.row(reference, against),
            *(rule.row(name, values[name], rule.gap(values[name], against)) for name in others),
        ]
        # all p values are corrected together; the last step has that of the variant where it starts
        along = rule.steps(path, values)
        tested: list[Any] = with_holm([*own, *along[:-1]], "p_corrected")
        own, along[:-1] = tested[: len(own)], tested[len(own) :]
        rows += own
        if along:
            by_name = {row.variant: row for row in own}
            along[-1] = replace(along[-1], p_corrected=by_name[along[-1].start].p_corrected)
            steps += rule.shared(along, by_name[along[0].start], path, values)
    order = {name: k for k, name in enumerate(dict.fromkeys(row.variant for row in rows))}
    return Compared(tuple(sorted(rows, key=lambda row: order[row.variant])), tuple(steps), tuple(notes))


class OverSeeds(NamedTuple):
    """A value (of a root, its square), or a difference of two."""

    by_seed: FloatArray
    """(seeds,)"""
    influences: FloatArray
    """Influences on the mean over seeds, (n,); empty where there are none, and of a difference of two roots of 0."""

    @classmethod
    def of(cls, seeds: Sequence[Influence]) -> OverSeeds:
        """One value from those of its seeds."""
        return cls(np.array([each.value for each in seeds]), np.mean([each.by_question for each in seeds], axis=0))

    def less(self, times: float, other: OverSeeds) -> OverSeeds:
        """This one minus a multiple of another one."""
        return OverSeeds(self.by_seed - times * other.by_seed, self.influences - times * other.influences)


def estimated(
    metric: str, of: OverSeeds, sampling: Sampling, *, level: float, bounds: tuple[float, float]
) -> tuple[SeedMean, float]:
    """Mean over seeds with its interval for other questions and other seeds, and the p value of 0, two-sided.

    Args:
        metric: of TESTED.
        of: its value, or a difference, with at least two seeds.
        sampling: of the n questions.
        level: of the interval.
        bounds: smallest and largest possible value, beyond which the interval is cut.
    """
    from scipy.special import stdtr, stdtrit

    _, (error,), (freedom,) = sampling.spread(metric, of.influences[None])
    value, seeds = float(of.by_seed.mean()), len(of.by_seed)
    of_questions, of_seeds = float(error) ** 2, float(of.by_seed.var(ddof=1)) / seeds
    square = of_questions + of_seeds
    error = float(np.sqrt(square))
    if error <= max(TINY, SAME * abs(value)):
        return SeedMean(value, None, None, None), 1.0
    df = min(MANY, square**2 / (of_questions**2 / freedom + of_seeds**2 / (seeds - 1)))
    half = float(stdtrit(df, (1 + level) / 2)) * error
    low, high = (float(np.clip(end, *bounds)) for end in (value - half, value + half))
    return SeedMean(value, low, high, error, of_seeds / square), float(2 * stdtr(df, -abs(value) / error))


class _VariantRule(NamedTuple):
    """Makes rows of one metric."""

    metric: str
    level: float
    sampling: Sampling
    bare: bool
    """Without intervals."""

    def value(self, runs: FloatArray) -> OverSeeds | None:
        """Value of a variant with confidences (seeds, n); None where it is undefined with some seed."""
        of, known = self.sampling, list[Influence]()
        for p in runs:
            if self.metric in TESTED:
                found = influence(self.metric, p, p, of.correct, of.strata, of.average)
            else:  # without influences, as it has no intervals
                value = value_of(self.metric, p, of.correct, of.strata, of.average)
                found = None if value is None else Influence(value, np.empty(0), np.empty(0))
            known += [] if found is None else [found]
        return OverSeeds.of(known) if len(known) == len(runs) else None

    def gap(self, start: OverSeeds | None, end: OverSeeds | None) -> OverSeeds | None:
        """The second minus the first; None where one is undefined."""
        if start is None or end is None:
            return None
        gap = end.less(1.0, start)
        if not METRICS[self.metric].is_root:
            return gap
        # as in `compare`: a - b is (a^2 - b^2) / (a + b), where a square below 0 counts as 0
        squares = [max(0.0, float(each.by_seed.mean())) for each in (end, start)]
        unit = float(np.sqrt(squares).sum())
        if unit <= TINY:
            return OverSeeds(np.zeros(len(gap.by_seed)), np.empty(0))
        by_seed = gap.by_seed - gap.by_seed.mean() + squares[0] - squares[1]
        return OverSeeds(by_seed / unit, gap.influences / unit)

    def row(self, name: str, own: OverSeeds | None, gap: OverSeeds | None = None) -> VariantRow:
        """Row of a variant; `gap`: the reference's value minus its own, None of the reference itself."""
        if own is None:
            return VariantRow(name, self.metric, None)
        estimate, _ = self._estimate(own, METRICS[self.metric].bounds)
        if METRICS[self.metric].is_root:
            low, high = (end and signed_root(max(0.0, end)) for end in (estimate.low, estimate.high))
            estimate = SeedMean(signed_root(estimate.value), low, high, None, estimate.seed_share)
        return VariantRow(name, self.metric, estimate, *self._difference(gap))

    def steps(self, path: Sequence[Step], values: Mapping[str, OverSeeds | None]) -> list[StepRow]:
        """Rows of the steps of a path, without shares."""
        return [
            StepRow(start.variant, end.variant, end.adds, self.metric, *self._difference(gap))
            for (start, end), gap in zip(pairwise(path), self._gaps(path, values), strict=True)
        ]

    def shared(
        self, steps: Sequence[StepRow], whole: VariantRow, path: Sequence[Step], values: Mapping[str, OverSeeds | None]
    ) -> list[StepRow]:
        """The steps with their shares of the whole, if that is a gain and is shown to be one.

        Args:
            steps: of the path.
            whole: row of the path's first variant, with its corrected p value.
            path: its variants.
            values: of the variants.
        """
        gain, metric = whole.difference, METRICS[self.metric]
        (of,) = self._gaps((path[0], path[-1]), values)
        if of is None or gain is None or (gain.value > 0) is not bool(metric.higher_is_better):
            return list(steps)
        if whole.p_corrected is None or whole.p_corrected >= 1 - self.level:
            return list(steps)
        return [
            replace(step, share=None if gap is None or not gap.influences.size else self._share(gap, of))
            for step, gap in zip(steps, self._gaps(path, values), strict=True)
        ]

    def _difference(self, gap: OverSeeds | None) -> tuple[SeedMean | None, float | None]:
        low, high = METRICS[self.metric].bounds
        return (None, None) if gap is None else self._estimate(gap, (low - high, high - low))

    def _share(self, part: OverSeeds, whole: OverSeeds) -> SeedMean | None:
        """Ratio of two differences with its interval; None where it has no bounds."""
        value = float(part.by_seed.mean() / whole.by_seed.mean())

        def above(share: float) -> float:
            """Value above 0 where the test doesn't reject this share."""
            _, p = self._estimate(part.less(share, whole), (-np.inf, np.inf))
            return (p or 0.0) - (1 - self.level)

        low, high = (_crossing(above, value, sign) for sign in (-1, 1))
        return None if low is None or high is None else SeedMean(value, low, high, None)

    def _gaps(self, path: Sequence[Step], values: Mapping[str, OverSeeds | None]) -> list[OverSeeds | None]:
        """Differences from each variant to the next."""
        return [self.gap(*(values[step.variant] for step in pair)) for pair in pairwise(path)]

    def _estimate(self, gap: OverSeeds, bounds: tuple[float, float]) -> tuple[SeedMean, float | None]:
        """Mean over seeds with its interval, and the p value of 0."""
        if self.bare or not gap.influences.size:
            return SeedMean(float(gap.by_seed.mean()), None, None, None), None if self.bare else 1.0
        return estimated(self.metric, gap, self.sampling, level=self.level, bounds=bounds)


def _crossing(above: Callable[[float], float], begin: float, sign: int) -> float | None:
    """Place to one side where a function that is positive at `begin` falls below 0; None where it is too far off."""
    from scipy.optimize import brentq

    inner, width = begin, 2.0**-10
    while width < _FAR:
        outer = begin + sign * width
        if above(outer) <= 0:
            return float(brentq(above, inner, outer, xtol=1e-9))
        inner, width = outer, 2 * width
    return None
