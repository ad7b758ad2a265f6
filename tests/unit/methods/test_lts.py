"""LTS against scipy, a grid and cases with a closed form; its ranks against P(True)'s."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from sklearn.metrics import average_precision_score, log_loss, roc_auc_score

from bench.api import Batch, Context, ContractError, Format, ModelFacts, QueryLogits, RunFacts, Signal, UserError
from methods.lts import LTS
from methods.ptrue import PTrue

CONTEXT = Context(seed=0)


def batch(odds: np.ndarray, correct: np.ndarray | None = None) -> Batch:
    """Logits of no and yes with these log odds."""
    base = np.random.default_rng(9).normal(size=len(odds)) * 4
    logits = np.stack([base, base + odds], axis=1).astype(np.float32)
    return Batch([str(i) for i in range(len(odds))], {QueryLogits(): logits}, correct)


def sample(n: int, temperature: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Log odds that are too sure by this factor, and labels."""
    rng = np.random.default_rng(seed)
    odds = 3 * rng.normal(size=n) + 1
    return odds, rng.random(n) < 1 / (1 + np.exp(-odds / temperature))


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.5, 20.0])
def test_temperature_minimises_the_log_loss(temperature: float) -> None:
    odds, correct = sample(500, temperature)
    data = batch(odds, correct)
    found = LTS().fit(data, CONTEXT).temperature_
    z = data[QueryLogits()].astype(np.float64)
    exact = z[:, 1] - z[:, 0]

    def loss(log_temperature: float) -> float:
        margin = np.where(correct, exact, -exact) / math.exp(log_temperature)
        return float(np.logaddexp(0.0, -margin).mean())

    bounds = math.log(0.05), math.log(100)
    theirs = minimize_scalar(loss, bounds=bounds, method="bounded", options={"xatol": 1e-9})
    assert found == pytest.approx(math.exp(theirs.x), rel=1e-5)
    grid = np.linspace(*bounds, 4001)
    best = grid[np.argmin([loss(x) for x in grid])]
    assert math.log(found) == pytest.approx(best, abs=2 * (grid[1] - grid[0]))
    assert loss(math.log(found)) <= min(theirs.fun, loss(0.0)) + 1e-12


def test_closed_form() -> None:
    """Odds of +-2 that are right three times in four: sigmoid(2 / t) = 3/4, so t = 2 / ln 3."""
    odds = np.array([2.0, 2, 2, 2, -2, -2, -2, -2])
    correct = np.array([1, 1, 1, 0, 0, 0, 0, 1], dtype=bool)
    columns: dict[Signal, np.ndarray] = {QueryLogits(): np.stack([0 * odds, odds], axis=1).astype(np.float32)}
    fitted = LTS().fit(Batch(list("abcdefgh"), columns, correct), CONTEXT)
    assert fitted.temperature_ == pytest.approx(2 / math.log(3), rel=1e-12)
    assert fitted.at_bound_ == ""
    assert fitted.predict(Batch(list("abcdefgh"), columns)) == pytest.approx([0.75] * 4 + [0.25] * 4, abs=1e-12)


def test_a_temperature_of_one_is_ptrue() -> None:
    data = batch(sample(100, 1.0)[0])
    lts = LTS()
    lts.temperature_ = 1.0
    assert lts.predict(data) == pytest.approx(PTrue().predict(data), abs=1e-15)


@pytest.mark.parametrize("temperature", [0.3, 2.5, 20.0])
def test_rank_metrics_are_those_of_ptrue(temperature: float) -> None:
    odds, correct = sample(400, temperature, seed=4)
    fitted = LTS().fit(batch(*sample(400, temperature)), CONTEXT)
    data = batch(odds)
    z = data[QueryLogits()].astype(np.float64)
    exact = z[:, 1] - z[:, 0]
    scaled = exact / fitted.temperature_
    assert np.array_equal(np.argsort(scaled, kind="stable"), np.argsort(exact, kind="stable"))
    ours, ptrue = fitted.predict(data), PTrue().predict(data)
    assert roc_auc_score(correct, ours) == pytest.approx(roc_auc_score(correct, ptrue), abs=1e-12)
    assert average_precision_score(correct, ours) == pytest.approx(average_precision_score(correct, ptrue), abs=1e-12)
    assert np.array_equal(ours > 0.5, ptrue > 0.5)
    assert log_loss(correct, ours) < log_loss(correct, ptrue)


