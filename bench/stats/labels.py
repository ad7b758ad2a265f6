"""Quality against the number of labels: curves, differences to what is not trained, and where the curves cross.

A point is one method told so many labels, in several draws of labels; each draw has a training seed of its own. Errors
are those of `bench.stats.variants`: other questions and other draws, squares added, Student's t after Satterthwaite. A
point of which a draw is missing has a value, but neither interval nor test: what is left are the draws that went well.

Three claims, each with an error rate of 1 - level of its own:

- `Gain`, a trained method against an untrained one: p values of the sizes are corrected together by Holm's rule, for
  each pair and metric. So of the sizes at which one of a pair is said to be better, none is wrong, but for 5 %.
- `Crossing`: read off these. If the difference only grows with labels, the true crossing lies between the last size at
  which the trained one is shown to be worse and the first from which on it is shown to be better, but for 5 %.
- `LeadTest`, a trained method against all untrained ones at once. That it beats every one of them is false as soon as
  it fails to beat one, so that the largest p value of these pairs is one of the claim: an intersection-union test
  (Berger, 1982), which needs no choice of a best reference. These are corrected by Holm's rule over methods and sizes.
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
from bench.stats.variants import MIN_SEEDS, OverSeeds, SeedMean, estimated

METRICS_SHOWN = ("brier", "auroc")
"""Metrics of the curves, by their names in `bench.metrics.METRICS`."""
ONE_KIND = "only right or only wrong answers were drawn"
"""Reason why a draw has no numbers."""


@dataclass(frozen=True, eq=False)
class DrawnConfidences:
    """Confidences of a method in n questions after it was told labels, draw by draw."""

    labels: int
    """Labels that it was told; fewer than the size where there are no more for it."""
    confidence: Mapping[int, FloatArray]
    """Seed -> (n,); a draw without probabilities is absent."""
    order: Mapping[int, FloatArray] = field(default_factory=dict)
    """Seed -> (n,), what metrics of order are of where that is not the confidence."""
    missing: Mapping[int, str] = field(default_factory=dict)
    """Seed -> why it has no probabilities."""

    def values(self, metric: str, seed: int) -> FloatArray | None:
        """Values that a metric is of, (n,); None where there are none."""
        own = self.confidence.get(seed)
        return self.order.get(seed, own) if METRICS[metric].of_order else own


@dataclass(frozen=True)
class Point:
    """One metric of one method told so many labels."""

    method: str
    metric: str
    size: int
    labels: int
    """Labels that it was told."""
    estimate: SeedMean | None
    """Mean over the draws that have one; None where none has, or it is undefined."""
    draws: int
    """Draws that have one."""
    missing: Mapping[str, int] = field(default_factory=dict)
    """Reason -> draws without one."""


@dataclass(frozen=True)
class Gain:
    """Lead of a trained method over an untrained one, told as many labels, on the same questions."""

    method: str
    untrained: str
    metric: str
    size: int
    difference: SeedMean | None
    """Positive where the trained one is better, whichever way the metric goes; None where a draw of one is missing."""
    p: float | None
    """Two-sided, of no difference; None without interval."""
    p_holm: float | None = None
    """Corrected for the sizes of this pair and metric."""
    p_all: float | None = None
    """Corrected for all pairs and sizes of this metric."""

    def shows(self, sign: int, level: float) -> bool:
        """Whether the trained one is shown to be better (1) or worse (-1)."""
        is_shown = self.p_holm is not None and self.p_holm < 1 - level
        return is_shown and self.difference is not None and sign * self.difference.value > 0


@dataclass(frozen=True)
class Crossing:
    """Sizes between which the curve of a trained method crosses that of an untrained one."""

    method: str
    untrained: str
    metric: str
    better_from: int | None
    """Smallest size at which, and at all larger ones, the trained one is shown to be better; None: at none."""
    worse_at: tuple[int, ...]
    """Sizes at which it is shown to be worse."""
    better_at: tuple[int, ...]
    """Sizes at which it is shown to be better."""


@dataclass(frozen=True)
class LeadTest:
    """Test that a trained method told so many labels is better than every untrained one."""

    method: str
    metric: str
    size: int
    against: str
    """The untrained method that it is least clearly better than."""
    p: float | None
    """P value of the claim that it is not better than all; None where one of them can't be compared."""
    p_holm: float | None = None
    """Corrected for all methods and sizes of this metric."""

    def is_shown(self, level: float) -> bool:
        """Whether it is shown to be better than every untrained one."""
        return self.p_holm is not None and self.p_holm < 1 - level


