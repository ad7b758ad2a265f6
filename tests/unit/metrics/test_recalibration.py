"""Recalibrators against scikit-learn and scipy, closed forms, and the rules that every one of them keeps."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

from bench.api import UntrainableError, UserError
from bench.metrics import auroc, ece, nll
from bench.metrics.recalibration import RECALIBRATORS, by_folds, create_recalibrator, sigmoid, stratified_folds

KINDS = list(RECALIBRATORS)
EDGES = [0.0, 1e-300, 1e-9, 0.1, 0.5, 0.9, 1 - 1e-9, 1.0]
CONFIDENCE = st.one_of(st.floats(0, 1), st.sampled_from(EDGES))
ANSWERS = st.lists(st.tuples(CONFIDENCE, st.booleans()), min_size=1, max_size=40).map(
    lambda pairs: (np.array([p for p, _ in pairs]), np.array([o for _, o in pairs]))
)


def too_sure(n=2000, seed=0):
    """Confidences whose logits are twice what they ought to be, and half a unit too high."""
    rng = np.random.default_rng(seed)
    logit = rng.normal(0, 1.2, n)
    return 1 / (1 + np.exp(-2 * logit - 0.5)), rng.random(n) < 1 / (1 + np.exp(-logit))


def logit(p):
    return np.log(p) - np.log1p(-p)


def soft_logistic(features, o):
    """scikit-learn on smoothed labels: each row once as right and once as wrong, weighted by its label."""
    right = o.sum()
    target = np.where(o, (right + 1) / (right + 2), 1 / (o.size - right + 2))
    model = LogisticRegression(C=np.inf, tol=1e-10, max_iter=10_000)
    model.fit(
        np.concatenate([features, features]), np.repeat([True, False], o.size), np.concatenate([target, 1 - target])
    )
    return model


# --- against other implementations ------------------------------------------------------------------------------------


@given(ANSWERS)
@settings(deadline=None)
def test_isotonic_equals_scikit_learns(answers):
    p, o = answers
    # scikit-learn takes confidences that differ by less than float32 can tell for one.
    p = np.round(p, 4)
    reference = IsotonicRegression(out_of_bounds="clip").fit(p, o)
    at = np.append(p, np.linspace(0, 1, 31))
    np.testing.assert_allclose(create_recalibrator("isotonic").fit(p, o).apply(at), reference.predict(at), atol=1e-9)


@pytest.mark.parametrize("n", [20, 2000])
def test_platt_equals_scikit_learns_logistic_regression(n):
    p, o = too_sure(n)
    fitted = create_recalibrator("platt").fit(p, o)
    reference = soft_logistic(logit(p)[:, None], o)
    assert fitted.parameters["a"] == pytest.approx(reference.coef_[0, 0], rel=1e-4)
    assert fitted.parameters["b"] == pytest.approx(reference.intercept_[0], abs=1e-4)
    np.testing.assert_allclose(
        fitted.apply(p), reference.predict_proba(logit(p)[:, None])[:, list(reference.classes_).index(True)], atol=1e-5
    )


@pytest.mark.parametrize("n", [200, 2000])
def test_beta_equals_scikit_learns_logistic_regression(n):
    p, o = too_sure(n)
    fitted = create_recalibrator("beta").fit(p, o)
    features = np.stack([np.log(p), -np.log1p(-p)], axis=1)
    reference = soft_logistic(features, o)
    assert (reference.coef_ > 0).all()
    assert [fitted.parameters["a"], fitted.parameters["b"]] == pytest.approx(reference.coef_[0], rel=1e-3)
    assert fitted.parameters["c"] == pytest.approx(reference.intercept_[0], abs=1e-3)


def test_beta_drops_the_slope_that_would_be_negative():
    rng = np.random.default_rng(0)
    p = rng.uniform(0.01, 0.99, 3000)
    o = rng.random(3000) < 1 / (1 + np.exp(-np.log(p) * 1.2 - 0.5 * np.log1p(-p) - 0.3))  # a = 1.2, b = -0.5
    features = np.stack([np.log(p), -np.log1p(-p)], axis=1)
    assert soft_logistic(features, o).coef_[0, 1] < 0
    fitted = create_recalibrator("beta").fit(p, o).parameters
    assert fitted["b"] == 0.0
    assert fitted["a"] == pytest.approx(soft_logistic(features[:, :1], o).coef_[0, 0], rel=1e-4)


def test_temperature_equals_a_search_for_the_least_nll():
    p, o = too_sure()
    search = minimize_scalar(
        lambda t: nll(1 / (1 + np.exp(-logit(p) / t)), o), bounds=(0.05, 100), method="bounded", options={"xatol": 1e-9}
    )
    assert 1.5 < search.x < 2.5
    assert create_recalibrator("temperature").fit(p, o).parameters["temperature"] == pytest.approx(search.x, rel=1e-5)


# --- closed forms -----------------------------------------------------------------------------------------------------


def test_recalibration_undoes_known_distortions():
    p, o = too_sure(200_000)
    for kind, expected in {"platt": {"a": 0.5, "b": -0.25}, "beta": {"a": 0.5, "b": 0.5, "c": -0.25}}.items():
        assert create_recalibrator(kind).fit(p, o).parameters == pytest.approx(expected, abs=0.02)
    assert ece(p, o) > 0.1
    for kind in ("isotonic", "platt", "beta"):
        q = create_recalibrator(kind).fit(p[::2], o[::2]).apply(p[1::2])
        assert ece(q, o[1::2]) < 0.01


def test_recalibration_leaves_calibrated_confidences():
    rng = np.random.default_rng(0)
    p = rng.uniform(0.02, 0.98, 100_000)
    o = rng.random(p.size) < p
    for kind in KINDS:
        np.testing.assert_allclose(
            create_recalibrator(kind).fit(p, o).apply(p), p, atol=0.06 if kind == "isotonic" else 0.02
        )


def test_recalibration_of_equal_confidences_gives_their_rate():
    o = np.array([True, True, True, False])
    p = np.full(4, 0.9)
    smoothed = (3 * 4 / 5 + 1 / 3) / 4  # mean of Platt's labels
    assert create_recalibrator("isotonic").fit(p, o).apply(p) == pytest.approx(np.full(4, 0.75))
    for kind in ("platt", "beta"):
        fitted = create_recalibrator(kind).fit(p, o)
        assert fitted.apply(p) == pytest.approx(np.full(4, smoothed))
        assert (np.diff(fitted.apply([0.2, 0.5, 0.95])) > 0).all()  # nothing is known of the slope, so it stays
    assert create_recalibrator("temperature").fit(p, o).apply(p) == pytest.approx(np.full(4, 0.75), abs=1e-9)
    assert create_recalibrator("temperature").fit(np.full(4, 0.5), o).parameters == {"temperature": 1.0}


@pytest.mark.parametrize("right", [True, False])
def test_recalibration_of_one_class_is_finite(right):
    p, o = np.array([0.1, 0.4, 0.8]), np.full(3, right)
    expected = 4 / 5 if right else 1 / 5
    for kind in ("platt", "beta"):
        assert create_recalibrator(kind).fit(p, o).apply(p) == pytest.approx(np.full(3, expected), abs=1e-6)
    assert create_recalibrator("isotonic").fit(p, o).apply([0.0, 0.5, 1.0]).tolist() == [float(right)] * 3


def test_recalibration_of_separable_classes_is_finite():
    p, o = np.array([0.1, 0.2, 0.7, 0.8]), np.array([False, False, True, True])
    for kind in ("platt", "beta"):
        fitted = create_recalibrator(kind).fit(p, o)
        assert all(np.isfinite(list(fitted.parameters.values())))
        assert fitted.apply(p) == pytest.approx(np.where(o, 3 / 4, 1 / 4), abs=0.1)
    assert create_recalibrator("temperature").fit(p, o).parameters["temperature"] == pytest.approx(0.05)


@pytest.mark.parametrize("kind", KINDS)
def test_recalibration_never_reverses_the_order(kind):
    p, o = too_sure()
    q = create_recalibrator(kind).fit(p, ~o).apply(p)
    assert auroc(p, ~o) < 0.3
    assert auroc(q, ~o) < 0.3 if kind == "temperature" else auroc(q, ~o) == pytest.approx(0.5, abs=0.01)
    if kind == "temperature":
        assert create_recalibrator(kind).fit(p, ~o).parameters["temperature"] == pytest.approx(100.0)


def test_recalibration_by_rising_maps_keeps_auroc():
    p, o = too_sure()
    for kind in ("platt", "beta", "temperature"):
        assert auroc(create_recalibrator(kind).fit(p, o).apply(p), o) == auroc(p, o)


# --- rules ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@given(ANSWERS, st.lists(CONFIDENCE, max_size=30))
@settings(max_examples=60, deadline=None)
def test_recalibration_gives_confidences_in_order(kind, answers, others):
    fitted = create_recalibrator(kind).fit(*answers)
    at = np.array([*answers[0], *others])
    q = fitted.apply(at)
    assert ((q >= 0) & (q <= 1)).all()
    assert (np.diff(q[np.argsort(at, kind="stable")]) >= 0).all()
    assert all(q[at == x].min() == q[at == x].max() for x in at)
    assert all(np.isfinite(list(fitted.parameters.values())))


@pytest.mark.parametrize("kind", KINDS)
def test_recalibration_is_its_formula_of_numpy(kind):
    rng = np.random.default_rng(5)
    p = rng.beta(2, 1, 300)
    fitted = create_recalibrator(kind).fit(p, rng.random(300) < p**2)
    asked = np.concatenate([[0.0, 1e-9, 0.5, 1 - 1e-12, 1.0], rng.random(40)])
    log_p, log_rest = (np.log(np.clip(part, 2.0**-24, 1 - 2.0**-24)) for part in (asked, 1 - asked))
    names = {"np": np, "sigmoid": sigmoid, "p": asked, "log_p": log_p, "log_rest": log_rest, "fitted": vars(fitted)}
    np.testing.assert_allclose(eval(fitted.formula, names), fitted.apply(asked), atol=1e-7)  # noqa: S307


@pytest.mark.parametrize("kind", KINDS)
def test_recalibration_ignores_the_order_of_answers(kind):
    p, o = too_sure(300)
    order = np.random.default_rng(1).permutation(300)
    at = np.linspace(0, 1, 50)
    expected = create_recalibrator(kind).fit(p, o).apply(at)
    np.testing.assert_allclose(create_recalibrator(kind).fit(p[order], o[order]).apply(at), expected, atol=1e-8)


@pytest.mark.parametrize("kind", KINDS)
def test_recalibration_of_one_answer_and_of_none(kind):
    fitted = create_recalibrator(kind).fit([0.7], [True])
    assert fitted.apply([]).shape == (0,)
    assert 0.5 < fitted.apply([0.7])[0] <= 1.0


@pytest.mark.parametrize("kind", KINDS)
def test_recalibration_refuses_what_is_no_confidence(kind):
    with pytest.raises(ValueError, match="at least one answer"):
        create_recalibrator(kind).fit([], np.array([], dtype=bool))
    with pytest.raises(ValueError, match="got nan"):
        create_recalibrator(kind).fit([float("nan")], [True])
    with pytest.raises(ValueError, match=r"got 1\.5 at row 1"):
        create_recalibrator(kind).fit([0.2, 0.8], [True, False]).apply([0.5, 1.5])
    with pytest.raises(ValueError, match="was not fitted"):
        create_recalibrator(kind).apply([0.5])


def test_recalibration_of_unknown_kind_is_refused():
    with pytest.raises(UserError, match="'histogram'; expected one of isotonic, platt, beta, temperature"):
        create_recalibrator("histogram")


# --- cross-fitting ----------------------------------------------------------------------------------------------------


@given(st.lists(st.booleans(), min_size=2, max_size=60), st.integers(2, 7))
def test_folds_are_as_equal_as_can_be(labels, folds):
    o = np.array(labels)
    fold = stratified_folds(o, folds=folds)
    for part in (fold, fold[o], fold[~o]):  # as a whole, and in each class
        sizes = np.bincount(part, minlength=min(folds, o.size))
        assert sizes.max() - sizes.min() <= 1
    assert fold.max() == min(folds, o.size) - 1


def test_folds_follow_the_seed():
    o = np.random.default_rng(0).random(100) < 0.5
    np.testing.assert_array_equal(stratified_folds(o, seed=3), stratified_folds(o, seed=3))
    assert (stratified_folds(o, seed=3) != stratified_folds(o, seed=4)).any()


@pytest.mark.parametrize(("n", "folds"), [(1, 5), (10, 1)])
def test_folds_need_two_answers(n, folds):
    with pytest.raises(ValueError, match="at least two answers in at least two folds"):
        stratified_folds(np.full(n, True), folds=folds)
    with pytest.raises(UntrainableError, match="one labelled answer can't be divided"):
        by_folds(np.full(1, True), 0, lambda train, held: train.astype(float))
