"""LitCab against a slow float64 reference written with autograd, at the edges of its loss, and in its memory."""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from bench.api import (
    At,
    Batch,
    Context,
    Format,
    Hidden,
    Of,
    OutputHead,
    Ragged,
    Signal,
    TokenIds,
    Unembedding,
    UserError,
)
from bench.signals.synthetic import planted
from methods._shared.training import iterate_batches
from methods.litcab import LitCab
from methods.litcab.method import _corpus, _sample_options, _step
from methods.litcab.networks import CHUNK_TOKENS, Layer, Objective, Targets, write_gradient
from tests.kit.methods import MethodCase, hard_batch, unlabelled, without

V, D = 64, 16
GOLD, WRONG, ANSWER = (Hidden(1.0, at) for at in (At.GOLD_PREDICTING, At.WRONG_PREDICTING, At.ANSWER_PREDICTING))
SIGNALS = LitCab.needs.fit | LitCab.needs.predict
HEADS: dict[str, dict[str, Any]] = {
    "plain": {},
    "bias": {"bias": True},
    "scale and cap": {"scale": 0.3, "softcap": 5.0},
    "bfloat16": {"dtype": torch.bfloat16, "bias": True},
}


def head(*, bias: bool = False, dtype: torch.dtype = torch.float32, **settings: Any) -> OutputHead:
    weight, shift = (torch.tensor(np.random.default_rng(9).normal(size=size), dtype=dtype) for size in ((V, D), V))
    return OutputHead(weight, shift if bias else None, **settings)


def frozen_logits(of: OutputHead, states: Any) -> Tensor:
    """The definition of `OutputHead`, in float64."""
    u = torch.tensor(states, dtype=torch.float64) @ of.weight.double().T
    u = of.scale * (u if of.bias is None else u + of.bias.double())
    return u if of.softcap is None else of.softcap * torch.tanh(u / of.softcap)


def geometric_means(data: Batch, linear: nn.Linear | None = None) -> list[float]:
    """Of the answers' probabilities, with the layer or without."""
    states, ids = data[ANSWER].values, data[TokenIds()]
    logits = frozen_logits(data[Unembedding()], states)
    if linear is not None:
        logits = logits + linear(torch.tensor(states, dtype=torch.float64)).detach()
    log_p = logits.log_softmax(dim=1).numpy()[np.arange(len(states)), ids.values]
    return [float(np.exp(log_p[start:end].mean())) for start, end in itertools.pairwise(ids.offsets)]


