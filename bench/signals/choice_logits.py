"""Signal `ChoiceLogits`: logits of the option letters at the prompt's end."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from bench.api import ChoiceLogits, FloatArray, Format, Task
from bench.model.continuation_specs import Continuations, PendingArray, PendingArrays
from bench.servers.readings import Ability
from bench.signals.definition import PassDefinition
from bench.store.disk_cache import digest_arrays

if TYPE_CHECKING:
    import torch

    from bench.model.decode_batch import DecodeBatch
    from bench.prompts.prompt_settings import PromptSettings
    from bench.prompts.shards import PromptTokeniser
    from bench.signals.server_extractor import QuestionRequests
    from bench.signals.synthetic import SyntheticQuestions


class ChoiceLogitsDefinition(PassDefinition[ChoiceLogits]):
    """Definition of `ChoiceLogits`, stored as `values` `(n, k)` or `(n, forced, k)` float32."""

    declares = ChoiceLogits

    def unsupported(self, fmt: Format) -> str | None:
        """Return why open questions don't have the signal: they have no option letters. None for choice questions."""
        return "it reads option letters, and this task has none" if fmt is Format.OPEN else None

    def unsupported_reason(self, task: Task, prompts: PromptTokeniser) -> str | None:
        """Return why a task has no letters, or why no answer can be forced within a trace; None if it has and can."""
        if self.signal.forced and prompts.thinking is None:
            return prompts.no_traces_reason or "it forces answers within traces; say how with --think-budget N"
        return self.unsupported(task.format)

    @property
    def continuations(self) -> Continuations:
        """Nothing after the prompt, at whose last token the logits are; after parts of a trace what closes them."""
        return Continuations(forced=frozenset(self.signal.forced))

    def name(self, settings: PromptSettings, seed: int) -> str:
        """Return the signal's name in store keys, with a digest of the letters and of what closes a trace."""
        ids = [settings.letter_ids, *([settings.closing] if self.signal.forced else [])]
        return f"{super().name(settings, seed)} {digest_arrays(ids)}"

    def take(self, batch: DecodeBatch) -> list[list[PendingArrays]]:
        """Return `values` for each question: logits of the letters; -inf for letters beyond its options."""
        forced, letters = self.signal.forced, batch.settings.letter_ids
        nodes = [batch.tree.grow(cuts[share], batch.settings.closing)[-1] for cuts in batch.cuts for share in forced]
        logits = batch.logits(nodes or range(len(batch.items)), letters)
        if forced:
            logits = logits.reshape(len(batch.items), len(forced), len(letters))
        return [
            [{"values": PendingArray(row, partial(mask_hidden_options, item.options))} for item in group]
            for row, group in zip(logits, batch.items, strict=True)
        ]

    def needs(self, fmt: Format) -> Ability:
        """Return what a server has to give: the log-probabilities of the likeliest tokens, for bounds of the others."""
        return Ability.TOP | Ability.TRACES if self.signal.forced else Ability.TOP

    def prefers(self, fmt: Format) -> Ability:
        """Return what exact values need: the log-probabilities of chosen tokens."""
        return Ability.CHOSEN

    def ask(self, requests: QuestionRequests) -> dict[str, FloatArray]:
        """Return `values` as `take` does: log-probabilities of the letters less a constant; -inf beyond the options."""
        letters, item, closing = requests.settings.letter_ids, requests.item, requests.settings.closing
        start, stop = item.trace
        cuts = (item.prompt[: start + round(share * (stop - start))] for share in self.signal.forced)
        prompts = [np.concatenate([cut, closing]) for cut in cuts] or [item.prompt]
        values = np.full((len(prompts), len(letters)), -np.inf, dtype=np.float32)
        for row, prompt in zip(values, prompts, strict=True):
            row[: item.options] = requests.shares(prompt, letters[: item.options])
        return {"values": values if self.signal.forced else values[0]}

    def synthesize(self, data: SyntheticQuestions) -> FloatArray:
        """Return synthetic logits: those of the output head at the prompt's end, the flatter the earlier in a trace."""
        logits = np.asarray(data.prompt_end_states @ data.output_head[: data.letters].T, dtype=np.float32)  # (n, k)
        logits[np.arange(data.letters) >= data.options[:, None]] = -np.inf
        forced = self.signal.forced
        return np.stack([logits * np.float32(max(share, 0.01)) for share in forced], axis=1) if forced else logits


def mask_hidden_options(options: int, logits: torch.Tensor) -> torch.Tensor:
    """Set the logits of all letters after the first `options`, in the last dimension, to -inf, in place."""
    logits[..., options:] = float("-inf")
    return logits


DEFINITION = ChoiceLogitsDefinition
