"""Whether an adapter can be trained on a device, and how: what `footprint` says it takes against what there is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from bench.api import UserError
from bench.backbone.devices import kind_of
from bench.backbone.footprint import on_meta, training

if TYPE_CHECKING:
    from bench.backbone.model import Backbone

_RESERVE = 1.5e9
"""Bytes of each device that tensors can't have: its context, libraries' workspaces, fragments."""
_LARGE = 20_000_000_000
"""Parameters from which on blocks are always computed again."""


def device_memory(*devices: str) -> int | None:
    """Bytes of accelerators together; None where memory is the computer's own, which can't be told beforehand."""
    if not devices[0].startswith("cuda"):
        return None
    return sum(int(torch.cuda.get_device_properties(torch.device(device)).total_memory) for device in devices)


@dataclass(frozen=True)
class TrainingPlan:
    """Way of training an adapter on a device."""

    checkpointing: bool
    """Whether of a pass the states between blocks alone are kept."""
    refusal: str = ""
    """Why it can't be; empty where it fits, or nobody can tell."""

    def check(self) -> None:
        """Refuse what can't fit.

        Raises:
            UserError: it can't.
        """
        if self.refusal:
            raise UserError(self.refusal)


def plan_training(backbone: Backbone, tokens: int, *, rank: int = 8, named: str = "") -> TrainingPlan:
    """Choose how an adapter is trained: with checkpointing where a card has no room without, or the model is large.

    Only shapes and the card as it was built count, so that one choice is made on every card of a kind.

    Args:
        backbone: the model, of which no weights are needed, and its device.
        tokens: in one pass.
        rank: of the adapter.
        named: layers that get one, as `projections.targets` takes them.
    """
    if kind_of(backbone.device) == "cpu":
        return TrainingPlan(checkpointing=False)
    try:
        weights = on_meta(backbone.config, torch.bfloat16).parameters()
        large = sum(p.numel() for p in weights) > _LARGE
        available = device_memory(*backbone.devices)
        if available is None:
            return TrainingPlan(checkpointing=large)
        needed = {
            less: training(backbone.config, backbone.dtype, tokens, rank=rank, named=named, checkpointing=less)
            for less in ((True,) if large else (False, True))
        }
    except Exception:  # noqa: BLE001 - an architecture that can't be followed on the meta device: trying it out tells
        return TrainingPlan(checkpointing=False)
    reserve = _RESERVE * len(backbone.devices)
    for less, one in needed.items():
        if one.total + reserve <= available:
            return TrainingPlan(checkpointing=less)
    one = needed[True]
    larger = "a larger device, or several (--devices)"
    smaller = f"fewer tokens a pass (--training-budget) or {larger}"
    fixed = one.weights + one.trained + reserve
    way = smaller if fixed < available else f"a smaller model or {larger}: its weights alone don't fit"
    refusal = (
        f"Training an adapter of {backbone.spec.name} takes about {(one.total + reserve) / 1e9:.0f} GB with"
        f" gradient checkpointing and {tokens:,} tokens a pass, and {' + '.join(backbone.devices)} has"
        f" {available / 1e9:.0f} GB: use {way}, or leave out the methods that train one."
    )
    return TrainingPlan(checkpointing=True, refusal=refusal)
