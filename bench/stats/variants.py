"""Variants of one method compared with one of them, on the same questions and over the same seeds.

A difference varies for two reasons. Other questions: the standard error of the difference, averaged over the seeds, in
closed form where a metric is a mean (`bench.stats.intervals.macro_mean`), else the standard deviation in resamples that
all variants share. Other seeds: the standard deviation (ddof 1) of the difference from seed to seed, over the square
root of their number. Squares are added. What a seed changes on some questions and not on others is in both, so that an
interval is never too narrow for it. The interval is Student's t, with degrees of freedom after Satterthwaite: those of
the seeds where the seeds decide. P values are corrected by Holm's rule over all variants.

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
from bench.stats.holm import with_holm
from bench.stats.intervals import macro_mean, no_spread_of_ranks
from bench.stats.resampling import RANKED, Resampled, losses, resample
from bench.stats.settings import Settings
from bench.stats.strata import Strata, strata_of

MIN_SEEDS = 5
"""Seeds from which on their spread says something: with two, an interval of 95 % is 12.7 standard errors to a side."""
_TINY = 1e-12
_MANY = 1e9
"""Degrees of freedom that are as good as infinitely many."""
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
    """Standard error; None without interval."""
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
    """Macro mean over subjects, mean over seeds; None where it is undefined."""
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
        metrics: of `bench.stats.resampling.RESAMPLED`.
        settings: of the resamples.
        path: variants of which the last one is the reference.
    """
    settings, strata = settings or Settings(), strata_of(subjects)
    found = resample(confidence, correct, strata, settings, metrics=metrics)
    rows: list[VariantRow] = []
    steps: list[StepRow] = []
    notes: list[str] = []
    for metric in metrics:
        reason = refused(metric, correct, strata)
        if reason:
            notes.append(f"no intervals of {METRICS[metric].label}: {reason}")
        rule = _Rule(metric, settings.level, strata, freedom_of(metric, correct, strata), reason is not None)
        values = {name: _value(found[name][metric], _losses(metric, p, correct)) for name, p in confidence.items()}
        against = values[reference]
        others = (name for name in confidence if name != reference)
        own = [
            rule.row(reference, against),
            *(rule.row(name, values[name], _gap(values[name], against)) for name in others),
        ]
        own, along = _corrected(own, rule.steps(path, values))
        rows += own
        if along:
            (whole,) = (row for row in own if row.variant == along[0].start)
            steps += rule.shared(along, whole, path, values)
    order = {name: k for k, name in enumerate(dict.fromkeys(row.variant for row in rows))}
    return Compared(tuple(sorted(rows, key=lambda row: order[row.variant])), tuple(steps), tuple(notes))


def estimated(
    by_seed: FloatArray, of_questions: float, *, freedom: float, level: float, bounds: tuple[float, float]
) -> tuple[SeedMean, float]:
    """Mean over seeds with its interval for other questions and other seeds, and the p value of 0, two-sided.

    Args:
        by_seed: shape (seeds,), at least two.
        of_questions: variance of the mean over seeds from other questions.
        freedom: degrees of freedom of that variance.
        level: of the interval.
        bounds: smallest and largest possible value, beyond which the interval is cut.
    """
    from scipy.special import stdtr, stdtrit

    value = float(by_seed.mean())
    of_seeds = float(by_seed.var(ddof=1)) / len(by_seed)
    square = of_questions + of_seeds
    error = float(np.sqrt(square))
    if error <= _TINY:
        return SeedMean(value, value, value, 0.0, 0.0), float(abs(value) <= _TINY)
    df = square**2 / (of_questions**2 / max(freedom, 1) + of_seeds**2 / (len(by_seed) - 1))
    half = float(stdtrit(min(df, _MANY), (1 + level) / 2)) * error
    low, high = (float(np.clip(end, *bounds)) for end in (value - half, value + half))
    p = float(2 * stdtr(min(df, _MANY), -abs(value) / error))
    return SeedMean(value, low, high, error, of_seeds / square), p


def freedom_of(metric: str, correct: BoolArray, strata: Strata) -> int:
    """Degrees of freedom of the spread of a metric's resamples: questions less subjects.

    Of metrics of order the questions of the rarer class: two wrong answers say little of how others would vary, however
    many are right. Subjects of one class are left out.

    Args:
        metric: of `bench.stats.resampling.RESAMPLED`.
        correct: shape (n,).
        strata: of the n questions.
    """
    if metric not in RANKED:
        return len(correct) - len(strata.names)
    right = np.bincount(strata.group, weights=correct).astype(np.int64)
    rarer = np.minimum(right, strata.sizes - right)
    return int((rarer[rarer > 0] - 1).sum())


def refused(metric: str, correct: BoolArray, strata: Strata) -> str | None:
    """Reason why there are no intervals of a metric; None where there are.

    Args:
        metric: of `bench.stats.resampling.RESAMPLED`.
        correct: shape (n,).
        strata: of the n questions.
    """
    if strata.alone is not None:
        return f"subject {strata.alone!r} has one question, from which no spread can be told"
    none = no_spread_of_ranks(correct, strata) if metric in RANKED else None
    return None if none is None else none.reason


