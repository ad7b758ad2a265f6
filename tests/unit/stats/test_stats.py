"""Statistics of a comparison against scipy, against samples that are really repeated, and against naive loops."""

from __future__ import annotations

import csv
import time
from itertools import combinations
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from bench.api.protocol import Protocol
from bench.metrics import METRICS, ece, summarise
from bench.stats import (
    RESAMPLED,
    TESTED,
    Comparison,
    Interval,
    Sample,
    Settings,
    basic_interval,
    calibrated_p,
    calibration_error,
    clustered_interval,
    compare,
    corrected,
    losses,
    mean_interval,
    ranks,
    resample_counts,
    resampled_metrics,
    strata_of,
    summary,
)

SIZES = Path(__file__).parents[4] / "shared" / "paper" / "task_sizes.csv"
QUICK = Settings(replicates=200)
FEW = st.sampled_from([0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0])
RESAMPLE = st.lists(
    st.tuples(st.tuples(st.one_of(FEW, st.floats(0, 1)), FEW), st.booleans(), st.tuples(*[st.integers(0, 3)] * 3)),
    min_size=1,
    max_size=25,
)


def answers(n=600, methods=2, subjects=6, seed=0):
    """Confidences by method, correctness, and a subject for each answer; later methods are noisier."""
    rng = np.random.default_rng(seed)
    logit = rng.normal(0.5, 1.2, n)
    noise = rng.normal(0, 1, (methods, n)) * np.arange(methods)[:, None]
    p = np.round(1 / (1 + np.exp(-logit - 0.7 * noise)), 2)
    names = [f"subject {i}" for i in rng.integers(0, subjects, n)]
    return {f"m{k}": p[k] for k in range(methods)}, rng.random(n) < 1 / (1 + np.exp(-logit)), names


# --- resamples --------------------------------------------------------------------------------------------------------


@given(RESAMPLE)
@settings(deadline=None)
def test_metrics_of_counts_are_those_of_repeated_answers(rows):
    p = np.array([row[0] for row in rows]).T  # (2 methods, n)
    o = np.array([row[1] for row in rows])
    counts = np.array([row[2] for row in rows])  # (n, 3 resamples)
    counts[0] += counts.sum(axis=0) == 0
    values = resampled_metrics(p, o, counts.astype(float))
    assert set(values) == set(RESAMPLED)
    for name in RESAMPLED:
        for r, times in enumerate(counts.T):
            for m in range(2):
                expected = METRICS[name].compute(np.repeat(p[m], times), np.repeat(o, times))
                got = values[name][m, r]
                assert np.isnan(got) if expected is None else got == pytest.approx(expected, abs=1e-12), name


@pytest.mark.parametrize("bins", [1, 3, 15])
def test_metrics_of_counts_follow_the_number_of_bins(bins):
    confidence, o, _ = answers(80)
    times = np.random.default_rng(1).integers(0, 3, 80)
    values = resampled_metrics(confidence["m1"][None], o, times[:, None].astype(float), bins=bins)
    for name in ("ece", "ece_ref", "ece_ref_closed"):
        expected = METRICS[name].compute(np.repeat(confidence["m1"], times), np.repeat(o, times), bins=bins)
        assert values[name][0, 0] == pytest.approx(expected, abs=1e-12)


def test_resamples_have_as_many_answers_as_the_sample_and_are_multinomial():
    counts = np.concatenate(list(resample_counts(20, 5000, np.random.default_rng(0))), axis=1)
    assert counts.shape == (20, 5000)
    assert (counts.sum(axis=0) == 20).all()
    assert counts.mean(axis=1) == pytest.approx(np.ones(20), abs=0.06)
    assert counts.var(axis=1) == pytest.approx(np.full(20, 1 - 1 / 20), abs=0.12)


def test_resamples_do_not_depend_on_memory(monkeypatch):
    whole = list(resample_counts(30, 50, np.random.default_rng(3)))
    monkeypatch.setattr("bench.stats.resampling.VALUES_AT_ONCE", 7 * 30)
    parts = list(resample_counts(30, 50, np.random.default_rng(3)))
    assert (len(whole), len(parts)) == (1, 8)
    np.testing.assert_array_equal(whole[0], np.concatenate(parts, axis=1))


