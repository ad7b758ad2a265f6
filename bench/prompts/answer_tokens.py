"""Answers that were made elsewhere -> token ids, as this model would have to say them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from bench.api import Question, UserError
from bench.api.question import Prompt, Released, Text
from bench.prompts.chat import Chat
from bench.prompts.front_coding import Ids


@dataclass(frozen=True)
class AnswerTokens:
    """Token ids of answers to some questions."""

    traces: list[Ids]
    answers: list[Ids]
    samples: list[list[Ids]] | None
    """None where a question has none."""

    def longest(self, i: int) -> int:
        """Tokens of the longest of a question's answer and samples."""
        return max(len(ids) for ids in (self.answers[i], *(self.samples[i] if self.samples else ())))


def written(
    chat: Chat, prompt: Prompt, questions: Sequence[Question], released: Mapping[str, Released]
) -> AnswerTokens:
    """Token ids of the answers to questions, with their traces and samples, as one model would have to say them.

    Args:
        chat: of the model.
        prompt: one of the task's, after which texts are split into tokens as right where an answer begins.
        questions: those that were answered.
        released: question id -> answer.

    Raises:
        UserError: an id is none of the tokenizer's.
    """
    records, known = [released[question.id] for question in questions], len(chat.tokenizer)

    def ids_of(texts: Sequence[Text], each: int = 1) -> list[Ids]:
        """Ids of texts, so many of each question, where an answer begins; what is ids already is checked."""
        distinct = list(dict.fromkeys(text for text in texts if isinstance(text, str)))
        found = dict(zip(distinct, chat.continuations(prompt, distinct) if distinct else (), strict=True))
        for k, text in enumerate(texts):
            for token in () if isinstance(text, str) else text:
                if not 0 <= token < known:
                    raise UserError(
                        f"--answers: expected token ids from 0 to {known - 1:,} of this model's tokenizer, got {token}"
                        f" in the answer to {questions[k // each].id!r}; name the model that wrote the answers, or give"
                        " them as text."
                    )
        return [found[text] if isinstance(text, str) else np.asarray(text, dtype=np.int32) for text in texts]

    def without_end_tokens(ids: Ids) -> Ids:
        """Ids without those that ended the answer, as answers are stored that the model gives here."""
        n = len(ids)
        while n and int(ids[n - 1]) in chat.tokenizer.all_special_ids:
            n -= 1
        return ids[:n]

    traces = ids_of([record.trace for record in records])
    texts = [record.text if isinstance(record.text, str) else "" for record in records]
    spoken = chat.tokenizer(texts, add_special_tokens=False)["input_ids"] if texts else []
    answers: list[Ids] = [np.asarray(each, dtype=np.int32) for each in spoken]  # of texts by themselves
    if all(record.prompt is None for record in records):  # else they are in the words of a release's own prompts
        joined = [  # text with its trace, which are split into tokens together; ids alone
            record.trace + record.text
            if isinstance(record.trace, str) and isinstance(record.text, str)
            else record.text
            for record in records
        ]
        for i, whole in enumerate(ids_of(joined)):
            if not isinstance(records[i].text, str):
                answers[i] = whole
            elif np.array_equal(whole[: len(traces[i])], traces[i]):  # else the two were split otherwise
                answers[i] = whole[len(traces[i]) :]
    n = min((len(record.samples or ()) for record in records), default=0)  # as many as the one that has fewest
    samples = iter(ids_of([sample for record in records for sample in (record.samples or ())[:n]], n))
    said = [[without_end_tokens(each) for each in islice(samples, n)] for _ in records]
    return AnswerTokens(traces, [without_end_tokens(ids) for ids in answers], said if n else None)
