"""Curves over numbers of labels: planted crossings are found where they are, and nothing is claimed beyond that."""

from __future__ import annotations

import numpy as np
import pytest

from bench.api import FloatArray
from bench.metrics import auroc
from bench.stats.holm import holm
from bench.stats.label_budgets import (
    ONE_KIND,
    GainOverUntrained,
    LabelCurves,
    SeedConfidences,
    Study,
    compute_label_curves,
)
from bench.stats.settings import Average, Settings

N, SUBJECTS = 600, [f"s{i % 3}" for i in range(600)]
CORRECT = np.random.default_rng(5).random(N) < 0.6
SIZES, SEEDS = (20, 50, 100, 200), (0, 1, 2, 3, 4)


def study(
    trained: tuple[str, ...] = ("grows", "still"), untold: tuple[str, ...] = ("flat",), seeds: tuple[int, ...] = SEEDS
) -> Study:
    return Study("tiny", "atlas", "demo", SIZES, 200, seeds, trained, (), untold)


def sure(strength: float, *key: int) -> FloatArray:
    """Confidences that know the answers so well, with noise of their own."""
    noise = np.random.default_rng(list(key)).normal(size=N)
    return 1 / (1 + np.exp(-(strength * (2.0 * CORRECT - 1) + noise)))


FLAT = sure(0.6, 99)


def planted(seeds: tuple[int, ...] = SEEDS) -> dict[tuple[str, int], SeedConfidences]:
    """`grows` is worse than `flat` with 20 labels, like it with 50, better from 100 on; `still` is always worse."""
    strength = {20: 0.0, 50: 0.6, 100: 1.2, 200: 3.0}
    told = {("flat", size): SeedConfidences(0, dict.fromkeys(seeds, FLAT)) for size in SIZES}
    for i, size in enumerate(SIZES):
        told["grows", size] = SeedConfidences(size, {seed: sure(strength[size], seed, i) for seed in seeds})
        told["still", size] = SeedConfidences(size, {seed: sure(0.1, seed, i, 7) for seed in seeds})
    return told


@pytest.fixture(scope="module")
def curves() -> LabelCurves:
    return compute_label_curves(planted(), study(), CORRECT, SUBJECTS)


def gain_of(curves: LabelCurves, method: str, size: int, metric: str = "brier") -> GainOverUntrained:
    return next(g for g in curves.gains if (g.method, g.size, g.metric) == (method, size, metric))


@pytest.mark.parametrize("metric", ["brier", "auroc"])
def test_crossing_planted_is_found_at_its_sizes(curves: LabelCurves, metric: str) -> None:
    found = {each.method: each for each in curves.crossings if each.metric == metric}
    assert (found["grows"].worse_at, found["grows"].better_from) == ((20,), 100)
    assert found["grows"].better_at == (100, 200)


@pytest.mark.parametrize("metric", ["brier", "auroc"])
def test_crossing_needs_a_method_that_gets_better(curves: LabelCurves, metric: str) -> None:
    found = {each.method: each for each in curves.crossings if each.metric == metric}
    assert found["still"].better_from is None
    assert found["still"].worse_at == SIZES
    assert not [each for each in curves.ahead if each.method == "still" and each.is_shown(0.95)]


def test_crossing_must_last_to_the_largest_size() -> None:
    told = planted()
    for seed in SEEDS:
        told["grows", 200].confidence[seed][:] = sure(0.0, seed, 55)
    found = compute_label_curves(told, study(), CORRECT, SUBJECTS)
    (crossing,) = (c for c in found.crossings if (c.method, c.metric) == ("grows", "brier"))
    assert (crossing.better_at, crossing.better_from, crossing.worse_at) == ((100,), None, (20, 200))


