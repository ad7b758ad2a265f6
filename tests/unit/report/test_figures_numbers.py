"""The numbers behind figures, against naive definitions, scikit-learn, scipy and the metrics of the tables."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import binomtest
from sklearn.isotonic import IsotonicRegression

from bench import metrics
from bench.report.bins import BINS, bin_records, wilson
from bench.report.corp import POINTS, ReliabilityCurve, pooled_errors, reliability_curve
from bench.report.figures import cost_quality
from bench.report.figures.numbers import HISTOGRAM_BINS, compute_histogram, risk_curve
from bench.report.front import front_candidates, pareto_front, pareto_indices
from tests.fixtures.readable import artists, note
from tests.kit.tables import planted
from tests.kit.world import question_records as records


@st.composite
def some_records(draw):
    """Any confidences, decimals and ties included."""
    n = draw(st.integers(1, 80))
    fine = st.integers(0, 10**6).map(lambda k: k / 10**6)  # scikit-learn takes 0 and 1e-16 for the same confidence
    decimals = st.integers(0, 20).map(lambda k: k / 20)
    confidence = draw(arrays(np.float64, n, elements=st.one_of(decimals, fine)))
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


def costing(means, *costs, **tests):
    """A planted table whose methods read so many thousand tokens, and generate none."""
    rows = {
        method: {"forward_tokens_alone": 1000 * cost, "generated_tokens_alone": 0}
        for method, cost in zip(means, costs, strict=True)
    }
    return planted(means, rows=rows, **tests)


OTHERS = {"ptrue": 1, "ct": 1}
BRIER = costing({"ccps": 0.1, "pik": 0.15, "lts": 0.2}, 10, 20, 30)
LABELS = costing({"ccps": 0.1, "pik": 0.15, "lts": 0.2, "ptrue": 0.05, "ct": 0.06}, 20, 10, 30, 1, 1, labels=OTHERS)
_RMSCE = {name: {"rmsce": value} for name, value in (("pik", -0.01), ("ccps", -0.03), ("ptrue", 0.1))}
RMSCE = costing({**_RMSCE, "lts": {"rmsce": 0.0, "auroc": 0.5}}, 10, 20, 5, 1)


@pytest.mark.parametrize(
    ("table", "metric", "on", "can"),
    [
        pytest.param(BRIER, "brier", ["ccps"], {"ccps", "pik", "lts"}, id="the best is the cheapest"),
        pytest.param(LABELS, "brier", ["pik", "ccps"], {"ccps", "pik", "lts"}, id="not on other labels"),
        pytest.param(RMSCE, "rmsce", ["ptrue", "pik"], {"ptrue", "pik", "ccps"}, id="less than 0 is 0; no constant"),
    ],
)
def test_front_has_what_nothing_dominates(table, metric, on, can):
    assert [key.method for key in pareto_front(table, metric, "tokens", {""})] == on
    assert {line.method for line in front_candidates(table, metric)} == can
    for line in table.lines:  # whatever is shown
        assert [key.method for key in pareto_front(table.with_lines({line.key}), metric, "tokens", {""})] == on


def test_methods_on_other_labels_are_hollow():
    figure = cost_quality([LABELS])
    fills = {
        name.split("/")[-2]: each.get_fillstyle()
        for name, each in artists(figure)
        if name.startswith("tokens/brier/") and name.endswith("/mean")
    }
    assert {method for method, fill in fills.items() if fill == "none"} == set(OTHERS)
    assert "hollow and not on the front: ptrue, ct (other answers or labels)." in note(figure)


def test_front_goes_through_no_hollow_marker() -> None:
    """The cheapest method has a rank by AUROC, where it orders nothing, and none by RMSCE, the headline metric."""
    figure = cost_quality([RMSCE.ordered_by("ece")], metrics=("rmsce", "auroc"), costs=("tokens",))
    fills = {name: each.get_fillstyle() for name, each in artists(figure) if name.endswith("/lts/mean")}
    assert fills == {"tokens/rmsce/lts/mean": "none", "tokens/auroc/lts/mean": "full"}
    assert "Not ranked by RMSCE, so hollow and not on the front: lts (" in note(figure)
    assert "Not ranked by AUROC" not in note(figure)


@settings(max_examples=60, deadline=None)
@given(st.lists(some_records(), min_size=1, max_size=3))
def test_curve_is_the_isotonic_regression_of_all_answers(runs):
    curve = reliability_curve(runs, draws=2)
    p = np.concatenate([run.confidence for run in runs])
    o = np.concatenate([run.correct for run in runs]).astype(float)
    oracle = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip").fit(p, o)
    np.testing.assert_allclose(curve.rate, oracle.predict(curve.confidence), atol=1e-9)
    assert curve.confidence.size <= POINTS
    assert (np.diff(curve.confidence) > 0).all()
    for values in (curve.rate, curve.low, curve.high):
        assert (np.diff(values) >= -1e-12).all()
        assert ((values >= 0) & (values <= 1)).all()
    assert (curve.low <= curve.high).all()
    assert (curve.confidence[0], curve.confidence[-1]) == (p.min(), p.max())
    assert pooled_errors(runs) == pytest.approx((metrics.ece(p, o > 0), metrics.brier_mcb(p, o > 0)), abs=1e-12)


@settings(max_examples=40, deadline=None)
@given(some_records())
def test_curve_keeps_the_share_of_right_answers(run):
    p = np.round(run.confidence, 1)  # so few that the curve has each of them
    curve = reliability_curve([records(p, run.correct)], draws=2)
    assert np.interp(p, curve.confidence, curve.rate).mean() == pytest.approx(run.correct.mean())
    recalibrated = np.interp(p, curve.confidence, curve.rate)
    gain = np.mean((p - run.correct) ** 2) - np.mean((recalibrated - run.correct) ** 2)
    assert gain == pytest.approx(pooled_errors([records(p, run.correct)])[1], abs=1e-12)


def calibrated(rng, n):
    p = rng.beta(2, 1, n)
    return records(p, rng.random(n) < p)


def test_bands_hold_95_percent_of_calibrated_curves():
    rng = np.random.default_rng(0)
    inside = []
    for k in range(150):
        curve = reliability_curve([calibrated(rng, 300)], seed=k)
        within = (curve.low <= curve.rate) & (curve.rate <= curve.high)
        inside.append(within[5:-5].mean())
    # Pointwise 95 %; the points of one curve hang together, so 150 curves tell it to about a percent.
    assert np.mean(inside) == pytest.approx(0.95, abs=0.025)


def test_curve_leaves_the_band_where_confidences_are_off():
    rng = np.random.default_rng(2)
    p = rng.uniform(0.5, 1.0, 2000)
    curve = reliability_curve([records(p, rng.random(2000) < p - 0.3)])
    middle = (curve.confidence > 0.6) & (curve.confidence < 0.95)
    assert (curve.rate[middle] < curve.low[middle]).all()


def test_seeds_that_agree_make_no_band_narrower():
    """Another seed asks the same questions again; taken as new ones, three would make it narrower by about 0.6."""
    run = calibrated(np.random.default_rng(3), 400)
    one, three = reliability_curve([run]), reliability_curve([run] * 3)
    for name in ReliabilityCurve._fields:
        np.testing.assert_allclose(getattr(three, name), getattr(one, name), atol=1e-9)
        np.testing.assert_array_equal(getattr(reliability_curve([run]), name), getattr(one, name))


def test_curve_of_one_answer_or_constant_is_there():
    one = reliability_curve([records([0.7], [True])])
    assert (one.confidence.tolist(), one.rate.tolist(), one.low.tolist(), one.high.tolist()) == ([0.7], [1], [0], [1])
    constant = reliability_curve([records([0.5] * 100, [True] * 40 + [False] * 60)])
    assert constant.rate == pytest.approx([0.4])
    # Binomial of 100 and one half: 95 % lie within 40 to 60.
    assert (constant.low[0], constant.high[0]) == pytest.approx((0.4, 0.6), abs=0.02)
