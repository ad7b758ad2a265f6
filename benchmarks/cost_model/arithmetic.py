"""Time from counts: a machine's fixed rates, and the time that the same work would take at best."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from benchmarks.cost_model.dry import Section

HALF = 2
"""Bytes of a weight in half precision."""


@dataclass(frozen=True)
class Machine:
    """Rates of an accelerator and of the host that drives it: inputs, measured nowhere here."""

    name: str = "H100 SXM"
    flops: float = 989e12 * 0.5
    """In half precision: half of the peak in NVIDIA's data sheet, without sparsity."""
    flops32: float = 67e12 * 0.67
    """In float32 outside the tensor cores: two thirds of the peak in the data sheet."""
    bytes: float = 3.35e12
    """A second, from its memory."""
    launch: float = 20e-6
    """Seconds of the host for an operation: Python, dispatch, launch."""
    copy: float = 20e-6
    """Seconds of a blocking copy between host and device."""
    memory: float = 80e9
    """Bytes: whether a training has room to keep what its passes compute."""

    def seconds(self, sections: Iterable[Section]) -> float:
        """Time of sections one after the other; each waits for the host, for arithmetic or for memory."""
        return sum(
            max(one.launches * self.launch, one.flops / self.flops + one.flops32 / self.flops32, one.bytes / self.bytes)
            + one.copies * self.copy
            for one in sections
        )


DECODED_TOGETHER = 256
"""Answers that decode side by side at best."""


@dataclass(frozen=True)
class Ideal:
    """The same model where nothing waits for the host: prompts at half the peak, decoding in large batches."""

    machine: Machine
    blocks: int
    """Weights of all blocks."""
    head: int
    """Weights of the output head."""

    @classmethod
    def of(cls, model: Any, machine: Machine) -> Ideal:
        head = model.get_output_embeddings().weight.numel()
        inner = sum(p.numel() for p in model.base_model.parameters())
        return cls(machine, inner - model.get_input_embeddings().weight.numel(), head)

    def prefill(self, tokens: float) -> float:
        return 2 * self.blocks * tokens / self.machine.flops

    def decode(self, tokens: float) -> float:
        weights = self.blocks + self.head
        arithmetic = 2 * weights * DECODED_TOGETHER / self.machine.flops
        return tokens / DECODED_TOGETHER * max(arithmetic, HALF * weights / self.machine.bytes)

    def training(self, tokens: float) -> float:
        """Seconds to train an adapter on tokens: forward, and backward through frozen layers, which are as much."""
        return 2 * self.prefill(tokens)

    def layer_step(self, states: float, layer: int) -> float:
        """Seconds of a step that trains a float32 layer as large as the head, on so many states.

        Arithmetic: logits of head and layer, and the gradient. Memory: head and layer are read once for the logits, the
        gradient is written, and AdamW reads weights, gradient and moments and writes weights and moments.
        """
        arithmetic = 2 * states * (self.head + 2 * layer) / self.machine.flops
        return max(arithmetic, (HALF * self.head + (4 + 4 + 28) * layer) / self.machine.bytes)
