"""Trained methods' parts: probes, penalised regressions, their penalty and map, and the temperature of LTS."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import entropy

from bench.api import (
    At,
    AttentionRows,
    Batch,
    ConfidenceMethod,
    Context,
    Hidden,
    Of,
    QueryLogits,
    Ragged,
    TokenIds,
    UntrainableError,
    UserError,
)
from bench.api.early_stopping import validation_loss
from bench.signals.synthetic import planted
from methods._shared.logistic import HiddenStateMethod, apply_map, calibrated, log_odds, logistic_path, probability
from methods._shared.meaning import semantic_entropy
from methods._shared.probe import ProbeSettings, Weights, predict_probe, train_probe
from methods._shared.training import iterate_batches
from methods.attention_score import AttentionScore
from methods.logistic_probe import LogisticProbe
from methods.lookback_lens import LookbackLens
from methods.lts import LTS
from methods.pik import PIK
from methods.relative_mahalanobis import RelativeMahalanobis
from methods.saplma import SaplmaF, SaplmaM, SaplmaUM
from methods.semantic_entropy_probe import SemanticEntropyProbe, entropy_threshold
from tests.kit.methods import hard_batch
from tests.unit.methods.test_untrained import HEADS

END = Hidden(1.0, At.ANSWER_END)
SETTINGS = ProbeSettings(steps=300, batch_size=32, learning_rate=1e-2, weight_decay=0.1, standardise=True)
CONTEXT = Context(seed=3)


def states_of(states: Any, correct: Any = None) -> Batch:
    columns: Any = dict.fromkeys((END, RelativeMahalanobis().state), np.asarray(states, dtype=np.float32))
    return Batch([str(i) for i in range(len(states))], columns, correct)


# --- probes -----------------------------------------------------------------------------------------------------------


def train(batch: Batch, settings: ProbeSettings, ctx: Context = CONTEXT) -> Weights:
    return train_probe("probe", batch, lambda batch: batch[END], settings, ctx)


def test_probe_scales_many_columns_as_each() -> None:
    wide = np.random.default_rng(0).normal(size=(40, 1100)).astype(np.float32)
    weights = train(states_of(wide, np.arange(40) % 2 == 0), SETTINGS._replace(steps=1))
    assert weights["scale"] == pytest.approx(wide.astype(np.float64).std(axis=0), rel=1e-6)


@pytest.mark.parametrize(("initialisation", "bound"), [("uniform", 1 / 20), ("xavier", np.inf)])
def test_probe_begins_at_these_weights(initialisation: Any, bound: float) -> None:
    wide = np.random.default_rng(0).normal(size=(32, 400))
    settings = SETTINGS._replace(hidden_layers=(200,), initialisation=initialisation, steps=1, learning_rate=0.0)
    weights = train(states_of(wide, np.arange(32) < 9), settings)
    deviation = 1 / 20 / np.sqrt(3) if initialisation == "uniform" else np.sqrt(2 / 600)
    assert np.abs(weights["0.weight"]).max() <= bound
    assert weights["0.weight"].std() == pytest.approx(deviation, rel=0.02)
    assert np.abs(weights["0.bias"]).max() == pytest.approx(1 / 20, rel=0.1)  # torch's own, under either


def test_batches_visit_every_row_before_any_twice() -> None:
    batches = iterate_batches(10, 4, torch.Generator().manual_seed(0))
    drawn = torch.stack([next(batches) for _ in range(5)])
    assert drawn.shape == (5, 4)
    assert drawn.flatten().bincount(minlength=10).tolist() == [2] * 10
    assert sorted(drawn.flatten()[:10].tolist()) == list(range(10))
    assert sorted(next(iterate_batches(3, 32, torch.Generator().manual_seed(0))).tolist()) == [0, 1, 2]


def test_probe_with_fewer_rows_than_a_batch_learns_them() -> None:
    learn = hard_batch({END}, 9)
    assert ((predict_probe("probe", train(learn, SETTINGS), learn[END]) > 0.5) == learn.correct).all()


def test_probe_keeps_the_step_that_validation_likes_best() -> None:
    """Labels that have nothing to do with the states: whatever is learned is worse than to have learned little."""
    rng = np.random.default_rng(0)
    learn, held = (states_of(rng.normal(size=(n, 50)), rng.random(n) < 0.5) for n in (60, 200))
    settings = SETTINGS._replace(hidden_layers=(64,), steps=640, learning_rate=1e-3)
    ctx = Context(seed=3, validation=held)
    weights = train(learn, settings, ctx)
    (stage,) = (stopping.stage() for stopping in ctx.trainings)
    assert (stage.kept, stage.taken) == (5, 20)  # two points in a row brought nothing
    assert stage.epochs == pytest.approx(5 * 32 / 60)
    kept, last = (
        validation_loss(predict_probe("probe", each, held[END]), held.correct)
        for each in (weights, train(learn, settings))
    )
    assert kept == pytest.approx(np.min(stage.losses))
    assert last > 2 * kept


def test_probe_keeps_the_order_of_extreme_confidences() -> None:
    weights = {"mean": np.zeros(1), "scale": np.ones(1), "0.weight": np.array([[0.0], [1.0]]), "0.bias": np.zeros(2)}
    odds = np.array([[-900.0], [-700.0], [-60.0], [-50.0], [0.0], [30.0], [900.0]], dtype=np.float32)
    values = predict_probe("probe", {k: v.astype(np.float32) for k, v in weights.items()}, odds)
    assert values[1:4] == pytest.approx(np.exp([-700.0, -60.0, -50.0]), rel=1e-9, abs=0)
    assert (np.diff(values) >= 0).all()
    assert (values[[0, 4, 6]] == [0, 0.5, 1]).all()


def test_probes_read_one_place_each() -> None:
    read: Any = {cls.name: (cls.needs.fit, cls.needs.predict) for cls in (PIK, SaplmaF, SaplmaM, SaplmaUM)}
    places = {
        "pik": Hidden(1.0, At.PROMPT_END), "saplma-f": END, "saplma-m": Hidden(0.5, At.ANSWER_END),
        "saplma-um": Hidden(0.75, At.ANSWER_END),
    }  # fmt: skip
    assert read == {name: ({place}, {place}) for name, place in places.items()}


# --- regressions ------------------------------------------------------------------------------------------------------


def test_regressions_at_falling_penalties_are_those_from_the_start() -> None:
    batch = hard_batch({END}, 120)
    path = logistic_path("x", batch[END], batch.correct)
    for penalty in (512.0, 32.0, 2.0):
        alone = logistic_path("x", batch[END], batch.correct)(penalty)
        assert path(penalty)["weight"] == pytest.approx(alone["weight"], abs=1e-4)


def test_regression_ignores_constants_and_bears_far_rows() -> None:
    batch = hard_batch({END}, 120)
    arrays = logistic_path("x", batch[END], batch.correct)(1.0)
    assert arrays["weight"][-1] == 0
    assert set(probability(log_odds("x", arrays, batch[END] * np.float32(1e9))).round(6)) <= {0.0, 1.0}
    assert probability(np.array([-2000.0, 0.0, 2000.0])).tolist() == [0.0, 0.5, 1.0]
    assert probability(np.array([1.5])) == pytest.approx(1 / (1 + math.exp(-1.5)))


def test_penalty_is_the_best_on_validation() -> None:
    learn, held = hard_batch({END}, 60, seed=1), hard_batch({END}, 80, seed=2)
    ctx = Context(seed=0, validation=held)
    method = LogisticProbe().fit(learn, ctx)
    (stage,) = (training.stage() for training in ctx.trainings)

    def confidence(step: int) -> Any:
        arrays = logistic_path("x", learn[END], learn.correct)(8192 / step)
        return probability(log_odds("x", arrays, held[END]))

    losses = [validation_loss(confidence(step), held.correct) for step in stage.steps]
    assert stage.losses == pytest.approx(losses, abs=1e-4)
    assert stage.kept == stage.steps[int(np.argmin(losses))]
    assert stage.steps[0] == 1
    assert method.predict(held) == pytest.approx(confidence(stage.kept), abs=1e-4)


def test_map_is_a_regression_on_scores_of_the_other_half() -> None:
    rng = np.random.default_rng(0)
    kinds, correct, score = rng.random(41) < 0.4, rng.random(41) < 0.5, rng.normal(size=41)
    asked: list[np.ndarray] = []

    def fit_on(rows: np.ndarray):  # type: ignore[no-untyped-def]
        asked.append(rows)
        return lambda penalty: {"share": np.array(rows.mean()), "penalty": np.array(penalty), "rows": rows}

    learned = calibrated("x", kinds, correct, fit_on, lambda arrays: score + 100 * arrays["rows"])(7.0)
    whole, first, second = asked
    assert whole.all()
    assert (first != second).all()
    for kind in (kinds, ~kinds):
        assert abs(int(first[kind].sum()) - int(second[kind].sum())) <= 1
    expected = logistic_path("x", score[:, None], correct)(1.0)  # no score has the 100 of its own half
    assert learned["map"]["weight"] == pytest.approx(expected["weight"], abs=1e-6)
    assert learned["penalty"] == 7
    assert apply_map(learned, score) == pytest.approx(probability(log_odds("x", expected, score[:, None])))


@pytest.mark.parametrize("plugin", [LogisticProbe, RelativeMahalanobis, SemanticEntropyProbe])
def test_layer_and_position_are_arguments(plugin: type[HiddenStateMethod]) -> None:
    (state,) = plugin(depth=0.25, position="prompt_end").reads().predict
    assert state == Hidden(0.25, At.PROMPT_END)
    assert plugin(depth=0.25, position="answer_mean").state == Hidden(0.25, At.ANSWER_END, "mean")
    assert plugin().reads() == plugin.needs
    with pytest.raises(UserError, match=r"depth: expected a share of the blocks, from 0 to 1, got 1\.5"):
        plugin(depth=1.5).reads()
    with pytest.raises(UserError, match=r"position: expected one of prompt_end, .*, got 'gold_predicting'"):
        plugin(position="gold_predicting").reads()  # type: ignore[arg-type]


@pytest.mark.parametrize("plugin", [LogisticProbe, RelativeMahalanobis])
def test_few_rows_and_constant_states_give_probabilities(plugin: type[ConfidenceMethod]) -> None:
    for n, d in ((6, 4), (5, 40), (8, 1)):
        batch = states_of(np.random.default_rng(0).normal(size=(n, d)), np.arange(n) % 2 == 0)
        assert np.isfinite(plugin().fit(batch, CONTEXT).predict(batch)).all()
    constant = states_of(np.full((20, 3), 0.1), np.arange(20) < 15)
    assert plugin().fit(constant, CONTEXT).predict(constant) == pytest.approx(np.full(20, 0.75), abs=1e-4)


# --- attention --------------------------------------------------------------------------------------------------------


def attending(heads: Any) -> Batch:
    """What one answer of four tokens attends to."""
    rows = np.zeros(4, dtype=[(name, np.float32, (1, 2)) for name in ("itself", "before", "prompt", "answer")])
    for i in range(4):
        for h in range(2):
            row = heads[h][i]
            for name, value in (("itself", row[-1]), ("prompt", sum(row[:2])), ("answer", sum(row[2:]))):
                rows[name][i, 0, h] = value
    columns = {AttentionRows(): Ragged.of([rows]), TokenIds(Of.PROMPT): Ragged.of([[5, 6]])}
    return Batch(["0"], columns)


def test_lookback_ratios_of_four_tokens() -> None:
    expected = [[0.176471, 0.2, 0.272727, 0.333333], [0.25, 0.3, 0.391304, 0.461538]]
    assert LookbackLens().features(attending(HEADS)) == pytest.approx(np.mean(expected, axis=1)[None], abs=1e-6)


def test_attention_scores_of_four_tokens() -> None:
    assert AttentionScore().score(attending(HEADS)) == pytest.approx([-1.924574], abs=1e-6)
    diagonals = [[row[-1] for row in head] for head in HEADS]
    assert AttentionScore(over="sum").score(attending(HEADS)) == pytest.approx([np.log(diagonals).sum() / 2], abs=1e-6)
    without_last = -sum(math.log(head[i][-1]) for head in HEADS for i in range(3)) / 2
    assert without_last == pytest.approx(2.239709, abs=1e-6)  # LM-Polygraph's, which leaves the last token out


@pytest.mark.parametrize("sign", [1, -1])
def test_attention_score_learns_its_sign(sign: int) -> None:
    rng = np.random.default_rng(0)
    correct = rng.random(200) < 0.5
    rows = np.zeros(200, dtype=[("itself", np.float32, (1, 1))])
    rows["itself"][:, 0, 0] = np.exp(-2 + sign * 0.5 * correct + 0.2 * rng.normal(size=200))
    given = Batch([str(i) for i in range(200)], {AttentionRows(): Ragged(rows, np.arange(201))}, correct)
    fitted = AttentionScore().fit(given, CONTEXT)
    assert np.sign(fitted.map_["weight"]) == sign
    assert fitted.predict(given)[correct].mean() > fitted.predict(given)[~correct].mean() + 0.3


@pytest.mark.parametrize(
    ("plugin", "arguments", "told"),
    [
        (AttentionScore, {"layer": 1.0}, "layer from 0 to below 1"),
        (AttentionScore, {"over": "max"}, "over=mean or sum"),
    ],
)
def test_methods_on_attention_refuse_arguments(plugin: Any, arguments: Any, told: str) -> None:
    with pytest.raises(UserError, match=told):
        plugin(**arguments).fit(planted(plugin.needs.fit, 60, seed=0), CONTEXT)
    with pytest.raises(UserError, match="expected holding or predicting, got 'both'"):
        LookbackLens(row="both").reads()  # type: ignore[arg-type]


# --- semantic entropy probe -------------------------------------------------------------------------------------------


def test_semantic_entropy_leaves_the_answer_out() -> None:
    said = np.array([0, 0, 1, 2, 0])  # the last is the answer
    related = np.zeros((5, 5, 3), dtype=np.float32)
    related[..., 2] = said[:, None] == said
    related[..., 0] = said[:, None] != said
    assert semantic_entropy(related[None]) == pytest.approx([entropy([2, 1, 1])])
    assert semantic_entropy(np.ones((1, 5, 5, 3), dtype=np.float32) * [0, 0, 1]) == [0]


def test_entropy_threshold_has_the_least_spread_on_both_sides() -> None:
    values = np.random.default_rng(0).choice([0.0, 0.3, 0.7, 1.1, 1.6], size=60, p=[0.4, 0.2, 0.1, 0.1, 0.2])

    def spread(at: float) -> float:
        return sum(float(((side - side.mean()) ** 2).sum()) for side in (values[values <= at], values[values > at]))

    assert entropy_threshold("x", values) == min(np.unique(values)[:-1], key=spread)
    with pytest.raises(UntrainableError, match=r"different semantic entropy, all have 0\.7"):
        entropy_threshold("x", np.full(9, 0.7))


# --- LTS --------------------------------------------------------------------------------------------------------------


def queries(odds: Any, correct: Any = None) -> Batch:
    """Logits of no and yes with these log odds."""
    logits = np.stack([np.zeros(len(odds)), odds], axis=1).astype(np.float32)
    return Batch([str(i) for i in range(len(odds))], {QueryLogits(): logits}, correct)


ODDS = 3 * np.random.default_rng(0).normal(size=300) + 1


def test_lts_equals_a_closed_form() -> None:
    """Odds of +-2 that are right three times in four: sigmoid(2 / t) = 3/4, so t = 2 / ln 3."""
    odds, correct = np.array([2.0] * 4 + [-2.0] * 4), np.array([1, 1, 1, 0, 0, 0, 0, 1], dtype=bool)
    fitted = LTS().fit(queries(odds, correct), CONTEXT)
    assert fitted.temperature_ == pytest.approx(2 / math.log(3), rel=1e-12)
    assert fitted.at_bound_ == ""
    assert fitted.predict(queries(odds)) == pytest.approx([0.75] * 4 + [0.25] * 4, abs=1e-12)


@pytest.mark.parametrize(
    ("odds", "correct", "temperature", "told"),
    [
        (ODDS, ODDS < 0, 100, "upper bound 100"),
        (ODDS, ODDS > 0, 0.05, "lower bound 0.05"),
        (0 * ODDS, ODDS > 0, 100, "upper"),
    ],
    ids=["says the opposite", "always right", "no odds"],
)
def test_lts_ends_at_a_bound(odds: Any, correct: Any, temperature: float, told: str) -> None:
    fitted = LTS().fit(queries(odds, correct), CONTEXT)
    assert fitted.temperature_ == temperature
    assert told in fitted.at_bound_
    assert (np.abs(fitted.predict(queries(odds)) - 0.5).max() < 0.05) == (temperature == 100)


def test_lts_bears_large_logits() -> None:
    odds = np.array([-3000.0, 3000, 2500, -10, 10, 3])
    fitted = LTS().fit(queries(odds, np.array([0, 1, 0, 0, 1, 0], dtype=bool)), CONTEXT)
    assert 0.05 < fitted.temperature_ <= 100
    assert np.isfinite(fitted.predict(queries(odds))).all()


@pytest.mark.parametrize(
    ("settings", "odds", "told"),
    [
        ({"lowest": 0.0, "highest": 1.0}, ODDS, "expected 0 < lowest < highest"),
        ({"lowest": 2.0, "highest": 1.0}, ODDS, "expected 0 < lowest < highest"),
        ({"lowest": 1.0, "highest": math.inf}, ODDS, "expected 0 < lowest < highest"),
        ({"lowest": -1.0, "highest": 1.0}, ODDS, "expected 0 < lowest < highest"),
        ({"solver": "grid"}, ODDS, "expected exact or descent, got 'grid'"),
        ({}, np.append(ODDS, np.nan), r"1 of 301 answers.*--dtype"),
    ],
)
def test_lts_refuses(settings: Any, odds: Any, told: str) -> None:
    with pytest.raises(UserError, match=told):
        LTS(**settings).fit(queries(odds, odds > 0), CONTEXT)
