"""Signal `ChoiceLogits`: logits of the option letters at the prompt's end."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from bench.api import ChoiceLogits, FloatArray, Format
from bench.model.continuation_specs import Arrays, Continuations, PendingArray, PendingArrays
from bench.servers.readings import Ability
from bench.signals.definition import PassDefinition
from bench.store.disk_cache import digest_arrays

if TYPE_CHECKING:
    import torch

    from bench.model.decode_batch import DecodeBatch
    from bench.prompts.prompt_settings import PromptSettings
    from bench.signals.server_extractor import QuestionRequests
    from bench.signals.synthetic import SyntheticQuestions


class ChoiceLogitsDefinition(PassDefinition[ChoiceLogits]):
    """Definition of `ChoiceLogits`, stored as `values` `(n, k)` float32."""

    declares = ChoiceLogits

    def unsupported(self, fmt: Format) -> str | None:
        """Return why open questions don't have the signal: they have no option letters. None for choice questions."""
        return "it reads option letters, and this task has none" if fmt is Format.OPEN else None

    @property
    def continuations(self) -> Continuations:
        """Nothing: the logits are those at the prompt's last token, so the model reads no token after it."""
        return Continuations()

    def name(self, settings: PromptSettings, seed: int) -> str:
        """Return the signal's name in store keys; it contains a digest of the letters' token ids."""
        return f"{super().name(settings, seed)} {digest_arrays([settings.letter_ids])}"

    def take(self, batch: DecodeBatch) -> list[list[PendingArrays]]:
        """Return `values` `(k,)` for each question: logits of the letters; -inf for letters beyond its options."""
        logits = batch.logits(range(len(batch.items)), batch.settings.letter_ids)
        return [
            [{"values": PendingArray(row, partial(_mask_hidden_options, item.options))} for item in group]
            for row, group in zip(logits, batch.items, strict=True)
        ]

    def needs(self, fmt: Format) -> Ability:
        """Return what a server has to give: the log-probabilities of the likeliest tokens, for bounds of the others."""
        return Ability.TOP

    def prefers(self, fmt: Format) -> Ability:
        """Return what exact values need: the log-probabilities of chosen tokens."""
        return Ability.CHOSEN

    def ask(self, requests: QuestionRequests) -> Arrays:
        """Return `values` `(k,)`: log-probabilities of the letters less a constant; -inf beyond the options."""
        import torch

        letters = requests.settings.letter_ids
        values = torch.full((len(letters),), float("-inf"))
        n = requests.item.options
        values[:n] = torch.from_numpy(requests.shares(requests.item.prompt, letters[:n]))
        return {"values": values}

    def synthesize(self, data: SyntheticQuestions) -> FloatArray:
        """Return synthetic logits of the letters: those of the synthetic output head at the prompt's end."""
        logits = np.asarray(data.prompt_end_states @ data.output_head[: data.letters].T, dtype=np.float32)  # (n, k)
        logits[np.arange(data.letters) >= data.options[:, None]] = -np.inf
        return logits


def _mask_hidden_options(options: int, logits: torch.Tensor) -> torch.Tensor:
    """Set the logits of all letters after the first `options` to -inf, in place."""
    logits[options:] = float("-inf")
    return logits


DEFINITION = ChoiceLogitsDefinition
