"""Metrics beyond the paper's against other libraries, or against their definition written out."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import isotonic_regression
from scipy.stats import rankdata
from sklearn.calibration import calibration_curve
from sklearn.metrics import log_loss

from bench.api.protocol import NLL_CLIP
from bench.metrics import (
    METRICS,
    aurc,
    brier,
    brier_dsc,
    brier_mcb,
    brier_unc,
    coverage95,
    eaurc,
    ece,
    ece_debiased,
    ece_floor,
    ece_mass,
    isotonic,
    nll,
    rmsce,
    smece,
)
from bench.metrics.calibration import NLL_WORST, n_clipped
from bench.metrics.selection import prr
from bench.metrics.validation import average_ranks

# Decimals with few digits make ties, as sampled confidences do.
CONFIDENCE = st.one_of(st.floats(0, 1), st.sampled_from([k / 10 for k in range(11)]))
ANSWERS = st.lists(st.tuples(CONFIDENCE, st.booleans()), min_size=1, max_size=40).map(
    lambda pairs: (np.array([p for p, _ in pairs]), np.array([o for _, o in pairs]))
)
FEW_ANSWERS = st.lists(st.tuples(st.sampled_from([0.2, 0.5, 0.9]), st.booleans()), min_size=1, max_size=5).map(
    lambda pairs: (np.array([p for p, _ in pairs]), np.array([o for _, o in pairs]))
)
SHAPES = {
    "calibrated": lambda p: p,
    "too sure": lambda p: 1 / (1 + np.exp(-2 * np.log(p / (1 - p)))),
    "too modest": lambda p: 0.5 + 0.3 * (p - 0.5),
    "decimals": lambda p: np.round(p, 1),
}


def sample(n, shape="calibrated", seed=0):
    rng = np.random.default_rng(seed)
    p = rng.uniform(0.001, 0.999, n)
    return SHAPES[shape](p), rng.random(n) < p


# --- smooth ECE -------------------------------------------------------------------------------------------------------


def naive_smece(p, o, points):
    """The sum over reflected Gaussians at the midpoints of a grid, bisected for the bandwidth that it equals."""
    t = (np.arange(points) + 0.5) / points
    images = np.concatenate([2 * k + sign * p for k in range(-3, 4) for sign in (1, -1)])
    weight = np.tile(p - o, 14) / p.size

    def smoothed(bandwidth):
        kernel = np.exp(-np.square((t[:, None] - images) / bandwidth) / 2) / (bandwidth * math.sqrt(2 * math.pi))
        return np.abs(kernel @ weight).mean()

    low, high = 1e-6, 1.0
    for _ in range(20):
        middle = (low + high) / 2
        low, high = (middle, high) if smoothed(middle) > middle else (low, middle)
    return (low + high) / 2


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("n", [20, 80])
def test_smooth_ece_equals_the_sum_over_kernels(shape, n):
    p, o = sample(n, shape)
    assert smece(p, o) == pytest.approx(naive_smece(p, o, 800), abs=2e-5)


@given(ANSWERS)
@settings(max_examples=20, deadline=None)
def test_smooth_ece_of_any_answers_equals_kernels(answers):
    value = smece(*answers)
    # Below two steps of its own grid the reference can't see; there the value has only to be as small.
    assert (
        value < 0.006
        if naive_smece(*answers, 400) < 0.005
        else value == pytest.approx(naive_smece(*answers, 400), abs=1e-3)
    )


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("n", [200, 14_042])
def test_smooth_ece_agrees_with_its_authors_package(shape, n):
    import relplot

    p, o = sample(n, shape)
    # relplot bisects in steps of 1/1024, reads the curve at 200 points and cuts its kernel off.
    assert smece(p, o) == pytest.approx(relplot.smECE(p, o.astype(float)), abs=0.003)


@given(ANSWERS)
@settings(max_examples=50, deadline=None)
def test_smooth_ece_lies_between_its_bounds(answers):
    p, o = answers
    assert abs(p.mean() - o.mean()) - 1e-5 <= smece(p, o) <= np.abs(p - o).mean() + 1e-5
    assert smece(p, o) <= math.sqrt(brier(p, o)) + 1e-5


def test_smooth_ece_has_no_bins():
    o = np.array([True, False])
    below, at = (np.array([x, 0.35]) for x in (np.nextafter(0.4, 0), 0.4))
    assert abs(ece(below, o) - ece(at, o)) > 0.3
    assert smece(below, o) == pytest.approx(smece(at, o), abs=1e-6)


# --- equal-mass ECE, debiased ECE -------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [30, 200])
def test_equal_mass_ece_equals_scikit_learns_quantile_bins(n):
    p, o = sample(n, "too sure")
    hit, mean = calibration_curve(o, p, n_bins=10, strategy="quantile")
    assert ece_mass(p, o) == pytest.approx(np.abs(hit - mean).mean(), abs=1e-12)


def of_equal_mass(p, o, bins):
    """Lists of p - o, one for each bin."""
    members: dict[int, list[float]] = {}
    for x, y in zip(p, o, strict=True):
        # Twice the mean rank + 1/2 of the answers that have this confidence.
        twice = 2 * sum(other < x for other in p) + sum(other == x for other in p)
        members.setdefault(twice * bins // (2 * p.size), []).append(x - y)
    return members.values()


@given(ANSWERS, st.integers(1, 12))
def test_equal_mass_ece_equals_the_naive_loop(answers, bins):
    p, o = answers
    assert ece_mass(p, o, bins=bins) == pytest.approx(
        sum(abs(math.fsum(gaps)) for gaps in of_equal_mass(p, o, bins)) / p.size, abs=1e-12
    )


@given(ANSWERS)
def test_rmsce_equals_the_mean_product_within_bins(answers):
    p, o = (np.tile(part, -(-30 // part.size)) for part in answers)
    square = 0.0
    for gaps in of_equal_mass(p, o, min(15, p.size // 10)):
        products = [one * other for one, other in itertools.permutations(gaps, 2)]
        square += len(gaps) / p.size * math.fsum(products) / max(1, len(products))
    assert rmsce(p, o) * abs(rmsce(p, o)) == pytest.approx(square, abs=1e-12)


def test_rmsce_needs_answers_for_three_bins():
    """One bin saw the bias alone: 0.45 where answers are right and 0.6 where they are wrong looked calibrated."""
    o = np.arange(29) < 15
    assert rmsce(np.where(o, 0.45, 0.6), o) is None
    assert (rmsce(np.where(np.arange(30) < 15, 0.45, 0.6), np.arange(30) < 15) or 0) > 0.3


@pytest.mark.parametrize("shift", [0.0, 0.1])
def test_rmsce_is_unbiased_in_its_square(shift):
    rng = np.random.default_rng(3)
    p = rng.uniform(0.2, 0.9, 170)
    found = [METRICS["rmsce"].compute(p, rng.random(170) < p - shift) for _ in range(2000)]
    squares = np.multiply(found, np.abs(found))
    assert squares.mean() == pytest.approx(shift**2, abs=4 * squares.std() / 2000**0.5)
    assert ece_mass(p, rng.random(170) < p) > 0.06  # while chance alone makes an ECE


def test_rmsce_mean_is_that_of_squares():
    assert METRICS["rmsce"].mean(iter([0.3, -0.5])) == pytest.approx(-math.sqrt(0.08))
    assert METRICS["brier"].mean(iter([0.3, -0.5])) == pytest.approx(-0.1)
    assert METRICS["rmsce"].mean([]) is METRICS["brier"].mean([]) is None


@given(ANSWERS)
def test_average_ranks_equal_scipys(answers):
    assert average_ranks(answers[0]).tolist() == rankdata(answers[0]).tolist()


def test_debiased_ece_of_calibrated_confidences_is_zero():
    rng = np.random.default_rng(3)
    p = rng.random(60)
    labels = rng.random((400, 60)) < p
    raw = [ece(p, o) for o in labels]
    debiased = [ece_debiased(p, o, seed=k) for k, o in enumerate(labels)]
    assert np.mean(raw) > 0.1
    assert np.mean(debiased) == pytest.approx(0.0, abs=4 * np.std(debiased) / 20)
    assert min(debiased) < 0


@given(ANSWERS)
def test_debiased_ece_is_ece_without_its_floor(answers):
    assert ece_debiased(*answers, seed=5) == ece(*answers) - ece_floor(*answers, seed=5)


# --- likelihood -------------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.floats(1e-7, 1 - 1e-7), st.booleans()), min_size=1, max_size=40))
def test_nll_equals_scikit_learns_log_loss(pairs):
    p, o = np.array([p for p, _ in pairs]), np.array([o for _, o in pairs])
    assert nll(p, o) == pytest.approx(log_loss(o, p, labels=[False, True]), rel=1e-12, abs=1e-12)


def test_nll_clips_and_counts_sure_mistakes():
    assert nll([1.0, 0.0], [True, False]) == 0.0
    assert nll([1.0], [False]) == nll([0.0], [True]) == pytest.approx(24 * math.log(2)) == pytest.approx(NLL_WORST)
    p = np.array([1.0, 0.0, 1 - NLL_CLIP / 2, 1 - NLL_CLIP, 1.0, 0.0])
    assert n_clipped(p, np.array([False, True, False, False, True, False])) == 3


def test_nll_is_that_of_float32():
    sure = 1 - 1e-12
    assert np.float32(sure) == 1.0
    assert nll([sure], [False]) == nll([1.0], [False])


# --- what Brier consists of -------------------------------------------------------------------------------------------


def naive_isotonic(p, o):
    """Largest over left ends of the smallest over right ends of the mean between them (Barlow et al., 1972)."""
    order = np.argsort(p, kind="stable")
    p, o = p[order], o[order]
    first = [int(np.flatnonzero(p == x)[0]) for x in p]
    last = [int(np.flatnonzero(p == x)[-1]) for x in p]
    fitted = [
        max(min(o[a : b + 1].mean() for b in set(last) if b >= i) for a in set(first) if a <= i) for i in range(p.size)
    ]
    return np.array(fitted), o


@given(ANSWERS)
@settings(deadline=None)
def test_brier_terms_equal_their_definition(answers):
    p, o = answers
    q, sorted_o = naive_isotonic(p, o)
    best, rate = np.mean((q - sorted_o) ** 2), o.mean()
    assert brier_mcb(p, o) == pytest.approx(brier(p, o) - best, abs=1e-12)
    assert brier_dsc(p, o) == pytest.approx(rate * (1 - rate) - best, abs=1e-12)
    assert brier_unc(p, o) == pytest.approx(np.var(o), abs=1e-12)
    assert abs(brier_mcb(p, o) - brier_dsc(p, o) + brier_unc(p, o) - brier(p, o)) < 1e-12


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9)), min_size=1, max_size=60))
def test_isotonic_fit_equals_scipys(groups):
    size = np.array([m for m, _ in groups])
    hits = np.array([min(h, m) for m, h in groups])
    expected = isotonic_regression(hits / size, weights=size).x
    np.testing.assert_allclose(isotonic(hits, size), expected, atol=1e-12)


# --- answering only some ----------------------------------------------------------------------------------------------


def naive_aurc(mistakes):
    return np.mean([sum(mistakes[:k]) / k for k in range(1, len(mistakes) + 1)])


@given(FEW_ANSWERS)
@settings(max_examples=50, deadline=None)
def test_aurc_is_the_mean_over_orders_of_ties(answers):
    p, o = answers
    orders = [order for order in itertools.permutations(range(p.size)) if (np.diff(p[list(order)]) <= 0).all()]
    areas = [naive_aurc([not o[i] for i in order]) for order in orders]
    assert aurc(p, o) == pytest.approx(np.mean(areas), abs=1e-12)
    best = min(naive_aurc(order) for order in set(itertools.permutations((~o).tolist())))
    assert eaurc(p, o) == pytest.approx(np.mean(areas) - best, abs=1e-12)


@given(FEW_ANSWERS)
@settings(max_examples=50, deadline=None)
def test_prr_equals_its_definition(answers):
    p, o = answers
    orders = [[bool(o[i]) for i in order] for order in itertools.permutations(range(p.size))]
    areas = {id(order): np.mean([np.mean(order[:k]) for k in range(1, p.size + 1)]) for order in orders}
    given_ = [order for order in itertools.permutations(range(p.size)) if (np.diff(p[list(order)]) <= 0).all()]
    own = np.mean([np.mean([np.mean(o[list(order[:k])]) for k in range(1, p.size + 1)]) for order in given_])
    at_random, best = np.mean(list(areas.values())), max(areas.values())
    if o.all() or not o.any():
        assert prr(p, o) is None
    else:
        assert prr(p, o) == pytest.approx((own - at_random) / (best - at_random), abs=1e-9)


def test_prr_of_lm_polygraph_without_ties():
    """As its `PredictionRejectionArea` sums, written down once more: rejected last are the most confident answers."""
    rng = np.random.default_rng(0)
    p, o = rng.permutation(np.linspace(0.01, 0.99, 50)), rng.random(50) < 0.6

    def area(uncertainty, target):
        return np.sum((np.cumsum(target[np.argsort(uncertainty)]) / np.arange(1, 51))[::-1]) / 50

    at_random = np.mean([area(rng.permutation(50), o) for _ in range(20_000)])
    expected = (area(-p, o) - at_random) / (area(-o.astype(float), o) - at_random)
    assert prr(p, o) == pytest.approx(expected, abs=0.02)


@given(ANSWERS)
def test_aurc_of_right_order_and_of_a_constant(answers):
    _, o = answers
    assert eaurc(np.where(o, 0.8, 0.3), o) == pytest.approx(0.0, abs=1e-12)
    assert aurc(np.full(o.size, 0.7), o) == pytest.approx(1 - o.mean(), abs=1e-12)


@given(ANSWERS)
def test_coverage95_is_the_largest_precise_enough(answers):
    p, o = answers
    accepted = [np.mean(p >= t) for t in p if 20 * o[p >= t].sum() >= 19 * np.count_nonzero(p >= t)]
    assert coverage95(p, o) == max(accepted, default=0.0)


def test_coverage95_at_its_edge_and_with_ties():
    o = np.arange(20) != 7
    assert coverage95(np.linspace(0.9, 0.1, 20), o) == 1.0  # 19 of 20
    assert coverage95(np.full(20, 0.5), o) == 1.0
    assert coverage95(np.full(19, 0.5), o[:19]) == 0.0  # 18 of 19 are fewer, and they come together
    assert coverage95([0.3], [True]) == 1.0


# --- together ---------------------------------------------------------------------------------------------------------


def test_metrics_beyond_the_paper_of_perfect_forecasts():
    o = np.array([True, True, False])
    values = {name: metric.compute(o.astype(float), o) for name, metric in METRICS.items()}
    no_error = ("smece", "ece_mass", "ece_debiased", "nll", "brier_mcb", "eaurc")
    assert {name: values[name] for name in no_error} == dict.fromkeys(no_error, 0.0)
    assert values["brier_dsc"] == values["brier_unc"] == pytest.approx(2 / 9)
    assert values["coverage95"] == pytest.approx(2 / 3)


def test_metrics_of_one_answer():
    for name, metric in METRICS.items():
        assert metric.compute([0.7], [True]) is not None or name in {"auroc", "aucpr", "prr", "rmsce"}


def test_metrics_are_fractions_but_for_nll():
    assert [name for name, metric in METRICS.items() if not metric.is_fraction] == ["nll"]
