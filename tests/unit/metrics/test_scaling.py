"""Scores as probabilities: no strictly rising change of a score matters, and the fit is that of scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm, rankdata
from sklearn.linear_model import LogisticRegression

from bench.api.protocol import Protocol
from bench.metrics import METRICS, summarise
from bench.metrics.scaling import Scale
from bench.metrics.validation import normalised_ranks

RISING = {
    "exp": lambda s: np.exp(s / 100),
    "cube": lambda s: s**3,
    "affine": lambda s: 7.3 * s - 11.1,
    "ranks": lambda s: rankdata(s, method="dense"),
    "arctan": np.arctan,
    "steep": lambda s: np.sinh(s / 10),
}
SCORE = st.one_of(st.integers(-6, 6).map(float), st.floats(-100, 100).map(lambda x: round(x, 4)))


@st.composite
def answers(draw):
    """Scores of validation and test answers with many ties, within and between them, and labels of both."""
    n, m = draw(st.integers(1, 30)), draw(st.integers(1, 30))
    both = np.array(draw(st.lists(SCORE, min_size=n + m, max_size=n + m)))
    labels = np.array(draw(st.lists(st.booleans(), min_size=n + m, max_size=n + m)))
    return both[:n], labels[:n], both[n:], labels[n:]


def drawn(n, seed=0, sign=1.0):
    rng = np.random.default_rng(seed)
    s = rng.normal(size=n)
    return s, rng.random(n) < 1 / (1 + np.exp(-sign * 2 * s - 0.5))


# --- invariance -------------------------------------------------------------------------------------------------------


@given(answers())
@settings(deadline=None, max_examples=40)
def test_scale_ignores_rising_changes_of_scores(drawn_answers):
    labelled, correct, score, right = drawn_answers
    both = np.concatenate([labelled, score])
    subjects = ["a" if i % 3 else "b" for i in range(len(score))]

    def row(values):
        held, tested = np.split(values, [len(labelled)])
        p = Scale.fit(held, correct).apply(tested)
        return p, summarise(p, right, subjects, Protocol(), tested)

    p, before = row(both)
    for name, change in RISING.items():
        changed = change(both)
        if not np.array_equal(rankdata(both), rankdata(changed)):  # floats that were rounded to one are one score
            continue
        q, after = row(changed)
        assert p.tobytes() == q.tobytes(), name
        assert before.metrics == after.metrics, name
        assert before.per_subject == after.per_subject, name


@given(answers())
@settings(deadline=None)
def test_scale_keeps_order_and_ties(drawn_answers):
    labelled, correct, score, _ = drawn_answers
    scale = Scale.fit(labelled, correct)
    p = scale.apply(score)
    assert ((p >= 0) & (p <= 1)).all()
    order = np.argsort(score, kind="stable")
    assert (np.diff(p[order]) >= 0).all()
    assert (np.diff(p[order])[np.diff(score[order]) == 0] == 0).all()
    assert scale.slope >= 0
    alone = np.concatenate([scale.apply(score[i : i + 1]) for i in range(len(score))])
    assert alone.tobytes() == p.tobytes()


# --- the rule ---------------------------------------------------------------------------------------------------------


def test_scale_fit_equals_scikit_learns():
    s, o = drawn(400)
    s = np.round(s, 1)  # ties
    z = norm.ppf((rankdata(s) - 0.5) / s.size)
    right = o.sum()
    target = np.where(o, (right + 1) / (right + 2), 1 / (o.size - right + 2))
    model = LogisticRegression(C=np.inf, tol=1e-12, max_iter=10_000)
    model.fit(np.tile(z, 2)[:, None], np.repeat([True, False], o.size), np.concatenate([target, 1 - target]))
    scale = Scale.fit(s, o)
    assert (scale.slope, scale.level) == pytest.approx((model.coef_[0, 0], model.intercept_[0]), abs=1e-5)
    np.testing.assert_allclose(scale.apply(s), model.predict_proba(z[:, None])[:, 1], atol=1e-6)


def test_scale_places_scores_among_labelled_ones():
    scale = Scale.fit([10.0, 20.0, 20.0, 40.0], [False, True, False, True])
    shares = scale.shares(np.array([-np.inf, 9.9, 10.0, 11.0, 20.0, 39.0, 40.0, 1e300]))
    assert shares.tolist() == [1 / 16, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 3 / 4, 7 / 8, 15 / 16]


@pytest.mark.parametrize(
    ("score", "correct"),
    [
        ([1.0, 2.0, 3.0, 4.0], [False, False, True, True]),
        ([1.0, 2.0], [False, True]),
        (np.arange(2000.0), np.arange(2000) >= 1000),
        (np.arange(2000.0), np.arange(2000) >= 1999),
        ([-1e308, 1e308], [False, True]),
    ],
)
def test_scale_of_separable_scores_is_finite(score, correct):
    scale = Scale.fit(score, correct)
    assert 0 < scale.slope < 30
    p = scale.apply(score)
    assert p[np.asarray(correct)].min() > p[~np.asarray(correct)].max()


@pytest.mark.parametrize("score", ["contrary", "equal"])
def test_scale_of_contrary_scores_is_constant(score):
    s, o = drawn(300, sign=-1.0)
    s = s if score == "contrary" else np.zeros(300)
    scale = Scale.fit(s, o)
    assert scale.slope == pytest.approx(0.0, abs=1e-12)
    right = o.sum()
    smoothed = np.where(o, (right + 1) / (right + 2), 1 / (o.size - right + 2)).mean()
    np.testing.assert_allclose(scale.apply(np.linspace(-3, 3, 7)), smoothed, atol=1e-6)


def test_scale_refuses_scores_without_labels():
    for score, correct in (([], []), ([np.nan], [True]), ([1.0, 2.0], [True])):
        with pytest.raises(ValueError, match="expected labelled scores"):
            Scale.fit(score, correct)


# --- metrics ----------------------------------------------------------------------------------------------------------


def test_summary_takes_rank_metrics_from_scores():
    s, o = drawn(200)
    p = np.full(200, 0.6)
    both, alone = summarise(p, o, ["a"] * 200, Protocol(), s), summarise(p, o, ["a"] * 200, Protocol())
    order = summarise(normalised_ranks(s), o, ["a"] * 200, Protocol())
    for name, metric in METRICS.items():
        assert both.metrics[name] == (order if metric.is_rank_based else alone).metrics[name]
    assert both.metrics["auroc"].pooled > 0.7 > alone.metrics["auroc"].pooled == 0.5
    assert {name for name, metric in METRICS.items() if metric.is_rank_based} >= {
        "auroc",
        "aucpr",
        "aurc",
        "coverage95",
    }


def test_summary_without_confidences_has_rank_metrics():
    s, o = drawn(50)
    found = summarise(None, o, ["a"] * 50, Protocol(), np.append(s[:-1], -np.inf))
    assert list(found.metrics) == [name for name, metric in METRICS.items() if metric.is_rank_based]
    assert set(found.per_subject["a"]) == {"n", *found.metrics}
    assert found.n_excluded is None
    with pytest.raises(ValueError, match="expected confidences or scores"):
        summarise(None, o, ["a"] * 50, Protocol())
