"""Statistics of a comparison against scipy, scikit-learn and definitions written out, the awkward cases first."""

from __future__ import annotations

import time
from itertools import product

import numpy as np
import pytest
from scipy import stats as scipy_stats
from scipy.special import expit, logit
from sklearn.metrics import average_precision_score, roc_auc_score

from bench.api.protocol import Protocol
from bench.metrics import METRICS, ece, summarise
from bench.metrics.calibration import Bins, signed_root
from bench.stats import (
    RANKED,
    TESTED,
    Comparison,
    Interval,
    Sampling,
    Settings,
    StandardErrors,
    calibrated_p,
    influence,
    max_t,
    p_values,
    ranks,
    strata_of,
    summary,
)
from bench.stats.comparison import count_differing

QUICK = Settings(null_draws=1)
MACRO = Settings(null_draws=1, average="subjects")
MEANS = ("brier", "acc", "nll")
NOT_RMSCE = tuple(metric for metric in TESTED if metric != "rmsce")


def losses(p, o):
    """Share of each answer in the metrics that are means."""
    return {"brier": (p - o) ** 2, "acc": (p > 0.5) == o, "nll": -np.log(np.where(o, p, 1 - p))}


def answers(n=600, methods=2, subjects=6, seed=0):
    """Confidences by method, correctness, and a subject for each answer; later methods are noisier."""
    rng = np.random.default_rng(seed)
    strength = rng.normal(0.5, 1.2, n)
    noise = rng.normal(0, 1, (methods, n)) * np.arange(methods)[:, None]
    p = np.round(1 / (1 + np.exp(-strength - 0.7 * noise)), 2)
    names = [f"subject {i}" for i in rng.integers(0, subjects, n)]
    return {f"m{k}": p[k] for k in range(methods)}, rng.random(n) < 1 / (1 + np.exp(-strength)), names


def pairs_of(result, metric):
    return {(pair.first, pair.second): pair for pair in result.comparisons[metric]}


# --- influences -------------------------------------------------------------------------------------------------------


def weighted(metric, p, o):
    """The metric as a function of weights of the questions; bins, and the chance in their gaps, stay as they are."""
    if metric == "auroc":
        return lambda w: roc_auc_score(o, p, sample_weight=w)
    if metric == "aucpr":
        return lambda w: average_precision_score(o, p, sample_weight=w)
    if metric in MEANS:
        return lambda w: np.average(losses(p, o)[metric], weights=w)
    bins = Bins.of(p, o)
    chance = np.square(bins.gap) - bins.square

    def square(w):
        weight = np.bincount(bins.group, w)
        return weight @ (np.square(np.bincount(bins.group, w * (p - o)) / weight) - chance) / w.sum()

    return square


@pytest.mark.parametrize("metric", TESTED)
@pytest.mark.parametrize(("n", "right", "digits"), [(2, 1, 9), (30, 1, 1), (30, 29, 9), (60, 35, 1), (90, 6, 9)])
def test_influences_are_derivatives_in_the_weights_of_questions(metric, n, right, digits):
    """Of metrics of order those of k answers of a kind lie farther apart, as their own mean took part of the spread."""
    rng = np.random.default_rng(n)
    o = rng.permutation(np.arange(n) < right)
    p = np.round(rng.beta(1 + o, 2 - o), digits)
    found = influence(metric, p, p, o, strata_of(["a"] * n), "questions")
    if metric == "rmsce" and n == 2:
        assert found is None
        return
    assert (signed_root if metric == "rmsce" else float)(found.value) == pytest.approx(METRICS[metric].compute(p, o))
    function, step = weighted(metric, p, o), 1e-4 * np.eye(n)
    expected = np.array([function(1 + e) - function(1 - e) for e in step]) / 2e-4
    for kind in (o, ~o) if metric in RANKED else ():
        apart = expected[kind] - expected[kind].mean()
        expected[kind] += apart * (np.sqrt(kind.sum() / max(1, kind.sum() - 1)) - 1)
    assert found.by_question == pytest.approx(expected, abs=1e-6)
    assert found.by_question.sum() == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("o", [[True, True], [False, False]])
def test_rank_metrics_of_one_kind_have_no_influences(o):
    p, o = np.array([0.2, 0.9]), np.array(o)
    for metric, average in product(RANKED, ("questions", "subjects")):
        assert METRICS[metric].compute(p, o) is influence(metric, p, p, o, strata_of(["a", "b"]), average) is None


# --- errors, degrees of freedom, single tests -------------------------------------------------------------------------


def delong(p, q, o):
    """Areas, their covariance (DeLong et al., 1988), and its parts from right and from wrong answers."""
    placements = []
    for values in (p, q):
        above = np.sign(values[o][:, None] - values[~o]) / 2 + 0.5
        placements.append((above.mean(axis=1), above.mean(axis=0)))
    parts = [np.cov([one[k] for one in placements], ddof=1) / (o, ~o)[k].sum() for k in range(2)]
    return [one[0].mean() for one in placements], parts


