"""P(IK), SAPLMA and the probe they share, against scikit-learn, torch's own modules, and arithmetic."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.preprocessing import StandardScaler
from torch import nn

from bench.api import (
    At,
    Batch,
    ConfidenceMethod,
    Context,
    ContractError,
    Format,
    Hidden,
    ModelFacts,
    RunFacts,
    UserError,
)
from bench.api.early_stopping import validation_loss
from bench.testing import planted
from methods._shared.probe import ProbeSettings, Weights, predict_probe, train_probe
from methods._shared.training import iterate_batches
from methods.pik import PIK
from methods.saplma import SaplmaF, SaplmaM, SaplmaUM

PROBES: list[type[ConfidenceMethod]] = [PIK, SaplmaF, SaplmaM, SaplmaUM]
STATE = Hidden(1.0, At.PROMPT_END)
SETTINGS = ProbeSettings(steps=300, batch_size=32, learning_rate=1e-2, weight_decay=0.1, standardise=True)


def rows(n: int = 60, d: int = 7, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Hidden states with very different scales, and labels that depend on two of them."""
    rng = np.random.default_rng(seed)
    states = rng.normal(size=(n, d))
    correct = states[:, 0] + states[:, 1] + 0.5 * rng.normal(size=n) > 0
    return (states * 10.0 ** np.arange(-1, d - 1) + 5).astype(np.float32), correct


def train(states: np.ndarray, correct: np.ndarray, settings: ProbeSettings, seed: int = 3) -> Weights:
    batch = Batch([str(i) for i in range(len(states))], {STATE: states}, correct)
    return train_probe("probe", batch, lambda batch: batch[STATE], settings, Context(seed=seed))


def untrained(states: np.ndarray, correct: np.ndarray, settings: ProbeSettings) -> Weights:
    """The weights that training starts from."""
    return train(states, correct, settings._replace(steps=1, learning_rate=0.0))


# --- the shared probe -------------------------------------------------------------------------------------------------


def reference(weights: Weights, settings: ProbeSettings, states: np.ndarray, correct: np.ndarray) -> np.ndarray:
    """Confidences after full-batch training of torch's own modules from these weights, in float64."""
    inputs = StandardScaler().fit_transform(states.astype(np.float64)) if settings.standardise else states
    x, y = torch.tensor(inputs, dtype=torch.float64), torch.tensor(correct, dtype=torch.int64)
    modules: list[nn.Module] = []
    for i in range(len(settings.hidden_layers) + 1):
        weight, bias = (torch.tensor(weights[f"{i}.{part}"]).double() for part in ("weight", "bias"))
        linear = nn.Linear(weight.shape[1], weight.shape[0], dtype=torch.float64)
        linear.load_state_dict({"weight": weight, "bias": bias})
        modules += [linear, nn.ReLU()]
    network = nn.Sequential(*modules[:-1])
    adamw = torch.optim.AdamW(network.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay)
    horizon = settings.steps if settings.schedule == "cosine" else 10**12
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(adamw, T_max=horizon)
    for _ in range(settings.steps):
        adamw.zero_grad()
        nn.functional.cross_entropy(network(x), y).backward()  # type: ignore[no-untyped-call]
        adamw.step()
        schedule.step()
    return np.asarray(network(x).softmax(dim=1)[:, 1].detach())


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"hidden_layers": (6, 5)},
        {"hidden_layers": (6, 5), "initialisation": "xavier", "schedule": "cosine", "weight_decay": 0.0},
        {"hidden_layers": (4,), "standardise": False, "learning_rate": 1e-3},
    ],
)
def test_training_is_that_of_torchs_own_modules(changes: dict[str, Any]) -> None:
    states, correct = rows()
    if not changes.get("standardise", True):
        states = states[:, :4]  # of moderate size
    settings = SETTINGS._replace(
        steps=20, batch_size=len(states), **changes
    )  # batches of all rows: their order is nothing
    initial = untrained(states, correct, settings)
    expected = reference(initial, settings, states, correct)
    assert predict_probe("probe", train(states, correct, settings), states) == pytest.approx(expected, abs=1e-4)


def test_inputs_are_scaled_by_the_training_rows() -> None:
    states, correct = rows()
    states[:, 2] = np.sqrt(np.float32(32))  # constant, though its computed deviation need not be 0
    weights, theirs = train(states, correct, SETTINGS), StandardScaler().fit(states.astype(np.float64))
    assert weights["mean"] == pytest.approx(theirs.mean_, rel=1e-6)
    assert weights["scale"] == pytest.approx(theirs.scale_, rel=1e-6)
    assert weights["scale"][2] == 1
    plain = train(states, correct, SETTINGS._replace(standardise=False))
    assert (plain["mean"] == 0).all()
    assert (plain["scale"] == 1).all()


