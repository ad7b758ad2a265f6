"""Signal `Hidden`: hidden states at tokens of the prompt, the answer, the options or the samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.api import At, FloatArray, Format, Hidden, Of, Ragged, Task, TokenIds
from bench.api.batch import Column
from bench.model.continuation_specs import (
    AnswerSpan,
    Continuations,
    PendingArrays,
    UserTurn,
    first_row,
    identity_transform,
)
from bench.signals.definition import PassDefinition, definition
from bench.signals.samples import sample_sources
from bench.store.disk_cache import digest_arrays

if TYPE_CHECKING:
    from bench.model.decode_batch import DecodeBatch
    from bench.prompts.prompt_settings import PromptSettings
    from bench.prompts.shards import PromptTokeniser
    from bench.signals.server_extractor import QuestionRequests
    from bench.signals.split_data import StoredSplit
    from bench.signals.synthetic import SyntheticQuestions

_QUERY = UserTurn()
_CONTINUATIONS = {
    At.PROMPT_END: Continuations(AnswerSpan.PROMPT_END),
    At.ANSWER_PREDICTING: Continuations(AnswerSpan.ANSWER_PREDICTING),
    At.ANSWER_END: Continuations(AnswerSpan.ANSWER_END),
    At.GOLD_PREDICTING: Continuations(gold=True),
    At.WRONG_PREDICTING: Continuations(wrong=True),
    At.QUERY_END: Continuations(AnswerSpan.ANSWER_END, turns=frozenset({_QUERY})),
    At.STEP_END: Continuations(steps=True),
}
_PREDICTED_TEXTS = {At.ANSWER_PREDICTING: Of.ANSWER, At.GOLD_PREDICTING: Of.GOLD, At.WRONG_PREDICTING: Of.WRONG}
"""Position of hidden states -> kind of text that they predict, one token per state."""
OPTIONS = frozenset({At.GOLD_PREDICTING, At.WRONG_PREDICTING})


class HiddenDefinition(PassDefinition[Hidden]):
    """Definition of `Hidden`, stored as `values` in the model's dtype; means over tokens in float32.

    With one state per question, `values` is `(n, d)`; with one per sample, `(n, N, d)`. With one per token it is
    `(sum of t_i, d)`, and `offsets` says where each question's states begin.
    """

    declares = Hidden

    @property
    def continuations(self) -> Continuations:
        """What the model reads: the answer, options, samples or self-check query, or the trace in the prompt."""
        if self.signal.at is At.SAMPLE_END:
            samples = frozenset({self.signal.samples})
            return Continuations(samples=samples, sample_ends=samples)
        return _CONTINUATIONS[self.signal.at]

    def reads_answer(self, fmt: Format) -> bool:
        """Return whether the states depend on the model's answer.

        In choice tasks the state that predicts the answer's letter does not, since it comes before the letter.
        """
        of_letter = fmt is Format.CHOICE and self.signal.at is At.ANSWER_PREDICTING
        return super().reads_answer(fmt) and not of_letter

    @property
    def depths(self) -> frozenset[float]:
        """Depth at which the state is read, as a fraction of the layers."""
        return frozenset({self.signal.depth})

    @property
    def ragged(self) -> bool:
        """True if a question has one row per token or step; False for one state, one mean, or one state per sample."""
        return self.signal.at is At.STEP_END or (self.signal.at in _PREDICTED_TEXTS and self.signal.pool is None)

    def sources(self, fmt: Format, max_new_tokens: int) -> tuple[PassDefinition[Any], ...]:
        """Return the definitions of the stored signals from which the states are taken.

        States of samples need the samples, too. In choice tasks, the states that predict option letters are all the
        same: the state at the prompt's end, so its definition is returned.
        """
        if self.signal.at is At.SAMPLE_END:
            return (self, *sample_sources(self.signal.samples, max_new_tokens))
        lettered = self.signal.at in OPTIONS and fmt is Format.CHOICE
        return (HiddenDefinition(replace(self.signal, at=At.PROMPT_END)) if lettered else self,)

    def unsupported_reason(self, task: Task, prompts: PromptTokeniser) -> str | None:
        """Return why there is no self-check query, trace or reading of samples; None if there is or none is needed."""
        if self.signal.at is At.QUERY_END:
            return prompts.query_unsupported_reason(task)
        reasons = {At.STEP_END: prompts.no_traces_reason, At.SAMPLE_END: prompts.no_sample_states_reason}
        return reasons.get(self.signal.at)

    def name(self, settings: PromptSettings, seed: int) -> str:
        """Return the signal's name in store keys.

        For states of samples it contains the seed, and for states after the self-check query a digest of the query's
        token ids.
        """
        added = {At.SAMPLE_END: f" seed {seed}", At.QUERY_END: f" {digest_arrays([settings.suffix])}"}
        return f"{super().name(settings, seed)}{added.get(self.signal.at, '')}"

    def ask(self, requests: QuestionRequests) -> Mapping[str, Any]:
        """Return `values` as `take` does, from the states that the server writes.

        A server that writes none gives `(v,)` at the prompt's end: log-probabilities of all tokens, from which letters
        are drawn. Its model's output head takes these for logits.
        """
        if requests.by_states:
            return {"values": self._served_states(requests)}
        if self.signal != Hidden(1.0, At.PROMPT_END) or requests.first is None:
            return super().ask(requests)
        return {"values": requests.first}

    def _served_states(self, requests: QuestionRequests) -> FloatArray:
        at, item, layer = self.signal.at, requests.item, requests.layer(self.signal.depth)
        if at is At.SAMPLE_END:
            prompts = (np.concatenate([item.prompt, ids]) for ids in requests.sampled_ids(self.signal.samples))
            return np.concatenate([requests.states(ids, [len(ids) - 1])[layer] for ids in prompts])
        if at is At.STEP_END:
            return requests.states(item.prompt, item.steps)[layer]
        if at is At.QUERY_END:
            ids = requests.conversation(_QUERY)
            last = requests.states(ids, [len(ids) - 1])[layer][0]
            return last if len(requests.answer) else np.full_like(last, np.nan)
        texts = {At.GOLD_PREDICTING: [item.gold], At.WRONG_PREDICTING: list(item.wrong)}.get(at, [requests.answer])
        states = [requests.after(text)[layer] for text in texts]
        if at is At.PROMPT_END or (at is At.ANSWER_END and self.signal.pool is None):
            return np.asarray(states[0][0 if at is At.PROMPT_END else -1])
        rows = states[0][1:] if at is At.ANSWER_END else np.concatenate([part[:-1] for part in states])
        if self.signal.pool:
            return rows.mean(axis=0) if len(rows) else np.full(rows.shape[1], np.nan, np.float32)
        return rows

    def take(self, batch: DecodeBatch) -> Sequence[Sequence[PendingArrays]]:
        """Return `values` for each question: one state `(d,)`, one per token `(t_i, d)`, or one per sample `(N, d)`."""
        depth, at = self.signal.depth, self.signal.at
        if at is At.QUERY_END:
            ends, first = batch.turn_end_states(_QUERY, depth), batch.states(depth, [0])
            missing = first[0].new_full(first[0].shape, float("nan"))
            return batch.repeat_per_question({"values": ends.get(i, missing)} for i in range(len(batch.items)))
        if at is At.SAMPLE_END or at in OPTIONS:
            return [
                [{"values": batch.pending_states(depth, self._nodes(batch, i, m))} for m in range(len(group))]
                for i, group in enumerate(batch.items)
            ]
        unpooled = identity_transform if self.ragged else first_row
        transform = unpooled if self.signal.pool is None else (lambda states: states.float().mean(dim=0))
        pending = (batch.pending_states(depth, self._nodes(batch, i, 0), transform) for i in range(len(batch.items)))
        return batch.repeat_per_question({"values": states} for states in pending)

    def _nodes(self, batch: DecodeBatch, i: int, m: int) -> list[int]:
        """Return the nodes of the token tree whose states are read for question m of prompt i."""
        at, item = self.signal.at, batch.items[i][m]
        if at is At.PROMPT_END:
            return [i]
        if at is At.STEP_END:
            return list(batch.steps[i])
        if at is At.ANSWER_END:
            return batch.answer_path(i)[1:] if self.signal.pool else batch.answer_path(i)[-1:]
        if at is At.SAMPLE_END:
            return [[i, *batch.tree.grow(i, ids)][-1] for ids in batch.samples[self.signal.samples, i, m]]
        if at in OPTIONS:
            return batch.continuation_nodes(i, [item.gold] if at is At.GOLD_PREDICTING else item.wrong)
        return batch.predicting_nodes(i)

    def column(self, split: StoredSplit) -> Column:
        """Return the states, float32: `(n, d)`, `(n, N, d)` for samples, or a `Ragged` with one row per token."""
        if self.signal.at not in OPTIONS:
            return super().column(split)
        ids: Any = definition(TokenIds(_PREDICTED_TEXTS[self.signal.at])).column(split)
        (source,) = self.sources(split.split_data.task.format, split.settings.max_new_tokens)
        arrays = split.arrays(source.signal)
        if source is self:
            return Ragged(arrays["values"], arrays["offsets"], ids.owner)
        return Ragged(np.repeat(arrays["values"], ids.lengths, axis=0), ids.offsets, ids.owner)

    def synthesize(self, data: SyntheticQuestions) -> Column:
        """Return synthetic states. If the answer is right, they lie further along one direction.

        Last-layer states that predict tokens fit the synthetic output head, which gives these tokens large logits.
        """
        last = self.signal.depth == 1.0
        if self.signal.at is At.STEP_END:
            steps = data.trace_steps
            return Ragged(data.layer_states(repr(self.signal), np.repeat(data.certainty, np.diff(steps))), steps)
        if self.ragged:
            text = data.texts[_PREDICTED_TEXTS[self.signal.at]]
            certainty = np.repeat(data.certainty, text.ids.lengths)
            states = text.states if last else data.layer_states(repr(self.signal), certainty)
            return Ragged(states, text.ids.offsets, text.ids.owner)
        if self.signal.at is At.SAMPLE_END:
            agreement = data.sample_agreement(self.signal.samples)  # samples that equal the answer have nearby states
            states = data.layer_states(repr(self.signal), data.certainty)[:, None, :]
            others = data.rng.standard_normal((*agreement.shape, states.shape[-1]))
            return np.where(agreement[:, :, None], states + 0.1 * others, others).astype(np.float32)
        if self.signal.at is At.PROMPT_END and last:
            return data.prompt_end_states
        return data.layer_states(repr(self.signal), data.certainty)


DEFINITION = HiddenDefinition
