"""The trained methods beyond the paper's, against scikit-learn, scipy and plain loops."""

from __future__ import annotations

import json
import math
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.distance import mahalanobis
from scipy.stats import entropy
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.preprocessing import StandardScaler

from bench.api import (
    At,
    Batch,
    ConfidenceMethod,
    Context,
    Format,
    Hidden,
    ModelFacts,
    QueryLogits,
    Ragged,
    Related,
    RunFacts,
    Signal,
    TokenScores,
    UntrainableError,
    UserError,
)
from bench.api.early_stopping import validation_loss
from methods._shared.logistic import (
    Arrays,
    HiddenStateMethod,
    apply_map,
    calibrated,
    log_odds,
    logistic_path,
    probability,
)
from methods._shared.meaning import group_by_meaning, semantic_entropy
from methods.combined import FEATURES, Combined, features
from methods.logistic_probe import LogisticProbe
from methods.relative_mahalanobis import RelativeMahalanobis
from methods.semantic_entropy_probe import SemanticEntropyProbe, entropy_threshold

END = Hidden(1.0, At.ANSWER_END)
MEAN = Hidden(1.0, At.ANSWER_PREDICTING, "mean")
SCORES = TokenScores(top=2)
ON_STATE: list[type[HiddenStateMethod]] = [LogisticProbe, RelativeMahalanobis, SemanticEntropyProbe]
ALL: list[type[ConfidenceMethod]] = [*ON_STATE, Combined]