def test_scales_of_many_columns_are_those_of_each() -> None:
    wide = np.random.default_rng(0).normal(size=(40, 1100)).astype(np.float32)
    weights = untrained(wide, np.arange(40) % 2 == 0, SETTINGS)
    assert weights["scale"] == pytest.approx(wide.astype(np.float64).std(axis=0), rel=1e-6)


@pytest.mark.parametrize(("initialisation", "bound"), [("uniform", 1 / 20), ("xavier", np.inf)])
def test_initial_weights(initialisation: Any, bound: float) -> None:
    states = np.random.default_rng(0).normal(size=(32, 400)).astype(np.float32)
    settings = SETTINGS._replace(hidden_layers=(200,), initialisation=initialisation)
    weights = untrained(states, np.arange(32) < 9, settings)
    weight = weights["0.weight"]
    deviation = 1 / 20 / np.sqrt(3) if initialisation == "uniform" else np.sqrt(2 / 600)
    assert np.abs(weight).max() <= bound
    assert weight.std() == pytest.approx(deviation, rel=0.02)
    assert np.abs(weights["0.bias"]).max() == pytest.approx(1 / 20, rel=0.1)  # torch's own, under either


def test_batches_visit_every_row_once_before_any_twice() -> None:
    batches = iterate_batches(10, 4, torch.Generator().manual_seed(0))
    drawn = torch.stack([next(batches) for _ in range(5)])
    assert drawn.shape == (5, 4)
    assert drawn.flatten().bincount(minlength=10).tolist() == [2] * 10
    assert sorted(drawn.flatten()[:10].tolist()) == list(range(10))


def test_a_batch_is_no_larger_than_the_rows() -> None:
    assert sorted(next(iterate_batches(3, 32, torch.Generator().manual_seed(0))).tolist()) == [0, 1, 2]
    states, correct = rows(9)
    assert (predict_probe("probe", train(states, correct, SETTINGS), states) > 0.5).tolist() == correct.tolist()


def test_the_step_that_validation_likes_best_is_kept() -> None:
    """Labels that have nothing to do with the states: whatever is learned is worse than to have learned little."""
    rng = np.random.default_rng(0)
    learn, held = (Batch(["q"] * n, {STATE: rng.normal(size=(n, 50))}, rng.random(n) < 0.5) for n in (60, 200))
    settings = SETTINGS._replace(hidden_layers=(64,), steps=640, learning_rate=1e-3)
    ctx = Context(seed=3, validation=held)
    weights = train_probe("probe", learn, lambda batch: batch[STATE], settings, ctx)
    (stage,) = (stopping.stage() for stopping in ctx.trainings)
    assert (stage.kept, stage.taken) == (5, 20)  # two points in a row brought nothing
    assert stage.epochs == pytest.approx(5 * 32 / 60)
    kept = validation_loss(predict_probe("probe", weights, held[STATE]), held.correct)
    assert kept == pytest.approx(min(stage.losses))
    last = train_probe("probe", learn, lambda batch: batch[STATE], settings, Context(seed=3))
    assert validation_loss(predict_probe("probe", last, held[STATE]), held.correct) > 2 * kept


def test_the_seed_decides() -> None:
    states, correct = rows()
    first, again, other = (train(states, correct, SETTINGS, seed)["0.weight"] for seed in (3, 3, 4))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_extreme_confidences_keep_their_order() -> None:
    weights = {"mean": np.zeros(1), "scale": np.ones(1), "0.weight": np.array([[0.0], [1.0]]), "0.bias": np.zeros(2)}
    odds = np.array([[-900.0], [-700.0], [-60.0], [-50.0], [0.0], [30.0], [900.0]], dtype=np.float32)
    values = predict_probe("probe", {k: v.astype(np.float32) for k, v in weights.items()}, odds)
    assert values[1:4] == pytest.approx(np.exp([-700.0, -60.0, -50.0]), rel=1e-9, abs=0)
    assert (np.diff(values) >= 0).all()
    assert (values[[0, 4, 6]] == [0, 0.5, 1]).all()


@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_overflown_states_are_a_clear_error(value: float) -> None:
    states, correct = rows()
    weights = train(states, correct, SETTINGS)
    states[4, 1] = value
    with pytest.raises(UserError, match=r"1 of 60 hold infinity or NaN.*--dtype"):
        train(states, correct, SETTINGS)
    with pytest.raises(UserError, match=r"1 of 60 hold infinity or NaN.*--dtype"):
        predict_probe("probe", weights, states)


# --- the methods ------------------------------------------------------------------------------------------------------