def test_a_query_that_says_the_opposite_ends_at_the_upper_bound() -> None:
    odds, correct = sample(300, 1.0)
    fitted = LTS().fit(batch(odds, ~correct), CONTEXT)
    assert fitted.temperature_ == 100
    assert "upper bound 100" in fitted.at_bound_
    assert np.abs(fitted.predict(batch(odds)) - 0.5).max() < 0.05


def test_a_query_that_is_always_right_ends_at_the_lower_bound() -> None:
    odds, _ = sample(300, 1.0)
    fitted = LTS().fit(batch(odds, odds > 0), CONTEXT)
    assert fitted.temperature_ == 0.05
    assert "lower bound 0.05" in fitted.at_bound_


def test_a_query_without_any_odds_is_left_at_a_half() -> None:
    odds, correct = sample(40, 1.0)
    fitted = LTS().fit(batch(0 * odds, correct), CONTEXT)
    assert fitted.predict(batch(0 * odds)) == pytest.approx([0.5] * 40)


def descended(odds: np.ndarray, correct: np.ndarray, rng: np.random.Generator) -> float:
    """The official code's 2,000 steps, written out: AdamW, its bias correction, its decay, a half cosine."""
    theta = first = second = 0.0
    rows: list[int] = []
    for step in range(2000):
        rows = rows or rng.permutation(len(odds)).tolist()
        batch_rows, rows = rows[:64], rows[64:]
        x, y = odds[batch_rows], correct[batch_rows]
        z = x * math.exp(-theta)
        gradient = float(((1 / (1 + np.exp(-z)) - y) * -z).mean())
        rate = 1e-3 * (1 + math.cos(math.pi * step / 2000)) / 2
        first, second = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * gradient**2
        unbiased = second / (1 - 0.999 ** (step + 1))
        theta = theta * (1 - rate * 1e-2) - rate * first / (1 - 0.9 ** (step + 1)) / (math.sqrt(unbiased) + 1e-8)
    return math.exp(theta)


@pytest.mark.parametrize(("temperature", "lowest", "highest"), [(0.2, 0.4, 0.5), (1.3, 1.0, 1.4), (20.0, 1.9, 2.3)])
def test_the_official_codes_descent_stays_near_one(temperature: float, lowest: float, highest: float) -> None:
    odds, correct = sample(500, temperature)
    data = batch(odds, correct)
    found = LTS(**LTS.presets["refcode"]).fit(data, CONTEXT).temperature_  # type: ignore[arg-type]
    z = data[QueryLogits()].astype(np.float64)
    assert found == pytest.approx(descended(z[:, 1] - z[:, 0], correct, CONTEXT.rng), rel=1e-9)
    assert lowest < found < highest


def test_large_logits_neither_overflow_nor_warn() -> None:
    odds = np.array([-3000.0, 3000, 2500, -10, 10, 3])
    fitted = LTS().fit(batch(odds, np.array([0, 1, 0, 0, 1, 0], dtype=bool)), CONTEXT)
    assert 0.05 < fitted.temperature_ <= 100
    assert np.isfinite(fitted.predict(batch(odds))).all()


def test_logits_that_are_not_finite_are_a_clear_error() -> None:
    odds, correct = sample(50, 1.0)
    odds[7] = np.nan
    with pytest.raises(UserError, match=r"1 of 50 answers.*--dtype"):
        LTS().fit(batch(odds, correct), CONTEXT)


@pytest.mark.parametrize(("lowest", "highest"), [(0.0, 1.0), (2.0, 1.0), (1.0, math.inf), (-1.0, 1.0)])
def test_impossible_bounds_are_a_clear_error(lowest: float, highest: float) -> None:
    with pytest.raises(UserError, match="expected 0 < lowest < highest"):
        LTS(lowest=lowest, highest=highest).fit(batch(*sample(50, 1.0)), CONTEXT)


def test_predict_before_fit_is_a_clear_error() -> None:
    with pytest.raises(ContractError, match="fit was not called"):
        LTS().predict(batch(np.zeros(3)))


def test_it_learns_one_number_on_validation() -> None:
    assert LTS.fit_on == "validation"
    facts = RunFacts(ModelFacts("m", 8, 8, 2), "t", Format.CHOICE, 100)
    assert LTS().n_parameters(facts) == 1
    presets = {name: LTS(**changes).params() for name, changes in LTS.presets.items()}  # type: ignore[arg-type]
    assert json.loads(json.dumps(presets)) == presets
    assert presets["paper"] == presets["fixed"] == presets["demo"] == LTS().params()
