"""What methods that read the output head do on an accelerator, without one.

Numbers: on the CPU, with float32 products of bfloat16 numbers in place of those that it lacks. Launches, copies, memory
and devices: on the meta device with the widths of the four models, where tensors of two devices don't mix and numpy
gets none. So it is with heads in bfloat16 on the CPU.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import bench
import methods
from bench.api import At, Batch, Context, Format, Hidden, ModelFacts, OutputHead, Signal, Unembedding
from bench.signals.synthetic import make_batch, planted
from benchmarks.cost_model.dry import Counter, Section, counted
from benchmarks.cost_model.dry_model import configurations
from methods.ccps import Ccps, features
from methods.ccps.features import perturbation_features
from methods.litcab import LitCab, networks
from methods.litcab.networks import Layer, Objective, Targets, log_probabilities, train_layer, write_gradient
from tests.kit.methods import unlabelled, with_column
from tests.unit.methods.test_litcab import check_gradient

MODELS = ("llama8b", "qwen14b", "mistral24b", "qwen32b")
OBJECTIVE = Objective(3.0, 0.01, relu_input=False)
RATES = {"learning_rate": 1e-4, "weight_decay": 0.1}
CONFIDENCES = 1e-5
"""Most by which LitCab's confidences differ from those of float32 products after a training."""


def bfloat16(x: Any) -> Any:
    """Numbers that bfloat16 can hold, in float32."""
    return torch.tensor(x).bfloat16().float().numpy()


def head(v: int, d: int, **settings: Any) -> OutputHead:
    generator = torch.Generator().manual_seed(0)
    weight = (torch.randn(v, d, generator=generator) * 2.5 / d**0.5).bfloat16()
    bias = torch.randn(v, generator=generator).bfloat16() if settings.pop("bias", False) else None
    return OutputHead(weight, bias, **settings)


