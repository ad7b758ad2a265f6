"""How often intervals contain the truth, where it is known: simulated answers at the sizes of real benchmarks.

Two thousand simulated runs at MMLU's 57 subjects, 250 at MMLU-Pro's 14 and MedMCQA's 21; about eight minutes on an
idle core.
Intervals are made of 200 replicates here, which costs them about half a point of coverage, and of 60 label draws. The
numbers are printed: `python -m pytest -m slow -s tests/unit/stats/test_coverage.py`.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pytest

from bench.metrics import METRICS
from bench.metrics.answers import bin_of
from bench.stats import (
    Sample,
    Settings,
    basic_interval,
    calibrated_p,
    calibration_error,
    clustered_interval,
    compare,
    losses,
    mean_interval,
    resample,
    strata_of,
)
from bench.stats.intervals import no_spread_of_ranks
from bench.stats.resampling import RANKED

MMLU = (
    *[100] * 10, 102, 103, 108, 110, 112, 114, 121, 126, 131, 135, 144, 145, 151, 152, 163, 165, 166, 171, 173, 193,
    198, 201, 203, 204, 216, 223, 234, 235, 237, 238, 245, 265, 270, 272, 282, 306, 310, 311, 324, 346, 378, 390, 545,
    612, 783, 895, 1534,
)  # fmt: skip
MMLU_PRO = (381, 410, 499, 717, 789, 798, 818, 844, 924, 969, 1101, 1132, 1299, 1351)
MEDMCQA = (2, 16, 17, 20, 34, 53, 58, 67, 69, 122, 129, 171, 171, 224, 234, 234, 243, 295, 337, 369, 1318)
QUESTIONS = 2000
"""Equally likely questions from which a subject's are drawn."""
AT_57 = (0.93, 0.97)
"""Where the coverage of a 95 % interval must lie; by chance alone it lies within 0.94 to 0.96 in 2,000 runs."""


def tell(text):
    print(text)  # noqa: T201 - the numbers are what these tests are for


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def exact_auroc(p, right):
    """P(a right answer has more confidence than a wrong one) if answer i is right with probability right[i]."""
    order = np.argsort(p)
    below = np.cumsum((1 - right)[order]) - (1 - right)[order] / 2  # a question ties with itself
    return float(right[order] @ below / (right.sum() * (1 - right).sum()))


@dataclass
class World:
    """What subjects are like: two methods' confidences in each question, and how often its answer is right."""

    p: np.ndarray
    """(subjects, QUESTIONS)"""
    rival: np.ndarray
    right: np.ndarray
    sizes: np.ndarray

    @classmethod
    def of(cls, sizes, level, slope, seed=0):
        """Right answers with probability sigmoid(level + slope * logit(p)): calibrated at 0 and 1."""
        rng = np.random.default_rng(seed)
        logit = rng.normal(0.5, 0.7, (len(sizes), 1)) + rng.normal(0, 1.2, (len(sizes), QUESTIONS))
        rival = 0.8 * logit + rng.normal(0, 0.5, logit.shape)
        return cls(sigmoid(logit), sigmoid(rival), sigmoid(level + slope * logit), np.array(sizes))

    def truth(self):
        """Macro means over all questions, ECE that of infinitely many answers."""
        gaps = [
            np.abs(np.bincount(bin_of(p, 10), p - right)).sum() for p, right in zip(self.p, self.right, strict=True)
        ]
        brier = self.right * (1 - self.p) ** 2 + (1 - self.right) * self.p**2
        rival = self.right * (1 - self.rival) ** 2 + (1 - self.right) * self.rival**2
        hit = np.where(self.p > 0.5, self.right, 1 - self.right)
        loss = -self.right * np.log(self.p) - (1 - self.right) * np.log(1 - self.p)
        return {
            "acc": hit.mean(), "brier": brier.mean(), "nll": loss.mean(), "Brier difference": (brier - rival).mean(),
            "auroc": np.mean([exact_auroc(p, right) for p, right in zip(self.p, self.right, strict=True)]),
            "calibration error": np.mean(gaps) / QUESTIONS,
        }  # fmt: skip

    @cached_property
    def names(self):
        """Subject of each answer."""
        return [f"s{k}" for k, size in enumerate(self.sizes) for _ in range(size)]

    @cached_property
    def strata(self):
        return strata_of(self.names)

    def draw(self, rng):
        """Confidences, the rival's, and correctness of as many answers as there are."""
        subject = np.repeat(np.arange(len(self.sizes)), self.sizes)
        question = rng.integers(QUESTIONS, size=subject.size)
        right = rng.random(subject.size) < self.right[subject, question]
        return self.p[subject, question], self.rival[subject, question], right


def statistics(world, rng, seed):
    """Point estimate and interval of everything in one simulated run."""
    p, rival, o = world.draw(rng)
    strata = world.strata
    quick = Settings(replicates=200, model_draws=60, seed=seed)
    values = resample({"m": p[None]}, o, strata, quick)["m"]
    found = {name: (values[name].mean, mean_interval(loss, strata)) for name, loss in losses(p, o).items()}
    refused = no_spread_of_ranks(o, strata)
    for name in ("auroc", "aucpr", "ece"):
        interval = basic_interval(values[name].mean, values[name].replicates, strata, bounds=METRICS[name].bounds)
        found[name] = (values[name].mean, refused if refused and name in RANKED else interval)
    pair = compared(np.square(p - o), np.square(rival - o), strata)
    found["Brier difference"] = (pair.difference, pair.fixed)
    error = calibration_error(p, o, world.names, quick)
    found["calibration error"] = (error.value, error.interval)
    return found


