"""LitCab against a slow float64 reference written with autograd, at the edges of its loss, and in its memory."""

from __future__ import annotations

import itertools
import json
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from bench.api import (
    At,
    Batch,
    Context,
    ContractError,
    Format,
    Hidden,
    ModelFacts,
    Of,
    OutputHead,
    Ragged,
    RunFacts,
    Signal,
    TokenIds,
    Unembedding,
    UserError,
)
from bench.testing import planted
from methods._shared.training import iterate_batches
from methods.litcab import LitCab
from methods.litcab.method import _corpus, _sample_options, _step
from methods.litcab.networks import CHUNK_TOKENS, Layer, Objective, Targets, write_gradient

V, D = 60, 12
GOLD, WRONG, ANSWER = (Hidden(1.0, at) for at in (At.GOLD_PREDICTING, At.WRONG_PREDICTING, At.ANSWER_PREDICTING))
HEADS: dict[str, dict[str, Any]] = {
    "plain": {},
    "bias": {"bias": True},
    "scale and cap": {"scale": 0.3, "softcap": 5.0},
    "bfloat16": {"dtype": torch.bfloat16, "bias": True},
}


def untrained(data: Batch) -> LitCab:
    """A layer that changes nothing."""
    return LitCab(steps=1, learning_rate=0.0).fit(data, Context(seed=0))


def head(v: int = V, d: int = D, **changes: Any) -> OutputHead:
    rng = np.random.default_rng(99)
    weight = torch.tensor(rng.normal(size=(v, d)), dtype=changes.pop("dtype", torch.float32))
    bias = torch.tensor(rng.normal(size=v), dtype=weight.dtype) if changes.pop("bias", False) else None
    return OutputHead(weight, bias, **changes)


def texts(rng: np.random.Generator, options: list[int], lengths: int, size: float) -> tuple[Ragged, Ragged]:
    """States and ids for questions with so many options each; all options begin at the same state."""
    states, ids, owner = [], [], []
    for k in options:
        first = size * rng.normal(size=(1, D))
        sizes = rng.integers(1, lengths + 1, size=k)
        parts = [np.concatenate([first, size * rng.normal(size=(t - 1, D))]) for t in sizes]
        states.append(np.concatenate([np.zeros((0, D)), *parts]).astype(np.float32))
        ids.append(rng.integers(0, V, size=int(sizes.sum())))
        owner.append(np.repeat(np.arange(k), sizes))
    of_ids = Ragged.of(ids)
    which = Ragged.of(owner).values
    return Ragged(Ragged.of(states).values, of_ids.offsets, which), Ragged(of_ids.values, of_ids.offsets, which)


def batch(n: int = 50, *, seed: int = 0, lengths: int = 3, of: OutputHead | None = None, size: float = 1.0) -> Batch:
    """Questions with 0 to 3 wrong options; no labels: the method has no use for them."""
    rng = np.random.default_rng(seed)
    columns: dict[Signal, Any] = {Unembedding(): of or head()}
    columns[GOLD], columns[TokenIds(Of.GOLD)] = texts(rng, [1] * n, lengths, size)
    columns[WRONG], columns[TokenIds(Of.WRONG)] = texts(rng, [i % 4 for i in range(n)], lengths, size)
    columns[ANSWER], columns[TokenIds(Of.ANSWER)] = texts(rng, [1] * n, lengths, size)
    return Batch([str(i) for i in range(n)], columns)


def only(data: Batch, *signals: Signal) -> Batch:
    return Batch(data.ids, {signal: data[signal] for signal in signals})


def frozen_logits(of: OutputHead, states: np.ndarray) -> Tensor:
    """The definition of `OutputHead`, in float64."""
    u = torch.tensor(states, dtype=torch.float64) @ of.weight.double().T
    u = of.scale * (u if of.bias is None else u + of.bias.double())
    return u if of.softcap is None else of.softcap * torch.tanh(u / of.softcap)


