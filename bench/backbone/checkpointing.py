"""Gradient checkpointing: of a pass the states between blocks alone are kept, and each block is computed again."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

from bench.backbone.session import blocks


def checkpoint_blocks(model: Any) -> None:
    """Let each block of a model be computed again on the way back, with the same dropout masks.

    Not by transformers' own switch: that needs a model in training mode, which turns on the dropout of the frozen
    layers, and some architectures lack it.

    Raises:
        ValueError: the model has no list of blocks.
    """
    for block in blocks(model):
        block.forward = partial(_again, block.forward, next(block.parameters()).device)


def _again(forward: Callable[..., Any], device: torch.device, states: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    """Run a block. States are named and on its device: by them it is told whose random numbers are drawn again."""
    if not torch.is_grad_enabled():
        return forward(states, *args, **kwargs)
    return checkpoint(forward, states.to(device), *args, use_reentrant=False, **kwargs)