@pytest.mark.parametrize(("right", "wrong", "digits"), [(20, 40, 9), (30, 30, 1), (180, 20, 2)])
def test_auroc_has_delongs_error_interval_and_test(right, wrong, digits):
    rng = np.random.default_rng(right)
    kinds, n = np.array([right, wrong]), right + wrong
    o = np.arange(n) < right
    p, q = np.round(rng.beta(1 + np.array([[2], [1]]) * o, 2), digits)
    result = summary({"p": p, "q": q}, o, ["a"] * n, QUICK)
    areas, parts = delong(p, q, o)

    def error_and_freedom(*weights):
        of_kind = np.array([np.array(weights) @ part @ weights for part in parts])
        scaled = of_kind * kinds / (kinds - 1)
        freedom = min(n - 1, scaled.sum() ** 2 / np.sum(scaled**2 / (kinds - 1)))
        return np.sqrt(n / (n - 1) * of_kind.sum()), freedom

    (pair,) = result.comparisons["auroc"]
    error, freedom = error_and_freedom(1, -1)
    assert (pair.difference, pair.error) == pytest.approx((areas[0] - areas[1], error))
    assert pair.p == pytest.approx(2 * scipy_stats.t.sf(abs(pair.difference) / error, freedom))
    estimate, (error, freedom) = result.methods["p"].estimates["auroc"], error_and_freedom(1, 0)
    half = scipy_stats.t.ppf(0.975, freedom) * error / (areas[0] * (1 - areas[0]))
    assert estimate.fixed.ends == pytest.approx((expit(logit(areas[0]) - half), expit(logit(areas[0]) + half)))
    assert (estimate.fixed.kind, estimate.fixed.estimand) == ("logit t", "fixed-subjects")


@pytest.mark.parametrize(
    ("subjects", "average"),
    [
        (["a"] * 40, "questions"),
        (["a"] * 40, "subjects"),
        ([f"s{k}" for k in range(40)], "questions"),
        ([f"s{k}" for k in range(40)], "subjects"),
        (["a", "b", *["c"] * 38], "questions"),
    ],
)
def test_means_in_one_subject_have_students_test(subjects, average):
    """Subjects of one or two questions vary as one; two of one question join the smallest of the others."""
    rng = np.random.default_rng(0)
    o = rng.random(40) < 0.6
    p, q = rng.random((2, 40))
    level = 0.9
    result = summary({"p": p, "q": q}, o, subjects, Settings(null_draws=1, level=level, average=average))
    for metric in ("brier", "nll"):
        one, other = losses(p, o)[metric], losses(q, o)[metric]
        (pair,) = result.comparisons[metric]
        expected = scipy_stats.ttest_rel(one, other)
        assert pair.p == pair.p_corrected == pytest.approx(expected.pvalue)
        assert pair.fixed.ends == pytest.approx(tuple(expected.confidence_interval(level)))
        single = scipy_stats.ttest_1samp(one, 0).confidence_interval(level)
        assert result.methods["p"].estimates[metric].fixed.ends == pytest.approx(tuple(single))


@pytest.mark.parametrize("average", ["questions", "subjects"])
def test_means_over_subjects_have_the_stratified_error(average):
    """Three subjects, and 25 of one or two questions, which are one stratum."""
    small = [f"s{k % 25}" for k in range(30)]
    subjects = np.array(["a"] * 12 + ["b"] * 60 + ["c"] * 25 + small)
    rng = np.random.default_rng(1)
    o = rng.random(subjects.size) < 0.6
    p, q = rng.random((2, subjects.size))
    (pair,) = summary({"p": p, "q": q}, o, subjects.tolist(), Settings(average=average)).comparisons["brier"]
    names, group, sizes = np.unique(subjects, return_inverse=True, return_counts=True)
    d = np.square(p - o) - np.square(q - o)
    share = 1 / (sizes[group] * names.size) if average == "subjects" else np.full(d.size, 1 / d.size)
    assert pair.difference == pytest.approx(share @ d)
    parts = share * (d - share @ d)
    strata = [subjects == "a", subjects == "b", subjects == "c", np.isin(subjects, small)]
    v, k = np.array([parts[s].var(ddof=1) * s.sum() for s in strata]), np.array([s.sum() for s in strata])
    assert pair.error == pytest.approx(np.sqrt(v.sum()))
    freedom = v.sum() ** 2 / np.sum(v**2 / (k - 1))
    assert pair.p == pytest.approx(2 * scipy_stats.t.sf(abs(pair.difference) / np.sqrt(v.sum()), freedom))


def test_mean_of_two_subjects_has_welchs_test():
    rng = np.random.default_rng(0)
    o, p, q = rng.random(90) < 0.6, *rng.random((2, 90))
    (pair,) = summary({"p": p, "q": q}, o, ["a"] * 25 + ["b"] * 65, MACRO).comparisons["brier"]
    d = np.square(p - o) - np.square(q - o)
    assert pair.p == pytest.approx(scipy_stats.ttest_ind(d[:25], -d[25:], equal_var=False).pvalue)


def test_clustered_interval_is_students_or_cluster_robust():
    confidence, o, names = answers(900, subjects=24)
    subjects = np.array(names)
    d = np.square(confidence["m0"] - o) - np.square(confidence["m1"] - o)
    each = [d[subjects == name] for name in sorted(set(names))]
    (macro,) = summary(confidence, o, names, MACRO).comparisons["brier"]
    expected = scipy_stats.ttest_1samp([part.mean() for part in each], 0).confidence_interval(0.95)
    assert macro.clustered.ends == pytest.approx(tuple(expected))
    (pooled,) = summary(confidence, o, names, QUICK).comparisons["brier"]
    sums = np.array([(part - d.mean()).sum() for part in each])
    half = scipy_stats.t.ppf(0.975, 23) * np.sqrt(24 / 23 * np.sum(sums**2)) / 900
    assert pooled.clustered.ends == pytest.approx((d.mean() - half, d.mean() + half))
    assert (pooled.clustered.estimand, pooled.clustered.kind) == ("clustered", "t")