def states_and_labels(n: int = 120, d: int = 6, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """States of very different scales, two of which say whether the answer is right, and one that is constant."""
    rng = np.random.default_rng(seed)
    states = rng.normal(size=(n, d))
    correct = states[:, 0] - states[:, 1] + 0.5 * rng.normal(size=n) > 0
    states = states * 10.0 ** np.arange(d) + 3
    states[:, -1] = np.sqrt(np.float32(7))
    return states.astype(np.float32), correct


def related_of(correct: np.ndarray, rng: np.random.Generator, m: int = 5) -> np.ndarray:
    """Samples of right answers agree more often."""
    found = np.zeros((len(correct), m, m, 3), dtype=np.float32)
    for i, right in enumerate(correct):
        said = rng.integers(0, 2 if right else 8, size=m) * (rng.random(m) > 0.3 * right)
        found[i, ..., 2] = said[:, None] == said
        found[i, ..., 1] = said[:, None] != said
    return found


def batch_of(states: np.ndarray, correct: np.ndarray, *, labels: bool = True, seed: int = 1) -> Batch:
    """Every signal that these methods read, of answers of one to four tokens."""
    rng = np.random.default_rng(seed)
    tokens = []
    for right in correct:
        scores = np.zeros(rng.integers(1, 5), dtype=SCORES.dtype)
        scores["log_probability"] = -rng.exponential(0.3 if right else 2.0, size=len(scores))
        scores["entropy"] = rng.exponential(0.3 if right else 2.0, size=len(scores))
        scores["top_log_probabilities"] = -np.sort(rng.exponential(size=(len(scores), 2)), axis=1)
        tokens.append(scores)
    columns: dict[Signal, np.ndarray | Ragged] = {
        END: states,
        MEAN: states,
        SCORES: Ragged.of(tokens),
        QueryLogits(): rng.normal(size=(len(states), 2)).astype(np.float32),
        Related(question=True): related_of(correct, rng),
    }
    return Batch([str(i) for i in range(len(states))], columns, correct if labels else None)


# --- the regression ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("penalty", [8192.0, 30.0, 1.0])
def test_regression_is_scikit_learns_on_standardised_inputs(penalty: float) -> None:
    states, correct = states_and_labels()
    found = logistic_path("x", states, correct)(penalty)
    pipeline = StandardScaler().fit(states.astype(np.float64))
    pipeline.scale_[-1] = 1.0  # which it takes for a deviation of 1e-16
    inputs = pipeline.transform(states.astype(np.float64))
    theirs = LogisticRegression(C=1 / penalty, tol=1e-10, max_iter=10_000).fit(inputs, correct)
    assert found["weight"] == pytest.approx(theirs.coef_[0], abs=1e-4)
    assert found["bias"] == pytest.approx(theirs.intercept_, abs=1e-4)
    assert probability(log_odds("x", found, states)) == pytest.approx(theirs.predict_proba(inputs)[:, 1], abs=1e-4)


def test_regressions_at_falling_penalties_are_those_from_the_start() -> None:
    states, correct = states_and_labels()
    path = logistic_path("x", states, correct)
    followed = [path(penalty) for penalty in (512.0, 32.0, 2.0)]
    for arrays, penalty in zip(followed, (512.0, 32.0, 2.0), strict=True):
        assert arrays["weight"] == pytest.approx(logistic_path("x", states, correct)(penalty)["weight"], abs=1e-4)


def test_what_is_constant_has_no_weight_and_far_rows_overflow_nothing() -> None:
    states, correct = states_and_labels()
    arrays = logistic_path("x", states, correct)(1.0)
    assert arrays["weight"][-1] == 0
    far = states * np.float32(1e9)
    assert set(probability(log_odds("x", arrays, far)).round(6)) <= {0.0, 1.0}


def test_probability_is_the_sigmoid_also_far_out() -> None:
    assert probability(np.array([-2000.0, 0.0, 2000.0])).tolist() == [0.0, 0.5, 1.0]
    assert probability(np.array([1.5])) == pytest.approx(1 / (1 + math.exp(-1.5)))


# --- the choice of a penalty ------------------------------------------------------------------------------------------


def test_the_penalty_is_the_best_on_validation_of_those_that_were_tried() -> None:
    train, held = batch_of(*states_and_labels(60, seed=1)), batch_of(*states_and_labels(80, seed=2))
    ctx = Context(seed=0, validation=held)
    probe = LogisticProbe().fit(train, ctx)
    (training,) = ctx.trainings
    stage = training.stage()
    losses = []
    for step in stage.steps:
        arrays = logistic_path("x", train[END], train.correct)(8192 / step)
        losses.append(validation_loss(probability(log_odds("x", arrays, held[END])), held.correct))
    assert stage.losses == pytest.approx(losses, abs=1e-4)
    assert stage.kept == stage.steps[int(np.argmin(losses))]
    assert stage.steps[0] == 1
    best = logistic_path("x", train[END], train.correct)(8192 / stage.kept)
    assert probe.predict(held) == pytest.approx(probability(log_odds("x", best, held[END])), abs=1e-4)


def test_without_validation_the_weakest_penalty_is_kept() -> None:
    train = batch_of(*states_and_labels())
    probe = LogisticProbe(weakest=3.0).fit(train, Context(seed=0))
    expected = logistic_path("x", train[END], train.correct)(3.0)
    assert probe.weights_["weight"] == pytest.approx(expected["weight"], abs=1e-6)


@pytest.mark.parametrize("plugin", ALL)
def test_nothing_is_drawn(plugin: type[ConfidenceMethod]) -> None:
    train, held = batch_of(*states_and_labels()), batch_of(*states_and_labels(seed=5))
    first, second = (plugin().fit(train, Context(seed=s, validation=held)).predict(held) for s in (1, 2))
    assert not plugin.draws
    assert (first == second).all()


# --- the map ----------------------------------------------------------------------------------------------------------


def test_map_is_a_regression_on_scores_of_the_half_that_was_not_fitted_on() -> None:
    rng = np.random.default_rng(0)
    kinds = rng.random(41) < 0.4
    correct = rng.random(41) < 0.5
    asked: list[np.ndarray] = []

    def fit_on(rows: np.ndarray):  # type: ignore[no-untyped-def]
        asked.append(rows)
        return lambda penalty: {"share": np.array(rows.mean()), "penalty": np.array(penalty), "rows": rows}

    score = rng.normal(size=41)
    learned = calibrated("x", kinds, correct, fit_on, lambda arrays: score + 100 * arrays["rows"])(7.0)
    whole, first, second = asked
    assert whole.all()
    assert (first != second).all()
    assert abs(int(first[kinds].sum()) - int(second[kinds].sum())) <= 1
    assert abs(int(first[~kinds].sum()) - int(second[~kinds].sum())) <= 1
    expected = logistic_path("x", score[:, None], correct)(1.0)  # no score has the 100 of its own half
    assert learned["map"]["weight"] == pytest.approx(expected["weight"], abs=1e-6)
    assert learned["penalty"] == 7
    assert apply_map("x", learned, score) == pytest.approx(probability(log_odds("x", expected, score[:, None])))


# --- logistic probe ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("plugin", ALL)
def test_a_planted_state_ranks_answers(plugin: type[ConfidenceMethod]) -> None:
    train, held = batch_of(*states_and_labels(300, seed=1)), batch_of(*states_and_labels(150, seed=2), seed=3)
    test = states_and_labels(300, seed=4)
    method = plugin().fit(train, Context(seed=0, validation=held))
    confidence = method.predict(batch_of(*test, labels=False, seed=5))
    assert roc_auc_score(test[1], confidence) > 0.85
    constant = np.full(300, train.correct.mean())
    assert validation_loss(confidence, test[1]) < validation_loss(constant, test[1])


@pytest.mark.parametrize("plugin", ON_STATE)
def test_layer_and_position_are_arguments(plugin: type[HiddenStateMethod]) -> None:
    (state,) = plugin(depth=0.25, position="prompt_end").reads().predict
    assert state == Hidden(0.25, At.PROMPT_END)
    assert plugin(depth=0.25, position="answer_mean").state == Hidden(0.25, At.ANSWER_END, "mean")
    assert plugin().reads() == plugin.needs
    with pytest.raises(UserError, match=r"depth: expected a share of the blocks, from 0 to 1, got 1\.5"):
        plugin(depth=1.5).reads()
    with pytest.raises(UserError, match=r"position: expected one of prompt_end, .*, got 'gold_predicting'"):
        plugin(position="gold_predicting").reads()  # type: ignore[arg-type]


# --- relative Mahalanobis distance ------------------------------------------------------------------------------------


def test_distances_are_scipys_with_a_covariance_that_unit_rows_join() -> None:
    states, correct = states_and_labels()
    method = RelativeMahalanobis(weakest=5.0, points=1).fit(batch_of(states, correct), Context(seed=0))
    x = (states - states.mean(axis=0, dtype=np.float64)) / np.where(
        np.ptp(states, axis=0) == 0, 1, states.std(axis=0, dtype=np.float64)
    )
    score = np.zeros(len(x))
    for sign, rows in ((1, x[~correct]), (-1, x[correct])):
        covariance = (np.cov(rows.T, bias=True) * len(rows) + 5.0 * np.eye(x.shape[1])) / (len(rows) + 5.0)
        inverse = np.linalg.inv(covariance)
        score += sign * np.array([mahalanobis(row, rows.mean(axis=0), inverse) ** 2 for row in x])
    expected = apply_map("x", method.weights_, score)
    assert method.predict(batch_of(states, correct)) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(("n", "d"), [(6, 4), (5, 40), (8, 1)])
def test_few_rows_of_many_inputs_give_probabilities(n: int, d: int) -> None:
    rng = np.random.default_rng(0)
    states, correct = rng.normal(size=(n, d)).astype(np.float32), np.arange(n) % 2 == 0
    for plugin in (LogisticProbe, RelativeMahalanobis):
        confidence = plugin().fit(batch_of(states, correct), Context(seed=0)).predict(batch_of(states, correct))
        assert np.isfinite(confidence).all()


def test_constant_states_give_one_confidence() -> None:
    states, correct = np.full((20, 3), 0.1, dtype=np.float32), np.arange(20) < 15
    for plugin in (LogisticProbe, RelativeMahalanobis):
        confidence = plugin().fit(batch_of(states, correct), Context(seed=0)).predict(batch_of(states, correct))
        assert confidence == pytest.approx(np.full(20, 0.75), abs=1e-4)


# --- semantic entropy probe -------------------------------------------------------------------------------------------


def meanings_by_pairs(entailment: np.ndarray) -> list[int]:
    """Meanings, pair after pair."""
    firsts: list[int] = []
    found = []
    for i in range(len(entailment)):
        for number, first in enumerate(firsts):
            if entailment[i, first].argmax() == 2 and entailment[first, i].argmax() == 2:
                found.append(number)
                break
        else:
            found.append(len(firsts))
            firsts.append(i)
    return found


def test_meanings_are_those_found_pair_by_pair() -> None:
    rng = np.random.default_rng(0)
    for m in (1, 2, 7):
        for _ in range(50):
            entailment = rng.dirichlet([0.5, 0.5, 2], size=(m, m)).astype(np.float32)
            assert group_by_meaning(entailment[None])[0].tolist() == meanings_by_pairs(entailment)


def test_semantic_entropy_leaves_the_answer_out() -> None:
    said = np.array([0, 0, 1, 2, 0])  # the last is the answer
    related = np.zeros((5, 5, 3), dtype=np.float32)
    related[..., 2] = said[:, None] == said
    related[..., 0] = said[:, None] != said
    assert semantic_entropy(related[None]) == pytest.approx([entropy([2, 1, 1])])
    assert semantic_entropy(np.ones((1, 5, 5, 3), dtype=np.float32) * [0, 0, 1]) == [0]


def test_the_cut_has_the_least_spread_on_both_sides() -> None:
    values = np.random.default_rng(0).choice([0.0, 0.3, 0.7, 1.1, 1.6], size=60, p=[0.4, 0.2, 0.1, 0.1, 0.2])

    def spread(at: float) -> float:
        return sum(float(((side - side.mean()) ** 2).sum()) for side in (values[values <= at], values[values > at]))

    assert entropy_threshold("x", values) == min(np.unique(values)[:-1], key=spread)
    with pytest.raises(UntrainableError, match=r"different semantic entropy, all have 0\.7"):
        entropy_threshold("x", np.full(9, 0.7))


def test_the_probe_learns_entropies_and_the_map_labels() -> None:
    states, correct = states_and_labels(200)
    train = batch_of(states, correct)
    method = SemanticEntropyProbe(weakest=4.0, points=1).fit(train, Context(seed=0))
    entropies = semantic_entropy(train[Related(question=True)])
    expected = logistic_path("x", states, entropies <= entropy_threshold("x", entropies))(4.0)
    assert method.weights_["weight"] == pytest.approx(expected["weight"], abs=1e-4)
    assert method.weights_["map"]["weight"][0] > 0
    order = log_odds("x", expected, states)
    assert (np.argsort(method.predict(train)) == np.argsort(order)).all()


# --- combined ---------------------------------------------------------------------------------------------------------


def test_features_are_those_of_plain_loops() -> None:
    batch = batch_of(*states_and_labels(40))
    found = features(batch)
    assert found.shape == (40, len(FEATURES))
    for i in range(40):
        tokens = batch[SCORES][i]
        surprise = [float(x) for x in tokens["log_probability"]]
        spread = [-float(x) for x in tokens["entropy"]]
        gap = [float(a) - float(b) for a, b in tokens["top_log_probabilities"]]
        no, yes = map(float, batch[QueryLogits()][i])
        means = [sum(column) / len(tokens) for column in (surprise, spread, gap)]
        assert found[i] == pytest.approx(
            [*means, min(surprise), min(spread), min(gap), len(tokens), yes - no], rel=1e-5
        )


def test_answers_of_one_token_have_their_token_twice() -> None:
    states, correct = states_and_labels(30)
    tokens = np.zeros((30, 1), dtype=SCORES.dtype)
    tokens["log_probability"][:, 0] = np.where(correct, -0.1, -1.0) + 0.05 * states[:, 0]
    query = np.zeros((30, 2), dtype=np.float32)
    batch = Batch([str(i) for i in range(30)], {SCORES: Ragged.of(list(tokens)), QueryLogits(): query}, correct)
    found = features(batch)
    assert (found[:, :3] == found[:, 3:6]).all()
    assert (found[:, 6] == 1).all()
    assert roc_auc_score(correct, Combined().fit(batch, Context(seed=0)).predict(batch)) > 0.9


# --- what they refuse and keep ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("plugin", ON_STATE)
def test_states_that_overflowed_are_refused(plugin: type[HiddenStateMethod]) -> None:
    states, correct = states_and_labels()
    method = plugin().fit(batch_of(states, correct), Context(seed=0))
    states[3, 2] = np.inf
    for attempt in (method.predict, lambda batch: plugin().fit(batch, Context(seed=0))):
        with pytest.raises(UserError, match="finite hidden states; 1 of 120"):
            attempt(batch_of(states, correct))


@pytest.mark.parametrize("plugin", ALL)
def test_what_was_learned_is_kept_in_files(plugin: type[ConfidenceMethod], tmp_path: Path) -> None:
    batch = batch_of(*states_and_labels())
    method = plugin().fit(batch, Context(seed=0))
    method.save(tmp_path)
    assert "{" in json.dumps(json.loads((tmp_path / "fitted.json").read_text(encoding="utf-8")))
    assert (plugin().load(tmp_path).predict(batch) == method.predict(batch)).all()


def test_sizes_are_those_of_the_arrays() -> None:
    states, correct = states_and_labels()
    facts = RunFacts(ModelFacts("m", states.shape[1], 10, 2), "t", Format.OPEN, len(states))
    batch = batch_of(states, correct)
    for plugin in ALL:
        arrays: Arrays = plugin().fit(batch, Context(seed=0)).weights_  # type: ignore[attr-defined]
        if plugin is RelativeMahalanobis:
            symmetric = len(list(combinations(range(states.shape[1] + 1), 2)))
            own = sum(arrays[side]["centre"].size + symmetric for side in ("right", "wrong"))
        else:
            own = arrays["weight"].size + arrays["bias"].size
        learned = own + 2 * ("map" in arrays)
        assert plugin().n_parameters(facts) == learned
