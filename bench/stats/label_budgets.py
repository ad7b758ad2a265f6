"""Learning curves: metrics against the number of labels, gains over untrained methods, and where the curves cross.

A point of a curve is one method trained with a number of labels (the size), averaged over several random draws of
labels; the seed of a draw also seeds training. Standard errors are those of `bench.stats.variants`: variance components
of questions and of draws, with Satterthwaite's degrees of freedom. A point with a missing draw has a value, but neither
interval nor test, because the draws that are left are a selection.

There are three kinds of claims; each correction is for one metric, and its family-wise error rate is 1 - level:

- `Gain`: a trained method is better or worse than an untrained one. P values are corrected by Holm's method over sizes,
  for each pair and metric.
- `Crossing`: the sizes between which two curves cross, derived from gains. If the difference is monotone in the number
  of labels, the true crossing lies between the last size where the trained method is significantly worse and the first
  from which on it is significantly better.
- `LeadTest`: a trained method is better than all untrained ones. The p value is the largest of the pairs:
  intersection-union test (Berger, 1982), which needs no choice of a best reference. It is corrected by Holm's method
  over methods and sizes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import NamedTuple

import numpy as np

from bench.api import BoolArray, FloatArray
from bench.metrics import METRICS
from bench.stats.holm import with_holm
from bench.stats.influence import Influence, influence
from bench.stats.intervals import Sampling
from bench.stats.settings import Average, Settings
from bench.stats.strata import strata_of
from bench.stats.variants import MIN_SEEDS, OverSeeds, SeedMean, estimate_over_seeds

METRICS_SHOWN = ("brier", "auroc")
"""Metrics of the curves, by their names in `bench.metrics.METRICS`."""
ONE_KIND = "only right or only wrong answers were drawn"
"""Reason why a draw of labels gives no confidences: a method can't learn from one class."""


@dataclass(frozen=True, eq=False)
class SeedConfidences:
    """Confidences of a method in n questions at one number of labels, for each draw of labels."""

    labels: int
    """Number of labels that the method used; fewer than requested where no more were available."""
    confidence: Mapping[int, FloatArray]
    """Seed of the draw -> confidences (n,); draws without confidences are absent."""
    order: Mapping[int, FloatArray] = field(default_factory=dict)
    """Seed of the draw -> scores (n,) for rank-based metrics, where these are not the confidences."""
    missing: Mapping[int, str] = field(default_factory=dict)
    """Seed of the draw -> reason why there are no confidences."""

    def values(self, metric: str, seed: int) -> FloatArray | None:
        """Return the input (n,) of a metric: scores if it is rank-based, else confidences; None where missing."""
        confidence = self.confidence.get(seed)
        return self.order.get(seed, confidence) if METRICS[metric].is_rank_based else confidence


@dataclass(frozen=True)
class Point:
    """One metric of one method at one number of labels: a point of a learning curve."""

    method: str
    metric: str
    size: int
    """Requested number of labels."""
    labels: int
    """Number of labels that the method used."""
    estimate: SeedMean | None
    """Mean over the draws in which the metric is defined; None where it is defined in none."""
    draws: int
    """Number of draws in which the metric is defined."""
    missing: Mapping[str, int] = field(default_factory=dict)
    """Reason why the metric is missing in a draw -> number of such draws."""


@dataclass(frozen=True)
class GainOverUntrained:
    """Paired difference of a trained and an untrained method at the same number of labels."""

    method: str
    untrained: str
    metric: str
    size: int
    difference: SeedMean | None
    """Difference, positive where the trained method is better, for any metric; None where a draw of either method is
    missing."""
    p: float | None
    """Two-sided p value of the null of no difference; None without a test, 1 where nothing varies."""
    p_holm: float | None = None
    """`p` corrected by Holm's method over the sizes of this pair and metric."""
    p_all: float | None = None
    """`p` corrected by Holm's method over all pairs and sizes of this metric."""

    def shows(self, sign: int, level: float) -> bool:
        """Whether the trained method is significantly better (sign 1) or worse (sign -1)."""
        is_shown = self.p_holm is not None and self.p_holm < 1 - level
        return is_shown and self.difference is not None and sign * self.difference.value > 0


@dataclass(frozen=True)
class Crossing:
    """Sizes between which the curve of a trained method crosses that of an untrained one."""

    method: str
    untrained: str
    metric: str
    better_from: int | None
    """Smallest size from which on the trained method is significantly better at every size; None if there is none."""
    worse_at: tuple[int, ...]
    """Sizes at which the trained method is significantly worse."""
    better_at: tuple[int, ...]
    """Sizes at which the trained method is significantly better."""


