"""Checkpointing: the gradients of a pass that kept everything, dropout and all, and less that is kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import peft
import pytest
import torch
import transformers

from bench.model import linear_layers
from bench.model.session import checkpoint_blocks, run_blocks
from tests.fixtures import models

SHAPE: dict[str, Any] = {
    "vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 48,
    "max_position_embeddings": 64, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip
ARCHITECTURES: dict[str, Callable[[], Any]] = {
    "llama, with dropout of its own": lambda: models.llama(**SHAPE, num_key_value_heads=2, attention_dropout=0.5),
    "gemma2": lambda: transformers.Gemma2Config(**SHAPE, num_key_value_heads=2, head_dim=8, sliding_window=8),
    "gpt2": lambda: transformers.GPT2Config(
        vocab_size=50, n_embd=32, n_layer=3, n_head=4, n_positions=64, bos_token_id=1, eos_token_id=2
    ),
    "opt, with dropout of its own": lambda: transformers.OPTConfig(
        vocab_size=50, hidden_size=32, word_embed_proj_dim=32, num_hidden_layers=3, num_attention_heads=4, ffn_dim=48,
        max_position_embeddings=64, dropout=0.5, layerdrop=0.5,
    ),
}  # fmt: skip


def with_adapter(config: Any) -> Any:
    """A model as in training: frozen, without dropout but that of an adapter, which changes something already."""
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config).eval().requires_grad_(requires_grad=False)
    paths = linear_layers.target_paths(linear_layers.find_linear_layers(model), "")
    fused = isinstance(model.get_submodule(paths[0]), transformers.pytorch_utils.Conv1D)
    lora = peft.LoraConfig(
        r=4, lora_dropout=0.5, target_modules=paths, task_type="CAUSAL_LM", fan_in_fan_out=fused,
        init_lora_weights=False,
    )  # fmt: skip
    with pytest.warns(FutureWarning):
        wrapped = peft.get_peft_model(model, lora)
    wrapped.eval()
    for name, module in wrapped.named_modules():
        if "lora_dropout" in name:
            module.train()
    return wrapped


def gradients(wrapped: Any, seed: int) -> tuple[float, list[torch.Tensor], int]:
    """Loss, gradients, and the numbers that were kept for the way back."""
    kept = 0

    def note(tensor: torch.Tensor) -> torch.Tensor:
        nonlocal kept
        kept += tensor.numel()
        return tensor

    torch.manual_seed(seed)
    model = wrapped.get_base_model()
    ids = torch.arange(2, 22)[None]
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        states = run_blocks(model, {3: np.arange(20)}, input_ids=ids, use_cache=False)[3]
        loss = states.square().sum()
    adapter = [p for p in wrapped.parameters() if p.requires_grad]
    return loss.item(), list(torch.autograd.grad(loss, adapter)), kept


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_gradients_with_checkpoints_are_those_without(name: str) -> None:
    wrapped = with_adapter(ARCHITECTURES[name]())
    plain, others = gradients(wrapped, 1), gradients(wrapped, 2)
    model = wrapped.get_base_model()
    checkpoint_blocks(model)
    again = gradients(wrapped, 1)
    assert again[0] == plain[0] != others[0]  # one seed, one mask
    for ours, theirs, other in zip(again[1], plain[1], others[1], strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
        assert not torch.allclose(ours, other, rtol=0.01)
    assert again[2] < plain[2] / 5
    with torch.no_grad(), wrapped.disable_adapter():  # as the frozen model is read
        states = run_blocks(model, {3: np.arange(20)}, input_ids=torch.arange(2, 22)[None], use_cache=False)[3]
    assert states.isfinite().all()
