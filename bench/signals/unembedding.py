"""The model's output head, handed over as it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.api import OutputHead, Unembedding
from bench.signals.definition import Definition

if TYPE_CHECKING:
    from bench.signals.planted import World
    from bench.signals.stored import StoredSplit


class UnembeddingDefinition(Definition[Unembedding]):
    """Never stored: the weights are the model's own."""

    declares = Unembedding

    def column(self, split: StoredSplit) -> OutputHead:
        """The head of the frozen model."""
        return split.backbone.head

    def planted(self, world: World) -> OutputHead:
        """The head that predicts the planted answers from the planted states."""
        import torch

        return OutputHead(torch.from_numpy(world.head))


DEFINITION = UnembeddingDefinition