# --- before training --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", HEADS)
def test_litcab_untrained_is_the_models_own_probability(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("methods.litcab.networks._SLICE_ELEMENTS", 7 * D)  # the last slice is not a whole one
    batches = partial(hard_batch, head=head(**HEADS[kind]))
    method = LitCab(steps=1, learning_rate=0.0)
    fitted: Any = MethodCase(method, lambda test, *_: geometric_means(test), batches, 2e-5).check()
    assert (fitted.weight_ == 0).all()
    assert (fitted.bias_ == 0).all()


def test_litcab_keeps_the_order_of_nearly_certain_tokens() -> None:
    """Gaps of 18 to 22 logits: in a plain float32 softmax all of them are 1."""
    gaps = np.array([18.0, 19, 20, 21, 22], dtype=np.float32)
    states = np.stack([0 * gaps, gaps, 0 * gaps], axis=1)
    columns: dict[Signal, Any] = {
        ANSWER: Ragged(states, np.arange(6)),
        TokenIds(): Ragged(np.ones(5, dtype=np.int64), np.arange(6)),
        Unembedding(): OutputHead(torch.eye(3)),
    }
    method = LitCab()
    method.weight_, method.bias_ = np.zeros((3, 3), dtype=np.float32), np.zeros(3, dtype=np.float32)
    values = method.predict(Batch(list("abcde"), columns))
    assert 1 - values == pytest.approx(2 * np.exp(-gaps.astype(np.float64)), rel=1e-5)


# --- loss and gradient ------------------------------------------------------------------------------------------------


def exact_loss(linear: nn.Linear, of: OutputHead, tokens: Targets, wrong: Any, objective: Objective) -> Tensor:
    """docs/methods.md §2.7 in float64."""
    states = torch.tensor(tokens.states, dtype=torch.float64)
    adjusted = frozen_logits(of, tokens.states) + linear(states.relu() if objective.relu_input else states)
    losses = -adjusted.log_softmax(1)[torch.tensor(tokens.state), torch.tensor(tokens.ids)]
    right, pushed = losses[~torch.tensor(wrong)].mean(), losses[torch.tensor(wrong)].mean()
    total: Tensor = right - pushed if pushed < objective.cap else right
    return total + objective.cap + objective.penalty * torch.linalg.vector_norm(linear.weight)


def check_gradient(of: OutputHead, tokens: Targets, wrong: Any, objective: Objective, scale: float = 0.2) -> None:
    """Compare loss and gradient of a layer of this size with autograd's."""
    v, d = of.weight.shape
    generator = torch.Generator().manual_seed(1)
    layer = Layer(*(scale * torch.randn(shape, generator=generator) for shape in ((v, d), (v,))))
    linear = nn.Linear(d, v, dtype=torch.float64)
    linear.load_state_dict({"weight": layer.weight.double(), "bias": layer.bias.double()})
    expected = exact_loss(linear, of, tokens, wrong, objective)
    expected.backward()  # type: ignore[no-untyped-call]
    gradient = Layer(torch.full((v, d), torch.nan), torch.full((v,), torch.nan))  # whatever was there is overwritten
    assert write_gradient(layer, gradient, of, tokens, wrong, objective) == pytest.approx(expected.item(), rel=1e-5)
    atol = 2e-7 if of.weight.dtype == torch.float32 else 1e-6  # frozen logits in bfloat16 have 16 significant bits
    torch.testing.assert_close(gradient.weight.double(), linear.weight.grad, rtol=1e-4, atol=atol)
    torch.testing.assert_close(gradient.bias.double(), linear.bias.grad, rtol=1e-4, atol=atol)


def every_option(data: Batch) -> Any:
    return _corpus(data, np.ones(len(data[TokenIds(Of.WRONG)].values), dtype=bool))


@pytest.mark.parametrize("relu_input", [False, True])
@pytest.mark.parametrize("cap", [3.0, 30.0])
@pytest.mark.parametrize("scale", [0.0, 0.2])
@pytest.mark.parametrize("questions", [range(50), [0, 4, 8], [5]], ids=["many", "none wrong", "one"])
def test_litcab_loss_and_gradient_are_autograds(questions: Any, scale: float, cap: float, *, relu_input: bool) -> None:
    data = hard_batch(SIGNALS, 50, head=head())
    tokens, wrong = _step(every_option(data), np.asarray(questions))
    check_gradient(data[Unembedding()], tokens, wrong, Objective(cap, 0.01, relu_input), scale)
    assert len(tokens.states) < len(tokens.ids) or len(questions) < 50  # shared beginnings are read once


def test_litcab_chunks_add_up_to_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    data, objective = hard_batch(SIGNALS, 200, head=head()), Objective(30.0, 0.01, relu_input=False)
    tokens, wrong = _step(every_option(data), np.arange(200))
    assert len(tokens.states) > 2 * CHUNK_TOKENS
    layer = Layer(0.1 * torch.ones(V, D), torch.arange(V) / V)
    found = []
    for size in (CHUNK_TOKENS, 10**6):
        monkeypatch.setattr("methods.litcab.networks.CHUNK_TOKENS", size)
        gradient = Layer.zeros(data[Unembedding()])
        loss = write_gradient(layer, gradient, data[Unembedding()], tokens, wrong, objective)
        found.append((loss, gradient))
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-6)
    for ours, whole in zip(found[0][1], found[1][1], strict=True):
        torch.testing.assert_close(ours, whole, rtol=1e-4, atol=1e-6)