@dataclass(frozen=True)
class LeadTest:
    """Test whether a trained method, at one number of labels, is better than every untrained one."""

    method: str
    metric: str
    size: int
    against: str
    """Untrained method with the largest p value."""
    p: float | None
    """P value of the null that the trained method is not better than every untrained one; None where a pair has no
    test."""
    p_holm: float | None = None
    """`p` corrected by Holm's method over all trained methods and sizes of this metric."""

    def is_shown(self, level: float) -> bool:
        """Whether the trained method is significantly better than every untrained one."""
        return self.p_holm is not None and self.p_holm < 1 - level


@dataclass(frozen=True)
class CorrectCounts:
    """Numbers of right and wrong answers of a split that can be used as labels."""

    split: str
    """Task and split, as `task/split`."""
    right: int
    wrong: int

    @property
    def base_rate(self) -> float:
        """Share of right answers."""
        return self.right / max(1, self.right + self.wrong)


@dataclass(frozen=True)
class Study:
    """Design of a label study on one task."""

    model: str
    task: str
    preset: str
    sizes: tuple[int, ...]
    """Numbers of labels, ascending."""
    available: int
    """Number of labels available in the train and validation splits."""
    seeds: tuple[int, ...]
    trained: tuple[str, ...]
    scaled: tuple[str, ...]
    """Untrained methods whose scores are scaled to probabilities with labels."""
    untold: tuple[str, ...]
    """Methods that use no labels."""
    counts: tuple[CorrectCounts, ...] = ()
    absent: Mapping[str, str] = field(default_factory=dict)
    """Method -> reason why it is not in the study."""
    validation: Mapping[int, int] = field(default_factory=dict)
    """Number of labels -> how many of them are from the validation split, for a method that learns from both splits."""
    forward_tokens: int = 0
    """Number of token positions that the study fed to the model."""
    level: float = 0.95

    @property
    def untrained(self) -> tuple[str, ...]:
        """Untrained methods: scaled ones, then those that use no labels."""
        return (*self.scaled, *self.untold)


@dataclass(frozen=True)
class LabelCurves:
    """Results of a label study on one task."""

    study: Study
    n: int
    """Number of questions."""
    accuracy: float
    """Share of right answers."""
    points: tuple[Point, ...]
    gains: tuple[GainOverUntrained, ...]
    crossings: tuple[Crossing, ...]
    ahead: tuple[LeadTest, ...]
    notes: tuple[str, ...] = ()
    """Reasons why metrics have no intervals."""
    average: Average = "subjects"
    """How metrics are averaged; stored studies without this field have means over subjects."""

    def of(self, method: str, metric: str) -> list[Point]:
        """Return the points of a method's curve."""
        return [point for point in self.points if (point.method, point.metric) == (method, metric)]


Draws = Mapping[int, Influence]
"""Seed of a draw -> a metric with its influences, at one point; draws in which the metric is undefined are absent."""


def compute_label_curves(
    confidences: Mapping[tuple[str, int], SeedConfidences],
    study: Study,
    correct: BoolArray,
    subjects: Sequence[str],
    settings: Settings | None = None,
) -> LabelCurves:
    """Compute the learning curves, gains, crossings and lead tests of a study.

    Args:
        confidences: (method, size) -> confidences in n questions; the same at every size for a method without labels.
        study: design of the study; its seeds are those of the requested draws.
        correct: shape (n,), bool.
        subjects: subject name of each question, n of them.
        settings: average and level; by default those of `Settings`, and the level of the study.
    """
    settings = settings or Settings(level=study.level)
    sampling = Sampling.of(strata_of(subjects), correct, settings.average)
    notes: list[str] = []
    if len(study.seeds) < MIN_SEEDS:
        notes.append(
            f"no intervals and no crossings: {len(study.seeds)} draw{'s' * (len(study.seeds) > 1)} of labels"
            f" don't show how much draws differ, {MIN_SEEDS} do"
        )
    points: list[Point] = []
    gains: list[GainOverUntrained] = []
    ahead: list[LeadTest] = []
    for metric in METRICS_SHOWN:
        reason = sampling.no_interval_reason(metric)
        if reason:
            notes.append(f"no intervals of {METRICS[metric].label}: {reason}")
        estimator = _CurveEstimator(study, metric, sampling, bool(reason), settings.level)
        draws = {key: estimator.draws(by_seed) for key, by_seed in confidences.items()}
        points += [estimator.point(*point, by_seed, draws[point]) for point, by_seed in confidences.items()]
        metric_gains = [
            estimator.gain(name, other, size, draws[name, size], draws[other, size])
            for name in study.trained
            for other in study.untrained
            for size in study.sizes
            if {(name, size), (other, size)} <= confidences.keys()
        ]
        metric_gains = with_holm(metric_gains, "p_all")
        for pair in dict.fromkeys((gain.method, gain.untrained) for gain in metric_gains):
            gains += with_holm([gain for gain in metric_gains if (gain.method, gain.untrained) == pair])
        ahead += with_holm(_lead_tests(metric_gains))
    crossings = []
    for metric, name, other in dict.fromkeys((gain.metric, gain.method, gain.untrained) for gain in gains):
        of_pair = (g for g in gains if (g.metric, g.method, g.untrained) == (metric, name, other))
        curve = sorted(of_pair, key=lambda gain: gain.size)
        worse, better = (tuple(gain.size for gain in curve if gain.shows(sign, settings.level)) for sign in (-1, 1))
        lasting = [gain.size for gain in takewhile(lambda gain: gain.shows(1, settings.level), reversed(curve))]
        crossings.append(Crossing(name, other, metric, lasting[-1] if lasting else None, worse, better))
    return LabelCurves(
        study, len(correct), float(np.mean(correct)), tuple(points), tuple(gains), tuple(crossings), tuple(ahead),
        tuple(notes), settings.average,
    )  # fmt: skip


