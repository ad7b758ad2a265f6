"""The output head: the numbers of a float32 copy, without the copy."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from bench.api import OutputHead, batch

ROWS = [3, 99, 3, 7]


class Largest(TorchDispatchMode):
    """Numbers of the largest tensor that a block of code makes."""

    numbers = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if isinstance(out, torch.Tensor) and not func.is_view:
            self.numbers = max(self.numbers, out.numel())
        return out


def heads(dtype: torch.dtype) -> Iterator[OutputHead]:
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(1000, 64, generator=generator).to(dtype)
    bias = torch.randn(1000, generator=generator).to(dtype)
    yield OutputHead(weight)
    yield OutputHead(weight, bias, 0.25, 30.0)


def exact(head: OutputHead, hidden: torch.Tensor) -> torch.Tensor:
    u = hidden.double() @ head.weight.double().T
    u = head.scale * (u if head.bias is None else u + head.bias.double())
    return u if head.softcap is None else head.softcap * (u / head.softcap).tanh()


@pytest.fixture
def hidden() -> torch.Tensor:
    return torch.randn(2, 5, 64, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("scratch", [1, 64 * 300, 1 << 24])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_output_head_logits_are_exact(
    dtype: torch.dtype, scratch: int, hidden: torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two products in bfloat16, where the CPU has them, give 16 significant bits of the largest logit."""
    monkeypatch.setattr(batch, "_SCRATCH", scratch)
    for native, head in product((False, True), heads(dtype)):
        monkeypatch.setattr(batch, "has_native_bfloat16", lambda native=native: native)
        for states in (hidden, hidden.to(dtype), hidden[0], hidden[0, 0], hidden[:, :0]):
            got, expected = head.logits(states), exact(head, states).float()
            assert got.dtype == torch.float32
            rounded = native and states.dtype == dtype == torch.bfloat16
            largest = float(head.weight.double().norm(dim=1).max() * hidden.norm(dim=-1).max())
            within = 2**-16 * largest if rounded else 2e-5
            torch.testing.assert_close(got, expected, atol=within, rtol=1e-6)
            torch.testing.assert_close(head.logits(states, ROWS), got[..., ROWS], atol=within, rtol=1e-6)


def test_output_head_of_float32_is_one_product(hidden: torch.Tensor) -> None:
    plain, _ = heads(torch.float32)
    assert torch.equal(plain.logits(hidden), hidden @ plain.weight.T)
    assert torch.equal(plain.logits(hidden, ROWS), (hidden @ plain.weight.T)[..., ROWS])


@pytest.mark.parametrize("rows", [None, ROWS])
def test_output_head_is_never_widened_whole(
    rows: list[int] | None, hidden: torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "_SCRATCH", 64 * 100)
    for head in heads(torch.bfloat16):
        with Largest() as seen:
            head.logits(hidden.bfloat16(), rows)
        assert seen.numbers <= (10 * 1000 if rows is None else 10 * 64)


def test_output_head_on_accelerator_keeps_short_weights(hidden: torch.Tensor) -> None:
    head = OutputHead(torch.empty(1000, 64, dtype=torch.bfloat16, device="meta"))
    with Largest() as seen:
        got = head.logits(hidden.bfloat16().to("meta"))
    assert (got.shape, got.dtype, seen.numbers) == ((2, 5, 1000), torch.float32, 10 * 1000)


def test_output_head_gradient_widens_no_whole_head(hidden: torch.Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "_SCRATCH", 64 * 100)
    head = OutputHead(torch.empty(1000, 64, dtype=torch.bfloat16, device="meta"))
    states = hidden.bfloat16().to("meta").requires_grad_()
    with Largest() as seen:
        (gradient,) = torch.autograd.grad(head.logits(states).logsumexp(-1).sum(), [states])
    assert (gradient.shape, gradient.dtype, seen.numbers) == ((2, 5, 64), torch.bfloat16, 10 * 1000)


@pytest.mark.parametrize("scratch", [64, 64 * 300, 1 << 24])
def test_output_head_gradient_is_that_of_a_copy(
    scratch: int, hidden: torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the CPU, with a product in float32 in place of the one that it lacks."""
    *_, head = heads(torch.bfloat16)
    ours, theirs = (hidden.bfloat16().requires_grad_() for _ in range(2))
    copy = head.logits(theirs)
    (expected,) = torch.autograd.grad(copy.logsumexp(-1).sum(), [theirs])
    monkeypatch.setattr(batch, "_SCRATCH", scratch)
    monkeypatch.setattr(batch, "_MIXED", ("cpu",))
    monkeypatch.setattr(torch, "mm", lambda a, b, *, out_dtype: a.to(out_dtype) @ b.to(out_dtype))
    logits = head.logits(ours)
    torch.testing.assert_close(logits, copy, atol=2e-5, rtol=1e-6)
    (gradient,) = torch.autograd.grad(logits.logsumexp(-1).sum(), [ours])
    assert gradient.dtype == torch.bfloat16
    torch.testing.assert_close(gradient, expected, atol=1e-5, rtol=2**-7)
    with torch.inference_mode():
        torch.testing.assert_close(head.logits(hidden.bfloat16()), copy, atol=2e-5, rtol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_output_head_passes_gradients(dtype: torch.dtype, hidden: torch.Tensor) -> None:
    for head in heads(dtype):
        ours, theirs = (hidden.clone().to(dtype).requires_grad_() for _ in range(2))
        head.logits(ours).logsumexp(-1).sum().backward()
        exact(head, theirs).logsumexp(-1).sum().backward()
        torch.testing.assert_close(ours.grad, theirs.grad, atol=1e-2 if dtype == torch.bfloat16 else 1e-4, rtol=1e-2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_output_head_of_arrays_gives_arrays(dtype: torch.dtype, hidden: torch.Tensor) -> None:
    for head in heads(dtype):
        for states in (
            hidden.numpy(),
            hidden[:, ::2].numpy()[:, ::-1],
            hidden[0].double().numpy(),
            hidden[:, :0].numpy(),
        ):
            states.flags.writeable = False
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                got, some = head.logits(states), head.logits(states, np.asarray(ROWS))
            expected = head.logits(torch.tensor(states.copy()).float())
            assert isinstance(got, np.ndarray)
            assert got.dtype == np.float32
            assert np.array_equal(got, expected.numpy())
            np.testing.assert_allclose(some, got[..., ROWS], atol=2e-5, rtol=1e-6)
            got[...] = 0  # nobody else's


def test_norm_takes_arrays(hidden: torch.Tensor) -> None:
    norm = batch.Norm(torch.linspace(0.5, 1.5, 64), 1e-6, centred=True)
    got = norm(hidden.numpy())
    assert isinstance(got, np.ndarray)
    assert np.array_equal(got, norm(hidden).numpy())