def test_litcab_norm_has_no_gradient_at_zero() -> None:
    """A root's derivative at 0 is infinite: a hand-written norm gives NaN (docs/methods.md §0.13)."""
    of = OutputHead(torch.zeros(4, 2))
    tokens = Targets(np.zeros((1, 2), dtype=np.float32), np.zeros(1, dtype=np.int64), np.ones(1, dtype=np.int64))
    gradient = Layer.zeros(of)
    loss = write_gradient(Layer.zeros(of), gradient, of, tokens, np.array([False]), Objective(3.0, 1e6, False))
    assert (gradient.weight == 0).all()
    assert gradient.bias.tolist() == [0.25, -0.75, 0.25, 0.25]
    assert loss == pytest.approx(np.log(4) + 3)


def torch_layer(test: Batch, train: Batch, method: Any) -> list[float]:
    """Confidences after a training of torch's own modules, whose weights are the method's."""
    linear = nn.Linear(D, V, dtype=torch.float64)
    nn.init.zeros_(linear.weight)
    nn.init.zeros_(linear.bias)
    adamw = torch.optim.AdamW(linear.parameters(), lr=method.learning_rate, weight_decay=0.1)
    batches = iterate_batches(len(train), method.batch_size, torch.Generator().manual_seed(5))
    for _ in range(method.steps):
        adamw.zero_grad()
        tokens, wrong = _step(every_option(train), next(batches).numpy())
        objective = Objective(method.cap, 0.01, method.relu_input)
        exact_loss(linear, train[Unembedding()], tokens, wrong, objective).backward()  # type: ignore[no-untyped-call]
        adamw.step()
    for ours, theirs in zip((method.weight_, method.bias_), linear.parameters(), strict=True):
        torch.testing.assert_close(torch.tensor(ours).double(), theirs.detach(), rtol=1e-3, atol=1e-5)
    return geometric_means(test, linear)


def test_litcab_training_is_that_of_torchs_modules() -> None:
    method = LitCab(steps=6, batch_size=16, learning_rate=1e-2, cap=4.0)
    MethodCase(method, torch_layer, partial(hard_batch, n=40, head=head()), 1e-4).check()


# --- what is trained on -----------------------------------------------------------------------------------------------


def test_litcab_letters_share_one_state() -> None:
    data = planted(LitCab.needs.fit, 30, seed=1, fmt=Format.CHOICE)
    corpus, gold, wrong = every_option(data), data[TokenIds(Of.GOLD)], data[TokenIds(Of.WRONG)]
    assert (corpus.states.lengths == 1).all()
    assert np.array_equal(corpus.tokens.lengths, 1 + wrong.lengths)
    tokens, is_wrong = _step(corpus, np.array([7, 2]))
    assert len(tokens.states) == 2
    assert tokens.ids[~is_wrong].tolist() == [gold[i].item() for i in (7, 2)]
    assert tokens.ids[is_wrong].tolist() == [*wrong[7], *wrong[2]]


def test_litcab_copies_no_states_of_the_batch() -> None:
    data = hard_batch(SIGNALS, 30)
    wrong, gold_states, wrong_states = data[TokenIds(Of.WRONG)], data[GOLD], data[WRONG]
    kept = np.arange(len(wrong.values)) % 2 == 0
    corpus = _corpus(data, kept)
    assert np.shares_memory(corpus.gold, gold_states.values)
    assert np.shares_memory(corpus.wrong, wrong_states.values)
    tokens, is_wrong = _step(corpus, np.array([5, 1]))
    masks = [kept[slice(*wrong.offsets[row : row + 2])] for row in (5, 1)]
    asked = [gold_states[5], wrong_states[5][masks[0]], gold_states[1], wrong_states[1][masks[1]]]
    assert np.array_equal(tokens.states[tokens.state], np.concatenate(asked))
    assert tokens.ids[~is_wrong].tolist() == [*data[TokenIds(Of.GOLD)][5], *data[TokenIds(Of.GOLD)][1]]