# --- intervals --------------------------------------------------------------------------------------------------------


def test_interval_of_a_mean_within_one_subject_is_students():
    values = np.random.default_rng(0).gamma(1, 1, 17)
    interval = mean_interval(values, strata_of(["art"] * 17), level=0.9)
    expected = scipy_stats.ttest_1samp(values, 0).confidence_interval(0.9)
    assert (interval.low, interval.high) == pytest.approx((expected.low, expected.high), abs=1e-12)
    assert (interval.level, interval.estimand, interval.kind) == (0.9, "fixed-subjects", "t")


def test_interval_of_a_mean_over_two_subjects_is_welchs():
    rng = np.random.default_rng(0)
    a, b = rng.normal(1, 1, 10), rng.normal(2, 3, 30)
    interval = mean_interval(np.append(a, b), strata_of(["a"] * 10 + ["b"] * 30))
    expected = scipy_stats.ttest_ind(a, -b, equal_var=False).confidence_interval(0.95)  # of mean a + mean b
    assert (interval.low, interval.high) == pytest.approx((expected.low / 2, expected.high / 2), abs=1e-12)


def test_tiny_subjects_have_the_spread_of_all_together():
    rng = np.random.default_rng(0)
    a, b = rng.normal(1, 1, 9), rng.normal(2, 3, 2)
    interval = mean_interval(np.append(a, b), strata_of(["a"] * 9 + ["b"] * 2))
    expected = scipy_stats.ttest_ind(a, -b, equal_var=True).confidence_interval(0.95)
    assert (interval.low, interval.high) == pytest.approx((expected.low / 2, expected.high / 2), abs=1e-12)


def test_a_subject_of_two_hits_does_not_pretend_to_certainty():
    hits = np.array([1.0, 1.0, *[1.0, 0.0] * 50])
    interval = mean_interval(hits, strata_of(["two"] * 2 + ["many"] * 100))
    alone = mean_interval(hits[2:], strata_of(["many"] * 100))
    assert interval.high - interval.low > 3 * (alone.high - alone.low)


def test_interval_over_subjects_is_students_and_leaves_undefined_ones_out():
    values = np.random.default_rng(0).normal(0, 1, 24)
    interval = clustered_interval(np.append(values, np.nan))
    expected = scipy_stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert (interval.low, interval.high) == pytest.approx((expected.low, expected.high), abs=1e-12)
    assert (interval.estimand, interval.kind) == ("clustered", "t")


def test_few_subjects_are_no_sample_of_subjects():
    assert clustered_interval(np.arange(20.0)).ends
    refused = clustered_interval(np.append(np.arange(19.0), np.nan))
    assert refused == Interval("clustered", reason="20 subjects are needed to speak of others, there are 19")


def test_one_question_in_a_subject_leaves_no_interval_for_fixed_subjects():
    strata = strata_of(["law", "art", "art"])
    refused = mean_interval(np.array([0.1, 0.2, 0.3]), strata)
    assert refused.ends is None
    assert "'law' has one question" in refused.reason
    assert basic_interval(0.5, np.array([0.4, 0.6]), strata) == refused


def test_values_that_do_not_vary_have_an_interval_without_width():
    interval = mean_interval(np.full(10, 0.25), strata_of(["a", "b"] * 5))
    assert (interval.low, interval.high) == (0.25, 0.25)


def test_interval_of_an_ece_contains_it_while_percentiles_do_not():
    rng = np.random.default_rng(0)
    p = rng.random(6000)
    confidence, names = {"m": p}, [f"s{i % 40}" for i in range(6000)]
    result = summary(confidence, rng.random(6000) < p, names, QUICK)
    estimate = result.methods["m"].estimates["ece"]
    percentiles = np.quantile(result.replicates["ece"][0], [0.025, 0.975])
    assert percentiles[0] > estimate.value
    assert estimate.fixed.low < estimate.value < estimate.fixed.high
    assert estimate.fixed.kind == "basic"
    assert estimate.fixed.high - estimate.fixed.low == pytest.approx(np.diff(percentiles)[0])


