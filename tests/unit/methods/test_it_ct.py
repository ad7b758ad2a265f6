"""IT and CT: what they hand to the trainer, what they count, keep and refuse, and that they learn."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from bench.api import (
    Adapter,
    AdapterRef,
    Batch,
    Context,
    ContractError,
    Format,
    ModelFacts,
    Of,
    QueryLogits,
    Ragged,
    RunFacts,
    TokenIds,
    UserError,
)
from bench.model.adapter import apply_adapter
from bench.model.language_model import LanguageModel, LoadOptions
from bench.model.linear_layers import of_config
from bench.model.specs import ModelSpec
from bench.store.disk_cache import Store
from bench.testing.adapters import train_on_toy
from bench.training import child
from bench.training.trainer import AdapterTrainer
from methods.ct import CT
from methods.it import IT
from tests.fixtures import models
from tests.unit.training.test_training import here

BOTH = pytest.mark.parametrize("method", [IT, CT])
NO, YES = 10, 11
N = 40


def batch(n: int = N, correct: Any = None) -> Batch:
    """Prompts that begin alike; an answer is right where its id is below 30, and the query follows."""
    rng = np.random.default_rng(0)
    prompts = [np.asarray([1, 5, 6, 7, *rng.integers(12, 60, 3)]) for _ in range(n)]
    answers = rng.integers(12, 48, n)
    columns = {
        TokenIds(Of.PROMPT): Ragged.of(prompts),
        TokenIds(Of.QUERY): Ragged.of([np.asarray([*p, a, 8, 9]) for p, a in zip(prompts, answers, strict=True)]),
        TokenIds(Of.GOLD): Ragged.of([np.asarray([a]) for a in rng.integers(12, 30, n)]),
    }
    return Batch([str(i) for i in range(n)], columns, answers < 30 if correct is None else correct)


def context(train_adapter: Any = None) -> Context:
    return Context(seed=5, train_adapter=train_adapter)


# --- what is handed over and kept -------------------------------------------------------------------------------------


@BOTH
def test_the_trainer_gets_the_declared_columns_the_labels_and_every_setting(method: Any) -> None:
    seen: dict[str, Any] = {}

    def kept(**given: Any) -> AdapterRef:
        seen.update(given)
        return train_on_toy(**given)

    train = batch()
    held = batch(20)
    fitted = method(rank=4).fit(train, replace(context(kept), validation=held))
    columns = {"query": TokenIds(Of.QUERY), "prompt": TokenIds(Of.PROMPT), "gold": TokenIds(Of.GOLD)}
    names = ["query", "correct"] if method is IT else ["query", "prompt", "gold", "correct"]
    assert list(seen["examples"]) == names
    assert method.needs.fit == {columns[name] for name in names if name != "correct"}
    for name in set(names) - {"correct"}:
        assert np.array_equal(seen["examples"][name].values, train[columns[name]].values)
    assert np.array_equal(seen["examples"]["correct"], train.correct)
    assert seen["settings"] == {**method(rank=4).params(), "seed": 5}
    assert seen["loss"] == f"methods._shared.lora:{method.name}_loss"
    assert isinstance(fitted.adapter_, AdapterRef)
    assert seen["validation"].confidence == "methods._shared.lora:verdict_confidence"
    assert np.array_equal(seen["validation"].examples["query"].values, held[TokenIds(Of.QUERY)].values)
    assert np.array_equal(seen["validation"].examples["correct"], held.correct)


@BOTH
def test_a_batch_is_no_larger_than_the_rows_and_validation_may_be_missing(method: Any) -> None:
    seen: dict[str, Any] = {}

    def kept(**given: Any) -> AdapterRef:
        seen.update(given)
        return train_on_toy(**given)

    method().fit(batch(9), context(kept))
    assert (seen["settings"]["batch_size"], seen["validation"]) == (9, None)


@BOTH
def test_the_adapter_survives_save_and_load_and_is_missed_when_it_is_gone(method: Any, tmp_path: Path) -> None:
    fitted = method()
    (tmp_path / "adapter").mkdir()
    fitted.adapter_ = AdapterRef(tmp_path / "adapter", "abc")
    fitted.save(tmp_path / "saved")
    assert method().load(tmp_path / "saved").adapter_ == fitted.adapter_
    shutil.rmtree(tmp_path / "adapter")
    with pytest.raises(UserError, match="adapter is gone"):
        method().load(tmp_path / "saved")


@BOTH
def test_confidence_is_the_share_of_yes_through_its_own_adapter(method: Any) -> None:
    fitted = method()
    logits = np.asarray([[0.0, 0.0], [0.0, np.log(3.0)]], dtype=np.float32)
    given = Batch(["a", "b"], {QueryLogits(Adapter.OWN): logits})
    with pytest.raises(ContractError, match="fit was not called"):
        fitted.predict(given)
    fitted.adapter_ = AdapterRef(Path(), "abc")
    np.testing.assert_allclose(fitted.predict(given), [0.5, 0.75])


# --- what is refused --------------------------------------------------------------------------------------------------


@BOTH
def test_without_a_backbone_there_is_nothing_to_train(method: Any) -> None:
    with pytest.raises(ContractError, match="train_adapter"):
        method().fit(batch(), context())


def test_an_unknown_divergence_is_refused() -> None:
    with pytest.raises(UserError, match="jsd, forward_kl, reverse_kl, got 'kl'"):
        CT(divergence="kl").fit(batch(), context(train_on_toy))  # type: ignore[arg-type]


# --- constants and sizes ----------------------------------------------------------------------------------------------


@BOTH
def test_presets_differ_as_they_say(method: Any) -> None:
    presets = {name: method(**arguments).params() for name, arguments in method.presets.items()}
    assert presets["fixed"] == presets["paper"] == method().params()
    for name, changed in (
        ("demo", {"steps": 40, "learning_rate": 3e-3, "points": 3}),
        ("refcode", {"steps": 5_000, "batch_size": 4, "weight_decay": 0.0, "clip": 1.0}),
    ):
        assert presets[name] == {**presets["fixed"], **changed}
    assert (presets["paper"]["steps"], presets["paper"]["batch_size"]) == (10_000, 32)
    assert (presets["paper"]["rank"], presets["paper"]["alpha"], presets["paper"]["dropout"]) == (8, 32, 0.1)


def test_it_and_ct_differ_in_the_divergence_alone() -> None:
    for preset in IT.presets:
        shared = {k: v for k, v in CT(**CT.presets[preset]).params().items() if not k.startswith("divergence")}
        assert shared == IT(**IT.presets[preset]).params()


@BOTH
def test_trained_parameters_follow_the_layers_that_are_adapted(method: Any) -> None:
    config = models.llama(num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2)
    facts = RunFacts(ModelFacts("small", 32, 100, 3, of_config(config)), "", Format.CHOICE, 0)
    assert method().n_parameters(facts) == 3 * 8 * ((32 + 32) + (32 + 16))
    assert method(rank=2, target_modules="down_proj").n_parameters(facts) == 3 * 2 * (48 + 32)


# --- what they learn --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def lm(tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    config = models.llama(vocab_size=64, num_attention_heads=4, max_position_embeddings=64)
    folder = models.save(tmp_path_factory.mktemp("llama"), config, models.words(64))
    return LanguageModel(ModelSpec("small", str(folder), local=True), LoadOptions(device="cpu"))


def confidences(method: Any, lm: LanguageModel, given: Batch) -> np.ndarray:
    rows = given[TokenIds(Of.QUERY)]
    with torch.no_grad(), apply_adapter(lm, method.adapter_):
        logits = [lm.model(torch.tensor(rows[i])[None]).logits[0, -1, [NO, YES]] for i in range(len(rows))]
    return method.predict(Batch(given.ids, {QueryLogits(Adapter.OWN): torch.stack(logits).numpy()}))


@BOTH
def test_it_learns_which_answers_are_right(
    method: Any, lm: LanguageModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child, "start_child", here)
    train = AdapterTrainer(lm, Store(tmp_path), method.name, (NO, YES))
    given = batch()
    fitted = method(steps=60, learning_rate=1e-2, deepspeed=False).fit(given, context(train))
    assert roc_auc_score(given.correct, confidences(fitted, lm, given)) > 0.95
    again = method(steps=60, learning_rate=1e-2, deepspeed=False).fit(given, context(train))
    assert again.adapter_ == fitted.adapter_
