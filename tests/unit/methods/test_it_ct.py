"""IT and CT: their losses against torch's distributions, what the trainer gets, what is kept, and that they learn."""

from __future__ import annotations

import math
import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch.distributions import Categorical, kl_divergence

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
from methods._shared.lora import DIVERGENCES, ct_loss, it_loss, probability_of_yes
from methods.ct import CT
from methods.it import IT
from tests.fixtures import models
from tests.unit.training.test_training import here

BOTH = pytest.mark.parametrize("method", [IT, CT])

# --- losses -----------------------------------------------------------------------------------------------------------

VOCABULARY, NO, YES = 12, 10, 3
SETTINGS = {"divergence": "jsd", "divergence_weight": 1.0}


@dataclass
class Bigrams:
    """An adapter model whose next-token logits depend on the last token alone."""

    adapter: torch.Tensor
    frozen: torch.Tensor
    verdict_ids: tuple[int, int] = (NO, YES)
    asked: list[tuple[bool, list[int]]] = field(default_factory=list)

    def logits(self, sequences: Ragged, last: np.ndarray, *, adapted: bool = True) -> torch.Tensor:
        ids = [int(t) for i, k in enumerate(last) for t in sequences[i][len(sequences[i]) - k :]]
        self.asked.append((adapted, ids))
        return (self.frozen + self.adapter if adapted else self.frozen)[ids]


def model(scale: float = 1.0) -> Bigrams:
    generator = torch.Generator().manual_seed(0)
    frozen = torch.randn(VOCABULARY, VOCABULARY, generator=generator, dtype=torch.float64)
    adapter = scale * torch.randn(VOCABULARY, VOCABULARY, generator=generator, dtype=torch.float64)
    return Bigrams(adapter.requires_grad_(), frozen)


def examples() -> dict[str, object]:
    return {
        "query": Ragged.of([[1, 2, 4, 5], [1, 6, 5], [1, 2, 7]]),
        "correct": np.asarray([True, False, True]),
        "prompt": Ragged.of([[1, 2], [1, 6], [1, 8, 9]]),
        "gold": Ragged.of([[4], [7, 8, 2], [5, 5]]),
    }