def test_bootstrap_agrees_with_students_interval_where_both_apply():
    confidence, o, names = answers(3000, methods=1)
    result = summary(confidence, o, names, Settings(replicates=2000))
    estimate = result.methods["m0"].estimates["brier"]
    spread = result.replicates["brier"][0].std()
    assert (estimate.fixed.high - estimate.fixed.low) / 2 == pytest.approx(1.96 * spread, rel=0.06)
    assert result.replicates["brier"][0].mean() == pytest.approx(estimate.value, abs=4 * spread / 2000**0.5)


def test_intervals_stay_within_the_bounds_of_their_metric():
    o = np.array([True] * 30 + [False] * 2)
    p = np.where(o, 0.9, 0.89) - np.linspace(0, 0.02, 32) * ~o
    p[0] = 0.1  # one hit with the least confidence: AUROC just below 1
    fixed = summary({"m": p}, o, ["art"] * 32, QUICK).methods["m"].estimates["auroc"].fixed
    assert fixed.high == 1.0


# --- calibration ------------------------------------------------------------------------------------------------------


def naive_macro_ece(p, o, names):
    return np.mean([ece(p[names == name], o[names == name]) for name in sorted(set(names))])


def test_p_value_of_calibration_is_the_share_of_redrawn_labels_with_as_large_an_ece():
    confidence, o, names = answers(150, methods=1)
    p, names = confidence["m0"], np.array(names)
    rng = np.random.default_rng(9)
    redrawn = np.array([naive_macro_ece(p, rng.random(150) < p, names) for _ in range(1500)])
    expected = np.mean(redrawn >= naive_macro_ece(p, o, names))
    assert 0.1 < expected < 0.9
    assert calibrated_p(p, o, list(names), Settings(null_draws=2000)) == pytest.approx(expected, abs=0.05)


def test_p_value_of_calibrated_confidences_is_uniform():
    rng = np.random.default_rng(1)
    p = rng.random(120)
    names = ["a", "b", "b"] * 40
    values = np.array(
        [calibrated_p(p, rng.random(120) < p, names, Settings(null_draws=99, seed=k)) for k in range(400)]
    )
    assert np.mean(values <= 0.1) == pytest.approx(0.1, abs=0.045)
    assert np.mean(values <= 0.5) == pytest.approx(0.5, abs=0.08)


def test_p_value_of_a_method_that_is_off_is_the_smallest_there_is():
    o = np.random.default_rng(0).random(300) < 0.3
    assert calibrated_p(np.full(300, 0.8), o, ["art"] * 300) == 0.001


def test_debiased_calibration_error_is_right_where_labels_abound():
    rng = np.random.default_rng(0)
    p = rng.random(200_000)
    true = np.clip(p - 0.1, 0, 1)
    expected = ece(p, rng.random(p.size) < true)  # with so many answers chance adds next to nothing
    error = calibration_error(p, rng.random(p.size) < true, ["art"] * p.size)
    assert error.value == pytest.approx(expected, abs=0.003)
    assert error.interval.low < expected < error.interval.high
    assert error.interval.high - error.interval.low < 0.012


def test_debiased_calibration_error_of_calibrated_confidences_is_near_zero():
    rng = np.random.default_rng(0)
    p = rng.random(6000)
    names = [f"s{i % 57}" for i in range(6000)]
    o = rng.random(6000) < p
    error = calibration_error(p, o, names)
    assert naive_macro_ece(p, o, np.array(names)) > 0.08
    assert error.value < 0.03
    assert error.interval.low == 0.0
    assert (error.interval.estimand, error.interval.kind) == ("fixed-subjects", "inverted test")


def test_calibration_does_not_depend_on_the_order_of_answers():
    confidence, o, names = answers(200, methods=1)
    order = np.random.default_rng(5).permutation(200)
    p, shuffled = confidence["m0"], [names[i] for i in order]
    assert calibrated_p(p[order], o[order], shuffled) == calibrated_p(p, o, names)
    assert calibration_error(p[order], o[order], shuffled).value == pytest.approx(
        calibration_error(p, o, names).value, abs=1e-12
    )


def test_a_perfect_forecast_is_calibrated_and_a_certain_mistake_is_not():
    o = np.array([True, False] * 20)
    perfect = calibration_error(o.astype(float), o, ["art"] * 40)
    assert (perfect.value, perfect.interval.low, perfect.interval.high) == (0.0, 0.0, 0.0)
    assert calibrated_p(o.astype(float), o, ["art"] * 40) == 1.0
    assert calibration_error(1.0 - o, o, ["art"] * 40).value == 1.0


