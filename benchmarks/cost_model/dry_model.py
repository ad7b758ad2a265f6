"""A model of a model's true widths without weights, on which the real code reads and trains."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from importlib import resources
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch

from bench.model import training_memory
from bench.model.adapter import with_lora
from bench.model.decode_batch import DecodeBatch
from bench.model.devices import BatchLimits, default_batch_limits
from bench.model.extractor import Extractor
from bench.model.language_model import LanguageModel
from bench.model.linear_layers import find_linear_layers, target_paths
from bench.model.session import Session
from benchmarks.cost_model.dry import DECODE, OTHER, PREFILL, SHARED, STOP, Counter

DTYPE = torch.bfloat16
SHORT, LONGER = 3, 4
"""Blocks of the two models that are measured; with three of them each depth that is read is a block of its own."""


@cache
def configurations() -> dict[str, Any]:
    """Alias -> configuration of the paper's models."""
    given = tomllib.loads((resources.files("bench.cli") / "configs.toml").read_text(encoding="utf-8"))
    return {name: training_memory.config_from_settings(settings) for name, settings in given.items()}


def checkpointing(name: str, tokens: int, rank: int, memory: float) -> bool:
    """Whether training computes blocks again, as the trainer chooses on a card of so many bytes.

    Raises:
        UserError: there is no room even so.
    """
    lm: Any = SimpleNamespace(
        config=configurations()[name], dtype=DTYPE, device="cuda", devices=("cuda",), spec=SimpleNamespace(name=name)
    )
    with mock.patch.object(torch.cuda, "get_device_properties", return_value=SimpleNamespace(total_memory=memory)):
        plan = training_memory.plan_training(lm, tokens, rank=rank)
    plan.check()
    return plan.checkpointing


def limits_of(name: str, blocks: int, memory: float) -> BatchLimits:
    """Which packs a card of so many bytes follows side by side, for a model that is cut to some blocks."""
    with mock.patch.object(torch.cuda, "get_device_properties", return_value=SimpleNamespace(total_memory=memory)):
        limits = default_batch_limits("cuda", dtype=DTYPE)
    whole = configurations()[name].get_text_config().num_hidden_layers
    return BatchLimits(limits.sequences, limits.bytes * blocks // whole)


class DrySession(Session):
    """Begins a section of the count with each forward pass."""

    def __init__(self, model: Any, counter: Counter) -> None:
        super().__init__(model)
        self.counter, self.kind = counter, PREFILL

    def forget(self) -> None:
        """Read every beginning again, into the row that is there."""
        self._segments.clear()
        self._cuts = ()

    def load_prefix(self, pack: Any, chunk: int) -> None:
        self.kind = SHARED
        try:
            super().load_prefix(pack, chunk)
        finally:
            self.kind = PREFILL

    def forward(self, ids: Any, positions: Any, visible: Any, read: Any) -> dict[int, torch.Tensor]:
        self.counter.begin(self.kind, len(ids))
        try:
            return super().forward(ids, positions, visible, read)
        finally:
            self.counter.begin(OTHER)


class DryModel(LanguageModel):
    """All that the extractor asks of a model."""

    def __init__(self, name: str, blocks: int, counter: Counter, *, rank: int = 0) -> None:
        self.config = training_memory.with_n_blocks(configurations()[name], blocks)
        self.blocks, self.devices, self.context = blocks, ("meta",), 1 << 30
        model = training_memory.build_on_meta(self.config, DTYPE)
        if rank:  # layers with an adapter stand in for the others; what reads it turns dropout off
            with torch.device("meta"):
                with_lora(model, target_paths(find_linear_layers(model)), rank=rank).eval()
        session = DrySession(model, counter)
        # Whether packs agree with plain passes is asked after loading, of numbers: no part of the costs.
        vars(self).update(model=model, dtype=DTYPE, no_packs_reason=None, stops=frozenset({STOP}), session=session)


class DryExtractor(Extractor):
    """Tells decoding from reading given tokens."""

    @contextmanager
    def _counted(self, stage: str, done: DecodeBatch | None = None) -> Iterator[None]:
        decodes = done is not None and stage in {"answers", "samples"}
        with super()._counted(stage), self._decoding() if decodes else nullcontext():
            yield

    @contextmanager
    def _decoding(self) -> Iterator[None]:
        session: Any = self.lm.session
        session.kind = DECODE
        try:
            yield
        finally:
            session.kind = PREFILL
