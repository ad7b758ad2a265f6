"""Signal `ForcedLetters`: logits of the option letters if the answer is forced earlier in the reasoning trace."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from bench.api import ChoiceLogits, FloatArray, ForcedLetters, Format, Task
from bench.model.continuation_specs import Continuations, PendingArray, PendingArrays
from bench.signals.choice_logits import ChoiceLogitsDefinition, mask_hidden_options
from bench.signals.definition import PassDefinition
from bench.store.disk_cache import digest_arrays

if TYPE_CHECKING:
    from bench.model.decode_batch import DecodeBatch
    from bench.prompts.prompt_settings import PromptSettings
    from bench.prompts.shards import PromptTokeniser
    from bench.signals.synthetic import SyntheticQuestions


class ForcedLettersDefinition(PassDefinition[ForcedLetters]):
    """Definition of `ForcedLetters`, stored as `values` `(n, shares, k)` float32."""

    declares = ForcedLetters

    def unsupported(self, fmt: Format) -> str | None:
        """Return why open questions don't have the signal: they have no option letters. None for choice questions."""
        return "it reads option letters, and this task has none" if fmt is Format.OPEN else None

    def unsupported_reason(self, task: Task, prompts: PromptTokeniser) -> str | None:
        """Return why the signal can't be computed: without option letters, or if answers don't follow one prefix."""
        if prompts.thinking is None:
            return prompts.no_traces_reason or "it forces answers within traces; say how with --think-budget N"
        return self.unsupported(task.format)

    @property
    def continuations(self) -> Continuations:
        """What the model reads after a part of the trace: what closes it."""
        return Continuations(forced=frozenset(self.signal.shares))

    def name(self, settings: PromptSettings, seed: int) -> str:
        """Return the signal's name in store keys, with a digest of the letters' token ids and of the closing."""
        return f"{super().name(settings, seed)} {digest_arrays([settings.letter_ids, settings.closing])}"

    def take(self, batch: DecodeBatch) -> list[list[PendingArrays]]:
        """Return `values` `(shares, k)` for each question: logits of the letters, -inf beyond its options."""
        closing, letters = batch.settings.closing, batch.settings.letter_ids
        nodes = [batch.tree.grow(cuts[share], closing)[-1] for cuts in batch.cuts for share in self.signal.shares]
        logits = batch.logits(nodes, letters).reshape(len(batch.items), len(self.signal.shares), len(letters))
        return [
            [{"values": PendingArray(rows, partial(mask_hidden_options, item.options))} for item in group]
            for rows, group in zip(logits, batch.items, strict=True)
        ]

    def synthesize(self, data: SyntheticQuestions) -> FloatArray:
        """Return synthetic logits: those at the prompt's end, the flatter the earlier the answer is forced."""
        logits = ChoiceLogitsDefinition(ChoiceLogits()).synthesize(data)
        return np.stack(
            [np.asarray(logits * (share or 0.01), dtype=np.float32) for share in self.signal.shares], axis=1
        )


DEFINITION = ForcedLettersDefinition