def test_clustered_interval_counts_subjects_with_the_metric():
    confidence, o, names = answers(900, methods=1, subjects=22)
    subjects = np.array(names)
    o[np.isin(subjects, ["subject 3", "subject 11"])] = True
    defined = [subjects == name for name in sorted(set(names)) if not o[subjects == name].all()]
    estimate = summary(confidence, o, names, MACRO).methods["m0"].estimates["auroc"]
    areas = [roc_auc_score(o[rows], confidence["m0"][rows]) for rows in defined]
    assert (estimate.value, estimate.n_undefined) == (pytest.approx(np.mean(areas)), 2)
    assert estimate.clustered.ends == pytest.approx(tuple(scipy_stats.ttest_1samp(areas, 0).confidence_interval(0.95)))
    o[subjects == "subject 5"] = True
    estimate = summary(confidence, o, names, MACRO).methods["m0"].estimates["auroc"]
    assert estimate.clustered.reason == "20 subjects are needed to speak of others, there are 19"


def test_clustered_interval_needs_subjects_of_similar_size():
    confidence, o, _ = answers(548, methods=1)
    names = ["large"] * 500 + [f"small {k // 2}" for k in range(48)]
    estimate = summary(confidence, o, names, QUICK).methods["m0"].estimates["brier"]
    alike = 548**2 // (500**2 + 24 * 2**2)
    reason = f"20 subjects are needed to speak of others, these are as good as {alike} of one size"
    assert (estimate.clustered.ends, estimate.clustered.reason) == (None, reason)


def test_half_of_an_interval_is_its_longer_side():
    """0 to 7.7 around 5.2 was printed as 5.2 ±2.5, which 0 is outside of."""
    assert Interval("fixed-subjects", 0.0, 0.077).half(0.052) == pytest.approx(0.052)
    assert Interval("fixed-subjects", 0.1, 0.2).half(0.18) == pytest.approx(0.08)
    assert Interval("fixed-subjects", reason="too few").half(0.1) is None


def test_rmsce_interval_is_that_of_its_square():
    confidence, o, names = answers(400)
    result = summary(confidence, o, names, QUICK)
    sampling = Sampling.of(strata_of(names), o, "questions")
    found = [influence("rmsce", p, p, o, sampling.strata, "questions") for p in confidence.values()]
    spread = sampling.standard_errors(
        "rmsce", np.stack([each.by_question for each in found]), np.array([[0, 1], [1, -1]])
    )
    error = np.sqrt(np.square(spread.error) + np.array([found[1].second_order, 0]))
    t = scipy_stats.t.ppf(0.975, spread.freedom) * error
    ends = result.methods["m1"].estimates["rmsce"].fixed.ends
    assert ends == pytest.approx((np.sqrt(max(0, found[1].value - t[0])), np.sqrt(found[1].value + t[0])))
    (pair,) = result.comparisons["rmsce"]
    first, second = (np.sqrt(max(0, each.value)) for each in found)
    assert pair.difference == pytest.approx(first - second)
    assert pair.fixed.ends == pytest.approx((first**2 - second**2 + np.array([-1, 1]) * t[1]) / (first + second))
    squares = np.array([first**2 - second**2])
    assert pair.p == pytest.approx(
        p_values(squares, StandardErrors(spread.covariance, spread.error[1:], spread.freedom[1:]))[0]
    )


# --- where nothing can be told ----------------------------------------------------------------------------------------

LONE = [True] * 39 + [False] + [True, False] * 40


@pytest.mark.parametrize(
    ("o", "subjects", "settings", "metrics", "reason"),
    [
        ([True, False], ["a", "b"], QUICK, NOT_RMSCE, "there are 2 questions, from which no spread can be told"),
        ([True] * 196 + [False] * 4, ["a"] * 200, QUICK, MEANS,
         "5 wrong answers are needed to tell how far {} varies, there are 4"),
        ([True] * 19 + [False] * 181, ["a"] * 200, MACRO, RANKED,
         "20 right answers are needed to tell how far {} varies, there are 19"),
        (LONE, ["one"] * 40 + ["even"] * 80, MACRO, RANKED,
         "subject 'one' has one wrong answer, from which no spread can be told"),
        (np.invert(LONE), ["one"] * 40 + ["even"] * 80, MACRO, RANKED,
         "subject 'one' has one right answer, from which no spread can be told"),
        ([True] * 50 + [False] * 49, ["a"] * 99, QUICK, ["rmsce"],
         "100 questions are needed to tell how far {} varies, there are 99"),
        ([True, False] * 60, ["a"] * 91 + ["b"] * 29, MACRO, ["rmsce"],
         "100 questions are needed to tell how far {} varies, there are 91"),
        ([True, False] * 60, ["a"] * 117 + ["b"] * 3, MACRO, NOT_RMSCE,
         "subjects of a few questions count as much as large ones, and say too little of how far they vary"),
        ([True, False] * 60, ["a"] * 119 + ["b"], MACRO, NOT_RMSCE,
         "subjects of a few questions count as much as large ones, and say too little of how far they vary"),
    ],
)  # fmt: skip
def test_spread_unknown_leaves_no_interval_test_or_rank(o, subjects, settings, metrics, reason):
    rng = np.random.default_rng(0)
    result = summary(dict(zip("abc", rng.random((3, len(o))), strict=True)), np.array(o), subjects, settings)
    for metric in TESTED:
        pairs, fixed = result.comparisons[metric], result.methods["a"].estimates[metric].fixed
        is_known = len(o) > 2 or metric != "rmsce"
        assert (result.methods["a"].estimates[metric].value is not None) == is_known
        if metric in metrics:
            assert fixed.reason == reason.format(METRICS[metric].label)
            assert {pair.fixed for pair in pairs} == {Interval("fixed-subjects", reason=fixed.reason)}
            assert {(pair.p, pair.p_corrected, pair.error, pair.critical) for pair in pairs} == {(None,) * 4}
            assert result.ranks[metric] == {}
        elif is_known and set(metrics) != {*MEANS}:  # what is too few for a mean is too few for the others
            assert fixed.ends
            assert all(pair.p is not None for pair in pairs)