def test_calibration_of_equal_seeds_is_that_of_one():
    confidence, o, names = answers(300, methods=1)
    p = confidence["m0"]
    assert calibrated_p(np.stack([p, p]), o, names) == calibrated_p(p, o, names)
    assert calibration_error(np.stack([p, p]), o, names).value == pytest.approx(calibration_error(p, o, names).value)


# --- comparisons ------------------------------------------------------------------------------------------------------


def compared(losses_of, strata, blocks=None):
    """Pairs by Brier of methods with these losses (n,), on resamples of the macro mean."""
    rng = np.random.default_rng(9)
    samples = {name: [] for name in losses_of}
    for _ in range(200):
        drawn = np.concatenate([rng.choice(rows, rows.size) for rows in strata.rows])
        for name, loss in losses_of.items():
            samples[name].append(np.mean([loss[part].mean() for part in np.split(drawn, np.cumsum(strata.sizes)[:-1])]))
    found = {
        name: Sample(float(strata.means(loss).mean()), np.array(samples[name]), loss, strata.means(loss))
        for name, loss in losses_of.items()
    }
    return compare("brier", found, strata, [list(losses_of)] if blocks is None else blocks)


def test_paired_test_within_one_subject_is_students():
    rng = np.random.default_rng(0)
    a, b = rng.random(40), rng.random(40) + 0.15
    (pair,) = compared({"a": a, "b": b}, strata_of(["art"] * 40))
    expected = scipy_stats.ttest_rel(a, b)
    assert pair.p == pytest.approx(expected.pvalue, abs=1e-12)
    assert pair.difference == pytest.approx(np.mean(a - b))
    low, high = expected.confidence_interval(0.95)
    assert (pair.fixed.low, pair.fixed.high) == pytest.approx((low, high))


def test_paired_test_and_its_interval_agree_on_every_pair():
    confidence, o, names = answers(900, methods=5, subjects=25)
    strata = strata_of(names)
    pairs = compared({m: losses(p, o)["brier"] for m, p in confidence.items()}, strata)
    assert len(pairs) == 10
    for pair in pairs:
        assert (pair.p < 0.05) == (not pair.fixed.low <= 0 <= pair.fixed.high)
        assert pair.fixed.low < pair.difference < pair.fixed.high
        assert pair.clustered.low < pair.difference < pair.clustered.high


def test_equal_methods_do_not_differ_and_a_constant_gain_is_certain():
    losses_of = np.random.default_rng(0).integers(0, 2, 30) / 2
    pairs = compared({"a": losses_of, "b": losses_of, "c": losses_of + 1}, strata_of(["x", "y"] * 15))
    assert [pair.p for pair in pairs] == [pair.p_corrected for pair in pairs] == [1.0, 0.0, 0.0]


def naive_corrected(differences, errors, deviations):
    """Single-step max-t, pair by pair and resample by resample."""
    scaled = [[abs(value) / np.std(row, ddof=1) for value in row] for row in deviations]
    largest = [max(column) for column in zip(*scaled, strict=True)]
    return [
        (1 + sum(value >= abs(d) / error for value in largest)) / (1 + len(largest))
        for d, error in zip(differences, errors, strict=True)
    ]


def test_corrected_p_values_are_those_of_a_naive_loop():
    rng = np.random.default_rng(0)
    deviations = rng.normal(size=(6, 99)) * rng.uniform(0.5, 2, 6)[:, None]
    differences, errors = rng.normal(size=6) * 3, rng.uniform(0.5, 2, 6)
    assert corrected(differences, errors, deviations).tolist() == naive_corrected(differences, errors, deviations)


def test_what_never_varies_is_certain_and_corrects_no_other():
    deviation = np.random.default_rng(0).normal(size=(1, 99))
    still = np.zeros((1, 99))
    alone = corrected(np.array([2.0]), np.array([1.0]), deviation)
    found = corrected(np.array([2.0, 0.0, 0.1]), np.array([1.0, 0.0, 0.0]), np.concatenate([deviation, still, still]))
    assert found.tolist() == [alone[0], 1.0, 0.0]


