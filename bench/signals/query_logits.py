"""Logits of no and yes after the self-check query that follows the answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bench.api import Adapter, FloatArray, QueryLogits, Task
from bench.model.continuation_specs import AnswerSpan, Arrays, ContinuationSpec, PendingArrays, UserTurn
from bench.signals.definition import PassDefinition
from bench.store.folders import digest_arrays

if TYPE_CHECKING:
    from bench.model.decode_batch import DecodeBatch
    from bench.prompts.prompt_settings import PromptSettings
    from bench.prompts.shards import PromptTokeniser
    from bench.signals.synthetic import World


class QueryLogitsDefinition(PassDefinition[QueryLogits]):
    """Stored as `values` `(n, 2)` float32, NaN where there is no answer to ask about."""

    declares = QueryLogits

    def hindrance(self, task: Task, prompts: PromptTokeniser) -> str | None:
        """Some models can't be asked."""
        return prompts.query_hindrance(task)

    @property
    def growth(self) -> ContinuationSpec:
        """The whole answer and the query."""
        return ContinuationSpec(AnswerSpan.ANSWER_END, turns=frozenset({UserTurn()}))

    @property
    def own_adapter(self) -> bool:
        """Whether it is read through the adapter that a method trained."""
        return self.signal.adapter is Adapter.OWN

    @property
    def unanswered(self) -> Arrays:
        """NaN."""
        import torch

        return {"values": torch.full((2,), float("nan"))}

    def name(self, asking: PromptSettings, seed: int) -> str:
        """Name with the ids of the query and of its verdicts."""
        return f"{super().name(asking, seed)} {digest_arrays([asking.suffix, asking.verdict_ids])}"

    def take(self, done: DecodeBatch) -> list[list[PendingArrays]]:
        """`values`: `(2,)`, no and yes."""
        found, nothing = done.words(UserTurn(), done.asking.verdict_ids), self.unanswered["values"]
        return done.each({"values": found.get(i, nothing)} for i in range(len(done.items)))

    def planted(self, world: World) -> FloatArray:
        """The same odds with and without an adapter: a fresh one changes nothing."""
        half = 0.75 * world.sure
        base = world.rng.standard_normal(len(half))
        return np.stack([base - half, base + half], axis=1).astype(np.float32)  # (n, 2): no, yes


DEFINITION = QueryLogitsDefinition