@dataclass(frozen=True)
class LabelCount:
    """Answers of a split that can be told as labels."""

    split: str
    """Task and split."""
    right: int
    wrong: int

    @property
    def base_rate(self) -> float:
        """Share of right answers."""
        return self.right / max(1, self.right + self.wrong)


@dataclass(frozen=True)
class Study:
    """Description of a study of one task."""

    model: str
    task: str
    preset: str
    sizes: tuple[int, ...]
    """Numbers of labels, ascending."""
    available: int
    """Labels that there are, in training and validation."""
    seeds: tuple[int, ...]
    trained: tuple[str, ...]
    scaled: tuple[str, ...]
    """Methods that learn nothing but whose scores become probabilities by labels."""
    untold: tuple[str, ...]
    """Methods that are told nothing."""
    counts: tuple[LabelCount, ...] = ()
    absent: Mapping[str, str] = field(default_factory=dict)
    """Method -> why it is not in it."""
    validation: Mapping[int, int] = field(default_factory=dict)
    """Size -> labels of it that are validation answers, for a method that learns from both splits."""
    forward_tokens: int = 0
    """Token positions that were fed to the model for it."""
    level: float = 0.95

    @property
    def untrained(self) -> tuple[str, ...]:
        """Methods that learn nothing."""
        return (*self.scaled, *self.untold)


@dataclass(frozen=True)
class LabelCurves:
    """Results of a study of one task."""

    study: Study
    n: int
    """Questions."""
    accuracy: float
    """Share of right answers among them."""
    points: tuple[Point, ...]
    gains: tuple[Gain, ...]
    crossings: tuple[Crossing, ...]
    ahead: tuple[LeadTest, ...]
    notes: tuple[str, ...] = ()
    """Why there are no intervals, where there are none."""
    average: Average = "subjects"
    """What metrics are of; files that don't say have means over subjects."""

    def of(self, method: str, metric: str) -> list[Point]:
        """Curve of a method, by size."""
        return [point for point in self.points if (point.method, point.metric) == (method, metric)]


Draws = Mapping[int, Influence]
"""Seed -> one metric of a point; draws without a value are absent."""


