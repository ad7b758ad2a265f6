"""Learning curves: metrics against the number of labels, gains over untrained methods, and where the curves cross.

A point of a curve is one method trained with a number of labels (the size), averaged over several random draws of
labels; the seed of a draw also seeds training. Standard errors are those of `bench.stats.variants`: variance components
of questions and of draws, with Satterthwaite's degrees of freedom. A point with a missing draw has a value, but neither
interval nor test, because the draws that are left are a selection.

Three kinds of claims are made. Each correction of p values is for one metric, with family-wise error rate 1 - level.

- `GainOverUntrained`: a trained method is better or worse than an untrained one. P values are corrected by Holm's
  method over sizes, for each pair and metric.
- `Crossing`: the sizes between which two curves cross, derived from gains. It starts at the last size at which the
  trained method is significantly worse. It ends at the first size from which on it is significantly better. The true
  crossing lies between if the difference is monotone in the number of labels.
- `LeadTest`: a trained method is better than all untrained ones. The p value is the largest of the pairs'
  (intersection-union test; Berger, 1982), which needs no choice of a best reference. It is corrected by Holm's method
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
"""Metrics for which curves are drawn, by their names in `bench.metrics.METRICS`."""
ONE_KIND = "only right or only wrong answers were drawn"
"""Reason why a method has no confidences for a draw of labels: it can't learn from labels of one class."""


@dataclass(frozen=True, eq=False)
class SeedConfidences:
    """Confidences of one method for n questions, trained with one number of labels, for each random draw of labels."""

    labels: int
    """Number of labels that the method used; less than requested if no more were available."""
    confidence: Mapping[int, FloatArray]
    """Seed of a draw of labels -> confidences (n,); draws without confidences are absent."""
    order: Mapping[int, FloatArray] = field(default_factory=dict)
    """Seed of a draw of labels -> scores (n,) for rank-based metrics; absent where confidences serve for them too."""
    missing: Mapping[int, str] = field(default_factory=dict)
    """Seed of a draw of labels -> reason why it gave no confidences."""

    def values(self, metric: str, seed: int) -> FloatArray | None:
        """Return the input (n,) of a metric for a draw: scores if the metric is rank-based, else confidences.

        None if the draw has no confidences.
        """
        confidence = self.confidence.get(seed)
        return self.order.get(seed, confidence) if METRICS[metric].is_rank_based else confidence


@dataclass(frozen=True)
class Point:
    """One point of a learning curve: a metric of a method trained with some number of labels."""

    method: str
    metric: str
    size: int
    """Requested number of labels."""
    labels: int
    """Number of labels that the method used."""
    estimate: SeedMean | None
    """Mean of the metric over the draws of labels in which it is defined; None if it is defined in no draw."""
    draws: int
    """Number of draws of labels in which the metric is defined."""
    missing: Mapping[str, int] = field(default_factory=dict)
    """Reason why the metric is missing in a draw of labels -> number of such draws."""


@dataclass(frozen=True)
class GainOverUntrained:
    """Paired difference in one metric between a trained and an untrained method, at the same number of labels."""

    method: str
    untrained: str
    metric: str
    size: int
    difference: SeedMean | None
    """Difference, positive where the trained method is better, whatever the metric. None if the metric is missing or
    undefined in a draw of labels for one of the two methods."""
    p: float | None
    """Two-sided p value of the null hypothesis of no difference. None without a test; 1 if the difference does not
    vary."""
    p_holm: float | None = None
    """The p value `p`, corrected by Holm's method over the numbers of labels, for this pair of methods and this
    metric."""
    p_all: float | None = None
    """The p value `p`, corrected by Holm's method over all pairs of methods and numbers of labels, for this metric."""

    def shows(self, sign: int, level: float) -> bool:
        """Whether the trained method is significantly better (sign 1) or worse (sign -1) than the untrained one."""
        is_shown = self.p_holm is not None and self.p_holm < 1 - level
        return is_shown and self.difference is not None and sign * self.difference.value > 0


@dataclass(frozen=True)
class Crossing:
    """Numbers of labels (sizes) between which the curve of a trained method crosses that of an untrained one."""

    method: str
    untrained: str
    metric: str
    better_from: int | None
    """Smallest size such that the trained method is significantly better at this and all larger sizes; None if there is
    none."""
    worse_at: tuple[int, ...]
    """Numbers of labels at which the trained method is significantly worse than the untrained one."""
    better_at: tuple[int, ...]
    """Numbers of labels at which the trained method is significantly better than the untrained one."""


@dataclass(frozen=True)
class LeadTest:
    """Test whether a trained method, with one number of labels, is better than every untrained method."""

    method: str
    metric: str
    size: int
    against: str
    """The untrained method with the largest p value against the trained one. If tests are missing, the first untrained
    method whose test is missing."""
    p: float | None
    """P value of the null hypothesis that the trained method is not better than every untrained one. None if the test
    against one of the untrained methods is missing."""
    p_holm: float | None = None
    """The p value `p`, corrected by Holm's method over all trained methods and numbers of labels, for this metric."""

    def is_shown(self, level: float) -> bool:
        """Whether the trained method is significantly better than every untrained method."""
        return self.p_holm is not None and self.p_holm < 1 - level