def divergence(name: str, p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """Of two rows of logits, by torch's distributions."""
    one, other = Categorical(logits=p), Categorical(logits=q)
    if name == "forward_kl":
        return kl_divergence(other, one)
    if name == "reverse_kl":
        return kl_divergence(one, other)
    mean = Categorical(probs=(one.probs + other.probs) / 2)
    return (kl_divergence(one, mean) + kl_divergence(other, mean)) / 2


def test_it_loss_is_cross_entropy_over_the_vocabulary() -> None:
    table = model()
    log_p = (table.frozen + table.adapter).log_softmax(dim=1)
    expected = -(log_p[5, YES] + log_p[5, NO] + log_p[7, YES])
    torch.testing.assert_close(it_loss(table, examples(), {}), expected)


@pytest.mark.parametrize("name", DIVERGENCES)
@pytest.mark.parametrize("weight", [0.0, 0.5, 2.0])
def test_ct_loss_is_two_way_cross_entropy_and_divergence(name: str, weight: float) -> None:
    table = model()
    both = table.frozen + table.adapter
    verdicts = both[:, [NO, YES]].log_softmax(dim=1)
    expected = -(verdicts[5, 1] + verdicts[5, 0] + verdicts[7, 1])
    # The token before each gold token: 4 after 2; 7, 8, 2 after 6, 7, 8; 5, 5 after 9, 5.
    for token in (2, 6, 7, 8, 9, 5):
        expected = expected + weight * divergence(name, both[token], table.frozen[token])
    got = ct_loss(table, examples(), {"divergence": name, "divergence_weight": weight})
    torch.testing.assert_close(got, expected)


def test_ct_loss_without_divergence_asks_no_frozen_model() -> None:
    table = model()
    ct_loss(table, examples(), {**SETTINGS, "divergence_weight": 0.0})
    assert table.asked == [(True, [5, 5, 7])]


@pytest.mark.parametrize("name", DIVERGENCES)
def test_divergence_of_a_fresh_adapter_is_nothing(name: str) -> None:
    table = model(scale=0.0)
    with_it = ct_loss(table, examples(), {"divergence": name, "divergence_weight": 5.0})
    without = ct_loss(table, examples(), {"divergence": name, "divergence_weight": 0.0})
    torch.testing.assert_close(with_it, without)
    gradients = [torch.autograd.grad(loss, [table.adapter])[0] for loss in (with_it, without)]
    torch.testing.assert_close(*gradients, atol=1e-12, rtol=0)


def test_divergences_at_the_edges() -> None:
    sure, opposite = torch.tensor([[60.0, -60.0, 0.0]]), torch.tensor([[-60.0, 60.0, 0.0]])
    jsd = DIVERGENCES["jsd"]
    assert jsd(sure, opposite).item() == pytest.approx(math.log(2))
    assert jsd(sure, opposite).item() == pytest.approx(jsd(opposite, sure).item())
    for function in DIVERGENCES.values():
        assert function(sure, sure).item() == pytest.approx(0.0, abs=1e-6)
        assert torch.isfinite(function(sure, opposite)).all()


def test_probability_of_yes_is_of_the_second_logit() -> None:
    p = probability_of_yes(np.asarray([[0.0, 0.0], [0.0, math.log(3.0)], [900.0, -900.0], [-900.0, 900.0]]))
    assert p.dtype == np.float64
    np.testing.assert_allclose(p, [0.5, 0.75, 0.0, 1.0])


# --- what the trainer gets --------------------------------------------------------------------------------------------


def batch(n: int = 40) -> Batch:
    """Prompts that begin alike; an answer is right where its id is below 30, and the query follows."""
    rng = np.random.default_rng(0)
    prompts = [np.asarray([1, 5, 6, 7, *rng.integers(12, 60, 3)]) for _ in range(n)]
    answers = rng.integers(12, 48, n)
    columns: Any = {
        TokenIds(Of.PROMPT): Ragged.of(prompts),
        TokenIds(Of.QUERY): Ragged.of([np.asarray([*p, a, 8, 9]) for p, a in zip(prompts, answers, strict=True)]),
        TokenIds(Of.GOLD): Ragged.of([np.asarray([a]) for a in rng.integers(12, 30, n)]),
    }
    return Batch([str(i) for i in range(n)], columns, answers < 30)


@BOTH
def test_trainer_gets_declared_columns_labels_and_settings(method: Any) -> None:
    seen: dict[str, Any] = {}

    def kept(**given: Any) -> AdapterRef:
        seen.update(given)
        return train_on_toy(**given)

    train, held = batch(), batch(20)
    context = Context(seed=5, train_adapter=kept)
    fitted = method(rank=4).fit(train, replace(context, validation=held))
    columns = {"query": TokenIds(Of.QUERY), "prompt": TokenIds(Of.PROMPT), "gold": TokenIds(Of.GOLD)}
    names = ["query"] if method is IT else ["query", "prompt", "gold"]
    assert list(seen["examples"]) == [*names, "correct"]
    assert method.needs.fit == {columns[name] for name in names}
    for name in names:
        assert np.array_equal(seen["examples"][name].values, train[columns[name]].values)
    assert np.array_equal(seen["examples"]["correct"], train.correct)
    assert seen["settings"] == {**method(rank=4).params(), "seed": 5}
    assert seen["loss"] == f"methods._shared.lora:{method.name}_loss"
    assert isinstance(fitted.adapter_, AdapterRef)
    assert seen["validation"].confidence == "methods._shared.lora:verdict_confidence"
    assert np.array_equal(seen["validation"].examples["query"].values, held[TokenIds(Of.QUERY)].values)
    assert np.array_equal(seen["validation"].examples["correct"], held.correct)
    method().fit(batch(9), context)
    assert (seen["settings"]["batch_size"], seen["validation"]) == (9, None)  # no more rows, and no validation


@BOTH
def test_adapter_that_is_gone_is_missed(method: Any, tmp_path: Path) -> None:
    fitted = method()
    (tmp_path / "adapter").mkdir()
    fitted.adapter_ = AdapterRef(tmp_path / "adapter", "abc")
    fitted.save(tmp_path / "saved")
    assert method().load(tmp_path / "saved").adapter_ == fitted.adapter_
    shutil.rmtree(tmp_path / "adapter")
    with pytest.raises(UserError, match="adapter is gone"):
        method().load(tmp_path / "saved")


def test_fit_needs_a_trainer_and_a_known_divergence() -> None:
    for method in (IT(), CT()):
        with pytest.raises(ContractError, match="train_adapter"):
            method.fit(batch(), Context(seed=5))
    with pytest.raises(UserError, match="jsd, forward_kl, reverse_kl, got 'kl'"):
        CT(divergence="kl").fit(batch(), Context(seed=5, train_adapter=train_on_toy))  # type: ignore[arg-type]


@BOTH
def test_parameter_count_follows_the_adapted_layers(method: Any) -> None:
    config = models.llama(num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2)
    facts = RunFacts(ModelFacts("small", 32, 100, 3, of_config(config)), "", Format.CHOICE, 0)
    assert method().n_parameters(facts) == 3 * 8 * ((32 + 32) + (32 + 16))
    assert method(rank=2, target_modules="down_proj").n_parameters(facts) == 3 * 2 * (48 + 32)


# --- what they learn --------------------------------------------------------------------------------------------------


@BOTH
def test_training_learns_which_answers_are_right(method: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = models.llama(vocab_size=64, num_attention_heads=4, max_position_embeddings=64)
    folder = models.save(tmp_path / "model", config, models.words(64))
    lm = LanguageModel(ModelSpec("small", str(folder), local=True), LoadOptions(device="cpu"))
    monkeypatch.setattr(child, "start_child", here)
    verdict, given = (10, 11), batch()
    context = Context(seed=5, train_adapter=AdapterTrainer(lm, Store(tmp_path / "cache"), method.name, verdict))
    fitted, again = (method(steps=60, learning_rate=1e-2, deepspeed=False).fit(given, context) for _ in range(2))
    assert again.adapter_ == fitted.adapter_
    rows = given[TokenIds(Of.QUERY)]
    with torch.no_grad(), apply_adapter(lm, fitted.adapter_):
        found = [lm.model(torch.tensor(rows[i])[None]).logits[0, -1, list(verdict)] for i in range(len(rows))]
    confidence = fitted.predict(Batch(given.ids, {QueryLogits(Adapter.OWN): torch.stack(found).numpy()}))
    assert roc_auc_score(given.correct, confidence) > 0.95


@pytest.mark.parametrize("method", [IT, CT])
def test_published_training_is_the_paper_steps_and_epochs(method: type[IT | CT]) -> None:
    """Of batches of 32, over the 18,650 rows of the paper's corpus."""
    made = method()
    assert method.published_training == f"{made.steps:,} steps, {made.steps * made.batch_size / 18_650:.1f} epochs"
