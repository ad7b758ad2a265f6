"""Variants of one method compared with one of them, on the same questions and over the same seeds.

A difference varies for two reasons. Other questions: the standard deviation of the difference, averaged over the seeds,
in resamples that all variants share. Other seeds: the standard deviation (ddof 1) of the difference from seed to seed,
over the square root of their number. Squares are added. What a seed changes on some questions and not on others is in
both, so that an interval is never too narrow for it. The interval is Student's t, with degrees of freedom after
Satterthwaite: those of the seeds where the seeds decide. P values are corrected by Holm's rule over all variants.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from bench.api import BoolArray, FloatArray
from bench.metrics import METRICS
from bench.stats.intervals import no_spread_of_ranks
from bench.stats.resampling import RANKED, Resampled, resample
from bench.stats.settings import Settings
from bench.stats.strata import Strata, strata_of

MIN_SEEDS = 5
"""Seeds from which on their spread says something: with two, an interval of 95 % is 12.7 standard errors to a side."""
_TINY = 1e-12
_MANY = 1e9
"""Degrees of freedom that are as good as infinitely many."""


@dataclass(frozen=True)
class Estimate:
    """A value with its interval."""

    value: float
    low: float | None
    """None where there is no interval."""
    high: float | None
    error: float | None
    """Standard error; None without interval."""
    seed_share: float | None = None
    """Share of its square that is the seeds'."""


@dataclass(frozen=True)
class VariantRow:
    """One metric of one variant."""

    variant: str
    metric: str
    estimate: Estimate | None
    """Macro mean over subjects, mean over seeds; None where it is undefined."""
    difference: Estimate | None = None
    """The reference's minus its own; None of the reference, and where one of the two is undefined."""
    p: float | None = None
    """Two-sided, of no difference; None without interval."""
    p_corrected: float | None = None
    """The same after Holm, over all variants that have one."""


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

    def of(self, metric: str) -> list[VariantRow]:
        """Rows of a metric without the reference's."""
        return [row for row in self.rows if row.metric == metric and row.variant != self.reference]


def rows_of(
    confidence: Mapping[str, FloatArray],
    reference: str,
    correct: BoolArray,
    subjects: Sequence[str],
    metrics: Sequence[str],
    settings: Settings | None = None,
) -> tuple[tuple[VariantRow, ...], tuple[str, ...]]:
    """Values, differences and corrected p values; and why there are no intervals, where there are none.

    Args:
        confidence: by variant, `(seeds, n)`; at least `MIN_SEEDS` of them.
        reference: the variant with which others are compared.
        correct: `(n,)`.
        subjects: of the n questions.
        metrics: of `bench.stats.resampling.RESAMPLED`.
        settings: of the resamples.
    """
    settings, strata = settings or Settings(), strata_of(subjects)
    found = resample(confidence, correct, strata, settings)
    rows: list[VariantRow] = []
    notes: list[str] = []
    for metric in metrics:
        reason = refused(metric, correct, strata)
        if reason:
            notes.append(f"no intervals of {METRICS[metric].label}: {reason}")
        rule = _Rule(metric, settings.level, len(correct) - len(strata.names), reason is not None)
        against = found[reference][metric]
        others = (name for name in confidence if name != reference)
        own = [rule.row(reference, against, None), *(rule.row(name, found[name][metric], against) for name in others)]
        rows += _corrected(own)
    order = {name: k for k, name in enumerate(dict.fromkeys(row.variant for row in rows))}
    return tuple(sorted(rows, key=lambda row: order[row.variant])), tuple(notes)


def holm(p: Sequence[float]) -> list[float]:
    """P values corrected for all of them, step down (Holm, 1979).

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    largest, corrected = 0.0, [0.0] * len(p)
    for k, i in enumerate(np.argsort(p, kind="stable").tolist()):
        largest = max(largest, min(1.0, (len(p) - k) * p[i]))
        corrected[i] = largest
    return corrected


def estimated(
    by_seed: FloatArray, replicates: FloatArray, *, freedom: int, level: float, bounds: tuple[float, float]
) -> tuple[Estimate, float]:
    """Mean over seeds with its interval for other questions and other seeds, and the p value of 0, two-sided.

    Args:
        by_seed: shape (seeds,), at least two.
        replicates: shape (r,), the mean over seeds in each resample of the questions.
        freedom: degrees of freedom of what questions vary: their number less that of the subjects.
        level: of the interval.
        bounds: smallest and largest possible value, beyond which the interval is cut.
    """
    from scipy.special import stdtr, stdtrit

    value = float(by_seed.mean())
    of_questions, of_seeds = float(replicates.var(ddof=1)), float(by_seed.var(ddof=1)) / len(by_seed)
    square = of_questions + of_seeds
    error = float(np.sqrt(square))
    if error <= _TINY:
        return Estimate(value, value, value, 0.0, 0.0), float(abs(value) <= _TINY)
    df = square**2 / (of_questions**2 / max(freedom, 1) + of_seeds**2 / (len(by_seed) - 1))
    half = float(stdtrit(min(df, _MANY), (1 + level) / 2)) * error
    low, high = (float(np.clip(end, *bounds)) for end in (value - half, value + half))
    p = float(2 * stdtr(min(df, _MANY), -abs(value) / error))
    return Estimate(value, low, high, error, of_seeds / square), p


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


class _Rule(NamedTuple):
    """Makes rows of one metric."""

    metric: str
    level: float
    freedom: int
    """Degrees of freedom of what questions vary."""
    bare: bool
    """Without intervals."""

    def row(self, name: str, own: Resampled, other: Resampled | None) -> VariantRow:
        """Row of a variant; `other`: that of the reference, None of the reference itself."""
        by_seed = _seeds(own)
        if by_seed is None:
            return VariantRow(name, self.metric, None)
        low, high = METRICS[self.metric].bounds
        estimate, _ = self._estimate(by_seed, own.replicates, (low, high))
        others = None if other is None else _seeds(other)
        if other is None or others is None:
            return VariantRow(name, self.metric, estimate)
        drawn = other.replicates - own.replicates
        return VariantRow(
            name, self.metric, estimate, *self._estimate(others - by_seed, drawn, (low - high, high - low))
        )

    def _estimate(
        self, by_seed: FloatArray, replicates: FloatArray, bounds: tuple[float, float]
    ) -> tuple[Estimate, float | None]:
        """Mean over seeds with its interval, and the p value of 0."""
        if self.bare:
            return Estimate(float(by_seed.mean()), None, None, None), None
        return estimated(by_seed, replicates, freedom=self.freedom, level=self.level, bounds=bounds)


def _seeds(of: Resampled) -> FloatArray | None:
    """Macro means by seed `(seeds,)`; None where one is undefined."""
    values = [value for value in of.by_seed if value is not None]
    return np.array(values) if len(values) == len(of.by_subject) else None


def _corrected(rows: Sequence[VariantRow]) -> list[VariantRow]:
    tested = [row for row in rows if row.p is not None]
    by_variant = dict(zip((row.variant for row in tested), holm([row.p or 0.0 for row in tested]), strict=True))
    return [replace(row, p_corrected=by_variant.get(row.variant)) for row in rows]
