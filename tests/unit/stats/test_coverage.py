"""How often intervals contain the truth at the sizes of real benchmarks, as means over subjects and for other subjects.

`make simulate` measures metrics of all questions. Here are means over MMLU's 57 subjects, MMLU-Pro's 14 and MedMCQA's
20, and samples of subjects. The numbers are printed: `python -m pytest -m slow -s tests/unit/stats/test_coverage.py`.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
import pytest

from bench.metrics.calibration import ANSWERS_A_BIN, MASS_BINS, equal_mass
from bench.stats import Sampling, Settings, calibrated_p, influence, strata_of, summary
from bench.stats.comparison import compare

MMLU = (
    *[100] * 10, 102, 103, 108, 110, 112, 114, 121, 126, 131, 135, 144, 145, 151, 152, 163, 165, 166, 171, 173, 193,
    198, 201, 203, 204, 216, 223, 234, 235, 237, 238, 245, 265, 270, 272, 282, 306, 310, 311, 324, 346, 378, 390, 545,
    612, 783, 895, 1534,
)  # fmt: skip
MMLU_PRO = (381, 410, 499, 717, 789, 798, 818, 844, 924, 969, 1101, 1132, 1299, 1351)
MEDMCQA = (16, 17, 20, 34, 53, 58, 67, 69, 122, 129, 171, 171, 224, 234, 234, 243, 295, 337, 369, 1318)
"""But for its subject of two questions, of which a mean over subjects would say too little."""
QUESTIONS = 2000
"""Equally likely questions from which a subject's are drawn."""
RUNS = 400
AT_400 = (0.9175, 0.98)
"""Where the coverage of a 95 % interval must lie: within three standard errors of 400 runs."""


def tell(text):
    print(text)  # noqa: T201 - the numbers are what these tests are for


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def exact_auroc(p, right):
    """P(a right answer has more confidence than a wrong one) if answer i is right with probability right[i]."""
    order = np.argsort(p)
    below = np.cumsum((1 - right)[order]) - (1 - right)[order] / 2  # a question ties with itself
    return float(right[order] @ below / (right.sum() * (1 - right).sum()))