def halves(cls: type[ConfidenceMethod], n: int = 400) -> tuple[Batch, Batch]:
    train_rows, test = (planted(cls.needs.predict, n, seed=seed) for seed in (1, 2))
    return train_rows, test


def unlabelled(batch: Batch) -> Batch:
    return Batch(batch.ids, {signal: batch[signal] for signal in batch.signals})


def test_pik_ranks_as_logistic_regression() -> None:
    learn, test = halves(PIK)
    state = Hidden(1.0, At.PROMPT_END)
    scaler = StandardScaler().fit(learn[state])
    theirs = LogisticRegression().fit(scaler.transform(learn[state]), learn.correct)
    expected = theirs.predict_proba(scaler.transform(test[state]))[:, 1]
    values = PIK(steps=800, learning_rate=1e-2).fit(learn, Context(seed=1)).predict(unlabelled(test))
    assert spearmanr(values, expected).statistic > 0.99
    assert roc_auc_score(test.correct, values) == pytest.approx(roc_auc_score(test.correct, expected), abs=0.01)
    assert np.abs(values - expected).max() < 0.1


@pytest.mark.parametrize("cls", PROBES)
@pytest.mark.parametrize("preset", ["paper", "refcode", "fixed"])
def test_every_preset_learns_the_planted_truth(cls: type[ConfidenceMethod], preset: str) -> None:
    learn, test = halves(cls)
    quick = {"steps": 100, "learning_rate": 1e-2, "batch_size": 32}
    fitted = cls(**{**cls.presets[preset], **quick}).fit(learn, Context(seed=1))
    assert roc_auc_score(test.correct, fitted.predict(unlabelled(test))) > 0.8


@pytest.mark.parametrize("cls", PROBES)
def test_presets_are_plain_and_fixed_is_the_default(cls: type[ConfidenceMethod]) -> None:
    plain = {name: cls(**preset).params() for name, preset in cls.presets.items()}
    assert set(plain) == {"paper", "refcode", "fixed", "demo"}
    assert json.dumps(plain)  # nothing in it that JSON does not know
    assert cls().params() == plain["fixed"]
    assert plain["demo"] == plain["fixed"]
    assert {k: v for k, v in plain["fixed"].items() if plain["paper"][k] != v} == {"standardise": True}
    assert (plain["paper"]["steps"], plain["paper"]["batch_size"], plain["paper"]["weight_decay"]) == (10_000, 32, 0.1)


@pytest.mark.parametrize(("d", "linear", "mlp"), [(4096, 8_194, 1_090_114), (5120, 10_242, 1_352_258)])
def test_sizes_are_those_of_the_formulas(d: int, linear: int, mlp: int) -> None:
    facts = RunFacts(ModelFacts("m", d, 128_256, 32), "t", Format.CHOICE, 100)
    assert PIK().n_parameters(facts) == linear
    for cls in (SaplmaF, SaplmaM, SaplmaUM):
        assert cls().n_parameters(facts) == mlp == 256 * d + 41_538


@pytest.mark.parametrize("cls", PROBES)
def test_size_is_that_of_the_trained_arrays(cls: type[ConfidenceMethod]) -> None:
    learn, _ = halves(cls, 50)
    weights = cls(steps=1).fit(learn, Context(seed=1)).fitted()["weights_"]  # type: ignore[call-arg]
    trained = sum(array.size for name, array in weights.items() if name not in {"mean", "scale"})
    d = weights["mean"].size
    assert trained == cls().n_parameters(RunFacts(ModelFacts("m", d, 64, 4), "t", Format.CHOICE, 50))


def test_each_probe_reads_one_place_and_no_other() -> None:
    read = {cls.name: cls.needs.predict for cls in PROBES}
    assert read == {
        "pik": {Hidden(1.0, At.PROMPT_END)},
        "saplma-f": {Hidden(1.0, At.ANSWER_END)},
        "saplma-m": {Hidden(0.5, At.ANSWER_END)},
        "saplma-um": {Hidden(0.75, At.ANSWER_END)},
    }
    assert all(cls.needs.fit == cls.needs.predict for cls in PROBES)


@pytest.mark.parametrize("cls", PROBES)
def test_predict_before_fit_is_a_clear_error(cls: type[ConfidenceMethod]) -> None:
    with pytest.raises(ContractError, match=f"{cls.name}: predict needs a fitted method"):
        cls().predict(halves(cls, 3)[1])


def test_zero_answers_in_predict_give_zero_values() -> None:
    learn, test = halves(PIK, 40)
    assert PIK(steps=1).fit(learn, Context(seed=1)).predict(unlabelled(test).take([])).shape == (0,)
