"""The numbers behind figures, against naive definitions, scipy and the metrics of the tables."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import binomtest

from bench import metrics
from bench.report.bins import BINS, bin_records, wilson
from bench.report.figures.numbers import HISTOGRAM_BINS, compute_histogram, risk_curve
from bench.report.front import pareto_indices
from bench.results.question_records import QuestionRecords


def records(confidence, correct):
    n = len(confidence)
    everything = np.ones(n, dtype=bool)
    p, o = np.asarray(confidence, dtype=np.float64), np.asarray(correct, dtype=bool)
    return QuestionRecords([str(i) for i in range(n)], ["s"] * n, o, p, ["a"] * n, everything)


@st.composite
def some_records(draw):
    """Any confidences, decimals and ties included."""
    n = draw(st.integers(1, 60))
    decimals = st.integers(0, 20).map(lambda k: k / 20)
    confidence = draw(arrays(np.float64, n, elements=st.one_of(decimals, st.floats(0, 1))))
    return records(confidence, draw(arrays(np.bool_, n)))


def in_bin(p, k, bins):
    return k / bins <= p < (k + 1) / bins or (k == bins - 1 and p == 1.0)


@settings(max_examples=50)
@given(some_records())
def test_bins_are_those_of_ece(run):
    bins = bin_records([run])
    for k in range(BINS):
        rows = [i for i, p in enumerate(run.confidence) if in_bin(p, k, BINS)]
        assert bins.answers[k] == len(rows)
        if rows:
            assert bins.confidence[k] == pytest.approx(np.mean(run.confidence[rows]))
            assert bins.rate[k] == pytest.approx(np.mean(run.correct[rows]))
            assert bins.low[k] - 1e-12 <= bins.rate[k] <= bins.high[k] + 1e-12
        else:
            assert np.isnan([bins.confidence[k], bins.rate[k], bins.low[k], bins.high[k]]).all()
    gap = np.nansum(bins.answers * np.abs(bins.confidence - bins.rate)) / len(run.id)
    assert gap == pytest.approx(metrics.ece(run.confidence, run.correct, bins=BINS), abs=1e-12)


@given(st.integers(1, 400).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_intervals_are_wilson_s(hits_of_n):
    hits, n = hits_of_n
    expected = binomtest(hits, n).proportion_ci(0.95, method="wilson")
    low, high = wilson([hits / n], [n])
    assert (low[0], high[0]) == pytest.approx((expected.low, expected.high), abs=1e-9)


def test_seeds_don_t_make_intervals_narrower():
    """Another seed asks the same questions again; it adds none."""
    run = records([0.45] * 20 + [0.95] * 40, [True] * 8 + [False] * 12 + [True] * 30 + [False] * 10)
    one, three = bin_records([run]), bin_records([run] * 3)
    for name in ("rate", "low", "high", "answers", "confidence"):
        np.testing.assert_allclose(getattr(three, name), getattr(one, name))
    assert three.by_seed.shape == (3, BINS)


def test_seeds_are_drawn_together_and_each():
    runs = [records([0.95, 0.95, 0.15], [True, False, False]), records([0.95, 0.15, 0.15], [True, False, False])]
    bins = bin_records(runs)
    assert bins.rate[9] == pytest.approx(2 / 3)
    assert bins.by_seed[:, 9].tolist() == [0.5, 1.0]
    assert bins.answers[[1, 9]].tolist() == [1.5, 1.5]


@settings(max_examples=50)
@given(some_records())
def test_histograms_hold_every_answer(run):
    shares = compute_histogram([run])
    assert shares.right.shape == shares.wrong.shape == (1, HISTOGRAM_BINS)
    assert shares.right.sum() == pytest.approx(np.mean(run.correct))
    assert shares.wrong.sum() == pytest.approx(np.mean(~run.correct))


@settings(max_examples=50)
@given(some_records())
def test_the_area_below_a_curve_is_aurc(run):
    curve = risk_curve([run])
    aurc = metrics.aurc(run.confidence, run.correct)
    assert np.mean(curve.risk[0]) == pytest.approx(aurc, abs=1e-12)
    assert aurc - np.mean(curve.best) == pytest.approx(metrics.eaurc(run.confidence, run.correct), abs=1e-12)
    assert curve.coverage[-1] == 1
    assert curve.risk[0, -1] == pytest.approx(np.mean(~run.correct))


def test_long_curves_are_thinned_and_keep_their_values():
    rng = np.random.default_rng(0)
    run = records(rng.random(5000), rng.random(5000) < 0.6)
    curve = risk_curve([run])
    assert curve.coverage.size == 200
    order = np.argsort(-run.confidence)
    for coverage, risk in zip(curve.coverage, curve.risk[0], strict=True):
        first = order[: round(coverage * 5000)]
        assert risk == pytest.approx(np.mean(~run.correct[first]))


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1))
def test_the_front_dominates_all_others_and_nothing_on_it(points):
    on = pareto_indices(points)
    front = [points[i] for i in on]
    assert front == sorted(front)
    for i, (cost, bad) in enumerate(points):
        dominated = any(c <= cost and b <= bad and (c < cost or b < bad) for c, b in points)
        assert dominated is (i not in on)
