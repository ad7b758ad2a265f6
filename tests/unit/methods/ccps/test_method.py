"""`Ccps` as a user meets it: presets, learning, saving, edge cases, and its errors."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from sklearn.preprocessing import StandardScaler

from bench.api import (
    At,
    Batch,
    Context,
    EarlyStopping,
    Format,
    Hidden,
    ModelFacts,
    Of,
    OutputHead,
    Ragged,
    RunFacts,
    TokenIds,
    Unembedding,
    UserError,
)
from bench.api.early_stopping import validation_loss
from methods.ccps import Ccps
from methods.ccps.features import FEATURES, perturbation_features
from methods.ccps.method import _scaler
from methods.ccps.networks import build, classification_objective, train

SMALL: dict[str, Any] = {
    "contrastive_steps": 150,
    "classifier_steps": 150,
    "learning_rate": 3e-3,
    "contrastive_learning_rate": 3e-3,
    "contrastive_learning_rate_open": 3e-3,
}
FEW = {**SMALL, "contrastive_steps": 12, "classifier_steps": 12}
"""Where nothing depends on how much was learned."""
V, D = 60, 12


def batch(n: int, seed: int = 0, *, tokens: int = 1, labels: bool = True) -> Batch:
    """Answers of a random head; where its states are long, the model is sure, and more often right."""
    rng = np.random.default_rng(seed)
    weight = torch.from_numpy(np.random.default_rng(99).normal(size=(V, D)).astype(np.float32))
    lengths = rng.integers(1, tokens + 1, size=n)
    sure = rng.random(n)
    states = [(rng.normal(size=(t, D)) * (0.2 + 3 * s)).astype(np.float32) for t, s in zip(lengths, sure, strict=True)]
    ids = [(s @ weight.numpy().T).argmax(1) for s in states]
    columns = {
        Hidden(1.0, At.ANSWER_PREDICTING): Ragged.of(states),
        TokenIds(Of.ANSWER): Ragged.of(ids),
        Unembedding(): OutputHead(weight),
    }
    return Batch([str(i) for i in range(n)], columns, rng.random(n) < sure**2 * 1.2 if labels else None)


def context(fmt: Format = Format.CHOICE, seed: int = 5) -> Context:
    return Context(seed=seed, format=fmt)


def test_paper_values_are_those_of_the_paper() -> None:
    """docs/methods.md §2.8, §2.12, column "paper"."""
    paper = Ccps(**Ccps.presets["paper"])  # type: ignore[arg-type]
    assert (paper.radius, paper.steps, paper.margin) == (20.0, 5, 1.0)
    assert (paper.optimiser, paper.weight_decay) == ("adamw", 0.1)
    assert paper.learning_rate == paper.contrastive_learning_rate == paper.contrastive_learning_rate_open == 1e-4
    assert paper.batch_size == paper.contrastive_batch_size == paper.contrastive_batch_size_open == 32
    assert paper.contrastive_steps == paper.classifier_steps == 5000
    assert paper.contrastive_dropout == paper.classifier_dropout == paper.classifier_dropout_open == 0
    assert (paper.js, paper.eps_flip, paper.eps_relative, paper.entropy_epsilon) == ("true", "grid", False, 0.0)
    assert (paper.max_tokens, paper.pool_mask, paper.encoder_channels) == (30, False, (64, 32))


def test_presets_differ_from_the_paper_where_the_sources_do() -> None:
    presets = {name: Ccps(**changes).params() for name, changes in Ccps.presets.items()}  # type: ignore[arg-type]
    assert presets["demo"] == presets["fixed"] == presets["paper"] == Ccps().params()
    assert {k: v for k, v in presets["refcode"].items() if v != presets["paper"][k]} == {
        "js": "ref",
        "entropy_epsilon": 1e-6,
        "unflipped_at_test": 0.0,
        "encoder_channels": (64, 32, 16),
        "contrastive_dropout": 0.05,
        "classifier_dropout": 0.1,
        "classifier_dropout_open": 0.2,
        "optimiser": "adam",
        "weight_decay": 0.01,
        "contrastive_learning_rate_open": 1e-3,
        "contrastive_batch_size": 64,
    }
    json.dumps(presets)


@pytest.mark.parametrize(("fmt", "tokens", "size"), [(Format.CHOICE, 1, 9_542), (Format.OPEN, 5, 21_778)])
def test_it_learns_and_is_as_large_as_it_says(fmt: Format, tokens: int, size: int) -> None:
    fitted = Ccps(**SMALL).fit(batch(400, tokens=tokens), context(fmt))
    test = batch(300, seed=1, tokens=tokens)
    values = fitted.predict(batch(300, seed=1, tokens=tokens, labels=False))
    assert values.shape == (300,)
    assert values.dtype == np.float64
    assert roc_auc_score(test.correct, values) > 0.7
    facts = RunFacts(ModelFacts("m", D, V, 2), "t", fmt, 400)
    assert fitted.n_parameters(facts) == size == sum(w.size for w in fitted.weights_.values())


def test_a_training_that_diverges_is_one_sentence_and_no_network_that_nothing_moves() -> None:
    with pytest.raises(
        UserError, match=r"it diverged with the seed 5; lower the rates, e.g. --set learning_rate=1e\+29"
    ):
        Ccps(**{**FEW, "learning_rate": 1e30}).fit(batch(100), context())


@pytest.mark.parametrize("preset", Ccps.presets)
@pytest.mark.parametrize("fmt", list(Format))
def test_every_preset_runs_in_both_formats(preset: str, fmt: Format) -> None:
    few = {"contrastive_steps": 3, "classifier_steps": 3}
    fitted = Ccps(**{**Ccps.presets[preset], **few}).fit(batch(100, tokens=3), context(fmt))  # type: ignore[arg-type]
    values = fitted.predict(batch(10, seed=1, tokens=3, labels=False))
    assert ((values >= 0) & (values <= 1)).all()


def test_the_seed_decides_and_global_randomness_is_left_alone() -> None:
    test = batch(20, seed=2, labels=False)
    settings: dict[str, Any] = {**FEW, "contrastive_dropout": 0.1}
    torch.manual_seed(1)
    state = torch.get_rng_state()
    first = Ccps(**settings).fit(batch(80), context()).predict(test)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(2)
    assert np.array_equal(Ccps(**settings).fit(batch(80), context()).predict(test), first)
    assert not np.array_equal(Ccps(**settings).fit(batch(80), context(seed=6)).predict(test), first)


def test_choice_answers_are_read_at_their_first_token() -> None:
    fitted = Ccps(**FEW).fit(batch(80), context())
    long = batch(20, seed=3, tokens=4, labels=False)
    hidden, ids = long[Hidden(1.0, At.ANSWER_PREDICTING)], long[TokenIds(Of.ANSWER)]
    columns: dict[Any, Any] = {
        Hidden(1.0, At.ANSWER_PREDICTING): Ragged.of([hidden[i][:1] for i in range(20)]),
        TokenIds(Of.ANSWER): Ragged.of([ids[i][:1] for i in range(20)]),
        Unembedding(): long[Unembedding()],
    }
    assert np.array_equal(fitted.predict(long), fitted.predict(Batch(long.ids, columns)))


def test_open_answers_are_cut_at_the_limit() -> None:
    settings = {**FEW, "max_tokens": 3}
    fitted = Ccps(**settings).fit(batch(80, tokens=6), context(Format.OPEN))
    long = batch(20, seed=3, tokens=6, labels=False)
    hidden, ids = long[Hidden(1.0, At.ANSWER_PREDICTING)], long[TokenIds(Of.ANSWER)]
    columns: dict[Any, Any] = {
        Hidden(1.0, At.ANSWER_PREDICTING): Ragged.of([hidden[i][:3] for i in range(20)]),
        TokenIds(Of.ANSWER): Ragged.of([ids[i][:3] for i in range(20)]),
        Unembedding(): long[Unembedding()],
    }
    assert fitted.predict(long) == pytest.approx(fitted.predict(Batch(long.ids, columns)), abs=1e-6)


def test_scaler_is_fitted_on_all_training_rows_and_no_others() -> None:
    train = batch(100)
    fitted = Ccps(**FEW).fit(train, replace(context(), validation=batch(50, seed=8)))
    features = perturbation_features(
        torch.tensor(train[Hidden(1.0, At.ANSWER_PREDICTING)].values),
        torch.tensor(train[TokenIds(Of.ANSWER)].values),
        train[Unembedding()],
    )
    theirs = StandardScaler().fit(features.double().numpy())
    assert fitted.mean_ == pytest.approx(theirs.mean_, rel=1e-6, abs=1e-9)
    assert fitted.scale_ == pytest.approx(theirs.scale_, rel=1e-6)


def test_constant_columns_are_scaled_by_one() -> None:
    rows = np.random.default_rng(0).normal(size=(1000, 3)).astype(np.float32)
    rows[:, 1] = np.sqrt(np.float32(32))  # its computed deviation is not exactly 0
    _, scale = _scaler(rows)
    assert scale[1] == 1
    assert scale[0] == pytest.approx(rows[:, 0].astype(np.float64).std())


def test_refcode_gives_unflipped_test_tokens_another_distance() -> None:
    """The official code turns "never flips" into 20 in training and into 0 at test."""
    test = batch(60, seed=4, labels=False)
    fitted = Ccps(**FEW, radius=2.0).fit(batch(80), context())
    other = Ccps(**FEW, radius=2.0, unflipped_at_test=0.0)
    vars(other).update(fitted.fitted())
    features = perturbation_features(
        torch.tensor(test[Hidden(1.0, At.ANSWER_PREDICTING)].values),
        torch.tensor(test[TokenIds(Of.ANSWER)].values),
        test[Unembedding()],
        radius=2.0,
    )
    flips = features[:, FEATURES.index("did_argmax_change_from_original_max")].numpy() == 1
    assert 0 < flips.sum() < 60
    assert np.array_equal(fitted.predict(test)[flips], other.predict(test)[flips])
    assert (fitted.predict(test)[~flips] != other.predict(test)[~flips]).all()


def test_saved_weights_do_not_move_with_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """A state dict that is not copied follows the live weights (docs/methods.md §6 #17)."""
    from methods.ccps import networks

    seen: list[networks.Network] = []
    trained = Ccps.train_network
    monkeypatch.setattr(Ccps, "train_network", lambda *given: (seen.append(trained(*given)), seen[-1])[1])
    fitted = Ccps(**FEW).fit(batch(80), context())
    before = {name: array.copy() for name, array in fitted.weights_.items()}
    stage = networks.StageSettings("", 3, 8, 0.1, 0.0, "adamw", 0.1, 1.0)
    rows = networks.Splits(networks.Data(torch.randn(20, 75), torch.arange(20) % 2), None)
    train(seen[0], classification_objective(rows, stage, 0), stage, EarlyStopping(3))
    live = seen[0].state_dict()
    assert any(not np.array_equal(live[name].numpy(), before[name]) for name in before)
    assert all(np.array_equal(fitted.weights_[name], before[name]) for name in before)


def test_zero_answers_in_predict_give_zero_values() -> None:
    fitted = Ccps(**FEW).fit(batch(80), context())
    assert fitted.predict(batch(5, labels=False).take([])).shape == (0,)


@pytest.mark.parametrize("fmt", list(Format))
def test_both_stages_are_chosen_on_the_validation_answers(fmt: Format) -> None:
    train, held = (batch(100, seed=seed, tokens=1 if fmt is Format.CHOICE else 5) for seed in (1, 2))
    ctx = replace(context(fmt=fmt), validation=held)
    fitted = Ccps(**{**FEW, "contrastive_steps": 64, "classifier_steps": 64}).fit(train, ctx)
    stages = [stopping.stage() for stopping in ctx.trainings]
    assert [stage.name for stage in stages] == ["contrastive", "classification"]
    assert stages[1].losses[stages[1].steps.index(stages[1].kept)] == min(stages[1].losses)
    sure = fitted.predict(Batch(held.ids, {signal: held[signal] for signal in held.signals}))
    assert validation_loss(sure, held.correct) == pytest.approx(min(stages[1].losses), rel=1e-4)


def test_overflown_states_are_a_clear_error() -> None:
    train = batch(50)
    states = train[Hidden(1.0, At.ANSWER_PREDICTING)]
    values = states.values.copy()
    values[3] = np.inf
    signals = {signal: train[signal] for signal in train.signals}
    signals[Hidden(1.0, At.ANSWER_PREDICTING)] = Ragged(values, states.offsets)
    with pytest.raises(UserError, match=r"1 of 50 answer tokens.*--dtype"):
        Ccps(**FEW).fit(Batch(train.ids, signals, train.correct), context())


def test_the_network_is_the_one_of_the_format() -> None:
    fitted = Ccps(**FEW).fit(batch(80, tokens=3), context(Format.OPEN))
    assert set(fitted.weights_) == set(build(Format.OPEN, 75, (64, 32), pool_mask=False).state_dict())
