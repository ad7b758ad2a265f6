"""Hidden states along prompt and answer, and along other answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.api import At, Format, Hidden, Of, Ragged, Task, TokenIds
from bench.api.batch import Column
from bench.model.continuation_specs import AnswerSpan, ContinuationSpec, PendingArrays, UserTurn, as_it_is, first_row
from bench.signals.definition import PassDefinition, definition
from bench.signals.samples import sample_sources
from bench.store.folders import digest_arrays

if TYPE_CHECKING:
    from bench.model.decode_batch import DecodeBatch
    from bench.prompts.prompt_settings import PromptSettings
    from bench.prompts.shards import PromptTokeniser
    from bench.signals.split_data import StoredSplit
    from bench.signals.synthetic import SyntheticQuestions

_QUERY = UserTurn()
_CONTINUATIONS = {
    At.PROMPT_END: ContinuationSpec(AnswerSpan.PROMPT_END),
    At.ANSWER_PREDICTING: ContinuationSpec(AnswerSpan.ANSWER_PREDICTING),
    At.ANSWER_END: ContinuationSpec(AnswerSpan.ANSWER_END),
    At.GOLD_PREDICTING: ContinuationSpec(gold=True),
    At.WRONG_PREDICTING: ContinuationSpec(wrong=True),
    At.QUERY_END: ContinuationSpec(AnswerSpan.ANSWER_END, turns=frozenset({_QUERY})),
}
_PREDICTED_TEXTS = {At.ANSWER_PREDICTING: Of.ANSWER, At.GOLD_PREDICTING: Of.GOLD, At.WRONG_PREDICTING: Of.WRONG}
"""Whose tokens the states predict, one for each."""
OPTIONS = frozenset({At.GOLD_PREDICTING, At.WRONG_PREDICTING})


class HiddenDefinition(PassDefinition[Hidden]):
    """Stored in the model's dtype: `values` `(n, d)`, or `(sum of t_i, d)` with `offsets` where it predicts tokens."""

    declares = Hidden

    @property
    def growth(self) -> ContinuationSpec:
        """Along the answer, other answers of an open question, samples, or the query."""
        if self.signal.at is At.SAMPLE_END:
            samples = frozenset({self.signal.samples})
            return ContinuationSpec(samples=samples, sample_ends=samples)
        return _CONTINUATIONS[self.signal.at]

    def reads_answer(self, fmt: Format) -> bool:
        """Return whether it is a state after a token of the answer: a letter is predicted at the prompt's end."""
        of_letter = fmt is Format.CHOICE and self.signal.at is At.ANSWER_PREDICTING
        return super().reads_answer(fmt) and not of_letter

    @property
    def depths(self) -> frozenset[float]:
        """Fraction of the depth at which the state is read."""
        return frozenset({self.signal.depth})

    @property
    def ragged(self) -> bool:
        """Whether a question has a row for each token; only states that predict tokens do."""
        return self.signal.at in _PREDICTED_TEXTS and self.signal.pool is None

    def sources(self, fmt: Format, max_new_tokens: int) -> tuple[PassDefinition[Any], ...]:
        """Itself; a letter, right or wrong, is predicted at the prompt's end."""
        if self.signal.at is At.SAMPLE_END:
            return (self, *sample_sources(self.signal.samples, max_new_tokens))
        lettered = self.signal.at in OPTIONS and fmt is Format.CHOICE
        return (HiddenDefinition(replace(self.signal, at=At.PROMPT_END)) if lettered else self,)

    def hindrance(self, task: Task, prompts: PromptTokeniser) -> str | None:
        """Some models can't be asked the query."""
        return prompts.query_hindrance(task) if self.signal.at is At.QUERY_END else None

    def name(self, asking: PromptSettings, seed: int) -> str:
        """Name with the seed of samples, or the ids of the query."""
        added = {At.SAMPLE_END: f" seed {seed}", At.QUERY_END: f" {digest_arrays([asking.suffix])}"}
        return f"{super().name(asking, seed)}{added.get(self.signal.at, '')}"

    def take(self, batch: DecodeBatch) -> Sequence[Sequence[PendingArrays]]:
        """`values`: `(d,)`, `(t_i, d)`, or `(N, d)`; a mean in float32."""
        depth, at = self.signal.depth, self.signal.at
        if at is At.QUERY_END:
            states_by_item, prompt_states = batch.ends(_QUERY, depth), batch.states(depth, [0])
            missing = prompt_states[0].new_full(prompt_states[0].shape, float("nan"))
            return batch.each({"values": states_by_item.get(i, missing)} for i in range(len(batch.items)))
        if at is At.SAMPLE_END or at in OPTIONS:
            return [
                [{"values": batch.awaited(depth, self._nodes(batch, i, m))} for m in range(len(group))]
                for i, group in enumerate(batch.items)
            ]
        pooled = self.signal.pool is not None
        transform = (lambda states: states.float().mean(dim=0)) if pooled else as_it_is if self.ragged else first_row
        nodes = (self._nodes(batch, i, 0) for i in range(len(batch.items)))
        return batch.each({"values": batch.awaited(depth, node_list, transform)} for node_list in nodes)

    def _nodes(self, batch: DecodeBatch, i: int, m: int) -> list[int]:
        """Nodes of the states of question m of prompt i."""
        at, item = self.signal.at, batch.items[i][m]
        if at is At.PROMPT_END:
            return [i]
        if at is At.ANSWER_END:
            return batch.path(i)[1:] if self.signal.pool else batch.path(i)[-1:]
        if at is At.SAMPLE_END:
            return [[i, *batch.tree.grow(i, ids)][-1] for ids in batch.samples[self.signal.samples, i, m]]
        if at in OPTIONS:
            return batch.continuation(i, [item.gold] if at is At.GOLD_PREDICTING else item.wrong)
        return batch.predicting(i)

    def column(self, split: StoredSplit) -> Column:
        """`(n, d)` float32, `(n, N, d)`, or a `Ragged` with a row for each token that is predicted."""
        if self.signal.at not in OPTIONS:
            return super().column(split)
        ids: Any = definition(TokenIds(_PREDICTED_TEXTS[self.signal.at])).column(split)
        (source,) = self.sources(split.split_data.task.format, split.asking.max_new_tokens)
        arrays = split.arrays(source.signal)
        if source is self:
            return Ragged(arrays["values"], arrays["offsets"], ids.owner)
        return Ragged(np.repeat(arrays["values"], ids.lengths, axis=0), ids.offsets, ids.owner)

    def synthesize(self, data: SyntheticQuestions) -> Column:
        """States that lie further along one direction where the answer is right, and that the output head can read."""
        last = self.signal.depth == 1.0
        if self.ragged:
            text = data.texts[_PREDICTED_TEXTS[self.signal.at]]
            certainty = np.repeat(data.certainty, text.ids.lengths)
            states = text.states if last else data.layer_states(repr(self.signal), certainty)
            return Ragged(states, text.ids.offsets, text.ids.owner)
        if self.signal.at is At.SAMPLE_END:
            agreement = data.sample_agreement(self.signal.samples)  # samples that say the same end alike
            states = data.layer_states(repr(self.signal), data.certainty)[:, None, :]
            others = data.rng.standard_normal((*agreement.shape, states.shape[-1]))
            return np.where(agreement[:, :, None], states + 0.1 * others, others).astype(np.float32)
        if self.signal.at is At.PROMPT_END and last:
            return data.prompt_end_states
        return data.layer_states(repr(self.signal), data.certainty)


DEFINITION = HiddenDefinition
