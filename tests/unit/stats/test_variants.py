"""Variants of a method: planted differences are found and no others, and the spread of seeds is in the error."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from bench.api import Step
from bench.metrics import auroc, brier, ece, rmsce
from bench.stats import Average, Sampling, Settings, compare, influence, strata_of
from bench.stats.holm import holm
from bench.stats.variants import StepRow, VariantComparison, VariantRow, compare_variants

N, SEEDS = 400, 5
RNG = np.random.default_rng(4)
CORRECT = RNG.random(N) < 0.6
SUBJECTS = [f"s{i % 4}" for i in range(N)]
SIGNAL = np.where(CORRECT, 0.8, -0.8) + RNG.normal(size=N)


def confidence(strength: float, *, noise: float = 0.3, seed: int = 0) -> np.ndarray:
    """(seeds, n): noise of its own for each seed."""
    rng = np.random.default_rng([seed, 9])
    return 1 / (1 + np.exp(-(strength * SIGNAL + noise * rng.normal(size=(SEEDS, N)))))


def same_for_all_seeds(strength: float, seed: int) -> np.ndarray:
    return np.tile(confidence(strength, seed=seed)[:1], (SEEDS, 1))


def by_name(rows: tuple[VariantRow, ...], metric: str = "auroc") -> dict[str, VariantRow]:
    return {row.variant: row for row in rows if row.metric == metric}


def test_variant_planted_is_first_and_alone_significant() -> None:
    given = {"full": confidence(2.0), **{f"v{k}": confidence(2.0, seed=k) for k in range(1, 20)}}
    given["without the signal"] = confidence(0.0, seed=99)
    rows, _, notes = compare_variants(given, "full", CORRECT, SUBJECTS, ("brier", "auroc"))
    assert not notes
    found = by_name(rows)
    assert len(found) == 21
    assert found["full"].difference is None
    tested = {name: row for name, row in found.items() if row.difference is not None}
    assert max(tested, key=lambda name: tested[name].difference.value) == "without the signal"  # type: ignore[union-attr]
    corrected = {name: row.p_corrected for name, row in tested.items()}
    assert corrected.pop("without the signal") < 1e-6  # type: ignore[operator]
    assert min(p for p in corrected.values() if p is not None) > 0.05


@pytest.mark.parametrize("average", ["questions", "subjects"])
def test_variant_values_are_means_over_seeds(average: Average) -> None:
    given = {"full": confidence(2.0), "half": confidence(0.7, seed=1)}
    metrics = {"ece": ece, "brier": brier, "auroc": auroc}
    rows = compare_variants(given, "full", CORRECT, SUBJECTS, tuple(metrics), Settings(average=average)).rows
    places = [np.arange(N)] if average == "questions" else [np.arange(s, N, 4) for s in range(4)]
    for metric, of in metrics.items():
        value = {name: np.mean([[of(p[q], CORRECT[q]) for q in places] for p in runs]) for name, runs in given.items()}
        found = by_name(rows, metric)
        for name, row in found.items():
            assert row.estimate is not None
            assert row.estimate.value == pytest.approx(value[name])
        difference = found["half"].difference
        assert difference is not None
        assert difference.value == pytest.approx(value["full"] - value["half"])
        if metric == "ece":
            assert (difference.low, difference.error, found["half"].p) == (None, None, None)
        else:
            assert difference.low is not None
            assert difference.low < difference.value < (difference.high or 0)


def test_variant_of_equal_seeds_has_a_t_test() -> None:
    given = {"full": same_for_all_seeds(2.0, 0), "other": same_for_all_seeds(1.5, 1)}
    row = by_name(compare_variants(given, "full", CORRECT, ["s"] * N, ("brier",)).rows, "brier")["other"]
    expected = stats.ttest_rel(*(np.square(p[0] - CORRECT) for p in given.values()))
    assert row.difference is not None
    assert row.p == pytest.approx(expected.pvalue)
    assert (row.difference.low, row.difference.high) == pytest.approx(tuple(expected.confidence_interval(0.95)))


def test_variant_rmsce_is_that_of_a_comparison() -> None:
    given = {"full": confidence(2.0), "half": confidence(0.5, seed=1)}
    row = by_name(compare_variants(given, "full", CORRECT, SUBJECTS, ("rmsce",)).rows, "rmsce")["half"]
    values = {name: np.sqrt(np.mean([rmsce(p, CORRECT) ** 2 for p in runs])) for name, runs in given.items()}
    assert row.estimate is not None
    assert row.difference is not None
    assert row.estimate.value == pytest.approx(values["half"])
    assert row.difference.value == pytest.approx(values["full"] - values["half"])
    assert (row.estimate.low or 0) < row.estimate.value < (row.estimate.high or 0)
    alike = {"full": same_for_all_seeds(2.0, 0), "half": same_for_all_seeds(0.5, 1)}
    row = by_name(compare_variants(alike, "full", CORRECT, SUBJECTS, ("rmsce",)).rows, "rmsce")["half"]
    sampling = Sampling.of(strata_of(SUBJECTS), CORRECT, "questions")
    of = {name: influence("rmsce", p[0], p[0], CORRECT, sampling.strata, "questions") for name, p in alike.items()}
    (pair,) = compare("rmsce", of, sampling, [], Settings())
    assert row.difference is not None
    assert row.p == pytest.approx(pair.p)
    assert (row.difference.low, row.difference.high) == pytest.approx(pair.fixed.ends)
    assert row.difference.error == pytest.approx(pair.error)


def test_variant_rmsce_below_zero_does_not_differ() -> None:
    """Labels follow the first one's bins exactly, so that its squares are below 0, as are those of the second."""
    labels = np.tile(np.arange(10) < 5, 40)
    flat = np.full((SEEDS, N), 0.5)
    given = {"full": flat, "even": flat.copy(), "off": np.full((SEEDS, N), 0.6)}
    found = by_name(compare_variants(given, "full", labels, ["s"] * N, ("rmsce",)).rows, "rmsce")
    even = found["even"]
    assert found["full"].estimate is not None
    assert found["full"].estimate.value < 0
    assert even.difference is not None
    assert (even.difference.value, even.difference.low, even.p, even.p_corrected) == (0.0, None, 1.0, 1.0)
    assert found["off"].p_corrected == pytest.approx(2 * (found["off"].p or 0))