@pytest.mark.parametrize("average", ["questions", "subjects"])
def test_label_curves_are_means_over_draws(average: Average) -> None:
    curves = compute_label_curves(planted(), study(), CORRECT, SUBJECTS, Settings(average=average))
    assert curves.average == average
    told, places = planted(), [np.arange(N)] if average == "questions" else [np.arange(s, N, 3) for s in range(3)]
    for point in curves.points:
        runs = told[point.method, point.size].confidence.values()
        if point.metric == "brier":
            values = [[np.square(p[rows] - CORRECT[rows]).mean() for rows in places] for p in runs]
        else:
            values = [[auroc(p[rows], CORRECT[rows]) for rows in places] for p in runs]
        assert point.estimate is not None
        assert point.estimate.value == pytest.approx(np.mean(values))
        assert (point.draws, point.labels) == (5, 0 if point.method == "flat" else point.size)
    for metric in ("brier", "auroc"):
        difference = gain_of(curves, "grows", 200, metric).difference
        assert difference is not None
        assert difference.value > 0


def test_brier_gain_error_has_questions_and_draws(curves: LabelCurves) -> None:
    """Closed form: variance of a mean of paired losses within subjects, plus that of the means of five draws over 5."""
    told, places = planted(), [np.arange(s, N, 3) for s in range(3)]
    for size in SIZES:
        loss = np.array([
            np.square(FLAT - CORRECT) - np.square(p - CORRECT) for p in told["grows", size].confidence.values()
        ])  # fmt: skip
        of_questions = sum(loss.mean(axis=0)[rows].var(ddof=1) / rows.size for rows in places) / 9
        by_draw = np.mean([loss[:, rows].mean(axis=1) for rows in places], axis=0)
        difference = gain_of(curves, "grows", size).difference
        assert difference is not None
        assert difference.error == pytest.approx(np.sqrt(of_questions + by_draw.var(ddof=1) / 5))
        assert difference.value == pytest.approx(by_draw.mean())


def test_gains_are_corrected_over_sizes_of_a_pair(curves: LabelCurves) -> None:
    for method in ("grows", "still"):
        for metric in ("brier", "auroc"):
            own = [gain_of(curves, method, size, metric) for size in SIZES]
            assert [g.p_holm for g in own] == pytest.approx(holm([g.p or 0 for g in own]).tolist())


def test_lead_takes_largest_p_value_and_holm() -> None:
    told = planted()
    told |= {("strong", size): SeedConfidences(0, dict.fromkeys(SEEDS, sure(1.2, 98))) for size in SIZES}
    found = compute_label_curves(told, study(untold=("flat", "strong")), CORRECT, SUBJECTS)
    for metric in ("brier", "auroc"):
        own = [each for each in found.ahead if each.metric == metric]
        assert len(own) == 2 * len(SIZES)
        for each in own:
            pairs = [g for g in found.gains if (g.method, g.size, g.metric) == (each.method, each.size, metric)]
            p = {g.untrained: g.p if g.difference and g.difference.value > 0 else 1.0 for g in pairs}
            assert each.p == max(v for v in p.values() if v is not None)
            assert p[each.against] == each.p
        assert [each.p_holm for each in own] == pytest.approx(holm([each.p or 0 for each in own]).tolist())
        assert {(e.method, e.size) for e in own if e.is_shown(0.95)} == {("grows", 200)}


def test_lead_of_three_questions_is_not_shown() -> None:
    """All of one subject, where each question says nearly the same, so that hardly anything varies."""
    better = np.append(np.where(CORRECT[:3], 0.9, 0.1) + np.arange(3) / 1e3, FLAT[3:])
    worse = np.append(np.where(CORRECT[:3], 0.1, 0.9), FLAT[3:])
    told = {(name, size): SeedConfidences(0, dict.fromkeys(SEEDS, p)) for size in SIZES
            for name, p in (("flat", worse), ("grows", better))}  # fmt: skip
    found = compute_label_curves(told, study(("grows",)), CORRECT, ["few"] * 3 + ["s"] * (N - 3))
    gain, lead = gain_of(found, "grows", 20), next(lead for lead in found.ahead if lead.metric == "brier")
    assert gain.difference is not None
    assert (gain.difference.value > 0, gain.difference.ends, gain.p, lead.p_holm) == (True, None, 1, 1)