def test_rmsce_leaves_out_subjects_too_small():
    """Few answers in a bin count as no error, so that a mean over small subjects told nothing of a method's."""
    confidence, o, _ = answers(840, methods=1)
    own = confidence["m0"]
    large, small = [f"s{k % 21}" for k in range(840)], [f"t{k % 57}" for k in range(570)]
    every = np.concatenate([own, np.full(570, 0.9)]), np.concatenate([o, np.arange(570) % 2 == 0])
    alone, found, lacking = (
        summary({"m": p}, right, names, MACRO).methods["m"].estimates["rmsce"]
        for p, right, names in ((own, o, large), (*every, large + small), (*(part[840:] for part in every), small))
    )
    assert (found.value, found.n_undefined) == (pytest.approx(alone.value), 57)
    assert found.fixed.ends == pytest.approx(alone.fixed.ends)
    assert found.clustered.ends == pytest.approx(alone.clustered.ends)
    assert (lacking.value, lacking.fixed.reason) == (None, "it is undefined in every subject")


def test_tests_exist_despite_a_few_odd_questions():
    """A lone question beside ten large subjects, 600 subjects of one question, a subject with one mistake of 2,000."""
    rng = np.random.default_rng(0)
    for subjects, o in (
        (["lone", *[f"s{k % 10}" for k in range(500)]], rng.random(501) < 0.6),
        ([f"s{k}" for k in range(600)], rng.random(600) < 0.6),
        (["one"] * 40 + [f"s{k % 10}" for k in range(1960)], np.array([True] * 39 + [False] + [True, False] * 980)),
    ):
        result = summary(dict(zip("ab", rng.random((2, o.size)), strict=True)), o, subjects, QUICK)
        assert all(pair.p is not None for pairs in result.comparisons.values() for pair in pairs)


def test_auroc_of_few_mistakes_has_no_test():
    rng = np.random.default_rng(0)
    y = np.ones(200, dtype=bool)
    y[:4] = False
    base = rng.normal(size=200)
    methods = {f"m{k}": expit(1.2 * y + base + rng.normal(size=200)) for k in range(6)}
    pairs = summary(methods, y, ["all"] * 200, QUICK).comparisons["auroc"]
    assert {(pair.p_corrected, pair.winner(0.05)) for pair in pairs} == {(None, None)}
    assert {pair.fixed.reason for pair in pairs} == {
        "20 wrong answers are needed to tell how far AUROC varies, there are 4"
    }


def test_auroc_of_perfect_separation_is_still_compared():
    o = np.arange(40) < 20
    rng = np.random.default_rng(0)
    result = summary({"perfect": 0.9 - 0.5 * ~o, "other": rng.random(40)}, o, ["a"] * 40, QUICK)
    estimate = result.methods["perfect"].estimates["auroc"]
    assert (estimate.value, estimate.fixed.reason) == (1.0, "nothing varies between these questions")
    assert pairs_of(result, "auroc")["perfect", "other"].winner(0.05) == "perfect"


def test_methods_that_never_vary_are_not_distinguished():
    """What doesn't vary between a few questions may on others: p is 1, and there is no interval."""
    o = np.array([True, False] * 30)
    result = summary({"a": np.full(60, 0.5), "b": np.full(60, 0.5), "c": 1.0 * o}, o, ["a"] * 60, QUICK)
    pairs = pairs_of(result, "brier")
    found = {names: (pair.difference, pair.p, pair.p_corrected) for names, pair in pairs.items()}
    assert found == {("a", "b"): (0, 1, 1), ("a", "c"): (0.25, 1, 1), ("b", "c"): (0.25, 1, 1)}
    assert {names: pair.fixed.reason for names, pair in pairs.items()} == {
        ("a", "b"): "5 questions on which they differ are needed to tell how far, there are 0",
        ("a", "c"): "nothing varies between these questions", ("b", "c"): "nothing varies between these questions",
    }  # fmt: skip
    assert {(pair.error, pair.critical) for pair in pairs.values()} == {(None, None)}
    assert result.ranks["brier"] == {"a": 1, "b": 1, "c": 1}


