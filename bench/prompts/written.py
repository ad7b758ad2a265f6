"""Answers that were made elsewhere -> token ids, as this model would have to say them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from bench.api import Question, UserError
from bench.api.question import Prompt, Released, Text
from bench.prompts.chat import Chat
from bench.prompts.tails import Ids


@dataclass(frozen=True)
class Written:
    """Token ids of answers to some questions."""

    traces: list[Ids]
    answers: list[Ids]
    samples: list[list[Ids]] | None
    """None where a question has none."""

    def longest(self, i: int) -> int:
        """Tokens of the longest of a question's answer and samples."""
        return max(len(ids) for ids in (self.answers[i], *(self.samples[i] if self.samples else ())))


@dataclass(frozen=True)
class Writer:
    """Writes answers as token ids of one model."""

    chat: Chat
    prompt: Prompt
    """A prompt of the task's, after which texts are split into tokens as right where an answer begins."""

    def written(self, questions: Sequence[Question], released: Mapping[str, Released]) -> Written:
        """The answers to questions, with their traces and samples.

        Raises:
            UserError: an id is none of the tokenizer's.
        """
        records = [released[question.id] for question in questions]
        names = [question.id for question in questions]
        traces = self._ids(names, [record.trace for record in records])
        texts = [record.text if isinstance(record.text, str) else "" for record in records]
        spoken = self.chat.tokenizer(texts, add_special_tokens=False)["input_ids"] if texts else []
        answers: list[Ids] = [np.asarray(each, dtype=np.int32) for each in spoken]  # of texts by themselves
        if all(record.prompt is None for record in records):  # else they are in the words of a release's own prompts
            joined = [  # text with its trace, which are split into tokens together; ids alone
                record.trace + record.text
                if isinstance(record.trace, str) and isinstance(record.text, str)
                else record.text
                for record in records
            ]
            for i, whole in enumerate(self._ids(names, joined)):
                if not isinstance(records[i].text, str):
                    answers[i] = whole
                elif np.array_equal(whole[: len(traces[i])], traces[i]):  # else the two were split otherwise
                    answers[i] = whole[len(traces[i]) :]
        n = min((len(record.samples or ()) for record in records), default=0)  # as many as the one that has fewest
        flat = [sample for record in records for sample in (record.samples or ())[:n]]
        ids = iter(self._ids([name for name in names for _ in range(n)], flat))
        samples = [[self._open(each) for each in islice(ids, n)] for _ in records]
        return Written(traces, [self._open(ids) for ids in answers], samples if n else None)

    def _ids(self, names: Sequence[str], texts: Sequence[Text]) -> list[Ids]:
        """Ids of texts where an answer begins; what is ids already is checked."""
        distinct = list(dict.fromkeys(text for text in texts if isinstance(text, str)))
        ids = self.chat.continuations(self.prompt, distinct) if distinct else []
        ids_of, known = dict(zip(distinct, ids, strict=True)), len(self.chat.tokenizer)
        for name, text in zip(names, texts, strict=True):
            for token in () if isinstance(text, str) else text:
                if not 0 <= token < known:
                    raise UserError(
                        f"--answers: expected token ids from 0 to {known - 1:,} of this model's tokenizer, got {token}"
                        f" in the answer to {name!r}; name the model that wrote the answers, or give them as text."
                    )
        return [ids_of[text] if isinstance(text, str) else np.asarray(text, dtype=np.int32) for text in texts]

    def _open(self, ids: Ids) -> Ids:
        """The ids without those that ended the answer, as answers are kept that the model gives here."""
        special = self.chat.tokenizer.all_special_ids
        n = len(ids)
        while n and int(ids[n - 1]) in special:
            n -= 1
        return ids[:n]
