"""The model's output head, handed over as it is."""

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
    """Never stored: the weights are the model's own."""

    declares = Unembedding

    def reads_answer(self, fmt: Format) -> bool:
        """Return False: weights are the same for all answers."""
        return False

    def column(self, split: StoredSplit) -> OutputHead:
        """The head of the frozen model, with a copy of the norm before it: only the head's weights are watched."""
        return replace(split.lm.head, norm=deepcopy(split.lm.norm))

    def synthesize(self, data: SyntheticQuestions) -> OutputHead:
        """The head that predicts the planted answers from the planted states."""
        import torch

        weight = torch.from_numpy(data.output_head)
        return OutputHead(weight, norm=Norm(torch.ones(weight.shape[1]), eps=1e-6))


DEFINITION = UnembeddingDefinition
