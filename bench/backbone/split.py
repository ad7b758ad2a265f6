"""One model over several cards: which cards are meant, and what of the model lies on which."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from bench.api import UserError
from bench.backbone.session import blocks


def cards(numbers: Sequence[str], device: str | None = None) -> tuple[str, ...]:
    """The cards that `--devices` names, as devices: `cuda:0` for `0`; empty where it names none.

    Args:
        numbers: as they were given.
        device: the value of `--device`, which means a model on one device.

    Raises:
        UserError: they are no two or more different cards of this machine.
    """
    if not numbers:
        return ()
    given = f"--devices {','.join(numbers)}"
    if device is not None:
        raise UserError(f"--device {device} {given}: expected one of the two; --devices names all cards of a model.")
    if len(numbers) == 1 or not all(number.isascii() and number.isdecimal() for number in numbers):
        raise UserError(
            f"{given}: expected the numbers of two or more cards, like 0,1; for a model on one device say --device."
        )
    chosen = [int(number) for number in numbers]
    if len(set(chosen)) < len(chosen):
        raise UserError(f"{given}: expected each card once; name different ones.")
    there = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if max(chosen) >= there:
        named = "none" if not there else "card 0 alone" if there == 1 else f"cards 0 to {there - 1}"
        raise UserError(f"{given}: expected cards that this machine has; it has {named}. Use --device for one device.")
    return tuple(f"cuda:{number}" for number in chosen)


def placed(model: Any, devices: Sequence[str], sizes: Sequence[int]) -> dict[str, str]:
    """The device of each part of a model: consecutive blocks, in proportion to the devices' sizes as built.

    Free memory has no say, so that one split is made on every machine with these cards.

    Args:
        model: the causal language model; the meta device will do.
        devices: in the order in which the blocks go over them.
        sizes: bytes of each.
    """
    parts = dict(_parts(model, blocks(model)))
    weights = {name: sum(p.nbytes for p in part.parameters()) for name, part in parts.items()}
    whole, total = sum(weights.values()), sum(sizes)
    ends = [sum(sizes[: k + 1]) / total for k in range(len(sizes))]
    before, found = 0, {}
    for name, size in weights.items():
        middle = (before + size / 2) / max(whole, 1)
        found[name] = devices[next((k for k, end in enumerate(ends) if middle < end), len(ends) - 1)]
        before += size
    for name, part in parts.items():  # a head that is its embedding lies where that does
        if part is model.get_output_embeddings() and part.weight is model.get_input_embeddings().weight:
            found[name] = found[next(n for n, other in parts.items() if other is model.get_input_embeddings())]
    return found


def _parts(module: Any, listed: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The blocks, and the largest modules that hold none of them, in the order of the model."""
    for name, child in module.named_children():
        if any(inner is listed for inner in child.modules()):
            yield from _parts(child, listed, f"{prefix}{name}.")
        else:
            yield prefix + name, child
