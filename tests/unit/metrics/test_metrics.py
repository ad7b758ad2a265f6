"""The paper's metrics against scikit-learn or a naive implementation, and what all metrics must have in common."""

from __future__ import annotations

import math
import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, average_precision_score, brier_score_loss, roc_auc_score

from bench.api.protocol import Protocol
from bench.metrics import (
    METRICS,
    accuracy,
    aucpr,
    auroc,
    brier,
    ece,
    ece_floor,
    ece_ref,
    ece_ref_closed,
    summarise,
)
from bench.metrics.calibration import n_clipped
from bench.metrics.paper import n_excluded

# Decimals with few digits make ties and land on bin edges, as sampled confidences do.
CONFIDENCE = st.one_of(st.floats(0, 1), st.sampled_from([k / 10 for k in range(11)]), st.sampled_from([0.0, 0.5, 1.0]))
ANSWERS = st.lists(st.tuples(CONFIDENCE, st.booleans()), min_size=1, max_size=60).map(
    lambda pairs: (np.array([p for p, _ in pairs]), np.array([o for _, o in pairs]))
)


def naive_ece(confidence, target, *, closed=True, bins=10):
    """Straight from the definition: one bin after the other, gaps weighted by counts."""
    rows = list(zip(confidence, target, strict=True))
    gaps, binned = 0.0, 0
    for j in range(bins):
        low, high = j / bins, (j + 1) / bins
        inside = [(p, t) for p, t in rows if low <= p < high or (closed and j == bins - 1 and p == 1.0)]
        if inside:
            mean_p = math.fsum(p for p, _ in inside) / len(inside)
            mean_t = sum(t for _, t in inside) / len(inside)
            gaps += len(inside) * abs(mean_p - mean_t)
            binned += len(inside)
    return gaps / binned if binned else None


def top_label(p, o):
    return [max(x, 1 - x) for x in p], [(x > 0.5) == y for x, y in zip(p, o, strict=True)]


def sample(n=500, seed=0):
    rng = np.random.default_rng(seed)
    p = np.round(rng.random(n), 2)
    return p, rng.random(n) < 0.2 + 0.6 * p


@given(ANSWERS)
def test_ece_equals_the_naive_loop(answers):
    p, o = answers
    assert ece(p, o) == pytest.approx(naive_ece(p, o), abs=1e-12)


@given(ANSWERS)
def test_ece_of_top_labels_equals_the_naive_loop(answers):
    p, o = answers
    confidence, hit = top_label(p, o)
    assert ece_ref_closed(p, o) == pytest.approx(naive_ece(confidence, hit), abs=1e-12)
    expected = naive_ece(confidence, hit, closed=False)
    if expected is None:
        assert ece_ref(p, o) is None
    else:
        assert ece_ref(p, o) == pytest.approx(expected, abs=1e-12)
    assert n_excluded(p, o) == sum(c == 1.0 for c in confidence)


@given(ANSWERS)
def test_accuracy_brier_and_rank_metrics_equal_scikit_learn(answers):
    p, o = answers
    assert brier(p, o) == pytest.approx(brier_score_loss(o, p, pos_label=1), abs=1e-12)
    assert accuracy(p, o) == pytest.approx(accuracy_score(o, p > 0.5), abs=1e-12)
    if o.all() or not o.any():
        assert auroc(p, o) is None
        assert aucpr(p, o) is None
    else:
        assert auroc(p, o) == pytest.approx(roc_auc_score(o, p), abs=1e-12)
        assert aucpr(p, o) == pytest.approx(average_precision_score(o, p), abs=1e-12)


@given(ANSWERS, st.randoms(use_true_random=False))
@settings(max_examples=50, deadline=None)
def test_metrics_ignore_the_order_of_answers(answers, random):
    p, o = answers
    rows = list(range(p.size))
    random.shuffle(rows)
    for metric in METRICS.values():
        before, after = metric.compute(p, o), metric.compute(p[rows], o[rows])
        rounding = 1e-6 if metric.is_root else 1e-12  # the root of a square that is off by 1e-12
        assert after == (before if before is None else pytest.approx(before, abs=rounding)), metric.name