def test_single_step_correction_covers_all_pairs_of_equal_methods():
    """In 200 tables of five methods that don't differ, a difference is found about as often as the level says."""
    rng = np.random.default_rng(0)
    names = [f"m{k}" for k in range(5)]
    false = 0
    for _ in range(200):
        values = rng.normal(size=5)  # each method's mean has standard error 1, and they are independent
        draws = values[:, None] + rng.normal(size=(5, 400))
        samples = {name: Sample(float(v), row) for name, v, row in zip(names, values, draws, strict=True)}
        pairs = compare("auroc", samples, strata_of(["a", "a"]), [names])
        false += set(ranks(names, pairs).values()) != {1}
    assert 2 <= false <= 20  # 10 expected


def pairs_of(p_corrected, metric="brier"):
    """Each first method has the smaller loss."""
    nothing = Interval("fixed-subjects", reason="not needed here")
    return [Comparison(metric, a, b, -0.1, nothing, nothing, p, p) for (a, b), p in p_corrected.items()]


def test_rank_is_one_plus_the_number_of_methods_that_are_significantly_better():
    p = {("a", "b"): 0.5, ("a", "c"): 0.01, ("a", "d"): 0.2, ("b", "c"): 0.2, ("b", "d"): 0.0, ("c", "d"): 0.05}
    assert ranks("abcd", pairs_of(p)) == {"a": 1, "b": 1, "c": 2, "d": 2}
    assert ranks("abcd", pairs_of({**p, ("c", "d"): 0.049})) == {"a": 1, "b": 1, "c": 2, "d": 3}
    assert ranks("bcd", pairs_of(p)) == {"b": 1, "c": 1, "d": 2}  # a is of another block
    assert ranks("ab", pairs_of({("a", "b"): 0.01}, "auroc")) == {"a": 2, "b": 1}  # where more is better


def test_one_method_has_rank_one_and_untested_pairs_have_no_ranks():
    assert ranks(["a"], []) == {"a": 1}
    assert ranks(["a", "b"], pairs_of({("a", "b"): None})) == {}
    assert ranks(["a", "b"], []) == {}


def test_pairs_are_corrected_for_their_block_and_across_blocks_for_all():
    rng = np.random.default_rng(0)
    loss = {name: rng.random(60) + 0.1 * k for k, name in enumerate("abcd")}
    strata = strata_of(["x", "y", "z"] * 20)
    together = {(c.first, c.second): c.p_corrected for c in compared(loss, strata)}
    blocks = {(c.first, c.second): c.p_corrected for c in compared(loss, strata, [["a", "b"], ["c"]])}
    (alone,) = compared({name: loss[name] for name in "ab"}, strata)
    assert blocks.pop(("a", "b")) == pytest.approx(alone.p_corrected, abs=0.03)  # other resamples
    assert blocks == {key: p for key, p in together.items() if key != ("a", "b")}
    assert all(c.p_corrected >= c.p for c in compared(loss, strata))


# --- everything at once -----------------------------------------------------------------------------------------------


def test_summary_has_the_values_of_the_results():
    confidence, o, names = answers(500, methods=3)
    result = summary(confidence, o, names, QUICK)
    for method, p in confidence.items():
        scores = summarise(p, o, names, Protocol()).metrics
        for name, estimate in result.methods[method].estimates.items():
            assert estimate.value == pytest.approx(scores[name].mean, abs=1e-12), name
            assert estimate.n_undefined == scores[name].n_undefined
    assert set(result.methods["m0"].estimates) == {*RESAMPLED, "ece_debiased"}


def test_metrics_of_order_are_those_of_scores_where_there_are_some():
    """Everything said of AUROC and AUCPR is what is said of confidences in the order of the scores."""
    rng = np.random.default_rng(3)
    o, subjects = rng.random(120) < 0.6, ["a"] * 70 + ["b"] * 50
    score = o + rng.normal(size=(2, 120))
    p, other = np.full((2, 120), 0.6), rng.random(120)
    ordered = np.stack([scipy_stats.rankdata(run) / 121 for run in score])
    found = summary({"m": p, "o": other}, o, subjects, score={"m": np.exp(9 * score)})
    flat, expected = summary({"m": p, "o": other}, o, subjects), summary({"m": ordered, "o": other}, o, subjects)
    for name in ("auroc", "aucpr"):
        assert found.methods["m"].estimates[name] == expected.methods["m"].estimates[name]
        assert found.comparisons[name] == expected.comparisons[name]
        assert found.ranks[name] == expected.ranks[name] == {"m": 1, "o": 2}
    for name in ("brier", "acc", "ece_debiased"):
        assert found.methods["m"].estimates[name] == flat.methods["m"].estimates[name]
    assert found.methods["o"] == flat.methods["o"]