def test_variant_seeds_that_disagree_widen_intervals() -> None:
    same = np.tile(confidence(1.0, noise=0)[:1], (SEEDS, 1))
    worse = np.tile(confidence(1.0, noise=1.0, seed=5)[:1], (SEEDS, 1))
    mixed = np.where(np.arange(SEEDS)[:, None] % 2 == 0, worse, same)
    found = by_name(
        compare_variants({"full": same, "worse": worse, "mixed": mixed}, "full", CORRECT, SUBJECTS, ("auroc",))[0]
    )
    always, sometimes = found["worse"].difference, found["mixed"].difference
    assert always is not None
    assert sometimes is not None
    assert always.seed_share == 0
    assert (sometimes.seed_share or 0) > 0.2
    width = {row: (row.high or 0) - (row.low or 0) for row in (always, sometimes)}
    assert width[sometimes] > width[always]


def test_variant_equal_to_the_reference_does_not_differ() -> None:
    same = confidence(1.0)
    row = by_name(compare_variants({"full": same, "again": same}, "full", CORRECT, SUBJECTS, ("auroc",))[0])["again"]
    assert row.difference is not None
    assert (row.difference.value, row.difference.low, row.difference.high, row.p_corrected) == (0, None, None, 1)


@pytest.mark.parametrize(("size", "is_tested"), [(4, False), (5, True)])
def test_variants_differing_on_four_questions_are_not_distinguished(size: int, is_tested: bool) -> None:
    """They are all of one subject, where each question says nearly the same, so that hardly anything varies."""
    given = {name: same_for_all_seeds(1.0, 0) for name in ("full", "v")}
    for name, (right, wrong) in {"full": (0.8, 0.2), "v": (0.2, 0.8)}.items():
        given[name][:, :size] = np.where(CORRECT[:size], right, wrong) + np.arange(size) / 1e3
    rows, _, _ = compare_variants(given, "full", CORRECT, ["few"] * size + ["s"] * (N - size), ("brier",))
    row = by_name(rows, "brier")["v"]
    assert row.difference is not None
    assert row.difference.value < 0
    assert (row.difference.ends is not None, (row.p_corrected or 0) < 1) == (is_tested, is_tested)


