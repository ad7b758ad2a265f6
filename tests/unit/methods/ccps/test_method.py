"""`Ccps` as a user meets it: presets, learning, saving, edge cases, and its errors."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.preprocessing import StandardScaler

from bench.api import (
    At,
    Batch,
    Context,
    EarlyStopping,
    Format,
    Hidden,
    Of,
    OutputHead,
    Ragged,
    TokenIds,
    Unembedding,
    UserError,
)
from bench.api.early_stopping import validation_loss
from methods.ccps import Ccps
from methods.ccps.features import FEATURES, perturbation_features
from methods.ccps.networks import classification_objective, train
from tests.kit.methods import with_column

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


def test_training_that_diverges_is_one_sentence() -> None:
    with pytest.raises(
        UserError, match=r"it diverged with the seed 5; lower the rates, e.g. --set learning_rate=1e\+29"
    ):
        Ccps(**{**FEW, "learning_rate": 1e30}).fit(batch(100), context())


@pytest.mark.parametrize("preset", Ccps.presets)
@pytest.mark.parametrize("fmt", list(Format))
def test_every_preset_runs_in_both_formats(preset: str, fmt: Format) -> None:
    few: dict[str, Any] = {**Ccps.presets[preset], "contrastive_steps": 3, "classifier_steps": 3}
    values = Ccps(**few).fit(batch(100, tokens=3), context(fmt)).predict(batch(10, seed=1, tokens=3, labels=False))
    assert ((values >= 0) & (values <= 1)).all()


@pytest.mark.parametrize(("fmt", "limit"), [(Format.CHOICE, 1), (Format.OPEN, 3)])
def test_answers_are_read_to_the_limit(fmt: Format, limit: int) -> None:
    """Of a letter the first token; of nothing, nothing."""
    fitted = Ccps(**{**FEW, "max_tokens": 3}).fit(batch(80, tokens=6), context(fmt))
    long = batch(20, seed=3, tokens=6, labels=False)
    cut = {
        signal: long[signal] if signal == Unembedding() else Ragged.of([long[signal][i][:limit] for i in range(20)])
        for signal in long.signals
    }
    assert fitted.predict(long) == pytest.approx(fitted.predict(Batch(long.ids, cut)), abs=1e-6)
    assert fitted.predict(long.take([])).shape == (0,)


def features(answers: Batch, **settings: Any) -> torch.Tensor:
    states, ids = answers[Hidden(1.0, At.ANSWER_PREDICTING)].values, answers[TokenIds(Of.ANSWER)].values
    return perturbation_features(torch.tensor(states), torch.tensor(ids), answers[Unembedding()], **settings)


def test_scaler_is_fitted_on_training_rows_alone() -> None:
    train = batch(100)
    fitted = Ccps(**FEW).fit(train, replace(context(), validation=batch(50, seed=8)))
    theirs = StandardScaler().fit(features(train).double().numpy())
    assert fitted.mean_ == pytest.approx(theirs.mean_, rel=1e-6, abs=1e-9)
    assert fitted.scale_ == pytest.approx(theirs.scale_, rel=1e-6)


def test_refcode_gives_unflipped_test_tokens_another_distance() -> None:
    """The official code turns "never flips" into 20 in training and into 0 at test."""
    test = batch(60, seed=4, labels=False)
    fitted = Ccps(**FEW, radius=2.0).fit(batch(80), context())
    other = Ccps(**FEW, radius=2.0, unflipped_at_test=0.0)
    vars(other).update(fitted.fitted())
    flips = features(test, radius=2.0)[:, FEATURES.index("did_argmax_change_from_original_max")].numpy() == 1
    assert 0 < flips.sum() < 60
    assert np.array_equal(fitted.predict(test)[flips], other.predict(test)[flips])
    assert (fitted.predict(test)[~flips] != other.predict(test)[~flips]).all()


def test_dropout_leaves_global_randomness_alone() -> None:
    settings: dict[str, Any] = {**FEW, "contrastive_dropout": 0.1}
    test, found = batch(20, seed=2, labels=False), []
    for seed in (1, 2):
        torch.manual_seed(seed)
        state = torch.get_rng_state()
        found.append(Ccps(**settings).fit(batch(80), context()).predict(test))
        assert torch.equal(torch.get_rng_state(), state)
    assert np.array_equal(*found)


def test_weights_are_copies(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_overflown_states_are_refused() -> None:
    train = batch(50)
    broken = with_column(
        train, Hidden(1.0, At.ANSWER_PREDICTING), lambda values: np.where(values == values[3], np.inf, values)
    )
    with pytest.raises(UserError, match=r"1 of 50 answer tokens.*--dtype"):
        Ccps(**FEW).fit(broken, context())
