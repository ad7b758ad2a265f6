"""The analysis `shap` of CCPS: planted features come first, useless ones don't pass noise, numbers are proven."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from bench.api import Context, Format, UserError
from methods.ccps import Ccps
from methods.ccps import explained as of_networks
from methods.ccps import importance as of_ccps
from methods.ccps.columns import FEATURES
from methods.ccps.explained import NOISE, Explanations, Sizes, explain_networks, with_noise
from methods.ccps.importance import GROUPS, NOISE_MEAN, NOISE_MOST, build_measures, correlations, importance
from methods.ccps.networks import Splits
from tests.unit.methods.ccps.test_analyses import given, plant_columns
from tests.unit.methods.ccps.test_method import batch

SMALL = Sizes(background=12, answers=36, kernel_answers=2, coalitions=300, points=8)
SHORT: dict[str, Any] = {"contrastive_steps": 16, "classifier_steps": 48}


# --- planted effects --------------------------------------------------------------------------------------------------

Draw = Callable[[np.random.Generator, Any], np.ndarray[Any, Any]]


def planted(monkeypatch: pytest.MonkeyPatch, draw: Draw, *, seeds: int = 5, steps: int = 150) -> Explanations:
    """SHAP values of networks trained on columns `(n, 75)` drawn for given labels."""
    rng = np.random.default_rng(3)
    plant_columns(monkeypatch, lambda labels: draw(rng, labels), lambda test: rng.random(len(test)) < 0.5)
    study = given(seeds=seeds, contrastive_steps=30, classifier_steps=steps)
    study.method.format_ = "choice"  # type: ignore[attr-defined]
    return explain_networks(study, SMALL)


CAUSE, OPPOSITE, CONSTANT = (
    FEATURES.index(name)
    for name in ("pei_value_token", "original_entropy", "l2_dist_hidden_perturbed_from_original_min")
)


def informative(rng: np.random.Generator, labels: Any) -> np.ndarray[Any, Any]:
    columns = rng.normal(size=(len(labels), 75))
    columns[:, CAUSE] += 2.5 * labels
    columns[:, OPPOSITE] -= 1.2 * labels
    columns[:, CONSTANT] = 0
    return columns


def test_importance_ranks_planted_features_above_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    found = planted(monkeypatch, informative)
    made = build_measures(found)
    rows = {row["feature"]: row for row in made.rows}
    ranked = [row["feature"] for row in made.rows if row["feature"] in FEATURES]
    assert ranked[:2] == ["pei_value_token", "original_entropy"]
    cause, opposite, constant = (rows[FEATURES[k]] for k in (CAUSE, OPPOSITE, CONSTANT))
    for row, sign in ((cause, 1), (opposite, -1)):
        assert row["above_noise"] == "yes"
        assert sign * row["r"] > 0.9  # type: ignore[operator]
        assert sign * row["kernel_r"] > 0  # type: ignore[operator]
        assert row["low"] > rows[NOISE_MOST]["high"]  # type: ignore[operator]
    assert ranked[-1] == FEATURES[CONSTANT]
    assert [constant.get(name) for name in ("importance", "r", "kernel_r", "above_noise")] == [0, None, None, "no"]
    useless = [row for row in made.rows if row["feature"] in ranked[2:]]
    assert sum(row["above_noise"] == "yes" for row in useless) <= 8  # 1 in 20 of 73 is 4
    mean = np.mean([row["importance"] for row in useless if row is not constant])  # type: ignore[misc]
    assert 0.7 < mean / rows[NOISE_MEAN]["importance"] < 1.3  # type: ignore[operator]
    assert "Largest: pei_value_token" in made.answer
    constants = replace(found, constant=np.arange(75) < 35)  # which can't be above noise
    assert "as about 2 would by chance" in build_measures(constants).answer
    assert "1 features are constant in training" in " ".join(made.notes)
    assert [row["feature"] for row in made.rows[:5]] == [*GROUPS, NOISE_MEAN, NOISE_MOST]
    assert len(made.rows) == 80
    assert made.shown == 17


def test_importance_of_unlearnable_features_is_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    found = planted(monkeypatch, lambda rng, labels: rng.normal(size=(len(labels), 75)), seeds=5, steps=60)
    above = sum(of_ccps._exceeds_noise(found))
    assert above <= 12  # the largest 13 of 94 are all features with a probability of 0.05
    ours, noise = (np.abs(part).mean() for part in (found.gradients[:, :, :75], found.gradients[:, :, 75:]))
    assert ours / noise == pytest.approx(1, abs=0.3)


@pytest.mark.slow
def test_importance_of_copies_is_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight copies of the cause among the perturbed states: each has a part, together they have as much."""

    def copied(rng: np.random.Generator, labels: Any) -> np.ndarray[Any, Any]:
        columns = rng.normal(size=(len(labels), 75))
        columns[:, 20:28] = (columns[:, 20] + 2.5 * labels)[:, None]
        return columns

    found = planted(monkeypatch, copied)
    rows = {row["feature"]: row for row in build_measures(found).rows}
    one = max(float(rows[FEATURES[k]]["importance"]) for k in range(20, 28))  # type: ignore[arg-type]
    together = rows["together: perturbed states"]["together"]
    assert together > 4 * one  # type: ignore[operator]
    assert rows["together: original state"]["together"] < 0.3 * together  # type: ignore[operator]
    assert found.copied == 8
    assert "8 of the 75 columns are near copies" in build_measures(found).answer