def test_variant_without_spread_has_a_reason() -> None:
    labels = np.arange(N) >= 4
    given = {"full": confidence(1.0), "v": confidence(0.5)}
    rows, _, notes = compare_variants(given, "full", labels, SUBJECTS, ("smece", "auroc"))
    assert notes == (
        "no intervals of smECE: it stands there for comparison alone",
        "no intervals of AUROC: 20 wrong answers are needed to tell how far AUROC varies, there are 4",
    )
    assert all(row.estimate is not None and row.estimate.low is None and row.p is None for row in rows)


def test_variant_intervals_cover_the_truth() -> None:
    """Differences of Brier whose expectation is known: noise of question, seed and both."""
    rng, hits, times = np.random.default_rng(1), 0, 200
    for _ in range(times):
        shift = (
            0.02 * rng.normal(size=(SEEDS, 1)) + 0.05 * rng.normal(size=(1, 120)) + 0.03 * rng.normal(size=(SEEDS, 120))
        )
        base = np.full((SEEDS, 120), 0.5)
        labels = np.arange(120) % 2 == 0
        given = {"full": base, "v": base + shift}
        found = by_name(compare_variants(given, "full", labels, ["s"] * 120, ("brier",))[0], "brier")
        difference = found["v"].difference
        assert difference is not None
        truth = 0.25 - (0.25 + 0.02**2 + 0.05**2 + 0.03**2)
        hits += (difference.low or 0) <= truth <= (difference.high or 0)
    assert 0.92 <= hits / times <= 1.0


def false_alarms(labels: np.ndarray, subjects: list[str], metric: str, times: int) -> int:
    """Times in which one of ten variants as good as the reference differs significantly after correction."""
    rng, found = np.random.default_rng(6), 0
    for _ in range(times):
        signal = np.where(labels, 0.7, -0.7) + rng.normal(size=labels.size)
        given = {
            f"v{k}": np.tile(1 / (1 + np.exp(-signal - 0.5 * rng.normal(size=labels.size))), (SEEDS, 1))
            for k in range(11)
        }
        rows = compare_variants(given, "v0", labels, subjects, (metric,)).rows
        found += min(row.p_corrected for row in rows if row.p_corrected is not None) < 0.05
    return found


def test_variants_of_small_subjects_give_few_alarms() -> None:
    """Twelve subjects of two questions, which have no spread of their own."""
    labels = np.random.default_rng(5).random(24) < 0.5
    assert false_alarms(labels, [f"s{i % 12}" for i in range(24)], "brier", 60) <= 8  # 3 are expected


def test_variants_of_a_rare_class_give_few_alarms() -> None:
    assert false_alarms(np.arange(150) >= 20, ["s"] * 150, "auroc", 60) <= 7  # 3 are expected


def test_variants_by_rmsce_give_few_alarms() -> None:
    assert false_alarms(np.random.default_rng(5).random(200) < 0.5, ["s"] * 200, "rmsce", 60) <= 7  # 3 are expected


# --- steps of a path --------------------------------------------------------------------------------------------------

PATH = (Step("none"), Step("some", "some"), Step("full", "the rest"))


def along(given: dict[str, np.ndarray], metric: str = "auroc") -> VariantComparison:
    """Rows and steps from "none" over "some" to "full"."""
    return compare_variants(given, "full", CORRECT, SUBJECTS, (metric,), path=PATH)


def test_steps_lead_from_first_variant_to_reference() -> None:
    given = {"full": confidence(2.0), "other": confidence(1.5), "some": confidence(0.7), "none": confidence(0.0)}
    made = along(given)
    value = {name: row.estimate.value for name, row in by_name(made.rows).items() if row.estimate}
    first, last = made.steps
    assert [(s.start, s.end, s.adds) for s in made.steps] == [("none", "some", "some"), ("some", "full", "the rest")]
    assert first.difference is not None
    assert first.difference.value == pytest.approx(value["some"] - value["none"])
    row = by_name(made.rows)["some"]
    assert (last.difference, last.p, last.p_corrected) == (row.difference, row.p, row.p_corrected)
    assert first.share is not None
    assert last.share is not None
    assert first.share.value == pytest.approx((value["some"] - value["none"]) / (value["full"] - value["none"]))
    assert first.share.value + last.share.value == pytest.approx(1)
    assert first.share.low == pytest.approx(1 - (last.share.high or 0), abs=1e-6)  # what one has the other lacks
    given = {"full": confidence(1.6), "some": confidence(4.0), "none": confidence(9.0)}
    of_roots = [step.share for step in along(given, "rmsce").steps]
    assert sum(share.value for share in of_roots if share) == pytest.approx(1)


