"""The losses of IT and CT against torch's own distributions, on a model that is a table of next-token logits."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from torch.distributions import Categorical, kl_divergence

from bench.api import Ragged
from methods._shared.lora import DIVERGENCES, ct_loss, it_loss, probability_of_yes

VOCABULARY = 12
NO, YES = 10, 3
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


def test_it_is_cross_entropy_over_the_whole_vocabulary() -> None:
    table = model()
    log_p = (table.frozen + table.adapter).log_softmax(dim=1)
    expected = -(log_p[5, YES] + log_p[5, NO] + log_p[7, YES])
    torch.testing.assert_close(it_loss(table, examples(), {}), expected)


@pytest.mark.parametrize("name", DIVERGENCES)
@pytest.mark.parametrize("weight", [0.0, 0.5, 2.0])
def test_ct_is_two_way_cross_entropy_and_divergence_where_gold_tokens_are_predicted(name: str, weight: float) -> None:
    table = model()
    both = table.frozen + table.adapter
    verdicts = both[:, [NO, YES]].log_softmax(dim=1)
    expected = -(verdicts[5, 1] + verdicts[5, 0] + verdicts[7, 1])
    # The token before each gold token: 4 after 2; 7, 8, 2 after 6, 7, 8; 5, 5 after 9, 5.
    for token in (2, 6, 7, 8, 9, 5):
        expected = expected + weight * divergence(name, both[token], table.frozen[token])
    got = ct_loss(table, examples(), {"divergence": name, "divergence_weight": weight})
    torch.testing.assert_close(got, expected)


def test_a_weight_of_zero_asks_nothing_of_the_frozen_model() -> None:
    table = model()
    ct_loss(table, examples(), {**SETTINGS, "divergence_weight": 0.0})
    assert table.asked == [(True, [5, 5, 7])]


@pytest.mark.parametrize("name", DIVERGENCES)
def test_a_fresh_adapter_diverges_by_nothing_and_is_pulled_nowhere_by_it(name: str) -> None:
    table = model(scale=0.0)
    with_it = ct_loss(table, examples(), {"divergence": name, "divergence_weight": 5.0})
    without = ct_loss(table, examples(), {"divergence": name, "divergence_weight": 0.0})
    torch.testing.assert_close(with_it, without)
    gradients = [torch.autograd.grad(loss, [table.adapter])[0] for loss in (with_it, without)]
    torch.testing.assert_close(*gradients, atol=1e-12, rtol=0)


@pytest.mark.parametrize("loss", [it_loss, ct_loss])
def test_the_loss_of_a_batch_is_the_sum_over_its_examples(loss: object) -> None:
    whole = loss(model(), examples(), SETTINGS)  # type: ignore[operator]
    parts = []
    for i in range(3):
        row = np.asarray([i])
        one = {k: v.take(row) if isinstance(v, Ragged) else v[row] for k, v in examples().items()}  # type: ignore[index]
        parts.append(loss(model(), one, SETTINGS))  # type: ignore[operator]
    torch.testing.assert_close(whole, sum(parts))


def test_divergences_at_the_edges() -> None:
    sure, opposite = torch.tensor([[60.0, -60.0, 0.0]]), torch.tensor([[-60.0, 60.0, 0.0]])
    jsd = DIVERGENCES["jsd"]
    assert jsd(sure, opposite).item() == pytest.approx(math.log(2))
    assert jsd(sure, opposite).item() == pytest.approx(jsd(opposite, sure).item())
    for function in DIVERGENCES.values():
        assert function(sure, sure).item() == pytest.approx(0.0, abs=1e-6)
        assert torch.isfinite(function(sure, opposite)).all()


def test_yes_is_the_second_logit() -> None:
    p = probability_of_yes(np.asarray([[0.0, 0.0], [0.0, math.log(3.0)], [900.0, -900.0], [-900.0, 900.0]]))
    assert p.dtype == np.float64
    np.testing.assert_allclose(p, [0.5, 0.75, 0.0, 1.0])
