"""`ServedTraceDecoder`: reasoning traces from a model's server, and the answers after sampled ones.

A server doesn't know where a trace ends: it writes on up to the budget, and what follows the end is dropped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.api import Format
from bench.model.continuation_specs import NOTHING, Continuations, ModelInput
from bench.model.extractor import ShardOutput
from bench.model.trace_decoder import STAGE, Traces, TraceText, stored_values
from bench.prompts.prompt_settings import PromptSettings
from bench.prompts.traces import Thinking, TraceEnd
from bench.servers.readings import Ability, Draw
from bench.signals.server_extractor import QuestionRequests, ServerExtractor

if TYPE_CHECKING:
    from bench.model.server_model import ServerModel


class ServedTraceDecoder(ServerExtractor):
    """Has a server write the traces of a shard; it is the definition of `Traces`, of which it asks like a signal's."""

    continuations, depths, ragged, unanswered = Continuations(), frozenset[float](), True, None

    def __init__(
        self, server: ServerModel, settings: PromptSettings, thinking: Thinking, traces: Traces, seed: int
    ) -> None:
        super().__init__(server, settings, {traces: self}, seed)  # type: ignore[dict-item]
        self.thinking, self.traces = thinking, traces

    def extract(self, items: Sequence[ModelInput], journal: Path) -> ShardOutput:
        """Return the traces of a shard's questions; the answers that are returned are empty."""
        output = super().extract([replace(item, answer=NOTHING) for item in items], journal)
        return replace(output, costs=dict.fromkeys([STAGE], *output.costs.values()))

    def prefers(self, _fmt: Format) -> Ability:
        """Return what traces are made of: text."""
        return Ability.TEXT

    def ask(self, requests: QuestionRequests) -> Mapping[str, Any]:
        """Return `values` as `Traces` are stored."""
        draws = [None] if self.traces.sampling is None else requests.draws(self.traces.sampling)
        return {"values": np.concatenate([stored_values(self._write(requests, draw)) for draw in draws])}

    def _write(self, requests: QuestionRequests, draw: Draw | None) -> TraceText:
        thinking, chat, prompt = self.thinking, self.server.chat, requests.item.prompt
        ids = requests.write(prompt, thinking.budget, draw)
        n = thinking.first_length(ids, chat.decode, chat.pieces)
        end = TraceEnd.MARKER if n is not None else TraceEnd.STOPPED
        if n is None and len(ids) == thinking.budget:
            end = TraceEnd.BUDGET
        trace, limit = ids[:n], self.settings.max_new_tokens
        if draw is None:
            return TraceText(trace, end, len(trace) - (end is TraceEnd.BUDGET))
        before = [*trace, *thinking.closing(end).tolist()]
        whole = np.concatenate([prompt, np.asarray(before, dtype=np.int32)])
        answer = requests.write(whole, limit, replace(draw, seed=draw.seed ^ 1))
        return TraceText(trace, end, len(before) + len(answer) - (len(answer) == limit), answer)