class _CurveEstimator(NamedTuple):
    """Computes the points and gains of one metric."""

    study: Study
    metric: str
    sampling: Sampling
    no_intervals: bool
    """Whether to leave intervals and tests out."""
    level: float

    def draws(self, confidences: SeedConfidences) -> Draws:
        """Return the metric with its influences for each draw in which it is defined."""
        s, by_seed = self.sampling, {}
        for seed in self.study.seeds:
            values = confidences.values(self.metric, seed)
            if values is not None:
                by_seed[seed] = influence(self.metric, values, values, s.correct, s.strata, s.average)
        return {seed: value for seed, value in by_seed.items() if value is not None}

    def point(self, name: str, size: int, confidences: SeedConfidences, draws: Draws) -> Point:
        """Return the point of a method at one size."""
        missing = Counter(confidences.missing.get(seed, "undefined") for seed in self.study.seeds if seed not in draws)
        estimate = None
        if draws:
            estimate, _ = self._estimate(OverSeeds.of([*draws.values()]), METRICS[self.metric].bounds)
        return Point(name, self.metric, size, confidences.labels, estimate, len(draws), dict(missing))

    def gain(self, name: str, other: str, size: int, trained: Draws, untrained: Draws) -> GainOverUntrained:
        """Return the gain of a trained method, `name`, over an untrained one, `other`, at one size."""
        seeds, metric = self.study.seeds, METRICS[self.metric]
        if len(trained) < len(seeds) or len(untrained) < len(seeds):
            return GainOverUntrained(name, other, self.metric, size, None, None)
        low, high = metric.bounds
        pair = (trained, untrained) if metric.higher_is_better else (untrained, trained)
        better, worse = (OverSeeds.of([side[seed] for seed in seeds]) for side in pair)
        return GainOverUntrained(
            name, other, self.metric, size, *self._estimate(better.minus(1.0, worse), (low - high, high - low))
        )

    def _estimate(self, values: OverSeeds, bounds: tuple[float, float]) -> tuple[SeedMean, float | None]:
        """Return the mean over draws with its interval, and the p value of the null that the mean is 0."""
        n_seeds = len(self.study.seeds)
        if self.no_intervals or len(values.by_seed) < n_seeds or n_seeds < MIN_SEEDS:
            return SeedMean(float(values.by_seed.mean()), None, None, None), None
        return estimate_over_seeds(self.metric, values, self.sampling, level=self.level, bounds=bounds)


def _lead_tests(gains: Sequence[GainOverUntrained]) -> Iterator[LeadTest]:
    """Yield the lead test of each trained method and size, from its gains over all untrained methods.

    The p value is the largest of these gains', where that of a negative difference counts as 1.
    """
    for method, size in dict.fromkeys((gain.method, gain.size) for gain in gains):
        pairs = [gain for gain in gains if (gain.method, gain.size) == (method, size)]
        p = {}
        for gain in pairs:
            if gain.p is not None and gain.difference is not None:
                p[gain.untrained] = gain.p if gain.difference.value > 0 else 1.0
        full = len(p) == len(pairs)
        against = max(p, key=lambda name: p[name]) if full else next(g.untrained for g in pairs if g.untrained not in p)
        yield LeadTest(method, pairs[0].metric, size, against, p[against] if full else None)