@pytest.mark.parametrize("metric", ["acc", "brier", "auroc"])
def test_methods_differing_on_four_questions_are_not_distinguished(metric):
    """In a subject of three, where each question was won by the same one, they were told apart for certain."""
    rng = np.random.default_rng(0)
    o, base = np.arange(300) % 3 > 0, np.where(rng.random(300) < 0.5, 0.8, 0.2)
    for size, is_tested in ((4, False), (5, True)):
        better = {"a": base.copy(), "b": base}
        better["a"][:size] = np.where(o[:size], 0.99, 0.01)
        better["b"][:size] = np.where(o[:size], 0.01, 0.99)
        (pair,) = summary(better, o, [f"s{k // 3}" for k in range(300)], QUICK).comparisons[metric]
        assert (pair.fixed.ends is not None, pair.p < 1, pair.winner(0.05)) == (
            is_tested,
            is_tested,
            "a" if is_tested else None,
        )


@pytest.mark.parametrize("metric", ["auroc", "aucpr"])
def test_scores_differing_on_four_answers_are_not_distinguished(metric):
    """Each moved answer shifts the ranks of those that it passes, and the logarithm moves none."""
    o, rng = np.arange(200) % 2 > 0, np.random.default_rng(0)
    base = np.round(o + rng.normal(size=200), 1) + 9
    for size, is_tested in ((4, False), (5, True)):
        moved = np.where((np.arange(200) >= 100 - size) & (np.arange(200) < 100), 20.05 * ~o + o / 9, base)
        p = np.full(200, 0.5)
        found = summary({"a": p, "b": p}, o, ["s"] * 200, QUICK, score={"a": base, "b": np.log(moved)})
        (pair,) = found.comparisons[metric]
        assert (pair.fixed.ends is not None, pair.p < 1, pair.winner(0.05)) == (
            is_tested,
            is_tested,
            "a" if is_tested else None,
        )
        assert is_tested or pair.fixed.reason.endswith(f"there are {size}")


@pytest.mark.parametrize(
    ("first", "second", "least"),
    [([1, 2, 3, 4, 5], [3, 6, 7, 8, 9], 0), ([1, 2, 2, 2, 2], [3, 5, 5, 5, 5], 0),
     ([2, 2, 2, 2, 2, 5], [1, 2, 3, 4, 5, 9], 4), ([1, 2, 3, 4, 5, 9], [2, 2, 2, 2, 2, 5], 4),
     ([1, 2, 3, 4, 5, 6], [6, 5, 4, 3, 2, 1], 5), ([1, 2, 3, 4, 5, 6], [6, 1, 2, 3, 4, 5], 1)],
)  # fmt: skip
def test_answers_in_another_order_are_counted(first, second, least):
    """As many as have to go for the rest to have one order, where a tie in one alone is another order."""
    a, b = np.array([first, second]) / 10.0
    assert count_differing("auroc", a, b) == least
    wrong = np.arange(a.size) % 2 > 0
    assert count_differing("auroc", np.where(wrong, -1 - a, a), np.where(wrong, -1 - b, b)) == least
    # five further ones are right in one method and wrong in the other
    assert count_differing("auroc", np.append(a, [a[0]] * 5), np.append(b, [-1 - b[0]] * 5)) == least + 5


@pytest.mark.parametrize("metric", ["auroc", "aucpr"])
def test_answers_moved_alike_in_every_seed_are_few(metric):
    """Ranks averaged over seeds are shifted everywhere, in other places by each seed."""
    o, rng = np.arange(200) % 2 > 0, np.random.default_rng(0)
    base = np.round(o + rng.normal(size=(3, 200)), 1) + 9
    for size, is_tested in ((4, False), (5, True)):
        moved = base.copy()
        moved[:, :size] = np.where(o[:size], 1 / 9, 20.05)
        for seeds in (slice(1), slice(3)):
            p = np.full(base[seeds].shape, 0.5)
            score = {"a": base[seeds], "b": np.log(moved[seeds])}
            (pair,) = summary({"a": p, "b": p}, o, ["s"] * 200, QUICK, score=score).comparisons[metric]
            assert (pair.fixed.ends is not None, pair.p < 1) == (is_tested, is_tested)
            assert is_tested or pair.fixed.reason.endswith(f"there are {size}")


def test_answers_of_one_run_are_counted_against_each_seed():
    """By the seed that moves most of them; by a metric that is no matter of order, those of another mean."""
    one = np.arange(60) / 100
    seeds = np.stack([one, one, one])
    seeds[1, :6], seeds[2, 50:] = 0.7 + one[:6], 0.8 - one[50:]
    for a, b in ((one[None], seeds), (seeds, one[None])):
        assert count_differing("auroc", a, b) == 10
        assert count_differing("brier", a, b) == 16


