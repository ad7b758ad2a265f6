"""Signal `QueryLogits`: logits of no and yes after the self-check query that follows the answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bench.api import Adapter, FloatArray, Format, QueryLogits, Task
from bench.model.continuation_specs import AnswerSpan, Arrays, Continuations, PendingArrays, UserTurn
from bench.servers.readings import Ability
from bench.signals.definition import PassDefinition
from bench.store.disk_cache import digest_arrays

if TYPE_CHECKING:
    from bench.model.decode_batch import DecodeBatch
    from bench.prompts.prompt_settings import PromptSettings
    from bench.prompts.shards import PromptTokeniser
    from bench.signals.server_extractor import QuestionRequests
    from bench.signals.synthetic import SyntheticQuestions


class QueryLogitsDefinition(PassDefinition[QueryLogits]):
    """Definition of `QueryLogits`, stored as `values` `(n, 2)` float32; NaN for an empty answer."""

    declares = QueryLogits
    continuations = Continuations(AnswerSpan.ANSWER_END, turns=frozenset({UserTurn()}))
    """What the model reads after the prompt: the whole answer and the self-check query."""

    def unsupported_reason(self, task: Task, prompts: PromptTokeniser) -> str | None:
        """Return the reason why the model can't read the self-check query after the answer; None if it can."""
        return prompts.query_unsupported_reason(task)

    @property
    def needs_adapter(self) -> bool:
        """Whether the logits are computed with the adapter that the method trained."""
        return self.signal.adapter is Adapter.OWN

    @property
    def unanswered(self) -> Arrays:
        """For a question with an empty answer: two NaN."""
        import torch

        return {"values": torch.full((2,), float("nan"))}

    def name(self, settings: PromptSettings, seed: int) -> str:
        """Return the signal's name in store keys, with a digest of the token ids of the query and of no and yes."""
        return f"{super().name(settings, seed)} {digest_arrays([settings.suffix, settings.verdict_ids])}"

    def take(self, batch: DecodeBatch) -> list[list[PendingArrays]]:
        """Return the array `values` `(2,)` of each question: the logits of no and yes."""
        logits, missing = batch.word_logits(UserTurn(), batch.settings.verdict_ids), self.unanswered["values"]
        return batch.repeat_per_question({"values": logits.get(i, missing)} for i in range(len(batch.items)))

    def needs(self, fmt: Format) -> Ability:
        """Return what a server has to give: the log-probabilities of the likeliest tokens, for bounds of the others."""
        return Ability.ADAPTERS if self.needs_adapter else Ability.TOP

    def prefers(self, fmt: Format) -> Ability:
        """Return what exact values need: the log-probabilities of chosen tokens."""
        return Ability.CHOSEN

    def ask(self, requests: QuestionRequests) -> dict[str, FloatArray]:
        """Return `values` `(2,)`: log-probabilities of no and yes, less a constant."""
        return {"values": requests.shares(requests.conversation(UserTurn()), requests.settings.verdict_ids)}

    def synthesize(self, data: SyntheticQuestions) -> FloatArray:
        """Return synthetic logits that favour yes for right answers, the same with and without an adapter."""
        half_logit = 0.75 * data.certainty
        base = data.rng.standard_normal(len(half_logit))
        return np.stack([base - half_logit, base + half_logit], axis=1).astype(np.float32)  # (n, 2): no, yes


DEFINITION = QueryLogitsDefinition