def test_debiased_ece_has_the_interval_of_ece_moved_by_the_floor():
    confidence, o, names = answers(500, methods=1)
    estimates = summary(confidence, o, names, QUICK).methods["m0"].estimates
    floor = estimates["ece"].value - estimates["ece_debiased"].value
    assert floor == pytest.approx(summarise(confidence["m0"], o, names, Protocol()).metrics["ece_floor"].mean)
    assert estimates["ece_debiased"].fixed.low == pytest.approx(estimates["ece"].fixed.low - floor)
    assert estimates["ece_debiased"].fixed.high == pytest.approx(estimates["ece"].fixed.high - floor)


def test_resamples_are_shared_by_methods_so_differences_are_paired():
    confidence, o, names = answers(800, methods=2)
    near = {"m0": confidence["m0"], "nearly": np.clip(confidence["m0"] + 0.01, 0, 1), "m1": confidence["m1"]}
    result = summary(near, o, names, QUICK)
    pairs = {(pair.metric, pair.first, pair.second): pair for name in TESTED for pair in result.comparisons[name]}
    found = pairs["auroc", "m0", "m1"]
    auroc = {m: result.methods[m].estimates["auroc"] for m in near}
    assert found.difference == pytest.approx(auroc["m0"].value - auroc["m1"].value)
    assert found.fixed.low < found.difference < found.fixed.high
    paired = pairs["aucpr", "m0", "nearly"].fixed
    alone = result.methods["m0"].estimates["aucpr"].fixed
    assert paired.high - paired.low < 0.2 * (alone.high - alone.low)
    subset = summary({"m1": confidence["m1"]}, o, names, QUICK)
    np.testing.assert_allclose(subset.replicates["auroc"][0], result.replicates["auroc"][2], atol=1e-12)


def test_summary_repeats_itself_and_does_not_depend_on_the_order_of_subjects():
    confidence, o, names = answers(300)
    first = summary(confidence, o, names, QUICK)
    assert summary(confidence, o, names, QUICK).methods == first.methods
    assert summary(confidence, o, names, Settings(replicates=200, seed=1)).methods != first.methods
    order = np.argsort(names, kind="stable")
    again = summary({m: p[order] for m, p in confidence.items()}, o[order], [names[i] for i in order], QUICK)
    np.testing.assert_allclose(again.replicates["aucpr"], first.replicates["aucpr"], atol=1e-12)


def test_seeds_are_averaged_question_by_question_and_their_spread_is_told():
    confidence, o, names = answers(400, methods=3)
    p = np.stack(list(confidence.values()))
    result = summary({"seeded": p, "one": confidence["m0"]}, o, names, QUICK)
    each = [summarise(row, o, names, Protocol()).metrics for row in p]
    for name in ("ece", "auroc", "nll", "ece_debiased"):
        estimate = result.methods["seeded"].estimates[name]
        values = [metrics[name].mean for metrics in each]
        assert estimate.by_seed == pytest.approx(values, abs=1e-12)
        assert estimate.value == pytest.approx(np.mean(values), abs=1e-12)
        assert estimate.spread == pytest.approx(np.std(values, ddof=1), abs=1e-12)
    assert result.methods["one"].estimates["auroc"].spread is None
    (pair,) = result.comparisons["brier"]
    expected = compared({"a": np.square(p - o).mean(axis=0), "b": np.square(p[0] - o)}, strata_of(names))[0]
    assert (pair.difference, pair.p) == pytest.approx((expected.difference, expected.p))


def test_subjects_of_one_class_are_left_out_and_counted():
    confidence, o, names = answers(300, methods=1)
    names = ["easy" if i < 20 else name for i, name in enumerate(names)]
    o[:20] = True
    estimate = summary(confidence, o, names, QUICK).methods["m0"].estimates["auroc"]
    assert (estimate.n_undefined, estimate.n_redrawn) == (1, 0)
    assert estimate.fixed.low < estimate.value < estimate.fixed.high


