"""Isotonic reliability curves against scikit-learn, bands against what a band promises, pooled numbers by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.isotonic import IsotonicRegression

from bench import metrics
from bench.report.corp import POINTS, ReliabilityCurve, pooled_errors, reliability_curve
from tests.kit.world import question_records


@st.composite
def some_records(draw):
    """Any confidences, decimals and ties included."""
    n = draw(st.integers(1, 80))
    fine = st.integers(0, 10**6).map(lambda k: k / 10**6)  # scikit-learn takes 0 and 1e-16 for the same confidence
    decimals = st.integers(0, 20).map(lambda k: k / 20)
    confidence = draw(arrays(np.float64, n, elements=st.one_of(decimals, fine)))
    return question_records(confidence, draw(arrays(np.bool_, n)))


@settings(max_examples=60, deadline=None)
@given(st.lists(some_records(), min_size=1, max_size=3))
def test_the_curve_is_the_isotonic_regression_of_all_answers(runs):
    curve = reliability_curve(runs, draws=2)
    p = np.concatenate([run.confidence for run in runs])
    o = np.concatenate([run.correct for run in runs]).astype(float)
    oracle = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip").fit(p, o)
    np.testing.assert_allclose(curve.rate, oracle.predict(curve.confidence), atol=1e-9)
    assert curve.confidence.size <= POINTS
    assert (np.diff(curve.confidence) > 0).all()
    for values in (curve.rate, curve.low, curve.high):
        assert (np.diff(values) >= -1e-12).all()
        assert (values >= 0).all()
        assert (values <= 1).all()
    assert (curve.low <= curve.high).all()
    assert (curve.confidence[0], curve.confidence[-1]) == (p.min(), p.max())


@settings(max_examples=40, deadline=None)
@given(some_records())
def test_recalibration_by_the_curve_keeps_the_share_of_right_answers(run):
    p = np.round(run.confidence, 1)  # so few that the curve has each of them
    curve = reliability_curve([question_records(p, run.correct)], draws=2)
    assert np.interp(p, curve.confidence, curve.rate).mean() == pytest.approx(run.correct.mean())
    recalibrated = np.interp(p, curve.confidence, curve.rate)
    gain = np.mean((p - run.correct) ** 2) - np.mean((recalibrated - run.correct) ** 2)
    assert gain == pytest.approx(pooled_errors([question_records(p, run.correct)])[1], abs=1e-12)


def calibrated(rng, n):
    p = rng.beta(2, 1, n)
    return question_records(p, rng.random(n) < p)


def test_bands_hold_the_curves_of_calibrated_confidences_in_95_percent():
    rng = np.random.default_rng(0)
    inside = []
    for k in range(150):
        curve = reliability_curve([calibrated(rng, 300)], seed=k)
        within = (curve.low <= curve.rate) & (curve.rate <= curve.high)
        inside.append(within[5:-5].mean())
    # Pointwise 95 %; the points of one curve hang together, so 150 curves tell it to about a percent.
    assert np.mean(inside) == pytest.approx(0.95, abs=0.025)


def test_bands_lie_around_the_diagonal_and_shrink():
    rng = np.random.default_rng(1)
    few, many = (reliability_curve([calibrated(rng, n)]) for n in (100, 4000))
    for curve in (few, many):
        inner = slice(5, -5)
        assert (curve.low[inner] <= curve.confidence[inner]).all()
        assert (curve.confidence[inner] <= curve.high[inner]).all()
    assert np.mean(many.high - many.low) < 0.5 * np.mean(few.high - few.low)


def test_a_curve_leaves_the_band_where_confidences_are_wrong():
    rng = np.random.default_rng(2)
    p = rng.uniform(0.5, 1.0, 2000)
    curve = reliability_curve([question_records(p, rng.random(2000) < p - 0.3)])
    middle = (curve.confidence > 0.6) & (curve.confidence < 0.95)
    assert (curve.rate[middle] < curve.low[middle]).all()


def test_seeds_that_say_the_same_don_t_make_the_band_narrower():
    """Another seed asks the same questions again; taken as new ones, three would make it narrower by about 0.6."""
    run = calibrated(np.random.default_rng(3), 400)
    one, three = reliability_curve([run]), reliability_curve([run] * 3)
    for name in ReliabilityCurve._fields:
        np.testing.assert_allclose(getattr(three, name), getattr(one, name), atol=1e-9)
        np.testing.assert_array_equal(getattr(reliability_curve([run]), name), getattr(one, name))


def test_one_answer_and_constant_confidences_have_a_curve():
    one = reliability_curve([question_records([0.7], [True])])
    assert (one.confidence.tolist(), one.rate.tolist(), one.low.tolist(), one.high.tolist()) == ([0.7], [1], [0], [1])
    constant = reliability_curve([question_records([0.5] * 100, [True] * 40 + [False] * 60)])
    assert constant.rate == pytest.approx([0.4])
    # Binomial of 100 and one half: 95 % lie within 40 to 60.
    assert (constant.low[0], constant.high[0]) == pytest.approx((0.4, 0.6), abs=0.02)


@settings(max_examples=40, deadline=None)
@given(st.lists(some_records(), min_size=1, max_size=3))
def test_pooled_ece_is_that_of_all_answers_together(runs):
    p = np.concatenate([run.confidence for run in runs])
    o = np.concatenate([run.correct for run in runs])
    bins = [[i for i, x in enumerate(p) if k / 10 <= x < (k + 1) / 10 or (k == 9 and x == 1)] for k in range(10)]
    by_hand = sum(abs(sum(p[i] - o[i] for i in rows)) for rows in bins) / len(p)
    found, mcb = pooled_errors(runs)
    assert found == pytest.approx(by_hand, abs=1e-12)
    assert mcb == pytest.approx(metrics.brier_mcb(p, o), abs=1e-12)
