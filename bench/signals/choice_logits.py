"""Logits of the option letters at the prompt's end."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from bench.api import ChoiceLogits, FloatArray, Format
from bench.model.continuation_specs import ContinuationSpec, PendingArray, PendingArrays
from bench.signals.definition import PassDefinition
from bench.store.folders import digest_arrays

if TYPE_CHECKING:
    import torch

    from bench.model.decode_batch import DecodeBatch
    from bench.prompts.prompt_settings import PromptSettings
    from bench.signals.synthetic import World


class ChoiceLogitsDefinition(PassDefinition[ChoiceLogits]):
    """Stored as `values` `(n, k)` float32."""

    declares = ChoiceLogits

    def lacking(self, fmt: Format) -> str | None:
        """Open questions have no letters."""
        return "it reads option letters, and this task has none" if fmt is Format.OPEN else None

    @property
    def growth(self) -> ContinuationSpec:
        """Nothing but the prompt."""
        return ContinuationSpec()

    def name(self, asking: PromptSettings, seed: int) -> str:
        """Name with the ids of the letters."""
        return f"{super().name(asking, seed)} {digest_arrays([asking.letter_ids])}"

    def take(self, done: DecodeBatch) -> list[list[PendingArrays]]:
        """`values`: `(k,)`, -inf for letters that the question does not show."""
        logits = done.logits(range(len(done.items)), done.asking.letter_ids)
        return [
            [{"values": PendingArray(row, partial(_shown, item.options))} for item in group]
            for row, group in zip(logits, done.items, strict=True)
        ]

    def planted(self, world: World) -> FloatArray:
        """Letters' logits of the states at the prompt's end."""
        logits = np.asarray(world.first @ world.head[: world.letters].T, dtype=np.float32)  # (n, k)
        logits[np.arange(world.letters) >= world.options[:, None]] = -np.inf
        return logits


def _shown(options: int, logits: torch.Tensor) -> torch.Tensor:
    """Logits of the first letters, -inf for the others."""
    logits[options:] = float("-inf")
    return logits


DEFINITION = ChoiceLogitsDefinition