def curves_of(
    told: Mapping[tuple[str, int], DrawnConfidences],
    study: Study,
    correct: BoolArray,
    subjects: Sequence[str],
    settings: Settings | None = None,
) -> LabelCurves:
    """Curves, differences and crossings of a study.

    Args:
        told: method and size -> its confidences in n questions; one that is told nothing has the same at every size.
        study: its description; `seeds` are the draws that were asked for.
        correct: (n,).
        subjects: of the n questions.
        settings: average and level.
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
    gains: list[Gain] = []
    ahead: list[LeadTest] = []
    for metric in METRICS_SHOWN:
        reason = sampling.refused(metric)
        if reason:
            notes.append(f"no intervals of {METRICS[metric].label}: {reason}")
        rule = _CurveRule(study, metric, sampling, bool(reason), settings.level)
        draws = {point: rule.draws(each) for point, each in told.items()}
        points += [rule.point(*point, each, draws[point]) for point, each in told.items()]
        own = [
            rule.gain(name, other, size, draws[name, size], draws[other, size])
            for name in study.trained
            for other in study.untrained
            for size in study.sizes
            if {(name, size), (other, size)} <= told.keys()
        ]
        own = with_holm(own, "p_all")
        for pair in dict.fromkeys((gain.method, gain.untrained) for gain in own):
            gains += with_holm([gain for gain in own if (gain.method, gain.untrained) == pair])
        ahead += with_holm(_ahead(own))
    crossings = []
    for metric, name, other in dict.fromkeys((gain.metric, gain.method, gain.untrained) for gain in gains):
        of_pair = (g for g in gains if (g.metric, g.method, g.untrained) == (metric, name, other))
        own = sorted(of_pair, key=lambda gain: gain.size)
        worse, better = (tuple(gain.size for gain in own if gain.shows(sign, settings.level)) for sign in (-1, 1))
        lasting = [gain.size for gain in takewhile(lambda gain: gain.shows(1, settings.level), reversed(own))]
        crossings.append(Crossing(name, other, metric, lasting[-1] if lasting else None, worse, better))
    return LabelCurves(
        study, len(correct), float(np.mean(correct)), tuple(points), tuple(gains), tuple(crossings), tuple(ahead),
        tuple(notes), settings.average,
    )  # fmt: skip


class _CurveRule(NamedTuple):
    """Makes points and gains of one metric."""

    study: Study
    metric: str
    sampling: Sampling
    bare: bool
    """Without intervals."""
    level: float

    def draws(self, told: DrawnConfidences) -> Draws:
        """The metric of each draw that has a value."""
        of, found = self.sampling, {}
        for seed in self.study.seeds:
            values = told.values(self.metric, seed)
            if values is not None:
                found[seed] = influence(self.metric, values, values, of.correct, of.strata, of.average)
        return {seed: each for seed, each in found.items() if each is not None}

    def point(self, name: str, size: int, told: DrawnConfidences, draws: Draws) -> Point:
        """Point of a method."""
        missing = Counter(told.missing.get(seed, "undefined") for seed in self.study.seeds if seed not in draws)
        estimate = None
        if draws:
            estimate, _ = self._estimate(OverSeeds.of([*draws.values()]), METRICS[self.metric].bounds)
        return Point(name, self.metric, size, told.labels, estimate, len(draws), dict(missing))

    def gain(self, name: str, other: str, size: int, own: Draws, theirs: Draws) -> Gain:
        """Difference of a trained method to an untrained one."""
        seeds, metric = self.study.seeds, METRICS[self.metric]
        if len(own) < len(seeds) or len(theirs) < len(seeds):
            return Gain(name, other, self.metric, size, None, None)
        low, high = metric.bounds
        pair = (own, theirs) if metric.higher_is_better else (theirs, own)
        better, worse = (OverSeeds.of([each[seed] for seed in seeds]) for each in pair)
        return Gain(name, other, self.metric, size, *self._estimate(better.less(1.0, worse), (low - high, high - low)))

    def _estimate(self, of: OverSeeds, bounds: tuple[float, float]) -> tuple[SeedMean, float | None]:
        """Mean over draws with its interval and p value of 0."""
        asked = len(self.study.seeds)
        if self.bare or len(of.by_seed) < asked or asked < MIN_SEEDS:
            return SeedMean(float(of.by_seed.mean()), None, None, None), None
        return estimated(self.metric, of, self.sampling, level=self.level, bounds=bounds)


def _ahead(gains: Sequence[Gain]) -> Iterator[LeadTest]:
    """For each method and size the largest p value of its pairs; one with a difference in the other direction has 1."""
    for method, size in dict.fromkeys((gain.method, gain.size) for gain in gains):
        own = [gain for gain in gains if (gain.method, gain.size) == (method, size)]
        p = {}
        for gain in own:
            if gain.p is not None and gain.difference is not None:
                p[gain.untrained] = gain.p if gain.difference.value > 0 else 1.0
        known = len(p) == len(own)
        against = max(p, key=lambda name: p[name]) if known else next(g.untrained for g in own if g.untrained not in p)
        yield LeadTest(method, own[0].metric, size, against, p[against] if known else None)