def test_resamples_of_one_class_are_drawn_again_and_counted():
    rng = np.random.default_rng(0)
    o = np.array([True] * 38 + [False] * 2 + [True, False] * 20)
    names = ["easy"] * 40 + ["even"] * 40
    result = summary({"a": rng.random(80), "b": rng.random(80)}, o, names, Settings(replicates=1000))
    estimate = result.methods["a"].estimates["auroc"]
    # Neither mistake among 40 is in a resample with probability (1 - 2/40)^40 = 0.129.
    assert estimate.n_redrawn == result.methods["b"].estimates["auroc"].n_redrawn
    assert estimate.n_redrawn / 1000 == pytest.approx(0.129, abs=0.04)
    assert np.isfinite(result.replicates["auroc"]).all()
    assert estimate.n_undefined == 0


@pytest.mark.parametrize(("lone", "kind"), [(True, "right"), (False, "wrong")])
def test_a_lone_answer_of_a_class_leaves_no_interval_for_rank_metrics(lone, kind):
    rng = np.random.default_rng(0)
    o = np.array([lone] + [not lone] * 39 + [True, False] * 20 + [True] * 5)
    names = ["one"] * 40 + ["even"] * 40 + ["easy"] * 5  # a subject without any is left out, and no obstacle
    result = summary({"a": rng.random(85), "b": rng.random(85)}, o, names, QUICK)
    estimates = result.methods["a"].estimates
    for name in ("auroc", "aucpr"):
        assert estimates[name].value is not None
        assert f"subject 'one' has one {kind} answer" in estimates[name].fixed.reason
        (pair,) = result.comparisons[name]
        assert (pair.fixed, pair.p, pair.p_corrected) == (estimates[name].fixed, None, None)
        assert result.ranks[name] == {}
    assert estimates["ece"].fixed.ends


def test_what_is_undefined_everywhere_has_neither_value_nor_interval():
    result = summary({"m": [1.0, 1.0, 0.0]}, [True, True, True], ["a", "a", "a"], QUICK)
    for name in ("auroc", "aucpr", "ece_ref"):
        estimate = result.methods["m"].estimates[name]
        assert estimate.value is None
        assert estimate.fixed == Interval("fixed-subjects", reason="it is undefined in every subject")
        assert estimate.clustered.ends is None
    assert result.comparisons["auroc"] == ()


def test_a_lone_question_leaves_values_but_no_tests():
    result = summary({"a": [0.9, 0.2, 0.4], "b": [0.8, 0.3, 0.4]}, [True, False, True], ["x", "x", "y"], QUICK)
    assert result.methods["a"].estimates["brier"].value is not None
    for metric in ("brier", "nll", "acc", "ece_debiased"):
        (pair,) = result.comparisons[metric]
        assert (pair.p, pair.p_corrected) == (None, None)
        assert "'y' has one question" in pair.fixed.reason
        assert result.ranks[metric] == {}


def test_the_better_method_is_found():
    confidence, o, names = answers(2000, methods=3)
    result = summary(confidence, o, names, QUICK)
    assert result.ranks["brier"] == {"m0": 1, "m1": 2, "m2": 3}
    assert all(pair.p_corrected < 0.05 and pair.difference < 0 for pair in result.comparisons["nll"])


def test_calibration_is_compared_as_ece_less_its_floor_and_below_it_as_zero():
    rng = np.random.default_rng(0)
    p = rng.uniform(0.3, 0.9, 1200)
    o, names = rng.random(1200) < p, [f"s{k % 4}" for k in range(1200)]
    off = np.clip(p + 0.15, 0, 1)
    result = summary({"good": p, "as good": np.round(p, 2), "off": off}, o, names, QUICK)
    excess = {m: method.estimates["ece_debiased"].value for m, method in result.methods.items()}
    pairs = {(pair.first, pair.second): pair for pair in result.comparisons["ece_debiased"]}
    assert excess["good"] < 0.02 < excess["off"]
    assert pairs["good", "off"].difference == pytest.approx(max(0, excess["good"]) - excess["off"])
    assert result.ranks["ece_debiased"] == {"good": 1, "as good": 1, "off": 3}
    assert "ece" not in result.ranks


