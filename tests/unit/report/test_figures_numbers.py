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
from tests.kit.world import question_records as records


@st.composite
def some_records(draw):
    """Any confidences, decimals and ties included."""
    n = draw(st.integers(1, 60))
    decimals = st.integers(0, 20).map(lambda k: k / 20)
    confidence = draw(arrays(np.float64, n, elements=st.one_of(decimals, st.floats(0, 1))))
    return records(confidence, draw(arrays(np.bool_, n)))


@settings(max_examples=50)
@given(some_records())
def test_bins_are_those_of_ece(run):
    bins = bin_records([run])
    for k in range(BINS):
        rows = [i for i, p in enumerate(run.confidence) if k / BINS <= p < (k + 1) / BINS or (k == BINS - 1 and p == 1)]
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
def test_bin_intervals_are_wilson_s(hits_of_n):
    hits, n = hits_of_n
    expected = binomtest(hits, n).proportion_ci(0.95, method="wilson")
    low, high = wilson([hits / n], [n])
    assert (low[0], high[0]) == pytest.approx((expected.low, expected.high), abs=1e-9)


def test_bin_intervals_are_no_narrower_with_seeds():
    """Another seed asks the same questions again; it adds none."""
    run = records([0.45] * 20 + [0.95] * 40, [True] * 8 + [False] * 12 + [True] * 30 + [False] * 10)
    one, three = bin_records([run]), bin_records([run] * 3)
    for name in ("rate", "low", "high", "answers", "confidence"):
        np.testing.assert_allclose(getattr(three, name), getattr(one, name))
    assert three.by_seed.shape == (3, BINS)


def test_bins_are_of_seeds_together_and_each():
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
def test_risk_curve_area_is_aurc(run):
    curve = risk_curve([run])
    aurc = metrics.aurc(run.confidence, run.correct)
    assert np.mean(curve.risk[0]) == pytest.approx(aurc, abs=1e-12)
    assert aurc - np.mean(curve.best) == pytest.approx(metrics.eaurc(run.confidence, run.correct), abs=1e-12)
    assert curve.coverage[-1] == 1
    assert curve.risk[0, -1] == pytest.approx(np.mean(~run.correct))


def test_risk_curve_is_thinned_and_keeps_its_values():
    rng = np.random.default_rng(0)
    run = records(rng.random(5000), rng.random(5000) < 0.6)
    curve = risk_curve([run])
    assert curve.coverage.size == 200
    order = np.argsort(-run.confidence)
    for coverage, risk in zip(curve.coverage, curve.risk[0], strict=True):
        first = order[: round(coverage * 5000)]
        assert risk == pytest.approx(np.mean(~run.correct[first]))


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1))
def test_pareto_front_dominates_all_others_alone(points):
    on = pareto_indices(points)
    front = [points[i] for i in on]
    assert front == sorted(front)
    for i, (cost, bad) in enumerate(points):
        dominated = any(c <= cost and b <= bad and (c < cost or b < bad) for c, b in points)
        assert dominated is (i not in on)