def compared(first, second, strata):
    """Two methods with these Brier losses (n,), by Student's t; resamples would only correct p values."""
    samples = {
        name: Sample(float(strata.means(loss).mean()), np.zeros(2), loss, strata.means(loss))
        for name, loss in (("first", first), ("second", second))
    }
    (pair,) = compare("brier", samples, strata, [])
    return pair


def coverage(title, world, runs, seed=1):
    """Share of runs whose interval contains the truth, by name; printed with bias and width."""
    rng = np.random.default_rng(seed)
    found = defaultdict(list)
    for run in range(runs):
        for name, (value, interval) in statistics(world, rng, run).items():
            if interval.ends:
                found[name].append((value, interval.low, interval.high))
    truth, covered = world.truth(), {}
    tell(f"\n{title}, {len(world.sizes)} subjects, {runs} runs")
    for name, rows in found.items():
        value, low, high = np.array(rows).T
        # ECE and average precision of so many answers have no closed form: the truth is their mean over the runs.
        true = truth.get(name, value.mean())
        covered[name] = float(np.mean((low <= true) & (true <= high)))
        none = f", no interval in {runs - len(rows)} runs" if len(rows) < runs else ""
        tell(
            f"  {name:18} truth {true:.4f}  bias {value.mean() - true:+.4f}  width {np.mean(high - low):.4f}"
            f"  covered {covered[name]:.1%}, low {np.mean(true > high):.1%}, high {np.mean(true < low):.1%}{none}"
        )
    return covered


@pytest.mark.slow
def test_intervals_cover_at_the_sizes_of_mmlu():
    covered = coverage("too sure", World.of(MMLU, -0.3, 0.7), 2000)
    for name in ("acc", "brier", "nll", "auroc", "ece", "calibration error", "Brier difference"):
        assert AT_57[0] <= covered[name] <= AT_57[1], name


@pytest.mark.slow
@pytest.mark.parametrize(("level", "slope"), [(0, 1), (-1.5, 0.4)])
def test_intervals_of_ece_cover_however_calibrated(level, slope):
    covered = coverage(f"right with sigmoid({level} + {slope} logit p)", World.of(MMLU, level, slope), 100)
    assert covered["calibration error"] >= 0.88  # three standard errors of 100 runs below 0.95
    assert covered["ece"] >= 0.88  # and near calibration it is too wide


@pytest.mark.slow
@pytest.mark.parametrize(("title", "sizes"), [("MMLU-Pro", MMLU_PRO), ("MedMCQA", MEDMCQA)])
def test_coverage_at_fewer_subjects_is_reported(title, sizes):
    covered = coverage(f"{title}, too sure", World.of(sizes, -0.3, 0.7), 250)
    for name in ("acc", "brier", "auroc"):
        assert 0.9 < covered[name] < 0.99, name  # MedMCQA has a subject of two questions


@pytest.mark.slow
def test_clustered_intervals_cover_the_mean_of_all_subjects():
    world = World.of([150] * 1500, -0.3, 0.7)
    truth = world.truth()
    rng = np.random.default_rng(0)
    for sizes in (MMLU, MEDMCQA):
        hits = defaultdict(list)
        strata = strata_of([f"s{k}" for k, size in enumerate(sizes) for _ in range(size)])
        for _ in range(2000):
            chosen = rng.integers(1500, size=len(sizes))
            sample = World(world.p[chosen], world.rival[chosen], world.right[chosen], np.array(sizes))
            p, _, o = sample.draw(rng)
            for name in ("acc", "brier", "nll"):
                interval = clustered_interval(strata.means(losses(p, o)[name]))
                hits[name].append(interval.low <= truth[name] <= interval.high)
        covered = {name: float(np.mean(hit)) for name, hit in hits.items()}
        tell(f"\nclustered, {len(sizes)} subjects, 2000 runs: {covered}")
        assert all(AT_57[0] <= share <= AT_57[1] for share in covered.values()) or len(sizes) < len(MMLU)


@pytest.mark.slow
def test_paired_test_errs_as_often_as_it_says():
    world = World.of(MMLU, 0, 1)
    difference = world.truth()["Brier difference"]
    rng = np.random.default_rng(0)
    p_values = []
    for _ in range(2000):
        p, rival, o = world.draw(rng)
        as_good = np.square(rival - o) + difference  # the rival's loss moved so that nothing is between them
        p_values.append(compared(np.square(p - o), as_good, world.strata).p)
    for alpha in (0.01, 0.05, 0.2):
        share = np.mean(np.array(p_values) < alpha)
        tell(f"\npaired test: p < {alpha} in {share:.1%} of 2000 runs without a difference")
        assert share == pytest.approx(alpha, abs=4 * np.sqrt(alpha * (1 - alpha) / 2000))


@pytest.mark.slow
def test_calibration_is_rejected_as_seldom_as_it_says():
    world = World.of(MMLU[::3], 0, 1)
    rng = np.random.default_rng(0)
    p_values = []
    for run in range(600):
        p, _, o = world.draw(rng)
        p_values.append(calibrated_p(p, o, world.names, Settings(null_draws=199, seed=run)))
    share = np.mean(np.array(p_values) <= 0.05)
    tell(f"\ncalibrated confidences are called uncalibrated at 0.05 in {share:.1%} of 600 runs")
    assert share == pytest.approx(0.05, abs=0.03)
