"""Signal `TokenIds`: token ids of prompts, answers, conversations and options; no forward pass is needed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from bench.api import Format, Of, Ragged, Task, TokenIds, UserError
from bench.servers.readings import Ability
from bench.signals.definition import SignalDefinition
from bench.signals.samples import join_texts

if TYPE_CHECKING:
    from bench.prompts.shards import PromptTokeniser
    from bench.signals.split_data import StoredSplit
    from bench.signals.synthetic import SyntheticQuestions

OPTIONS = frozenset({Of.OPTIONS, Of.GOLD, Of.WRONG})


class TokenIdsDefinition(SignalDefinition[TokenIds]):
    """Definition of `TokenIds`, computed from the questions, the prompts and the stored answers."""

    declares = TokenIds

    def needs(self, fmt: Format) -> Ability:
        """Return what a server has to give: nothing but the answer."""
        return Ability.TEXT

    def reads_answer(self, fmt: Format) -> bool:
        """Return whether the token ids include those of the answer."""
        return self.signal.of in {Of.ANSWER, Of.QUERY}

    def unsupported_reason(self, task: Task, prompts: PromptTokeniser) -> str | None:
        """Return why there is no self-check query, or no trace; None if there is, or if the token ids need none."""
        if self.signal.of is Of.TRACE:
            return prompts.no_traces_reason
        return prompts.query_unsupported_reason(task) if self.signal.of is Of.QUERY else None

    def column(self, split: StoredSplit) -> Ragged:
        """Return a `Ragged` of int64, `(t_i,)` for each question.

        Raises:
            UserError: a question has no wrong option, if these are requested; or only one option, if all are requested.
        """
        id_rows, owners = [], []
        if self.signal.of is Of.TRACE:
            return Ragged.of([trace.astype(np.int64) for trace in split.traces()])
        if self.signal.of not in OPTIONS:
            begins = split.query_prompts() if self.signal.of is Of.QUERY else (prompt for prompt, _ in split.pairs())
            for begin, (_, answer) in zip(begins, split.pairs(), strict=True):
                parts = {Of.ANSWER: [answer], Of.PROMPT: [begin], Of.QUERY: [begin, answer, split.settings.suffix]}
                id_rows.append(np.concatenate(parts[self.signal.of]).astype(np.int64))
            return Ragged.of(id_rows)
        if self.signal.of is Of.OPTIONS:
            pairs = zip(split.options, split.unlabelled, strict=True)
            return join_texts([[options[k] for k in order] for options, order in pairs])
        for question, options in zip(split.questions, split.options, strict=True):
            texts = [(k, ids) for k, ids in enumerate(options) if (k == question.gold) == (self.signal.of is Of.GOLD)]
            if not texts:
                raise UserError(
                    f"it reads wrong answers, and question {question.id!r} of {split.split_data.where} has none"
                )
            id_rows.append(np.concatenate([ids for _, ids in texts]).astype(np.int64))
            owners.append(np.repeat([k for k, _ in texts], [len(ids) for _, ids in texts]))
        return replace(Ragged.of(id_rows), owner=np.concatenate(owners))

    def synthesize(self, data: SyntheticQuestions) -> Ragged:
        """Return synthetic token ids: random prompts, and texts that the synthetic output head predicts."""
        if self.signal.of is Of.OPTIONS:
            return join_texts([[ids for ids, _ in options] for options in data.unlabelled])
        if self.signal.of in data.texts:
            return data.texts[self.signal.of].ids
        if self.signal.of is Of.PROMPT:
            return data.prompts
        query, answers = np.arange(5), data.texts[Of.ANSWER].ids
        return Ragged.of([np.concatenate([data.prompts[i], answers[i], query]) for i in range(len(answers))])


DEFINITION = TokenIdsDefinition