@pytest.fixture
def accelerated(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """The CPU passes for an accelerator, and the layer is taken in several slices."""
    monkeypatch.setattr(networks, "_ACCELERATED", ("cpu",))
    monkeypatch.setattr(networks, "_product", lambda a, b: a.float() @ b.float())
    monkeypatch.setattr(networks, "_SPLIT_ELEMENTS", 1 << 12)
    return monkeypatch


# --- LitCab's numbers -------------------------------------------------------------------------------------------------


def step(v: int, d: int, states: int, seed: int = 0) -> tuple[Targets, Any]:
    """Tokens of a step, two for each state, and which are of wrong options."""
    rng = np.random.default_rng(seed)
    tokens = Targets(bfloat16(rng.normal(size=(states, d))), np.arange(2 * states) // 2, rng.integers(0, v, 2 * states))
    return tokens, np.arange(2 * states) % 3 > 0


@pytest.mark.parametrize("settings", [{}, {"bias": True}, {"scale": 0.3, "softcap": 5.0}], ids=str)
@pytest.mark.parametrize("states", [40, 200, 900])  # float32 products, split ones, and those of two chunks
@pytest.mark.parametrize("relu_input", [False, True])
def test_litcab_loss_and_gradient_are_autograds(
    states: int, settings: dict[str, Any], accelerated: pytest.MonkeyPatch, *, relu_input: bool
) -> None:
    tokens, wrong = step(300, 64, states)
    check_gradient(head(300, 64, **settings), tokens, wrong, Objective(30.0, 0.01, relu_input))


def test_halves_in_bfloat16_are_nearly_float32() -> None:
    x = torch.randn(50, 70, generator=torch.Generator().manual_seed(0)) * 10.0 ** torch.arange(-32, 38)
    for dim in (0, 1):
        high, low = networks._halves(x, dim).double().tensor_split(2, dim)
        assert ((high + low - x.double()).abs() <= 2**-17 * x.double().abs()).all()


def plain_batch(n: int, seed: int) -> Batch:
    """Open answers whose states and head are of numbers that bfloat16 can hold."""
    model = ModelFacts("wide", hidden_size=64, vocab_size=500, n_layers=4)
    batch = make_batch(LitCab.needs.fit | LitCab.needs.predict, n, seed, Format.OPEN, model=model)
    for at in (At.GOLD_PREDICTING, At.WRONG_PREDICTING, At.ANSWER_PREDICTING):
        batch = with_column(batch, Hidden(1.0, at), bfloat16)
    columns = {signal: batch[signal] for signal in batch.signals}
    return Batch(batch.ids, {**columns, Unembedding(): OutputHead(columns[Unembedding()].weight.bfloat16())})


def test_litcab_learns_what_it_learns_in_float32(accelerated: pytest.MonkeyPatch) -> None:
    """Confidences after a training are within the bound; with the layer rounded to bfloat16 they would not be."""
    learn, test = (plain_batch(n, seed) for seed, n in ((1, 128), (2, 200)))

    def confidences() -> Any:
        fitted = LitCab(steps=100, learning_rate=1e-2).fit(learn, Context(seed=0))
        return fitted.predict(unlabelled(test, LitCab.needs.predict))

    split = confidences()
    with accelerated.context() as changed:
        changed.setattr(networks, "_ACCELERATED", ())
        single = confidences()
    accelerated.setattr(networks, "_halves", lambda x, dim: torch.cat([x.bfloat16(), torch.zeros_like(x)], dim))
    rounded = confidences()
    assert 0.2 < single.mean() < 0.9
    assert np.abs(split - single).max() < CONFIDENCES
    assert np.abs(rounded - single).max() > 10 * CONFIDENCES


def test_litcab_multiplies_other_states_in_float32(accelerated: pytest.MonkeyPatch) -> None:
    v, d = 300, 64
    of = head(v, d)
    tokens, wrong = step(v, d, 200)
    tokens.states[7, 3] = 1 + 2**-20
    found = []
    for kinds in (("cpu",), ()):
        accelerated.setattr(networks, "_ACCELERATED", kinds)
        accelerated.setattr(networks, "CHUNK_TOKENS", 768)
        gradient = Layer.zeros(of)
        write_gradient(Layer.zeros(of), gradient, of, tokens, wrong, OBJECTIVE)
        found.append(gradient)
    assert torch.equal(found[0].weight, found[1].weight)


# --- CCPS' numbers ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_ccps_features_in_accelerator_chunks_are_the_same(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    of = OutputHead(head(2000, 32).weight.to(dtype))
    generator = torch.Generator().manual_seed(2)
    hidden, ids = torch.randn(300, 32, generator=generator), torch.randint(0, 2000, (300,), generator=generator)
    monkeypatch.setattr(features, "_SIZES", {"cpu": features._Sizes(1 << 18, 1 << 16, 1)})  # three chunks, many blocks
    ours = perturbation_features(hidden, ids, of)
    monkeypatch.setattr(features, "_SIZES", {})
    torch.testing.assert_close(perturbation_features(hidden, ids, of), ours, rtol=1e-6, atol=1e-6)


# --- true widths on the meta device -----------------------------------------------------------------------------------


class Largest(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Bytes of the largest tensor on a device that an operation makes."""

    def __init__(self, device: str = "meta") -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.device, self.bytes = device, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        given = {_memory(one) for one in (*args, *kwargs.values()) if isinstance(one, torch.Tensor)}
        if isinstance(out, torch.Tensor) and out.device.type == self.device and _memory(out) not in given:
            self.bytes = max(self.bytes, out.nbytes)
        return out


def _memory(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def meta_head(model: str) -> OutputHead:
    text = configurations()[model].get_text_config()
    return OutputHead(torch.empty(text.vocab_size, text.hidden_size, dtype=torch.bfloat16, device="meta"))


def counts(work: Any) -> Section:
    (section,) = counted(work, Counter()).sections
    return section


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(("states", "launches"), [(32, 30), (544, 130)], ids=["choice", "open"])
def test_litcab_step_keeps_to_its_budgets(model: str, states: int, launches: int) -> None:
    of = meta_head(model)
    v, d = of.weight.shape
    tokens, wrong = step(1000, d, states)  # of 32 questions
    layer, gradient = Layer.zeros(of), Layer.zeros(of)
    with Largest() as largest:
        found = counts(lambda: write_gradient(layer, gradient, of, tokens, wrong, OBJECTIVE))
    assert found.launches <= launches
    assert (found.down, found.up) == (2, 4)  # the losses and the norm; states, their rows, ids, shares
    assert largest.bytes <= max(4 * 544 * v, 1 << 28)  # logits, or a slice of the layer: nothing of its size
    assert found.flops32 <= 2 * 2 * 128 * layer.weight.numel()


@pytest.mark.parametrize("model", MODELS)
def test_litcab_trains_and_predicts_on_one_device(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    of = meta_head(model)
    tokens, wrong = step(1000, of.weight.shape[1], 1000)
    adamw = torch.optim.AdamW  # which knows no fused kernel on the meta device
    monkeypatch.setattr(torch.optim, "AdamW", lambda *args, **settings: adamw(*args, **{**settings, "fused": False}))
    trained: list[Layer] = []
    counts(lambda: train_layer(of, [(tokens, wrong)], OBJECTIVE, trained.append, **RATES))
    assert [layer.weight.device.type for layer in trained] == ["meta"]
    found = counts(lambda: log_probabilities(trained[0], of, tokens, relu_input=False))
    chunks = 2
    assert (found.down, found.up) == (chunks, 3 * chunks)
    assert found.launches <= 75 * chunks


@pytest.mark.parametrize("model", [MODELS[0], *(pytest.param(name, marks=pytest.mark.slow) for name in MODELS[1:])])
def test_ccps_features_keep_to_their_budgets(model: str) -> None:
    of, n = meta_head(model), 300
    hidden, ids = torch.zeros(n, of.weight.shape[1]), torch.zeros(n, dtype=torch.long)
    with np.errstate(all="ignore"), Largest() as largest:  # all numbers are 0
        found = counts(lambda: perturbation_features(hidden, ids, of))
    chunks = -(-n // (features._ACCELERATED.chunk // len(of.weight)))
    assert (found.down, found.up) == (chunks, chunks + 2)  # and ids and grid of the call
    assert found.launches <= 6 * n
    assert largest.bytes <= 4 * features._ACCELERATED.chunk


def test_ccps_features_keep_a_cpus_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    hidden, ids, of = torch.randn(512, 16), torch.zeros(512, dtype=torch.long), OutputHead(torch.randn(1024, 16))
    monkeypatch.setitem(features._SIZES, "cpu", features._Sizes(1 << 18, 1 << 16, 1))
    with Largest("cpu") as largest:  # of twice as much, if all states were taken at once
        perturbation_features(hidden, ids, of)
    assert largest.bytes == 4 << 18


# --- numpy ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fmt", list(Format))
@pytest.mark.parametrize("plugin", [Ccps, LitCab])
def test_methods_read_a_head_in_bfloat16(plugin: Any, fmt: Format) -> None:
    """A tensor in bfloat16 that went to numpy would raise."""
    needs = plugin().reads()
    learn = planted({*needs.fit, *needs.predict}, 60, seed=1, fmt=fmt)
    columns: dict[Signal, Any] = {signal: learn[signal] for signal in learn.signals}
    columns[Unembedding()] = OutputHead(learn[Unembedding()].weight.bfloat16())
    data = Batch(learn.ids, columns, learn.correct)
    fitted = plugin(**{name: 3 for name in vars(plugin()) if name.endswith("steps")}).fit(data, Context(0, fmt))
    assert np.isfinite(fitted.predict(unlabelled(data, needs.predict))).all()


HOST = {
    "bench/model/text_pairs.py: torch.from_numpy(logits).softmax(dim=-1)[:, rows]": "of numbers that are on the host",
    "bench/model/text_pairs.py: torch.from_numpy(logits[:, 0]).sigmoid()": "of numbers that are on the host",
    "bench/servers/vllm.py: tensors['hidden_states'].float()": "from a file, and widened",
    "bench/servers/vllm.py: tensors['token_ids']": "from a file",
    "bench/signals/files.py: v.float() if v.is_floating_point() else v": "from a file, and widened",
    "bench/signals/token_scores.py: value": "made on the host, for planted or no questions",
    "bench/training/loop.py: validation": "float64, from a file",
    "methods/ccps/method.py: features": "float32, assembled on the host",
    "methods/ccps/networks.py: predict_proba(lambda f, x: f(network, x), features, _max_rows)": "copied to the host",
    "methods/litcab/method.py: rows": "numbers of questions, drawn on the host",
}
"""Tensors that go to numpy without `.cpu()` -> why they can, be there an accelerator or not."""


def to_numpy(folder: Path) -> Iterator[str]:
    for path in sorted(folder.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if ".numpy" in text else ():
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "numpy":
                yield f"{path.relative_to(folder.parent).as_posix()}: {ast.unparse(node.func.value)}"


def test_accelerator_tensors_never_go_to_numpy() -> None:
    found = {call for package in (bench, methods) for call in to_numpy(Path(package.__path__[0]))}
    assert {call for call in found if ".cpu()" not in call} == set(HOST)