RESULTS = Path(__file__).parents[3] / "results" / "tiny"


def holm(p_values):
    """Step-down correction (Holm, 1979)."""
    corrected_, largest = [0.0] * len(p_values), 0.0
    for i, k in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - i) * p_values[k]))
        corrected_[k] = largest
    return corrected_


def independent_ranks(by_question, subjects, alpha):
    """1 + number of significantly better methods, by paired t tests within subjects and Holm's correction."""
    p_values, better = [], []
    for a, b in combinations(by_question, 2):
        parts = [(by_question[a] - by_question[b])[subjects == s] for s in sorted(set(subjects))]
        mean = np.mean([part.mean() for part in parts])
        v = np.array([part.var(ddof=1) / part.size for part in parts])
        df = v.sum() ** 2 / np.sum(v**2 / np.array([part.size - 1 for part in parts]))
        p_values.append(2 * scipy_stats.t.sf(abs(mean) / (np.sqrt(v.sum()) / len(parts)), df))
        better.append((b, a) if mean > 0 else (a, b))
    rank = dict.fromkeys(by_question, 1)
    for (_, loser), p in zip(better, holm(p_values), strict=True):
        rank[loser] += p < alpha
    return rank


@pytest.mark.parametrize("task", ["atlas-choice", "atlas-oe"])
def test_ranks_of_the_committed_results_are_those_of_an_independent_test(task):
    """Two corrections may differ at the border of significance, so the independent one is asked on both sides of it."""
    tables = {}
    for path in sorted((RESULTS / task).glob("*--demo--s?.parquet")):
        tables.setdefault(path.name.partition("--")[0], []).append(pq.read_table(path).to_pandas().sort_values("id"))
    first = next(iter(tables.values()))[0]
    o, subjects = first["correct"].to_numpy(), first["subject"].to_numpy()
    runs = {m: np.stack([table["confidence"].to_numpy() for table in found]) for m, found in tables.items()}
    found = summary(runs, o, subjects.tolist()).ranks
    for name, loss in (
        ("brier", lambda p: (p - o) ** 2),
        ("nll", lambda p: -np.log(np.maximum(np.where(o, p, 1 - p), 2.0**-24))),
    ):
        by_question = {m: loss(p).mean(axis=0) for m, p in runs.items()}
        least, most = (independent_ranks(by_question, subjects, alpha) for alpha in (0.02, 0.15))
        assert all(least[m] <= found[name][m] <= most[m] for m in runs), (name, least, found[name], most)


@pytest.mark.parametrize(
    ("confidence", "correct", "subjects", "message"),
    [
        ({}, [True], ["a"], "at least one method"),
        ({"m": [0.5, float("nan")]}, [True, False], ["a", "a"], "got nan at row 1"),
        ({"m": [0.5], "other": [0.5, 0.5]}, [True], ["a"], r"got \(2,\) and \(1,\)"),
        ({"m": [0.5]}, [True], ["a", "b"], "one subject for each of 1 answers, got 2"),
        ({"m": []}, np.array([], dtype=bool), [], "at least one answer"),
        ({"m": [[[0.5]]]}, [True], ["a"], r"\(n,\) or \(seeds, n\)"),
        ({"m": np.empty((0, 1))}, [True], ["a"], r"\(n,\) or \(seeds, n\)"),
    ],
)
def test_what_is_no_comparison_is_refused(confidence, correct, subjects, message):
    with pytest.raises(ValueError, match=message):
        summary(confidence, correct, subjects)


@pytest.mark.slow
@pytest.mark.skipif(not SIZES.is_file(), reason="../shared/paper is absent: no sizes to time a comparison with")
def test_a_comparison_of_eleven_methods_on_mmlu_takes_seconds():
    with SIZES.open() as lines:
        sizes = [int(row["n_test"]) for row in csv.DictReader(lines) if row["benchmark"] == "mmlu"]
    assert (len(sizes), sum(sizes)) == (57, 14_042)
    confidence, o, _ = answers(14_042, methods=11)
    start = time.process_time()
    summary(confidence, o, [f"s{i}" for i, size in enumerate(sizes) for _ in range(size)])
    assert time.process_time() - start < 15  # 5 s measured