def test_gains_without_a_difference_are_rarely_shown() -> None:
    """At most 5 % of studies claim anything of a pair without a difference; noise of questions and draws is planted."""
    rng, wrong, ahead, times, n = np.random.default_rng(3), 0, 0, 100, 120
    subjects, correct = ["a", "b"] * (n // 2), np.tile([True, True, False, False], n // 4)
    about = Study("m", "t", "demo", (20, 50, 100), 100, SEEDS, ("even",), (), ("flat",))
    for _ in range(times):
        flat = np.clip(0.5 + 0.1 * rng.normal(size=n), 0, 1)
        told = {("flat", size): SeedConfidences(0, dict.fromkeys(SEEDS, flat)) for size in about.sizes}
        for size in about.sizes:
            shift = 0.1 * rng.normal(size=n)  # the same for all draws
            told["even", size] = SeedConfidences(
                size, {s: np.clip(0.5 + 0.8 * shift + 0.06 * rng.normal(size=n), 0, 1) for s in SEEDS}
            )
        found = compute_label_curves(told, about, correct, subjects)
        wrong += any(g.metric == "brier" and (g.shows(1, 0.95) or g.shows(-1, 0.95)) for g in found.gains)
        ahead += any(each.metric == "auroc" and each.is_shown(0.95) for each in found.ahead)
    assert wrong / times <= 0.09  # 0.05 and two standard errors of 100 trials
    assert ahead / times <= 0.09


def test_point_without_all_draws_has_only_its_mean() -> None:
    told = planted()
    whole = told["grows", 200]
    left = {seed: whole.confidence[seed] for seed in (0, 2, 4)}
    told["grows", 200] = SeedConfidences(200, left, missing={1: ONE_KIND, 3: ONE_KIND})
    found = compute_label_curves(told, study(), CORRECT, SUBJECTS)
    point = next(p for p in found.points if (p.method, p.size, p.metric) == ("grows", 200, "brier"))
    assert (point.draws, dict(point.missing)) == (3, {ONE_KIND: 2})
    assert point.estimate is not None
    assert point.estimate.low is None
    gain = gain_of(found, "grows", 200)
    assert (gain.difference, gain.p, gain.p_holm) == (None, None, None)
    crossing = next(c for c in found.crossings if (c.method, c.metric) == ("grows", "brier"))
    assert crossing.better_from is None, "what isn't shown at the largest size is no lasting lead"
    assert next(a for a in found.ahead if (a.method, a.size, a.metric) == ("grows", 200, "brier")).p is None


def test_scores_alone_have_auroc_at_every_size() -> None:
    told = planted()
    order = dict.fromkeys(SEEDS, sure(1.0, 4))
    told |= {("scored", size): SeedConfidences(size, {}, order, dict.fromkeys(SEEDS, ONE_KIND)) for size in SIZES}
    about = Study("tiny", "atlas", "demo", SIZES, 200, SEEDS, ("grows", "still"), ("scored",), ("flat",))
    found = compute_label_curves(told, about, CORRECT, SUBJECTS)
    brier, ranks = ([p for p in found.points if (p.method, p.metric) == ("scored", m)] for m in ("brier", "auroc"))
    assert all(p.estimate is None and p.missing == {ONE_KIND: 5} for p in brier)
    assert len({p.estimate.value for p in ranks if p.estimate}) == 1
    assert all(p.draws == 5 and not p.missing for p in ranks)


def test_seeds_too_few_have_neither_intervals_nor_crossings() -> None:
    found = compute_label_curves(planted((0, 1)), study(seeds=(0, 1)), CORRECT, SUBJECTS)
    assert all(p.estimate is not None and p.estimate.low is None for p in found.points)
    assert not any(c.better_from or c.worse_at or c.better_at for c in found.crossings)
    assert not any(a.p is not None for a in found.ahead)
    assert "2 draws of labels don't show how much draws differ" in found.notes[0]