# --- networks and inputs ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fmt", [Format.CHOICE, pytest.param(Format.OPEN, marks=pytest.mark.slow)])
def test_explanations_add_up_to_the_networks_logits(fmt: Format, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradients and kernel values sum to the logit minus that of the background; both are of the same networks."""
    kept = []
    real = Ccps.train_network

    def trained(self: Ccps, splits: Splits, ctx: Context) -> Any:
        kept.append((real(self, splits, ctx), splits))
        return kept[-1][0]

    monkeypatch.setattr(Ccps, "train_network", trained)
    study = given(fmt, seeds=2, **SHORT)
    found = explain_networks(study, SMALL._replace(points=16, answers=20))
    assert found.gradients.shape == (2, 20, 75 + NOISE)
    assert found.kernel.shape == found.kernel_of_logits.shape == (2, 2, 75 + NOISE)
    assert found.kernel_again.shape == (1, 2, 75 + NOISE)
    assert found.gaps.max() < 0.05
    np.testing.assert_allclose(found.gradients[:, :2].sum(2), found.kernel_of_logits.sum(2), atol=0.05)
    np.testing.assert_allclose(found.kernel_again.sum(2), found.kernel[:1].sum(2), atol=1e-9)
    assert not np.array_equal(found.kernel_again, found.kernel[:1])
    assert all(splits.train.features.shape[-1] == 75 + NOISE for _, splits in kept)
    assert all(torch.equal(splits.train.features, kept[0][1].train.features) for _, splits in kept)
    rng = np.random.default_rng(0)  # in the order of `explain_networks`
    plain = study.method.prepare_splits(study.train, study.contexts[0])  # type: ignore[attr-defined]
    for part in plain:
        with_noise(part.features, rng)
    tests = with_noise(torch.from_numpy(study.method.test_inputs(study.test)), rng)  # type: ignore[attr-defined]
    rows = rng.permutation(150)[:20]
    behind = kept[0][1].train.features[rng.permutation(300)[:12]]
    with torch.no_grad():
        z, of_background = (kept[1][0](part) for part in (tests[rows], behind))
    whole = (z[:, 1] - z[:, 0]) - (of_background[:, 1] - of_background[:, 0]).mean()
    np.testing.assert_allclose(found.gradients[1].sum(1), whole.numpy(), atol=0.05)


def test_noise_ends_with_the_answer() -> None:
    features = torch.ones(40, 6, 75)
    features[:20, 2:] = 0
    made = with_noise(features, np.random.default_rng(1))
    assert torch.equal(made[..., :75], features)
    assert not made[:20, 2:].any()
    drawn = made[..., 75:][features.ne(0).any(-1)]
    assert drawn.shape == (20 * 2 + 20 * 6, NOISE)
    assert abs(float(drawn.mean())) < 4 / drawn.numel() ** 0.5
    assert float(drawn.std()) == pytest.approx(1, abs=0.05)
    assert torch.equal(made, with_noise(features, np.random.default_rng(1)))


def test_explanations_refuse_before_anything_is_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ccps, "train_network", None)
    study = given(seeds=1)
    with pytest.raises(UserError, match="expected at least 10 test answers to explain, got 9"):
        explain_networks(replace(study, test=batch(9, 8, labels=False)))

    def missing() -> None:
        raise UserError("expected the package shap")

    monkeypatch.setattr(of_networks, "kernel_explainer", missing)
    monkeypatch.setattr(Ccps, "prepare_splits", None)
    with pytest.raises(UserError, match="expected the package shap"):
        explain_networks(study)


# --- statistics -------------------------------------------------------------------------------------------------------


def test_importance_interval_is_that_of_a_mean() -> None:
    rng = np.random.default_rng(0)
    answers, seeds = rng.gamma(2, size=200), rng.gamma(2, size=6)
    found = importance(np.tile(answers, (6, 1)) * np.where(rng.random((6, 200)) < 0.5, 1, -1))
    assert (found.low, found.high) == pytest.approx(
        stats.t.interval(0.95, 199, answers.mean(), answers.std(ddof=1) / 200**0.5)
    )
    assert found.between == pytest.approx(0, abs=1e-12)
    found = importance(np.tile(seeds[:, None], (1, 200)))
    low, high = stats.t.interval(0.95, 5, seeds.mean(), seeds.std(ddof=1) / 6**0.5)
    assert (max(found.low or 0, 0), found.high) == pytest.approx((max(0, low), high))
    assert found.between == pytest.approx(seeds.std(ddof=1))
    assert importance(np.ones((5, 10))) == (1.0, 1.0, 1.0, 0.0)
    assert importance(np.ones((5, 9))) == (1.0, None, None, 0.0)


def test_importance_interval_covers_other_answers_and_trainings() -> None:
    """Answers, seeds and what a seed changes in an answer vary; 2,000 repetitions."""
    rng, truth, covered = np.random.default_rng(1), 5.0, 0
    for _ in range(2000):
        values = truth + rng.normal(0, 0.6, (1, 80)) + rng.normal(0, 0.1, (5, 1)) + rng.normal(0, 0.3, (5, 80))
        found: Any = importance(values)
        covered += found.low <= truth <= found.high
    assert 0.94 < covered / 2000 < 0.985


def test_correlations_are_pearsons() -> None:
    rng = np.random.default_rng(2)
    scaled, values = rng.normal(size=(50, 4)), rng.normal(size=(3, 50, 4))
    scaled[:, 1] = 0.1
    values[2, :, 3] = 0.7
    first, second, third, fourth = correlations(scaled, values)
    assert first == pytest.approx(np.mean([stats.pearsonr(scaled[:, 0], of[:, 0])[0] for of in values]))
    assert third == pytest.approx(np.mean([stats.pearsonr(scaled[:, 2], of[:, 2])[0] for of in values]))
    assert second is None
    assert fourth is None


def test_agreement_and_stability_are_those_of_scipy() -> None:
    rng = np.random.default_rng(3)
    one = rng.normal(size=(4, 30, 9)) * rng.gamma(1, size=9)
    other = one + rng.normal(size=one.shape)
    values, sizes = of_ccps.agreement(one, other)
    each = [stats.pearsonr(a.ravel(), b.ravel())[0] for a, b in zip(one, other, strict=True)]
    assert values == pytest.approx((np.mean(each), min(each), max(each)))
    ranks = [stats.spearmanr(np.abs(a).mean(0), np.abs(b).mean(0))[0] for a, b in zip(one, other, strict=True)]
    assert sizes == pytest.approx((np.mean(ranks), min(ranks), max(ranks)))
    pairs = [stats.spearmanr(np.abs(one[i]).mean(0), np.abs(one[k]).mean(0))[0] for i in range(4) for k in range(i)]
    assert of_ccps.stability(one) == pytest.approx((np.mean(pairs), min(pairs), max(pairs)))
    assert of_ccps.spearman(np.array([1.0, 1, 2, 3]), np.array([4.0, 1, 2, 3])) == pytest.approx(
        stats.spearmanr([1, 1, 2, 3], [4, 1, 2, 3])[0]
    )


def test_verdict_on_a_network_that_never_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    found = planted(monkeypatch, informative, seeds=2, steps=8)
    nothing = {name: np.zeros_like(getattr(found, name)) for name in ("gradients", "kernel", "kernel_of_logits")}
    made = build_measures(replace(found, **nothing, kernel_again=np.zeros_like(found.kernel_again)))
    assert "None of the 75 alone moves it more than each of the 19 columns of noise" in made.answer
    assert "in no way that is defined" in made.answer
    assert "nan" not in made.answer + " ".join(made.notes)
    assert all(row.get("importance", row.get("together")) == 0 and row.get("r") is None for row in made.rows)
