"""Packs are accepted where they only round otherwise, and refused where they read something else, in every dtype."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from bench.api import OutputHead, UserError
from bench.model import forward_checks
from bench.model.continuation_tree import AttentionMask
from bench.model.forward_checks import Probe
from bench.model.memory import is_out_of_memory
from bench.model.prefix_tree import Pack
from bench.model.session import Session
from tests.kit import passes

KINDS = ("llama", "qwen2", "mistral", "gemma2", "gpt2", "cohere")
LOGITS_STD = 2.5
"""Spread of the logits of real models, roughly; random ones hardly tell tokens apart."""


def configuration(kind: str, layers: int, init: float) -> Any:
    names = ("hidden_size", "num_hidden_layers", "num_attention_heads", "max_position_embeddings")
    if kind == "gpt2":
        names = ("n_embd", "n_layer", "n_head", "n_positions")
    shape = {"vocab_size": 4096, "initializer_range": init, **dict(zip(names, (256, layers, 4, 512), strict=True))}
    if kind != "gpt2":
        shape |= {"intermediate_size": 384, "num_key_value_heads": 2}
    own = {"mistral": {"sliding_window": 16}, "gemma2": {"sliding_window": 16, "head_dim": 64}}
    return transformers.AutoConfig.for_model(kind, **shape, **own.get(kind, {}))


def probe(kind: str, layers: int, dtype: torch.dtype, init: float = 0.06) -> Probe:
    """A random model of an architecture whose logits are as far apart as a real one's."""
    torch.manual_seed(0)
    config = configuration(kind, layers, init)
    attention = "eager" if kind == "gemma2" else "sdpa"
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation=attention).to(dtype).eval()
    model.requires_grad_(requires_grad=False)
    weight = model.get_output_embeddings().weight
    head = OutputHead(
        weight, None, float(getattr(config, "logit_scale", 1.0)), getattr(config, "final_logit_softcapping", None)
    )
    found = Probe(Session(model, window=16 if kind in {"mistral", "gemma2"} else None), head, layers)
    with torch.inference_mode():
        weight.mul_(LOGITS_STD / float(found._plain().std()))
    return found


def raising(error: Exception) -> Callable[..., Any]:
    def fail(*_: Any) -> Any:
        raise error

    return fail


def everything_before(attention_mask: AttentionMask, tokens: torch.Tensor) -> torch.Tensor:
    """A mask in which branches see the branches before them."""
    columns = torch.arange(attention_mask.before + len(attention_mask.ends.tensor))
    return columns <= attention_mask.before + tokens[:, None]


def counted_along_the_row(session: Session, pack: Pack, *rest: Any) -> Any:
    """A pack whose positions go on from branch to branch."""
    positions = np.arange(len(pack.tokens)) + len(pack.shared)
    return READ_PACK(session, dataclasses.replace(pack, positions=positions), *rest)


READ_PACK = forward_checks.read_pack

DTYPES = [torch.float32, torch.bfloat16, torch.float16]
CASES = [(2, torch.float32), (2, torch.bfloat16), (48, torch.bfloat16)]
FAST = {
    *((kind, 2, torch.float32) for kind in KINDS),
    *((kind, 2, torch.bfloat16) for kind in ("llama", "gpt2", "gemma2")),
}


@pytest.mark.slow
@pytest.mark.parametrize("init", [0.02, 0.06])
@pytest.mark.parametrize(("layers", "dtype"), CASES)
@pytest.mark.parametrize("kind", KINDS)
def test_packs_are_used_where_they_round(kind: str, dtype: torch.dtype, layers: int, init: float) -> None:
    found = probe(kind, layers, dtype, init)
    assert found.head_error() is None
    assert found.unsupported_reason() is None


