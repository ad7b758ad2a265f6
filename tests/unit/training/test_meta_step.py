"""A step of training in the true shapes of the paper's models, on the meta device: it runs, and keeps what is said."""

from __future__ import annotations

import functools
import tomllib
from collections import Counter
from importlib import resources
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from bench.api import OutputHead, Ragged
from bench.cli import parameter_counts
from bench.model import linear_layers, training_memory
from bench.model.adapter import with_lora
from bench.model.session import Session, checkpoint_blocks
from bench.training import loop
from bench.training.job import Recipe
from bench.training.model import ReadableModel
from bench.training.optimisers import ProcessGroup
from methods._shared.lora import ct_loss, it_loss
from methods.ct import CT
from methods.it import IT

SHAPES = tomllib.loads((resources.files("bench.cli") / "configs.toml").read_text(encoding="utf-8"))
N, TOKENS, RANK = 8, parameter_counts.TRAINING_TOKENS, 8
METHODS = {"IT": IT, "CT": CT}
LOSSES = {"IT": it_loss, "CT": ct_loss}


@pytest.fixture(autouse=True)
def numbers_are_made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.Tensor, "cpu", lambda tensor: torch.zeros_like(tensor, device="cpu"))
    monkeypatch.setattr(torch.Tensor, "item", lambda _tensor: 1.0)  # also AdamW's count of steps


def examples() -> dict[str, Any]:
    """Queries that share nothing, as long as a pass together; gold answers of two tokens, which begin as an answer."""
    queries = np.arange(100, 100 + TOKENS, dtype=np.int64).reshape(N, -1)
    return {
        "query": Ragged.of(list(queries)), "correct": np.arange(N) % 2 == 0,
        "prompt": Ragged.of(list(queries[:, :-5])), "gold": Ragged.of(list(queries[:, -5:-3])),
    }  # fmt: skip


@functools.cache
def adapted(name: str, blocks: int, *, checkpointing: bool) -> tuple[Any, Any]:
    """A model of few blocks, which no step changes: itself, and with its adapter."""
    model = training_memory.build_on_meta(training_memory.with_n_blocks(config(name), blocks), torch.bfloat16)
    with torch.device("meta"):
        wrapped = with_lora(model, linear_layers.target_paths(linear_layers.find_linear_layers(model)), rank=RANK)
    if checkpointing:
        checkpoint_blocks(model)
    return model, wrapped


@functools.cache
def said(name: str, *, checkpointing: bool) -> training_memory.Footprint:
    """What is printed of a training, whatever its loss."""
    return training_memory.training_footprint(
        config(name), torch.bfloat16, TOKENS, rank=RANK, checkpointing=checkpointing
    )


class Step:
    """A training of a model of few blocks, at its first step."""

    def __init__(self, name: str, blocks: int, loss: str, *, checkpointing: bool) -> None:
        self.model, wrapped = adapted(name, blocks, checkpointing=checkpointing)
        session = Session(self.model)
        lm: Any = SimpleNamespace(
            model=self.model, session=session, head=OutputHead(self.model.lm_head.weight), blocks=blocks, device="meta"
        )
        settings = {"divergence": "jsd", "divergence_weight": 1.0}
        job: Any = SimpleNamespace(
            packed=True, verdict_ids=(5, 6), token_budget=TOKENS, settings=settings, columns=("query",)
        )
        training: Any = object.__new__(loop._Training)
        self.training = training
        training.job, training.loss, training.examples = job, LOSSES[loss], examples()
        training.recipe = Recipe.of({**METHODS[loss](batch_size=N).params(), "seed": 0})
        training.processes = ProcessGroup("meta", grouped=False)
        training.parameters = [p for p in wrapped.parameters() if p.requires_grad]
        training.model = ReadableModel(lm, wrapped, job)

    def take(self) -> list[torch.Tensor]:
        """Gradients, as the trainer takes them."""
        with training_memory.use_fused_kernels():
            _, gradients = self.training._gradients(0)
        return list(gradients)

    def kept(self) -> Counter[tuple[tuple[int, ...], torch.dtype]]:
        """Shape and dtype of what the pass keeps for the way back, beside weights."""
        weights = {p.untyped_storage()._cdata for p in self.training.model.wrapped.parameters()}
        alive: dict[int, torch.Tensor] = {}

        def note(tensor: torch.Tensor) -> torch.Tensor:
            storage = tensor.untyped_storage()._cdata
            if storage not in weights and tensor.device.type == "meta":
                alive.setdefault(storage, tensor)
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            self.take()
        return Counter((tuple(tensor.shape), tensor.dtype) for tensor in alive.values())

    def peak(self) -> int:
        with training_memory._LiveBytes(self.model) as alive:
            self.take()
        return int(alive.peak)


def config(name: str) -> Any:
    return training_memory.config_from_settings(SHAPES[name])


def of_a_block(name: str) -> Counter[tuple[tuple[int, ...], torch.dtype]]:
    """What a block without checkpointing has to keep of its pass, by hand."""
    text = config(name)
    heads, wide = text.num_attention_heads, text.hidden_size
    width = getattr(text, "head_dim", None) or wide // heads
    return Counter(
        {
            ((1, TOKENS, wide), torch.float32): 2,  # of the two norms: their input, and its size
            ((1, TOKENS, 1), torch.float32): 2,
            ((1, TOKENS, wide), torch.bool): 2,  # of LoRA at queries and values: mask, input after it, and between
            ((TOKENS, wide), torch.float32): 2,
            ((TOKENS, RANK), torch.float32): 2,
            ((1, heads, TOKENS, width), torch.bfloat16): 4,  # queries, keys and values for each head, output
            ((1, heads, TOKENS), torch.float32): 1,
            ((), torch.int64): 2,  # of the attention kernel: its sums, and where its random numbers begin
            ((1, TOKENS, text.intermediate_size), torch.bfloat16): 3,  # gate, its activation, the other factor
        }
    )


@pytest.mark.parametrize(
    ("name", "loss", "checkpointing"),
    [
        pytest.param(name, loss, on, marks=() if name == "llama8b" and (loss == "IT") != on else pytest.mark.slow)
        for name in SHAPES
        for loss in LOSSES
        for on in (False, True)
    ],
)
def test_training_step_keeps_the_printed_memory(name: str, loss: str, checkpointing: bool) -> None:
    """One model with either loss and either way to keep states; the rest is slow."""
    two, three = (Step(name, blocks, loss, checkpointing=checkpointing) for blocks in (2, 3))
    text = config(name)
    states = Counter({((1, TOKENS, text.hidden_size), torch.bfloat16): 1})
    block = three.kept() - two.kept()
    assert block == (states if checkpointing else of_a_block(name))
    blocks = text.num_hidden_layers
    size = sum(count * int(np.prod(shape)) * dtype.itemsize for (shape, dtype), count in block.items())
    needed = said(name, checkpointing=checkpointing)
    assert needed.blocks == blocks * size
    printed = parameter_counts._record(name, "fit", needed)["GB"]
    first, more = two.peak(), three.peak()
    whole = needed.weights + needed.trained + first + (blocks - 2) * (more - first)
    assert printed == pytest.approx(whole / 1e9, rel=0.01)