@pytest.mark.parametrize("metric", ["auroc", "aucpr"])
def test_answers_are_counted_in_order_of_their_subject(metric):
    """A mean over subjects is the same where the answers of one subject are all scored higher."""
    rng = np.random.default_rng(0)
    o, subject = np.arange(200) % 2 > 0, np.arange(200) // 20
    base = np.round(o + rng.normal(size=200), 1)
    o[subject == 9] = True  # undefined there
    for size, is_tested in ((4, False), (5, True)):
        moved = np.where(np.arange(200) < 20 * size, base, base + rng.normal(size=10)[subject])
        moved[: 20 * size : 20] = np.where(o[: 20 * size : 20], -20, 20)  # the first of each of so many subjects
        p, score = np.full(200, 0.5), {"a": base, "b": moved}
        found = summary({"a": p, "b": p}, o, [f"s{s}" for s in subject], MACRO, score=score)
        (pair,) = found.comparisons[metric]
        assert (pair.fixed.ends is not None, pair.p < 1) == (is_tested, is_tested)
        assert is_tested or pair.fixed.reason.endswith(f"there are {size}")


def test_answers_in_one_order_are_told_fast():
    """Each pair of a method and its recalibrated line has one order, and takes no search for moved answers."""
    p = np.random.default_rng(0).random(20_000)
    p[100:200] = p[200:300]  # ties
    moved = np.where(np.arange(p.size) < p.size - 100, p, 1 - p)
    took = []
    for other, most in ((p**2, 0), (moved, 100)):
        times = []
        for _ in range(5):
            start = time.process_time()
            n_differing = count_differing("auroc", p, other)
            times.append(time.process_time() - start)
        assert 0.9 * most <= n_differing <= most
        took.append(min(times))
    assert took[0] < took[1] / 2  # a fifth measured


def test_metric_undefined_has_neither_value_nor_pairs():
    result = summary({"a": [0.5, 0.2, 0.9], "b": [0.1, 0.2, 0.3]}, [True] * 3, ["a"] * 3, QUICK)
    assert result.comparisons["auroc"] == ()
    estimate = result.methods["a"].estimates["auroc"]
    assert (estimate.value, estimate.fixed.reason, estimate.clustered.reason) == (None, *["it is undefined"] * 2)


def test_rmsce_difference_of_calibrated_methods_has_no_interval():
    o = np.array([True, False] * 200)
    methods = {"flat": np.full(400, 0.5), "near": np.where(np.arange(400) % 4 < 2, 0.51, 0.49)}
    result = summary(methods, o, [f"s{k % 20}" for k in range(400)], QUICK)
    assert all(method.estimates["rmsce"].value < 0 for method in result.methods.values())
    (pair,) = result.comparisons["rmsce"]
    assert (pair.difference, pair.winner(0.05)) == (0, None)
    assert pair.fixed.reason == pair.clustered.reason == "neither is off by more than chance"


# --- all pairs at once ------------------------------------------------------------------------------------------------


def corrected(covariance, weights, z, **settings):
    """Corrected p values and critical values of differences of so many standard errors, with much freedom."""
    covariance, weights = np.array(covariance), np.array(weights)
    error = np.sqrt(np.diag(weights @ covariance @ weights.T))
    spread = StandardErrors(covariance, error, np.full(len(weights), 1e9))
    return max_t(2 * scipy_stats.norm.sf(z), weights, spread, Settings(**settings))


def test_max_t_corrects_independent_pairs_as_such():
    weights = [[1, -1, 0, 0], [0, 0, 1, -1]]
    found, critical = corrected(np.diag([1, 2, 3, 4]), weights, np.array([1.5, 2.4]), draws=200_000)
    p = 2 * scipy_stats.norm.sf([1.5, 2.4])
    assert found == pytest.approx(1 - (1 - p) ** 2, abs=0.003)
    assert critical == pytest.approx(scipy_stats.norm.isf((1 - 0.95**0.5) / 2), abs=0.01)


def test_max_t_of_three_methods_is_multivariate_normal():
    covariance = np.array([[1, 0.3, 0.2], [0.3, 2, 0.5], [0.2, 0.5, 0.7]])
    weights = np.array([[1, -1, 0], [1, 0, -1], [0, 1, -1]])
    of_differences = weights @ covariance @ weights.T
    scale = np.sqrt(np.diag(of_differences))
    normal = scipy_stats.multivariate_normal(np.zeros(3), of_differences / np.outer(scale, scale), allow_singular=True)
    (inside,) = {normal.cdf(np.full(3, 2.2), lower_limit=np.full(3, -2.2))}
    found, _ = corrected(covariance, weights, np.full(3, 2.2), draws=200_000)
    assert found == pytest.approx(np.full(3, 1 - inside), abs=0.002)


def test_max_t_ignores_pairs_that_never_vary():
    spread = StandardErrors(np.diag([1.0, 1, 0]), np.array([np.sqrt(2), 0, 0]), np.full(3, 50.0))
    found, critical = max_t(np.array([0.03, 0, 1]), np.eye(3), spread, QUICK)
    assert found.tolist() == [0.03, 0, 1]
    assert critical == pytest.approx([scipy_stats.t.isf(0.025, 50), np.nan, np.nan], nan_ok=True)


@pytest.mark.parametrize("settings", [QUICK, MACRO, Settings(null_draws=1, level=0.9, draws=99)])
def test_critical_values_agree_with_p_values(settings):
    significant = []
    for seed, methods in product(range(6), (2, 5)):
        confidence, o, names = answers(300, methods, subjects=3, seed=seed)
        for pair in sum(summary(confidence, o, names, settings).comparisons.values(), ()):
            assert pair.p_corrected >= pair.p
            assert pair.p_corrected == pair.p or methods > 2
            if pair.error is None:  # two RMSCEs of 0
                assert (pair.p, pair.p_corrected, pair.critical) == (1, 1, None)
                continue
            significant.append(pair.p_corrected < 1 - settings.level)
            assert (abs(pair.difference) > pair.critical * pair.error) == significant[-1]
    assert 0.2 < np.mean(significant) < 0.95


