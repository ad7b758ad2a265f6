"""Signal `Unembedding`: the model's output head."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING

from bench.api import Format, OutputHead, Unembedding
from bench.api.batch import Norm
from bench.signals.definition import SignalDefinition

if TYPE_CHECKING:
    from bench.signals.split_data import StoredSplit
    from bench.signals.synthetic import SyntheticQuestions


class UnembeddingDefinition(SignalDefinition[Unembedding]):
    """Definition of `Unembedding`. It is never stored, since its weights are the model's own."""

    declares = Unembedding

    def reads_answer(self, fmt: Format) -> bool:
        """Return False: the weights are the same for all answers."""
        return False

    def column(self, split: StoredSplit) -> OutputHead:
        """Return the frozen model's output head. Its final norm is a copy, so that the model's own stays as it is."""
        return replace(split.lm.head, norm=deepcopy(split.lm.norm))

    def synthesize(self, data: SyntheticQuestions) -> OutputHead:
        """Return the synthetic output head; with it, the synthetic hidden states predict the answers' tokens."""
        import torch

        weight = torch.from_numpy(data.output_head)
        return OutputHead(weight, norm=Norm(torch.ones(weight.shape[1]), eps=1e-6))


DEFINITION = UnembeddingDefinition