def test_litcab_draws_at_most_so_many_wrong_options_whole() -> None:
    wrong = hard_batch({TokenIds(Of.WRONG)}, 80)[TokenIds(Of.WRONG)]
    kept = _sample_options(wrong, 2, np.random.default_rng(0))
    assert wrong.owner is not None
    drawn = set()
    for start, end in itertools.pairwise(wrong.offsets):
        owner = wrong.owner[start:end]
        chosen = set(owner[kept[start:end]])
        assert len(chosen) == min(2, len(set(owner)))
        assert np.array_equal(np.isin(owner, list(chosen)), kept[start:end])
        drawn.add(frozenset(chosen))
    assert {frozenset(pair) for pair in itertools.combinations(range(1, 4), 2)} <= drawn
    assert _sample_options(wrong, None, np.random.default_rng(0)).all()


def test_litcab_needs_a_wrong_option() -> None:
    data = hard_batch(SIGNALS, 40)
    columns = {signal: data[signal] for signal in data.signals}
    for signal in (WRONG, TokenIds(Of.WRONG)):
        columns[signal] = without(data[signal], np.ones(40, dtype=bool))
    with pytest.raises(UserError, match=r"none of 40 training questions has any.*--train-on"):
        LitCab().fit(Batch(data.ids, columns), Context(seed=0))


# --- memory -----------------------------------------------------------------------------------------------------------


class Allocations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Remembers the memory that operations return, by its address, where it has at least this many bytes."""

    def __init__(self, least: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.least = least
        self.seen: dict[int, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else [out]:
            if isinstance(tensor, Tensor) and tensor.untyped_storage().nbytes() >= self.least:
                self.seen[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return out


def large(v: int, d: int, n: int, device: str = "cpu") -> Batch:
    """Letters as answers, at a real model's shape."""
    generator = torch.Generator().manual_seed(0)
    weight = (torch.randn(v, d, generator=generator) / d**0.5).to(torch.bfloat16)
    states = np.random.default_rng(0).normal(size=(n, d)).astype(np.float32)
    gold = np.random.default_rng(1).integers(0, 4, size=n)
    wrong = np.concatenate([np.setdiff1d(np.arange(4), letter) for letter in gold])
    offsets = np.arange(n + 1)
    one, three = Ragged(states, offsets), Ragged(np.repeat(states, 3, axis=0), 3 * offsets, wrong)
    ids, others = Ragged(gold, offsets), Ragged(wrong, 3 * offsets, wrong)
    columns: dict[Signal, Any] = {
        Unembedding(): OutputHead(weight.to(device)), GOLD: one, TokenIds(Of.GOLD): ids, WRONG: three,
        TokenIds(Of.WRONG): others, ANSWER: one, TokenIds(): ids,
    }  # fmt: skip
    return Batch([str(i) for i in range(n)], columns)


def test_litcab_makes_four_tensors_as_large_as_the_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights, gradient and two moments."""
    monkeypatch.setattr("methods.litcab.networks._SLICE_ELEMENTS", 1 << 20)  # else the head is one slice at this shape
    v, d = 8192, 512
    data = large(v, d, 64)
    with Allocations(least=v * d) as allocations:  # a quarter of the layer, and half of the head
        fitted = LitCab(steps=4).fit(data, Context(seed=0))
    weights = data[Unembedding()].weight.untyped_storage().data_ptr()
    made = [size for address, size in allocations.seen.items() if address != weights]
    assert [size for size in made if size >= 4 * v * d] == [4 * v * d] * 4
    assert fitted.weight_.shape == (v, d)
    values = fitted.predict(unlabelled(data, LitCab.needs.predict))
    assert (values > geometric_means(data)).all()  # the gold letters that it was trained on


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device with 11 GB")
def test_litcab_of_llama_8b_fits_on_one_gpu() -> None:
    v, d = 128_256, 4096
    data = large(v, d, 64, "cuda")
    torch.cuda.reset_peak_memory_stats()
    fitted = LitCab(steps=5).fit(data, Context(seed=0, device="cuda"))
    assert torch.cuda.max_memory_allocated() < 10.5e9
    assert np.isfinite(fitted.predict(unlabelled(data, LitCab.needs.predict))).all()
