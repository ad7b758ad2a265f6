"""Devices: which devices compute equal bits, and the default sizes of forward passes and decode batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import torch

Value = TypeVar("Value")


@dataclass(frozen=True)
class BatchLimits:
    """Limits on the size of a decode batch, which decide how many packs are decoded together."""

    sequences: int
    """A decode batch gets no further pack once it has this many sequences."""
    bytes: int
    """Maximum bytes of keys and values of a decode batch with several packs; a single pack may have more."""
    only_decoding: bool = False
    """Whether packs are alone where nothing is decoded, as attention to masked keys of others takes long on a CPU."""


ALONE = BatchLimits(1, 0)
"""Limits with which every decode batch is a single pack."""

_BUDGETS = {"cuda": ((40, 8192), (0, 2048))}
"""Default number of tokens of a forward pass: kind of device -> pairs (least memory of the card in GB, tokens).

Pairs with more memory come first.
"""
_BUDGET = 1024
"""Default number of tokens of a forward pass on kinds of devices that `_BUDGETS` lacks."""
_TRAINING_BUDGETS = {"cuda": ((40, 2048), (0, 1024))}
"""Default number of tokens of a forward pass in training, with the layout of `_BUDGETS`.

Training needs more memory per token than inference, since activations are kept for the backward pass.
"""
_TRAINING_BUDGET = 2048
_GB = 10**9
_TOGETHER = {"cuda": ((64, BatchLimits(128, 10 * _GB)), (40, BatchLimits(128, 4 * _GB)), (0, ALONE))}
"""Default limits of decode batches: kind of device -> pairs (least memory of the card in GB, limits).

On small cards the weights leave no memory for several packs.
"""
_TOGETHER_ON_CPU = BatchLimits(32, _GB // 4, only_decoding=True)
"""The same on a CPU below float32, where answers are decoded: a step reads all weights, whether for one sequence or for
thirty."""
_WEIGHTS, _DIVISOR = 400_000_000, 8
"""Most weights of a model that reads a shard of the usual size on a CPU within minutes; and the largest divisor."""


def device_kind(device: str) -> str:
    """Return the kind of a device without its number: `cuda` for `cuda:1`."""
    return device.partition(":")[0]


def device_class(*devices: str) -> str:
    """Return the class of these devices: their kind and the card's name. Devices of one class compute equal bits.

    A model that is split over several cards of one name has the same class as a model on one such card.
    """
    import torch

    names = (f" {torch.cuda.get_device_name(device)}" if device_kind(device) == "cuda" else "" for device in devices)
    return " + ".join(dict.fromkeys(device_kind(device) + name for device, name in zip(devices, names, strict=True)))


def default_budget(*devices: str) -> int:
    """Return the default number of tokens of a forward pass, which depends on the total memory of the smallest card.

    Free memory is ignored, since it differs between runs.
    """
    return min(_by_size(device, _BUDGETS, _BUDGET) for device in devices)


def training_budget(*devices: str) -> int:
    """Return the default number of tokens of a training pass. It depends on the total memory of the smallest card."""
    return min(_by_size(device, _TRAINING_BUDGETS, _TRAINING_BUDGET) for device in devices)


def default_batch_limits(*devices: str, dtype: torch.dtype) -> BatchLimits:
    """Return the default limits of decode batches, which depend on the total memory of the smallest card.

    On the CPU in float32 every pack is decoded alone, since joint decoding changes the last bits of results, which
    float32 promises to keep.
    """
    if device_kind(devices[0]) == "cpu" and dtype.itemsize < 4:  # bytes of a float32
        return _TOGETHER_ON_CPU
    return min((_by_size(device, _TOGETHER, ALONE) for device in devices), key=lambda limits: limits.bytes)


def shard_divisor(device: str, weights: int) -> int:
    """Return how many times smaller than usual shards are, a power of two, for a model with so many weights in blocks.

    A shard is lost when a run is killed. On a CPU a step of decoding takes at least 32 sequences, so shards of at least
    32 questions cost no time.
    """
    if device_kind(device) != "cpu":
        return 1
    return min(_DIVISOR, 1 << max(0, (weights - 1) // _WEIGHTS).bit_length())


def _by_size(device: str, table: Mapping[str, Sequence[tuple[int, Value]]], other: Value) -> Value:
    steps = table.get(device_kind(device))
    if steps is None:
        return other
    import torch

    size = round(torch.cuda.get_device_properties(device).total_memory / _GB)
    return next(value for least, value in steps if size >= least)


def visible_devices_env(devices: Sequence[str], environment: Mapping[str, str]) -> dict[str, str]:
    """Return environment variables that make the given cards `cuda:0`, `cuda:1`, ... in a child process.

    For devices that are no CUDA cards, and for `cuda` without a number, the dictionary is empty.

    Args:
        devices: names of the cards in this process, e.g. `cuda:1`.
        environment: this process's environment. If its CUDA_VISIBLE_DEVICES hides cards, the result takes account of
            it.
    """
    numbers = [device.partition(":")[2] for device in devices]
    if device_kind(devices[0]) != "cuda" or not numbers[0]:
        return {}
    seen = [name.strip() for name in environment.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    return {"CUDA_VISIBLE_DEVICES": ",".join(seen[int(number)] if seen else number for number in numbers)}