def test_draws_too_few_leave_only_single_pairs_significant():
    confidence, o, names = answers(2000, methods=3)
    few = Settings(null_draws=1, draws=18)
    assert all(pair.critical is None for pair in summary(confidence, o, names, few).comparisons["brier"])
    (pair,) = summary({m: confidence[m] for m in ("m0", "m2")}, o, names, few).comparisons["brier"]
    assert pair.winner(0.05) == "m0"


def test_pairs_are_corrected_within_their_block():
    confidence, o, names = answers(300, methods=4)
    together = pairs_of(summary(confidence, o, names, QUICK), "brier")
    blocks = pairs_of(summary(confidence, o, names, QUICK, [["m2", "m3"], ["m0"]]), "brier")
    alone = blocks.pop(("m2", "m3"))
    assert alone.p == alone.p_corrected < together.pop(("m2", "m3")).p_corrected
    assert blocks == together


def ranked_pairs(p_corrected, metric="brier"):
    """Each first method has the smaller value."""
    nothing = Interval("fixed-subjects", reason="not needed here")
    return [Comparison(metric, a, b, -0.1, nothing, nothing, p, p) for (a, b), p in p_corrected.items()]


def test_rank_counts_significantly_better_methods():
    p = {("a", "b"): 0.5, ("a", "c"): 0.01, ("a", "d"): 0.2, ("b", "c"): 0.2, ("b", "d"): 0.0, ("c", "d"): 0.05}
    assert ranks("abcd", ranked_pairs(p)) == {"a": 1, "b": 1, "c": 2, "d": 2}
    assert ranks("abcd", ranked_pairs({**p, ("c", "d"): 0.049})) == {"a": 1, "b": 1, "c": 2, "d": 3}
    assert ranks("bcd", ranked_pairs(p)) == {"b": 1, "c": 1, "d": 2}  # a is of another block
    assert ranks("ab", ranked_pairs({("a", "b"): 0.01}, "auroc")) == {"a": 2, "b": 1}  # where more is better
    assert ranks("a", []) == ranks("ab", []) == ranks("ab", ranked_pairs({("a", "b"): None})) == {}


# --- calibration ------------------------------------------------------------------------------------------------------


def off_by(first, second, seed):
    """Which of two methods is named: one says 0.98 or 0.02, the other 0.7 or 0.3, each too sure by so much."""
    rng = np.random.default_rng(seed)
    high, right = rng.random((2, 1200))
    sharp = np.where(high < 0.6, 0.98, 0.02)
    o = right < sharp - first * np.sign(sharp - 0.5)
    rate = 0.6 * (0.98 - first) + 0.4 * (0.02 + first)
    above, below = 0.7 - second, 0.3 + second
    share = (rate - below) / (above - below)
    flat = rng.random(1200) < np.where(o, above * share / rate, (1 - above) * share / (1 - rate))
    methods = {"sharp": sharp, "flat": np.where(flat, 0.7, 0.3)}
    (pair,) = summary(methods, o, [f"s{k % 8}" for k in range(1200)], QUICK).comparisons["rmsce"]
    return pair.winner(0.05)


def test_rmsce_test_seldom_separates_equally_miscalibrated_methods():
    named = [off_by(0.06, 0.06, seed) for seed in range(60)]
    assert max(named.count("sharp"), named.count("flat")) <= 5  # 1.5 expected of each; 6 in 0.4 % of such tests


def test_rmsce_test_finds_the_better_calibrated_method():
    assert "flat" not in {off_by(0.05, 0.08, seed) for seed in range(15)}
    assert "sharp" not in {off_by(0.08, 0.05, seed) for seed in range(15)}
    assert [off_by(0.04, 0.10, seed) for seed in range(20)].count("sharp") >= 10


def naive_macro_ece(p, o, names):
    return np.mean([ece(p[names == name], o[names == name]) for name in sorted(set(names))])


@pytest.mark.parametrize("average", ["questions", "subjects"])
def test_calibration_p_value_is_that_of_redrawn_labels(average):
    confidence, o, names = answers(150, methods=1)
    p, grouped = confidence["m0"], np.array(names if average == "subjects" else ["all"] * 150)
    rng = np.random.default_rng(9)
    redrawn = np.array([naive_macro_ece(p, rng.random(150) < p, grouped) for _ in range(800)])
    expected = np.mean(redrawn >= naive_macro_ece(p, o, grouped))
    assert 0.1 < expected < 0.9
    assert calibrated_p(p, o, names, Settings(average, null_draws=2000)) == pytest.approx(expected, abs=0.06)
    assert calibrated_p(np.stack([p, p]), o, names) == calibrated_p(p, o, names)


def test_calibration_p_value_is_uniform_under_calibration():
    rng = np.random.default_rng(1)
    p = rng.random(120)
    values = np.array(
        [calibrated_p(p, rng.random(120) < p, ["a"] * 120, Settings(null_draws=99, seed=k)) for k in range(400)]
    )
    assert np.mean(values <= 0.1) == pytest.approx(0.1, abs=0.045)
    assert np.mean(values <= 0.5) == pytest.approx(0.5, abs=0.08)