class _Gap(NamedTuple):
    """Value of a variant, or difference of two."""

    by_seed: FloatArray
    """(seeds,)"""
    replicates: FloatArray
    """Mean over seeds in each resample, (replicates,)."""
    losses: FloatArray | None
    """Mean over seeds of each question, (n,); None of metrics that are no means over questions."""

    def less(self, times: float, other: _Gap) -> _Gap:
        """This one minus a multiple of another one."""
        own = None if self.losses is None or other.losses is None else self.losses - times * other.losses
        return _Gap(self.by_seed - times * other.by_seed, self.replicates - times * other.replicates, own)


class _Rule(NamedTuple):
    """Makes rows of one metric."""

    metric: str
    level: float
    strata: Strata
    freedom: int
    """Degrees of freedom of what questions vary in resamples."""
    bare: bool
    """Without intervals."""

    def row(self, name: str, own: _Gap | None, gap: _Gap | None = None) -> VariantRow:
        """Row of a variant; `gap`: the reference's value minus its own, None of the reference itself."""
        if own is None:
            return VariantRow(name, self.metric, None)
        estimate, _ = self._estimate(own, METRICS[self.metric].bounds)
        return VariantRow(name, self.metric, estimate, *self._difference(gap))

    def steps(self, path: Sequence[Step], values: Mapping[str, _Gap | None]) -> list[StepRow]:
        """Rows of the steps of a path, without shares."""
        return [
            StepRow(start.variant, end.variant, end.adds, self.metric, *self._difference(gap))
            for (start, end), gap in zip(pairwise(path), _gaps(path, values), strict=True)
        ]

    def shared(
        self, steps: Sequence[StepRow], whole: VariantRow, path: Sequence[Step], values: Mapping[str, _Gap | None]
    ) -> list[StepRow]:
        """The steps with their shares of the whole, if that is a gain and is shown to be one.

        Args:
            steps: of the path.
            whole: row of the path's first variant, with its corrected p value.
            path: its variants.
            values: of the variants.
        """
        gain, metric = whole.difference, METRICS[self.metric]
        (of,) = _gaps((path[0], path[-1]), values)
        if of is None or gain is None or (gain.value > 0) is not bool(metric.higher_is_better):
            return list(steps)
        if whole.p_corrected is None or whole.p_corrected >= 1 - self.level:
            return list(steps)
        return [
            replace(step, share=None if gap is None else self._share(gap, of))
            for step, gap in zip(steps, _gaps(path, values), strict=True)
        ]

    def _difference(self, gap: _Gap | None) -> tuple[SeedMean | None, float | None]:
        low, high = METRICS[self.metric].bounds
        return (None, None) if gap is None else self._estimate(gap, (low - high, high - low))

    def _share(self, part: _Gap, whole: _Gap) -> SeedMean | None:
        """Ratio of two differences with its interval; None where it has no bounds."""
        value = float(part.by_seed.mean() / whole.by_seed.mean())

        def above(share: float) -> float:
            """Value above 0 where the test doesn't reject this share."""
            _, p = self._estimate(part.less(share, whole), (-np.inf, np.inf))
            return (p or 0.0) - (1 - self.level)

        low, high = (_crossing(above, value, sign) for sign in (-1, 1))
        return None if low is None or high is None else SeedMean(value, low, high, None)

    def _estimate(self, gap: _Gap, bounds: tuple[float, float]) -> tuple[SeedMean, float | None]:
        """Mean over seeds with its interval, and the p value of 0."""
        if self.bare:
            return SeedMean(float(gap.by_seed.mean()), None, None, None), None
        of_questions, freedom = float(gap.replicates.var(ddof=1)), float(self.freedom)
        if gap.losses is not None:
            # resamples of n questions vary too little, by (n - 1) / n: by half in subjects of two
            _, error, freedom = macro_mean(gap.losses, self.strata)
            of_questions = error**2
        return estimated(gap.by_seed, of_questions, freedom=freedom, level=self.level, bounds=bounds)


def _losses(metric: str, confidence: FloatArray, correct: BoolArray) -> FloatArray | None:
    """Share of each question in a metric that is a mean over them, mean over seeds `(n,)`; None of other metrics."""
    own = losses(confidence, correct).get(metric)
    return None if own is None else own.mean(axis=0)


def _value(of: Resampled, own: FloatArray | None) -> _Gap | None:
    """Value of a variant; None where it is undefined with some seed."""
    by_seed = [value for value in of.by_seed if value is not None]
    return _Gap(np.array(by_seed), of.replicates, own) if len(by_seed) == len(of.by_subject) else None


def _gap(start: _Gap | None, end: _Gap | None) -> _Gap | None:
    """The second minus the first; None where one is undefined."""
    return None if start is None or end is None else end.less(1.0, start)


def _gaps(path: Sequence[Step], values: Mapping[str, _Gap | None]) -> list[_Gap | None]:
    """Differences from each variant to the next."""
    return [_gap(*(values[step.variant] for step in pair)) for pair in pairwise(path)]


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


def _corrected(rows: Sequence[VariantRow], steps: Sequence[StepRow]) -> tuple[list[VariantRow], list[StepRow]]:
    """All with p values corrected together; the last step has that of the variant where it starts."""
    tested: list[Any] = with_holm([*rows, *steps[:-1]], "p_corrected")
    done, along = tested[: len(rows)], tested[len(rows) :]
    for last in steps[-1:]:
        along += [replace(last, p_corrected=row.p_corrected) for row in done if row.variant == last.start]
    return done, along