def geometric_means(logits: Tensor, ids: Ragged) -> list[float]:
    log_p = logits.log_softmax(dim=1).numpy()[np.arange(len(ids.values)), ids.values]
    return [float(np.exp(log_p[start:end].mean())) for start, end in itertools.pairwise(ids.offsets)]


# --- before training --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", HEADS)
@pytest.mark.parametrize("size", [0.3, 1.0, 6.0])
def test_untrained_it_is_the_models_own_probability(kind: str, size: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("methods.litcab.networks._SLICE_ELEMENTS", 7 * D)  # the last slice is not a whole one
    data = batch(of=head(**HEADS[kind]), size=size, lengths=5)
    fitted = untrained(data)
    values = fitted.predict(only(data, *LitCab.needs.predict))
    expected = geometric_means(frozen_logits(data[Unembedding()], data[ANSWER].values), data[TokenIds()])
    assert values == pytest.approx(expected, rel=2e-5, abs=1e-30)
    assert fitted.predict(only(data, *LitCab.needs.predict).take([])).shape == (0,)
    assert (fitted.weight_ == 0).all()
    assert (fitted.bias_ == 0).all()


def test_nearly_certain_tokens_keep_their_order() -> None:
    """Gaps of 18 to 22 logits: in a plain float32 softmax all of them are 1."""
    of = OutputHead(torch.eye(3))
    gaps = np.array([18.0, 19, 20, 21, 22], dtype=np.float32)
    states = np.zeros((5, 3), dtype=np.float32)
    states[:, 1] = gaps
    offsets = np.arange(6)
    columns: dict[Signal, Any] = {
        ANSWER: Ragged(states, offsets),
        TokenIds(): Ragged(np.ones(5, dtype=np.int64), offsets),
        Unembedding(): of,
    }
    untrained = LitCab()
    untrained.weight_, untrained.bias_ = np.zeros((3, 3), dtype=np.float32), np.zeros(3, dtype=np.float32)
    values = untrained.predict(Batch(list("abcde"), columns))
    assert 1 - values == pytest.approx(2 * np.exp(-gaps.astype(np.float64)), rel=1e-5)


# --- loss and gradient ------------------------------------------------------------------------------------------------


def naive_loss(linear: nn.Linear, of: OutputHead, data: Batch, questions: Any, objective: Objective) -> Tensor:
    """docs/methods.md §2.7, token by token in float64."""
    right: list[Tensor] = []
    wrong: list[Tensor] = []
    for states, ids, where in ((GOLD, Of.GOLD, right), (WRONG, Of.WRONG, wrong)):
        for i in questions:
            for h, token in zip(data[states][i], data[TokenIds(ids)][i], strict=True):
                x = torch.tensor(h, dtype=torch.float64)
                adjusted = frozen_logits(of, h[None])[0] + linear(torch.relu(x) if objective.relu_input else x)
                where.append(-adjusted.log_softmax(0)[int(token)])
    norm = torch.linalg.vector_norm(linear.weight)
    c = torch.stack(right).mean()
    w = torch.stack(wrong).mean() if wrong else None
    pushed: Tensor = c - w if w is not None and w < objective.cap else c
    total: Tensor = pushed + objective.cap + objective.penalty * norm
    return total


@pytest.mark.parametrize("relu_input", [False, True])
@pytest.mark.parametrize("cap", [3.0, 30.0])
@pytest.mark.parametrize("scale", [0.0, 0.2])
@pytest.mark.parametrize("questions", [range(50), [0, 4, 8], [5]], ids=["many", "none wrong", "one"])
def test_loss_and_gradient_are_those_of_autograd(questions: Any, scale: float, cap: float, *, relu_input: bool) -> None:
    data, objective = batch(lengths=4), Objective(cap, 0.01, relu_input)
    generator = torch.Generator().manual_seed(1)
    weight, bias = (scale * torch.randn(shape, generator=generator) for shape in ((V, D), (V,)))
    linear = nn.Linear(D, V, dtype=torch.float64)
    linear.load_state_dict({"weight": weight.double(), "bias": bias.double()})
    expected = naive_loss(linear, data[Unembedding()], data, questions, objective)
    expected.backward()  # type: ignore[no-untyped-call]

    corpus = _corpus(data, np.ones(len(data[TokenIds(Of.WRONG)].values), dtype=bool))
    tokens, wrong = _step(corpus, np.asarray(questions))
    gradient = Layer(torch.full((V, D), torch.nan), torch.full((V,), torch.nan))  # whatever was there is overwritten
    loss = write_gradient(Layer(weight, bias), gradient, data[Unembedding()], tokens, wrong, objective)
    assert loss == pytest.approx(expected.item(), rel=1e-5)
    torch.testing.assert_close(gradient.weight.double(), linear.weight.grad, rtol=1e-4, atol=2e-7)
    torch.testing.assert_close(gradient.bias.double(), linear.bias.grad, rtol=1e-4, atol=2e-7)
    assert len(tokens.states) < len(tokens.ids) or len(questions) < 50  # shared beginnings are read once


def test_chunks_add_up_to_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    data, objective = batch(200, lengths=4), Objective(30.0, 0.01, relu_input=False)
    corpus = _corpus(data, np.ones(len(data[TokenIds(Of.WRONG)].values), dtype=bool))
    tokens, wrong = _step(corpus, np.arange(200))
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


def test_the_norm_has_no_gradient_at_zero() -> None:
    """A root's derivative at 0 is infinite: a hand-written norm gives NaN (docs/methods.md §0.13)."""
    of = OutputHead(torch.zeros(4, 2))
    tokens = Targets(np.zeros((1, 2), dtype=np.float32), np.zeros(1, dtype=np.int64), np.ones(1, dtype=np.int64))
    gradient = Layer.zeros(of)
    loss = write_gradient(Layer.zeros(of), gradient, of, tokens, np.array([False]), Objective(3.0, 1e6, False))
    assert (gradient.weight == 0).all()
    assert gradient.bias.tolist() == [0.25, -0.75, 0.25, 0.25]
    assert loss == pytest.approx(np.log(4) + 3)


@pytest.mark.parametrize("relu_input", [False, True])
def test_training_is_that_of_torchs_own_modules(*, relu_input: bool) -> None:
    data = batch(40)
    settings: dict[str, Any] = {
        "steps": 6,
        "batch_size": 16,
        "learning_rate": 1e-2,
        "relu_input": relu_input,
        "cap": 4.0,
    }
    fitted = LitCab(**settings).fit(data, Context(seed=5))
    linear = nn.Linear(D, V, dtype=torch.float64)
    nn.init.zeros_(linear.weight)
    nn.init.zeros_(linear.bias)
    adamw = torch.optim.AdamW(linear.parameters(), lr=1e-2, weight_decay=0.1)
    batches = iterate_batches(40, 16, torch.Generator().manual_seed(5))
    for questions in (next(batches).tolist() for _ in range(6)):
        adamw.zero_grad()
        naive_loss(linear, head(), data, questions, Objective(4.0, 0.01, relu_input)).backward()  # type: ignore[no-untyped-call]
        adamw.step()
    trained = [torch.tensor(array, dtype=torch.float64) for array in (fitted.weight_, fitted.bias_)]
    for ours, theirs in zip(trained, linear.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs.detach(), rtol=1e-3, atol=1e-5)


# --- what is trained on -----------------------------------------------------------------------------------------------


def test_letters_share_one_state() -> None:
    data = planted(LitCab.needs.fit, 30, seed=1, fmt=Format.CHOICE)
    corpus = _corpus(data, np.ones(len(data[TokenIds(Of.WRONG)].values), dtype=bool))
    assert (corpus.states.lengths == 1).all()
    assert np.array_equal(corpus.tokens.lengths, 1 + data[TokenIds(Of.WRONG)].lengths)
    tokens, wrong = _step(corpus, np.array([7, 2]))
    assert len(tokens.states) == 2
    assert tokens.ids[~wrong].tolist() == [data[TokenIds(Of.GOLD)][i].item() for i in (7, 2)]
    assert tokens.ids[wrong].tolist() == [*data[TokenIds(Of.WRONG)][7], *data[TokenIds(Of.WRONG)][2]]


def test_states_stay_where_the_batch_has_them() -> None:
    data = batch(30, lengths=3)
    wrong = data[TokenIds(Of.WRONG)]
    kept = np.arange(len(wrong.values)) % 2 == 0
    corpus = _corpus(data, kept)
    gold_states, wrong_states = data[GOLD], data[WRONG]
    assert np.shares_memory(corpus.gold, gold_states.values)
    assert np.shares_memory(corpus.wrong, wrong_states.values)
    tokens, is_wrong = _step(corpus, np.array([5, 1]))
    asked = [
        part
        for row in (5, 1)
        for part in (gold_states[row], wrong_states[row][kept[slice(*wrong.offsets[row : row + 2])]])
    ]
    assert np.array_equal(tokens.states[tokens.state], np.concatenate(asked))
    assert tokens.ids[~is_wrong].tolist() == [*data[TokenIds(Of.GOLD)][5], *data[TokenIds(Of.GOLD)][1]]


def test_at_most_so_many_wrong_options_are_drawn_whole() -> None:
    wrong = batch(80, lengths=3)[TokenIds(Of.WRONG)]
    kept = _sample_options(wrong, 2, np.random.default_rng(0))
    assert wrong.owner is not None
    drawn = set()
    for start, end in itertools.pairwise(wrong.offsets):
        owner = wrong.owner[start:end]
        chosen = set(owner[kept[start:end]])
        assert len(chosen) == min(2, len(set(owner)))
        assert np.array_equal(np.isin(owner, list(chosen)), kept[start:end])
        drawn.add(frozenset(chosen))
    assert {frozenset(pair) for pair in itertools.combinations(range(3), 2)} <= drawn
    assert _sample_options(wrong, None, np.random.default_rng(0)).all()


# --- what is learned --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fmt", list(Format))
@pytest.mark.parametrize("preset", LitCab.presets)
def test_every_preset_learns_to_prefer_gold_answers(preset: str, fmt: Format) -> None:
    signals = {*LitCab.needs.fit, *LitCab.needs.predict}
    learn, test = (planted(signals, 300, seed=seed, fmt=fmt) for seed in (1, 2))
    quick = {"steps": 150, "batch_size": 32, "learning_rate": 1e-2}
    fitted = LitCab(**{**LitCab.presets[preset], **quick}).fit(learn, Context(seed=1))  # type: ignore[arg-type]
    values = fitted.predict(only(test, *LitCab.needs.predict))
    assert roc_auc_score(test.correct, values) > 0.8

    def mean_loss(method: LitCab, states: Hidden, ids: Of) -> float:
        texts: dict[Signal, Any] = {ANSWER: test[states], TokenIds(): test[TokenIds(ids)]}
        return -float(np.log(method.predict(Batch(test.ids, {**texts, Unembedding(): test[Unembedding()]}))).mean())

    before = untrained(learn)
    losses = [
        mean_loss(method, GOLD, Of.GOLD) - min(3.0, mean_loss(method, WRONG, Of.WRONG)) for method in (before, fitted)
    ]
    assert losses[1] < losses[0] - 0.1


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
    wrong = [np.setdiff1d(np.arange(4), letter) for letter in gold]
    offsets = np.arange(n + 1)
    columns: dict[Signal, Any] = {
        Unembedding(): OutputHead(weight.to(device)),
        GOLD: Ragged(states, offsets),
        TokenIds(Of.GOLD): Ragged(gold, offsets),
        WRONG: Ragged(np.repeat(states, 3, axis=0), 3 * offsets, np.concatenate(wrong)),
        TokenIds(Of.WRONG): Ragged(np.concatenate(wrong), 3 * offsets, np.concatenate(wrong)),
        ANSWER: Ragged(states, offsets),
        TokenIds(): Ragged(gold, offsets),
    }
    return Batch([str(i) for i in range(n)], columns)


def test_only_weights_gradient_and_moments_are_as_large_as_the_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("methods.litcab.networks._SLICE_ELEMENTS", 1 << 20)  # else the head is one slice at this shape
    v, d = 8192, 512
    data = large(v, d, 64)
    with Allocations(least=v * d) as allocations:  # a quarter of the layer, and half of the head
        fitted = LitCab(steps=4).fit(data, Context(seed=0))
    weights = data[Unembedding()].weight.untyped_storage().data_ptr()
    made = [size for address, size in allocations.seen.items() if address != weights]
    layers = [size for size in made if size >= 4 * v * d]
    assert layers == [4 * v * d] * 4
    assert fitted.weight_.shape == (v, d)
    values = fitted.predict(only(data, *LitCab.needs.predict))
    assert (
        values > untrained(data).predict(only(data, *LitCab.needs.predict))
    ).all()  # the gold letters that it was trained on


@pytest.mark.parametrize(
    ("d", "v", "parameters", "gigabytes"),
    [(4096, 128_256, 525_464_832, 9.5), (5120, 152_064, 778_719_744, 14.0), (5120, 131_072, 671_219_712, 12.1)],
)
def test_sizes_are_those_of_the_formulas(d: int, v: int, parameters: int, gigabytes: float) -> None:
    assert LitCab().n_parameters(RunFacts(ModelFacts("m", d, v, 32), "t", Format.CHOICE, 100)) == parameters
    assert (16 * parameters + 2 * d * v) / 1e9 == pytest.approx(gigabytes, abs=0.05)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device with 11 GB")
def test_llama_8b_fits_on_one_gpu() -> None:
    v, d = 128_256, 4096
    data = large(v, d, 64, "cuda")
    torch.cuda.reset_peak_memory_stats()
    fitted = LitCab(steps=5).fit(data, Context(seed=0, device="cuda"))
    assert torch.cuda.max_memory_allocated() < 10.5e9
    assert np.isfinite(fitted.predict(only(data, *LitCab.needs.predict))).all()


# --- presets and errors -----------------------------------------------------------------------------------------------


def test_presets_are_plain_and_differ_where_they_should() -> None:
    plain = {name: LitCab(**preset).params() for name, preset in LitCab.presets.items()}  # type: ignore[arg-type]
    assert json.loads(json.dumps(plain)) == plain
    assert plain["demo"] == plain["fixed"] == plain["paper"] == LitCab().params()
    refcode = plain["refcode"]
    assert (refcode["relu_input"], refcode["learning_rate"], refcode["negatives"]) == (True, 5e-6, 3)


def test_no_wrong_option_at_all_is_a_clear_error() -> None:
    data = batch(40)
    none = Ragged(np.zeros(0, dtype=np.int64), np.zeros(41, dtype=np.int64))
    columns: dict[Signal, Any] = {signal: data[signal] for signal in data.signals}
    columns[TokenIds(Of.WRONG)] = none
    columns[WRONG] = Ragged(np.zeros((0, D), dtype=np.float32), none.offsets)
    with pytest.raises(UserError, match=r"none of 40 training questions has any.*--train-on"):
        LitCab().fit(Batch(data.ids, columns), Context(seed=0))


@pytest.mark.parametrize("where", [GOLD, WRONG, ANSWER])
def test_overflown_states_are_a_clear_error(where: Hidden) -> None:
    data = batch(40)
    fitted = untrained(data)
    values = data[where].values.copy()
    values[3] = np.inf
    columns: dict[Signal, Any] = {signal: data[signal] for signal in data.signals}
    columns[where] = Ragged(values, data[where].offsets, data[where].owner)
    broken = Batch(data.ids, columns)
    with pytest.raises(UserError, match=r"1 of \d+ hold infinity or NaN.*--dtype"):
        fitted.predict(broken) if where == ANSWER else LitCab().fit(broken, Context(seed=0))


def test_predict_before_fit_is_a_clear_error() -> None:
    with pytest.raises(ContractError, match="fit was not called"):
        LitCab().predict(batch(3))
