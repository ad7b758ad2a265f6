"""Classes of devices: what computes the same bits, and how many tokens one forward pass takes there by default."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

Value = TypeVar("Value")


@dataclass(frozen=True)
class BatchLimits:
    """Limits within which packs that follow each other are continued side by side."""

    sequences: int
    """Sequences from which on no further pack is added."""
    bytes: int
    """Bytes of keys and values of all packs; a single pack may have more."""


ALONE = BatchLimits(1, 0)
"""Each pack by itself."""

_BUDGETS = {"cuda": ((40, 8192), (0, 2048))}
"""Kind of device -> (memory of the card in GB at least, tokens), the largest first."""
_BUDGET = 1024
"""Tokens of a forward pass on every other kind."""
_TRAINING_BUDGETS = {"cuda": ((40, 2048), (0, 1024))}
"""The same for training, which keeps of each token what it needs on the way back."""
_TRAINING_BUDGET = 2048
_GB = 10**9
_TOGETHER = {"cuda": ((64, BatchLimits(128, 10 * _GB)), (40, BatchLimits(128, 4 * _GB)), (0, ALONE))}
"""Kind of device -> (memory of the card in GB at least, limits): on small cards weights leave no room."""


def kind_of(device: str) -> str:
    """Kind of a device, without its number: `cuda` for `cuda:1`."""
    return device.partition(":")[0]


def class_of(*devices: str) -> str:
    """Kind of a device and, of a card, its name: what has one class computes one thing with the same bits.

    Cards of one name that share a model have the class of one of them, since each block is computed on one card.
    """
    import torch

    names = (f" {torch.cuda.get_device_name(each)}" if kind_of(each) == "cuda" else "" for each in devices)
    return " + ".join(dict.fromkeys(kind_of(each) + name for each, name in zip(devices, names, strict=True)))


def default_budget(*devices: str) -> int:
    """Tokens of one forward pass, by the smallest card's size as it was built: free memory differs from run to run."""
    return min(_by_size(device, _BUDGETS, _BUDGET) for device in devices)


def training_budget(*devices: str) -> int:
    """Tokens of one forward pass of training, by the smallest card's size as it was built."""
    return min(_by_size(device, _TRAINING_BUDGETS, _TRAINING_BUDGET) for device in devices)


def followed_together(*devices: str) -> BatchLimits:
    """Which packs are continued side by side, by the smallest card's size as it was built.

    On the CPU none are: time there is arithmetic, and rows of several packs would change the last bits of what is read.
    """
    return min((_by_size(device, _TOGETHER, ALONE) for device in devices), key=lambda limits: limits.bytes)


def _by_size(device: str, table: Mapping[str, Sequence[tuple[int, Value]]], other: Value) -> Value:
    steps = table.get(kind_of(device))
    if steps is None:
        return other
    import torch

    size = round(torch.cuda.get_device_properties(device).total_memory / _GB)
    return next(value for least, value in steps if size >= least)


def alone_visible(devices: Sequence[str], environment: Mapping[str, str]) -> dict[str, str]:
    """Variables for a child process in which these cards are `cuda:0`, `cuda:1`, ...; none for `cuda` alone or the CPU.

    Args:
        devices: as they are called here, e.g. `cuda:1`.
        environment: this process's own, which may already hide cards: numbers count those that are left.
    """
    numbers = [device.partition(":")[2] for device in devices]
    if kind_of(devices[0]) != "cuda" or not numbers[0]:
        return {}
    seen = [name.strip() for name in environment.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    return {"CUDA_VISIBLE_DEVICES": ",".join(seen[int(number)] if seen else number for number in numbers)}