@given(ANSWERS)
@settings(max_examples=50, deadline=None)
def test_metrics_lie_within_their_bounds(answers):
    for metric in METRICS.values():
        value = metric.compute(*answers)
        low, high = metric.bounds
        assert value is None or low <= value <= high + 1e-12, metric.name


@pytest.mark.parametrize("j", range(10))
def test_ece_bin_begins_at_its_decimal_edge(j):
    p = np.array([j / 10, np.nextafter((j + 1) / 10, 0)])  # both ends of one bin: their gaps cancel within it
    o = np.array([True, False])
    assert ece(p, o) == pytest.approx(abs(p.sum() - 1) / 2, abs=1e-12)


def test_ece_floor_is_the_mean_over_redrawn_labels():
    p, o = sample(n=120)
    rng = np.random.default_rng(99)
    redrawn = [naive_ece(p, rng.random(p.size) < p) for _ in range(400)]
    assert ece_floor(p, o, draws=2000) == pytest.approx(np.mean(redrawn), abs=0.004)


def test_ece_floor_of_one_answer_is_exact():
    p = 0.3  # |o - p| is 0.7 with probability 0.3, and 0.3 with probability 0.7
    assert ece_floor([p], [True], draws=20_000) == pytest.approx(2 * p * (1 - p), abs=0.005)


def test_ece_floor_depends_on_its_seed_alone(monkeypatch):
    p, o = sample()
    value = ece_floor(p, o, seed=1)
    assert value == ece_floor(p, ~o, seed=1) == ece_floor(p, o, seed=1, draws=200)
    assert value != ece_floor(p, o, seed=2)
    monkeypatch.setattr("bench.metrics.paper.FLOOR_VALUES_AT_ONCE", 700)
    assert ece_floor(p, o, seed=1) == pytest.approx(value, abs=1e-12)


@pytest.mark.parametrize("metric", [*(m.compute for m in METRICS.values()), n_excluded, n_clipped])
@pytest.mark.parametrize(
    ("confidence", "correct", "message"),
    [
        ([], [], "at least one answer"),
        ([0.2, float("nan")], [True, False], "got nan at row 1"),
        ([1.2], [True], "got 1.2 at row 0"),
        ([-1e-9], [True], r"in \[0, 1\]"),
        ([float("inf")], [True], "got inf"),
        ([0.5, 0.5], [True], r"got \(2,\) and \(1,\)"),
        ([[0.5]], [[True]], "one shape"),
        ([0.5], [1], "correct as bool"),
    ],
)
def test_metrics_refuse_what_is_no_confidence(metric, confidence, correct, message):
    with pytest.raises(ValueError, match=message):
        metric(confidence, correct or np.array([], dtype=bool))


def test_metrics_tell_which_way_is_better():
    _, o = sample()
    good, bad = o * 0.8 + 0.1, ~o * 0.8 + 0.1
    for metric in METRICS.values():
        if metric.higher_is_better is not None:
            assert (metric.compute(good, o) > metric.compute(bad, o)) == metric.higher_is_better, metric.name


def test_summary_is_the_unweighted_mean_over_subjects():
    p, o = sample()
    subjects = np.random.default_rng(1).choice(["law", "art", "physics"], p.size, p=[0.7, 0.2, 0.1])
    scores = summarise(p, o, list(subjects), Protocol())
    aps = [average_precision_score(o[subjects == s], p[subjects == s]) for s in ("art", "law", "physics")]
    assert list(scores.per_subject) == ["art", "law", "physics"]
    assert [values["aucpr"] for values in scores.per_subject.values()] == pytest.approx(aps)
    assert scores.metrics["aucpr"].mean == pytest.approx(np.mean(aps))
    assert scores.metrics["aucpr"].std == pytest.approx(np.std(aps))
    assert scores.metrics["aucpr"].pooled == pytest.approx(average_precision_score(o, p))
    assert {s: v["n"] for s, v in scores.per_subject.items()} == {s: sum(subjects == s) for s in scores.per_subject}
    assert set(scores.metrics) == set(METRICS)
    assert scores.n_excluded == n_excluded(p, o)
    assert scores.n_clipped == n_clipped(p, o)