def test_steps_are_corrected_together_with_rows() -> None:
    given = {"full": confidence(1.0), "some": confidence(0.95, seed=1), "none": confidence(0.9, seed=2)}
    made = along(given)
    rows = [row for row in made.rows if row.p is not None]
    p = [*(row.p for row in rows), made.steps[0].p]
    corrected = [*(row.p_corrected for row in rows), made.steps[0].p_corrected]
    assert corrected == holm([value or 0.0 for value in p]).tolist()
    assert corrected != [*holm([row.p or 0.0 for row in rows]), made.steps[0].p]


def test_share_needs_a_shown_gain() -> None:
    small = {"full": confidence(1.0), "some": confidence(1.0, seed=1), "none": confidence(0.99, seed=2)}
    loss = {"full": confidence(0.0), "some": confidence(0.7, seed=1), "none": confidence(2.0, seed=2)}
    for given in (small, loss):
        assert all(step.share is None and step.difference is not None for step in along(given).steps)
    gain = {"full": confidence(2.0), "some": confidence(0.7, seed=1), "none": confidence(0.0, seed=2)}
    for metric in ("auroc", "brier"):  # more is better, less is better
        assert all(step.share is not None for step in along(gain, metric).steps)
        assert all(step.share is None for step in along(loss, metric).steps)


def test_share_intervals_are_fiellers() -> None:
    """Closed form for two means of paired losses; no seed differs."""
    given = {
        "full": same_for_all_seeds(2.0, 0), "some": same_for_all_seeds(1.0, 1), "none": same_for_all_seeds(0.5, 2)
    }  # fmt: skip
    first = compare_variants(given, "full", CORRECT, ["s"] * N, ("brier",), path=PATH).steps[0]
    loss = {name: np.square(p[0] - CORRECT) for name, p in given.items()}
    gaps = np.stack([loss["some"] - loss["none"], loss["full"] - loss["none"]])
    (part, whole), cov = gaps.mean(axis=1), np.cov(gaps) / N
    square = float(stats.t.ppf(0.975, N - 1)) ** 2
    a, b, c = whole**2 - square * cov[1, 1], part * whole - square * cov[0, 1], part**2 - square * cov[0, 0]
    assert a > 0
    root = np.sqrt(b**2 - a * c)
    assert first.share is not None
    assert (first.share.low, first.share.high) == pytest.approx(((b - root) / a, (b + root) / a), abs=1e-6)


def test_share_intervals_cover_the_truth() -> None:
    """Brier; in expectation "some" makes up 40 % of the gain, with noise of questions and seeds."""
    rng, hits, told, times, n = np.random.default_rng(2), 0, 0, 100, 150
    labels = np.arange(n) % 2 == 0
    for _ in range(times):
        loss = {}
        level = 0.15 + 0.05 * rng.normal(size=(1, n))  # of a question, shared by all variants
        for name, mean in (("none", 0.10), ("some", 0.06), ("full", 0.0)):
            of_seed, of_both = 0.01 * rng.normal(size=(SEEDS, 1)), 0.05 * rng.normal(size=(SEEDS, n))
            loss[name] = np.clip(level + mean + of_seed + of_both + 0.05 * rng.normal(size=(1, n)), 0, 1)
        given = {name: np.where(labels, 1 - np.sqrt(v), np.sqrt(v)) for name, v in loss.items()}
        steps: tuple[StepRow, ...] = compare_variants(given, "full", labels, ["s"] * n, ("brier",), path=PATH).steps
        if steps[0].share is not None:
            told += 1
            hits += (steps[0].share.low or 0) <= 0.4 <= (steps[0].share.high or 0)
    assert told == times
    assert 0.9 <= hits / told <= 1.0