def mean_square_gap(p, right, n):
    """Square of RMSCE in as many bins as n answers have."""
    group = equal_mass(p, min(MASS_BINS, max(1, n // ANSWERS_A_BIN)))
    return np.sum(np.square(np.bincount(group, p - right)) / np.bincount(group)) / p.size


@dataclass
class World:
    """What subjects are like: two methods' confidences in each question, and how often its answer is right."""

    p: np.ndarray
    """(subjects, QUESTIONS)"""
    rival: np.ndarray
    right: np.ndarray

    @classmethod
    def of(cls, subjects, level, slope):
        """Right answers with probability sigmoid(level + slope * logit(p)): calibrated at 0 and 1."""
        rng = np.random.default_rng(0)
        logit = rng.normal(0.5, 0.7, (subjects, 1)) + rng.normal(0, 1.2, (subjects, QUESTIONS))
        rival = 0.8 * logit + rng.normal(0, 0.5, logit.shape)
        return cls(sigmoid(logit), sigmoid(rival), sigmoid(level + slope * logit))

    def truth(self, sizes):
        """Means over subjects of the first method's metrics, of as many bins as so many answers have."""
        loss = -self.right * np.log(self.p) - (1 - self.right) * np.log(1 - self.p)
        brier, rival = (self.right * (1 - p) ** 2 + (1 - self.right) * p**2 for p in (self.p, self.rival))
        gaps = [mean_square_gap(p, right, n) for p, right, n in zip(self.p, self.right, sizes, strict=False)]
        return {
            "acc": np.where(self.p > 0.5, self.right, 1 - self.right).mean(), "brier": brier.mean(), "nll": loss.mean(),
            "auroc": np.mean([exact_auroc(p, right) for p, right in zip(self.p, self.right, strict=True)]),
            "rmsce": np.sqrt(np.mean(gaps)), "Brier difference": (brier - rival).mean(),
        }  # fmt: skip

    def draw(self, sizes, rng, subjects=None):
        """Statistics of both methods on so many answers, of these subjects or of the first ones."""
        subject = np.repeat(np.arange(len(sizes)) if subjects is None else subjects, sizes)
        question = rng.integers(QUESTIONS, size=subject.size)
        o = rng.random(subject.size) < self.right[subject, question]
        names = [f"s{k}" for k, size in enumerate(sizes) for _ in range(size)]
        methods = {"first": self.p[subject, question], "rival": self.rival[subject, question]}
        return summary(methods, o, names, Settings("subjects", null_draws=1))


def covered(world, sizes, kind, *, of_subjects=False):
    """Share of intervals that contain the truth, by metric, of those that there are."""
    rng, truth, hits = np.random.default_rng(1), world.truth(sizes), defaultdict(list)
    for _ in range(RUNS):
        subjects = rng.integers(len(world.p), size=len(sizes)) if of_subjects else None
        found = world.draw(sizes, rng, subjects)
        intervals = {name: getattr(each, kind) for name, each in found.methods["first"].estimates.items()}
        intervals["Brier difference"] = getattr(found.comparisons["brier"][0], kind)
        for name, true in truth.items():
            if intervals[name].ends:
                hits[name].append(intervals[name].low <= true <= intervals[name].high)
    shares = {name: float(np.mean(each)) for name, each in hits.items()}
    tell(f"\n{kind}, {len(sizes)} subjects, {RUNS} runs: {shares}; intervals in {len(hits['auroc'])} of them for AUROC")
    return shares


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sizes", "level", "slope"), [(MMLU, -0.3, 0.7), (MMLU, 0, 1), (MMLU_PRO, -0.3, 0.7), (MEDMCQA, -0.3, 0.7)]
)
def test_intervals_of_means_over_subjects_cover(sizes, level, slope):
    shares = covered(World.of(len(sizes), level, slope), sizes, "fixed")
    assert shares.pop("rmsce", 1.0) >= AT_400[0]  # too long where gaps are small
    assert {name: share for name, share in shares.items() if not AT_400[0] <= share <= AT_400[1]} == {}


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [MMLU, [150] * 20])
def test_clustered_intervals_cover_the_mean_of_all_subjects(sizes):
    shares = covered(World.of(1500, -0.3, 0.7), sizes, "clustered", of_subjects=True)
    del shares["rmsce"]  # its truth depends on the sizes of the subjects
    assert {name: share for name, share in shares.items() if not AT_400[0] <= share <= AT_400[1]} == {}


@pytest.mark.slow
def test_calibration_is_rejected_as_seldom_as_it_says():
    rng = np.random.default_rng(0)
    p_values = []
    for run in range(600):
        p = rng.random(3000)
        p_values.append(calibrated_p(p, rng.random(3000) < p, ["a"] * 3000, Settings(null_draws=199, seed=run)))
    share = np.mean(np.array(p_values) <= 0.05)
    tell(f"\ncalibrated confidences are called uncalibrated at 0.05 in {share:.1%} of 600 runs")
    assert share == pytest.approx(0.05, abs=0.03)


@pytest.mark.slow
@pytest.mark.parametrize("n", [1200, 5700])
@pytest.mark.parametrize(
    ("errors", "least"),
    [((0.02, 0.04), 0.94), ((0.05, 0.08), 0.94), ((0.04, 0.1), 0.94), ((0.01, 0.15), 0.94), ((0.0, 0.08), 0.88)],
)
def test_interval_of_a_difference_of_rmsce_is_cautious(n, errors, least):
    """Both methods are too sure by their error everywhere, so that this is their RMSCE."""
    rng, covered = np.random.default_rng(5), []
    for _ in range(300):
        chance = rng.uniform(0.25, 0.75, n)
        correct, sign = rng.random(n) < chance, np.sign(chance - 0.5)
        strata = strata_of([""] * n)
        methods = {e: influence("rmsce", p := chance + e * sign, p, correct, strata, "questions") for e in errors}
        sampling = Sampling.of(strata, correct, "questions")
        (pair,) = compare("rmsce", methods, sampling, [errors], Settings(draws=1))
        if pair.fixed.ends is not None:  # near 0 both may come to nothing
            covered.append(pair.fixed.ends[0] <= errors[0] - errors[1] <= pair.fixed.ends[1])
    tell(f"difference of rmsce, n = {n}, {errors}: {np.mean(covered):.3f} of {len(covered)}")
    assert len(covered) > 200
    assert np.mean(covered) >= least