def test_summary_follows_bins_and_ddof_of_the_protocol():
    p, o = sample()
    subjects = ["a", "b"] * 250
    scores = summarise(p, o, subjects, replace(Protocol(), ece_bins=3, std_ddof=1))
    values = [naive_ece(p[k::2], o[k::2], bins=3) for k in (0, 1)]
    assert scores.metrics["ece"].mean == pytest.approx(np.mean(values))
    assert scores.metrics["ece"].std == pytest.approx(np.std(values, ddof=1))


def test_summary_counts_subjects_of_one_class():
    p, o = [0.9, 0.1, 0.8, 0.7], [True, False, True, True]
    scores = summarise(p, o, ["mixed", "mixed", "easy", "easy"], Protocol())
    assert scores.per_subject["easy"]["auroc"] is None
    assert (scores.metrics["auroc"].mean, scores.metrics["auroc"].n_undefined) == (1.0, 1)
    assert scores.metrics["brier"].n_undefined == 0


def test_summary_of_an_undefined_metric_has_no_mean():
    scores = summarise([0.4, 1.0], [True, True], ["a", "b"], replace(Protocol(), std_ddof=1))
    assert (scores.metrics["auroc"].mean, scores.metrics["auroc"].std, scores.metrics["auroc"].pooled) == (None,) * 3
    assert scores.metrics["auroc"].n_undefined == 2
    assert scores.metrics["ece_ref"].std is None  # one value has no spread with one degree of freedom taken off
    assert scores.metrics["ece_ref"].mean == pytest.approx(0.6)  # 0.6 sure of "wrong", and mistaken


def test_summary_draws_floors_of_subjects_apart():
    p, o = sample(n=40)
    scores = summarise([*p, *p], [*o, *o], ["a"] * 40 + ["b"] * 40, Protocol())
    first, second = (values["ece_floor"] for values in scores.per_subject.values())
    assert first != second
    assert first == pytest.approx(second, abs=0.02)
    assert summarise(p, o, ["b"] * 40, Protocol()).per_subject["b"]["ece_floor"] == second  # nor depend on others


def test_summary_requires_a_subject_for_each_answer():
    with pytest.raises(ValueError, match="one subject for each of 2 answers, got 1"):
        summarise([0.1, 0.2], [True, False], ["a"], Protocol())


@pytest.mark.slow
def test_summary_of_mmlu_takes_a_moment():
    rng = np.random.default_rng(0)
    p = rng.random(14_042)
    subjects = [f"subject {i}" for i in rng.integers(0, 57, p.size)]
    start = time.process_time()
    summarise(p, rng.random(p.size) < p, subjects, Protocol())
    assert time.process_time() - start < 1.5  # 0.6 s measured


def test_rank_metrics_depend_on_order_alone() -> None:
    """So do uncertainty and discrimination of the Brier score, by definition."""
    rng = np.random.default_rng(3)
    confidence, correct = rng.uniform(0.01, 0.99, 200), rng.random(200) < 0.6
    kept = {
        name for name, metric in METRICS.items()
        if metric.compute(confidence, correct) == pytest.approx(metric.compute(confidence**3, correct), abs=1e-12)
    }  # fmt: skip
    ranked = {name for name, metric in METRICS.items() if metric.is_rank_based}
    assert kept == ranked | {"brier_unc", "brier_dsc"}