@pytest.mark.parametrize(
    ("kind", "layers", "dtype"),
    [
        pytest.param(kind, *case, marks=() if (kind, *case) in FAST else pytest.mark.slow)
        for kind in KINDS
        for case in CASES
    ],
)
def test_packs_of_wrong_mask_or_position_are_refused(
    kind: str, layers: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = probe(kind, layers, dtype)
    with monkeypatch.context() as broken:
        broken.setattr(AttentionMask, "of", everything_before)
        assert "differ by" in str(found.unsupported_reason())
    with monkeypatch.context() as broken:
        broken.setattr(forward_checks, "read_pack", counted_along_the_row)
        assert "differ by" in str(found.unsupported_reason())
    assert found.unsupported_reason() is None
    assert found.head_error() is None


@pytest.mark.parametrize(("types", "refused"), [(["global", "local"], True), (["global", "global"], False)])
def test_local_layers_that_count_places_are_refused(types: list[str], *, refused: bool) -> None:
    """The sequences of the check are too short to show it."""
    config = transformers.GPTNeoConfig(
        vocab_size=64, hidden_size=32, intermediate_size=48, num_layers=2, num_heads=2, window_size=64,
        max_position_embeddings=512, attention_types=[[types, 1]],
    )  # fmt: skip
    model = transformers.AutoModelForCausalLM.from_config(config).eval().requires_grad_(requires_grad=False)
    reason = Probe(Session(model), OutputHead(model.get_output_embeddings().weight), 2).unsupported_reason()
    assert reason == ("attention of its long texts depends on what else is in a pass" if refused else None)


def test_noise_that_changes_logits_is_no_measure(monkeypatch: pytest.MonkeyPatch) -> None:
    found = probe("llama", 2, torch.bfloat16)
    monkeypatch.setattr(AttentionMask, "of", everything_before)
    monkeypatch.setattr(Probe, "_noise", lambda *_: 20.0)
    assert "by 20" in str(found.unsupported_reason())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("largest", [1.0, 100.0, 200.0])
def test_head_may_round_but_not_differ(dtype: torch.dtype, largest: float) -> None:
    """Between 64 and 128 neighbouring numbers of bfloat16 are 0.5 apart."""
    found = probe("llama", 2, dtype)
    with torch.inference_mode():
        found.head.weight.mul_(largest / float(found._plain().abs().max()))
    assert found.head_error() is None
    other = dataclasses.replace(found, head=OutputHead(found.head.weight, scale=1.25))
    assert other.head_error() == pytest.approx(0.25 * largest, rel=0.2)


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:121] DefaultCPUAllocator: can't allocate memory"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    ],
)
def test_memory_that_lacks_is_told(error: RuntimeError, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_out_of_memory(error)
    lm = passes.load(passes.save(tmp_path))
    monkeypatch.setattr(forward_checks, "read_pack", raising(error))
    with pytest.raises(UserError, match="leaves no memory on cpu"):
        _ = lm.uses_packs


def test_packs_that_fail_are_named_not_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    found = probe("llama", 2, torch.float32)
    failed = torch.AcceleratorError("CUDA error: an illegal memory access was encountered")
    monkeypatch.setattr(forward_checks, "read_pack", raising(failed))
    with pytest.raises(torch.AcceleratorError):
        found.unsupported_reason()
    refused = TypeError("forward() got an unexpected keyword argument 'past_key_values'")
    monkeypatch.setattr(forward_checks, "read_pack", raising(refused))
    assert found.unsupported_reason() == "it refuses the cache or the mask of a pack (TypeError)"


def test_noise_is_judged_by_spread_of_logits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Logits of sixteen times the spread have sixteen times the noise, and mean the same packs."""
    found = probe("llama", 2, torch.bfloat16)
    with torch.inference_mode():
        found.head.weight.mul_(16)
        assert found._noise(found._plain()) > forward_checks._MAX_NOISE[torch.bfloat16]
    assert found.unsupported_reason() is None
    monkeypatch.setattr(AttentionMask, "of", everything_before)
    assert "differ by" in str(found.unsupported_reason())