def test_calibration_p_value_at_its_extremes():
    o = np.array([True, False] * 20)
    assert calibrated_p(o.astype(float), o, ["art"] * 40) == 1.0
    assert calibrated_p(1.0 - o, o, ["art"] * 40) == 0.001


# --- everything at once -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("average", ["questions", "subjects"])
def test_summary_has_the_values_of_the_results(average):
    confidence, o, names = answers(500, methods=3)
    o[np.array(names) == "subject 2"] = True  # where metrics of order are undefined
    result = summary(confidence, o, names, Settings(average, null_draws=1))
    for method, p in confidence.items():
        scores = summarise(p, o, names, Protocol()).metrics
        assert list(result.methods[method].estimates) == list(TESTED)
        for name, estimate in result.methods[method].estimates.items():
            assert estimate.value == pytest.approx(scores[name].of(average), abs=1e-12), name
            assert estimate.n_undefined == (scores[name].n_undefined if average == "subjects" else 0)


def test_seeds_are_averaged_question_by_question():
    confidence, o, names = answers(400, methods=3)
    p = np.stack(list(confidence.values()))
    result = summary({"seeded": p, "one": confidence["m0"]}, o, names, QUICK)
    for name in TESTED:
        estimate = result.methods["seeded"].estimates[name]
        values = [METRICS[name].compute(row, o) for row in p]
        assert estimate.by_seed == pytest.approx(values, abs=1e-12)
        assert estimate.value == pytest.approx(METRICS[name].mean(values), abs=1e-12)
        assert estimate.spread == pytest.approx(np.std(values, ddof=1), abs=1e-12)
        assert result.methods["one"].estimates[name].spread is None
    sampling = Sampling.of(strata_of(names), o, "questions")
    for name in ("auroc", "brier"):
        each = [influence(name, row, row, o, sampling.strata, "questions") for row in p]
        difference = np.mean([one.by_question for one in each], axis=0) - each[0].by_question
        (pair,) = result.comparisons[name]
        assert pair.difference == pytest.approx(np.mean([one.value for one in each]) - each[0].value)
        assert pair.error == pytest.approx(sampling.standard_errors(name, difference[None]).error[0])


@pytest.mark.parametrize("settings", [QUICK, MACRO])
def test_summary_ignores_orders_and_names(settings):
    confidence, o, names = answers(400, methods=5)
    rng = np.random.default_rng(1)
    order, methods = rng.permutation(400), rng.permutation(list(confidence)).tolist()
    other = {m: confidence[m][order] for m in methods}
    renamed = [names[i].replace("subject 1", "a").replace("subject 4", "z") for i in order]
    before, after = summary(confidence, o, names, settings), summary(other, o[order], renamed, settings)

    def numbers(pair):
        ends = [*(pair.fixed.ends or ()), *(pair.clustered.ends or ())]
        return [
            x for x in (pair.difference, pair.p, pair.p_corrected, pair.error, pair.critical, *ends) if x is not None
        ]

    for metric in TESTED:
        found = pairs_of(after, metric) | {(c.second, c.first): c.reversed() for c in after.comparisons[metric]}
        for names_, pair in pairs_of(before, metric).items():
            assert numbers(found[names_]) == pytest.approx(numbers(pair), abs=1e-12)
        for method, expected in before.methods.items():
            one, same = expected.estimates[metric], after.methods[method].estimates[metric]
            assert [same.value, *(same.fixed.ends or ())] == pytest.approx(
                [one.value, *(one.fixed.ends or ())], abs=1e-12
            )
        assert after.ranks[metric] == before.ranks[metric]


def test_summary_depends_on_its_seed_alone():
    confidence, o, names = answers(300, methods=4)
    first, again, other = (summary(confidence, o, names, Settings(null_draws=99, seed=k)) for k in (0, 0, 1))
    assert (again.methods, again.comparisons) == (first.methods, first.comparisons)
    assert other.comparisons != first.comparisons


def test_rank_metrics_take_scores():
    """Everything said of AUROC and AUCPR is what is said of confidences in the order of the scores."""
    rng = np.random.default_rng(3)
    o, subjects = rng.random(120) < 0.6, ["a"] * 70 + ["b"] * 50
    score = o + rng.normal(size=(2, 120))
    p, other = np.full((2, 120), 0.6), rng.random(120)
    ordered = np.stack([scipy_stats.rankdata(run) / 121 for run in score])
    found = summary({"m": p, "o": other}, o, subjects, QUICK, score={"m": np.exp(9 * score)})
    flat, expected = (summary({"m": run, "o": other}, o, subjects, QUICK) for run in (p, ordered))
    for name in TESTED:
        same = expected if name in RANKED else flat
        assert found.methods["m"].estimates[name] == same.methods["m"].estimates[name]
        assert found.comparisons[name] == same.comparisons[name]
    assert found.ranks["auroc"] == {"m": 1, "o": 2}
    assert found.methods["o"] == flat.methods["o"]


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
def test_summary_refuses_odd_input(confidence, correct, subjects, message):
    with pytest.raises(ValueError, match=message):
        summary(confidence, correct, subjects)
