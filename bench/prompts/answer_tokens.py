"""Tokenise answers that another program generated, into the ids with which this model would have generated them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from bench.api import Question, UserError
from bench.api.question import Prompt, Released, Text
from bench.prompts.chat import Chat
from bench.prompts.front_coding import Ids
from bench.prompts.traces import Thinking, TraceEnd


@dataclass(frozen=True)
class TokenizedAnswers:
    """Token ids of the answers to some questions, with each answer's reasoning trace and each question's samples."""

    traces: list[Ids]
    answers: list[Ids]
    samples: list[list[Ids]] | None
    """Token ids of each question's samples, the same number for all questions; None if some question has no samples."""
    ends: list[TraceEnd] | None = None
    """How each trace ended; None unless the model reasons before its answers (`Chat.thinking`)."""
    several: int = 0
    """Number of outputs with more than one end marker."""

    def longest(self, i: int) -> int:
        """Return the number of tokens of the longest text among the answer and the samples of question i."""
        return max(len(ids) for ids in (self.answers[i], *(self.samples[i] if self.samples else ())))


def tokenise_answers(
    chat: Chat, prompt: Prompt, questions: Sequence[Question], released: Mapping[str, Released]
) -> TokenizedAnswers:
    """Tokenise answers, with their traces and samples, as the model would have generated them.

    Args:
        chat: tokenizer and chat template of the model.
        prompt: any prompt of the task; the texts are tokenised as continuations of this prompt. But if any of the
            answers comes with its own prompt, all answers that are texts are tokenised alone.
        questions: the answered questions.
        released: question id -> answer that another program generated.

    Raises:
        UserError: a token id is not in the tokenizer's vocabulary.
    """
    records, size = [released[question.id] for question in questions], len(chat.tokenizer)
    ends = {*chat.tokenizer.all_special_ids, chat.turn_end}

    def ids_of(texts: Sequence[Text], count: int = 1) -> list[Ids]:
        """Return the token ids of texts as they follow a prompt.

        Each question has `count` texts; those of question k start at index k * `count`. Texts that are given as token
        ids are only checked.
        """
        distinct = list(dict.fromkeys(text for text in texts if isinstance(text, str)))
        ids_by_text = dict(zip(distinct, chat.continuations(prompt, distinct) if distinct else (), strict=True))
        for k, text in enumerate(texts):
            for token in () if isinstance(text, str) else text:
                if not 0 <= token < size:
                    raise UserError(
                        f"--answers: expected token ids from 0 to {size - 1:,} of this model's tokenizer, got {token}"
                        f" in the answer to {questions[k // count].id!r}; name the model that wrote the answers, or"
                        " give them as text."
                    )
        return [ids_by_text[text] if isinstance(text, str) else np.asarray(text, dtype=np.int32) for text in texts]

    def without_end_tokens(ids: Ids) -> Ids:
        """Return token ids without special tokens at their end; generated answers are stored in this form."""
        n = len(ids)
        while n and int(ids[n - 1]) in ends:
            n -= 1
        return ids[:n]

    if chat.thinking is not None:
        for column in ("text", "trace"):
            ids_of([getattr(record, column) for record in records])  # else unknown ids could not be decoded
        return _separated(chat, replace(prompt, lead=chat.thinking.lead), records, chat.thinking, ids_of)
    traces = ids_of([record.trace for record in records])
    texts = [record.text if isinstance(record.text, str) else "" for record in records]
    answer_ids = chat.tokenizer(texts, add_special_tokens=False)["input_ids"] if texts else []
    answers: list[Ids] = [np.asarray(ids, dtype=np.int32) for ids in answer_ids]  # each text tokenised alone
    if all(record.prompt is None for record in records):  # else the given answers come with their own prompts
        joined = [  # a text is tokenised together with its trace; ids are not
            record.trace + record.text
            if isinstance(record.trace, str) and isinstance(record.text, str)
            else record.text
            for record in records
        ]
        for i, whole in enumerate(ids_of(joined)):
            if not isinstance(records[i].text, str):
                answers[i] = whole
            elif np.array_equal(whole[: len(traces[i])], traces[i]):  # else trace and text share a token
                answers[i] = whole[len(traces[i]) :]
    n = min((len(record.samples or ()) for record in records), default=0)  # the fewest of a question
    samples = iter(ids_of([sample for record in records for sample in (record.samples or ())[:n]], n))
    sample_ids = [[without_end_tokens(ids) for ids in islice(samples, n)] for _ in records]
    return TokenizedAnswers(traces, [without_end_tokens(ids) for ids in answers], sample_ids if n else None)


def _separated(
    chat: Chat,
    prompt: Prompt,
    records: Sequence[Released],
    thinking: Thinking,
    ids_of: Callable[[Sequence[Text]], list[Ids]],
) -> TokenizedAnswers:
    """Tokenise answers that follow traces and their closing; outputs are divided at the first end marker.

    Args:
        chat: tokenizer and chat template of the model.
        prompt: a prompt with the lead of the answers.
        records: one for each question.
        thinking: says how traces end.
        ids_of: function that returns the token ids of traces.
    """
    parts = [thinking.separate(record, chat.decode) for record in records]
    traces = ids_of([trace for trace, *_ in parts])
    n = min((len(record.samples or ()) for record in records), default=0)
    sampled = []
    for record in records:
        for sample in (record.samples or ())[:n]:
            _, answer, _, _ = thinking.separate(replace(record, trace="", text=sample, divided=False), chat.decode)
            sampled.append(answer or (sample if isinstance(sample, str) else chat.decode(sample)).strip())
    samples = iter(chat.continuations(prompt, sampled) if sampled else ())
    texts = [answer for _, answer, _, _ in parts]
    answers = zip(texts, chat.continuations(prompt, texts), strict=True)
    return TokenizedAnswers(
        traces,
        [ids if text else ids[:0] for text, ids in answers],
        [[*islice(samples, n)] for _ in records] if n else None,
        [end for _, _, end, _ in parts],
        sum(several for *_, several in parts),
    )