@dataclass(frozen=True)
class CorrectCounts:
    """Numbers of right and wrong answers in a split whose labels can be used."""

    split: str
    """Name of task and split, as `task/split`."""
    right: int
    wrong: int

    @property
    def base_rate(self) -> float:
        """Share of right answers in the split."""
        return self.right / max(1, self.right + self.wrong)


@dataclass(frozen=True)
class Study:
    """Design of a label study on one task: methods are trained with several numbers of labels and compared."""

    model: str
    task: str
    preset: str
    sizes: tuple[int, ...]
    """Requested numbers of labels, ascending."""
    available: int
    """Number of labels, in train and validation splits together, that are available to the method with most labels."""
    seeds: tuple[int, ...]
    trained: tuple[str, ...]
    scaled: tuple[str, ...]
    """Names of the untrained methods whose scores are scaled to probabilities with labels."""
    untold: tuple[str, ...]
    """Untrained methods whose confidences need no labels at all."""
    counts: tuple[CorrectCounts, ...] = ()
    absent: Mapping[str, str] = field(default_factory=dict)
    """Method -> reason why the study leaves it out."""
    validation: Mapping[int, int] = field(default_factory=dict)
    """Number of labels -> how many of them come from the validation split, for methods that use both splits."""
    forward_tokens: int = 0
    """Number of token positions that the command fed to the model, for the studies of all its tasks together."""
    level: float = 0.95

    @property
    def untrained(self) -> tuple[str, ...]:
        """Names of the untrained methods: first those with scaled scores, then those that need no labels."""
        return (*self.scaled, *self.untold)


@dataclass(frozen=True)
class LabelCurves:
    """Results of a label study on one task: points of learning curves, gains, crossings and lead tests."""

    study: Study
    n: int
    """Number of test questions."""
    accuracy: float
    """Share of right answers among the test questions."""
    points: tuple[Point, ...]
    gains: tuple[GainOverUntrained, ...]
    crossings: tuple[Crossing, ...]
    ahead: tuple[LeadTest, ...]
    notes: tuple[str, ...] = ()
    """Sentences that say why metrics have no intervals."""
    average: Average = "subjects"
    """Whether metrics are pooled over questions or averaged over subjects. Stored studies without this field have means
    over subjects."""

    def of(self, method: str, metric: str) -> list[Point]:
        """Return the points of a method's learning curve for one metric."""
        return [point for point in self.points if (point.method, point.metric) == (method, metric)]


Draws = Mapping[int, Influence]
"""Seed of a draw of labels -> a metric with its influences, for one method and number of labels.

Draws in which the metric is undefined are absent.
"""


def compute_label_curves(
    confidences: Mapping[tuple[str, int], SeedConfidences],
    study: Study,
    correct: BoolArray,
    subjects: Sequence[str],
    settings: Settings | None = None,
) -> LabelCurves:
    """Compute the learning curves of a label study, with gains over untrained methods, crossings and lead tests.

    Args:
        confidences: (method, number of labels) -> confidences for n questions. For a method without labels they are
            equal at every number of labels.
        study: design of the study; its seeds are those of the requested draws of labels.
        correct: shape (n,), bool.
        subjects: subject name of each question, n of them.
        settings: average and level; by default those of `Settings`, with the level of the study.
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
    """Estimator of the points and gains of one metric."""

    study: Study
    metric: str
    sampling: Sampling
    no_intervals: bool
    """Whether intervals and tests are left out for this metric."""
    level: float

    def draws(self, confidences: SeedConfidences) -> Draws:
        """Return seed -> the metric with its influences, for each draw of labels in which it is defined."""
        s, by_seed = self.sampling, {}
        for seed in self.study.seeds:
            values = confidences.values(self.metric, seed)
            if values is not None:
                by_seed[seed] = influence(self.metric, values, values, s.correct, s.strata, s.average)
        return {seed: value for seed, value in by_seed.items() if value is not None}

    def point(self, name: str, size: int, confidences: SeedConfidences, draws: Draws) -> Point:
        """Return the point of a method's curve at one number of labels."""
        missing = Counter(confidences.missing.get(seed, "undefined") for seed in self.study.seeds if seed not in draws)
        estimate = None
        if draws:
            estimate, _ = self._estimate(OverSeeds.of([*draws.values()]), METRICS[self.metric].bounds)
        return Point(name, self.metric, size, confidences.labels, estimate, len(draws), dict(missing))

    def gain(self, name: str, other: str, size: int, trained: Draws, untrained: Draws) -> GainOverUntrained:
        """Return the gain of a trained method, `name`, over an untrained one, `other`, at one number of labels."""
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
        """Return the mean over draws of labels with its interval, and the p value of the null that the mean is 0."""
        n_seeds = len(self.study.seeds)
        if self.no_intervals or len(values.by_seed) < n_seeds or n_seeds < MIN_SEEDS:
            return SeedMean(float(values.by_seed.mean()), None, None, None), None
        return estimate_over_seeds(self.metric, values, self.sampling, level=self.level, bounds=bounds)


def _lead_tests(gains: Sequence[GainOverUntrained]) -> Iterator[LeadTest]:
    """Yield a test for each trained method and number of labels: is it better than every untrained method?

    The p value is the largest of the p values of the method's gains over untrained methods. Gains below 0 count as p
    value 1.
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
