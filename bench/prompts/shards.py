"""Tokenise the prompts of a split shard by shard, and what follows them: letters, options, self-check query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from bench.api import Format, IntArray, Question, Task, UserError
from bench.api.errors import TooLongError, plugin_errors
from bench.api.protocol import Protocol
from bench.api.question import Message, Prompt, Released
from bench.prompts import templates
from bench.prompts.answer_tokens import TokenizedAnswers, tokenise_answers
from bench.prompts.chat import Chat
from bench.prompts.exemplars import exemplars, indices_in_subject
from bench.prompts.front_coding import FrontCodedIds, Ids
from bench.prompts.prompt_settings import PromptSettings

if TYPE_CHECKING:
    from bench.progress import Progress

_SHARD = 256
"""A shard gets further subjects until it has at least this many questions (bench/DESIGN.md, Signals and store)."""
_MOST = 512
"""Largest number of questions of a shard. A shard is in memory as a whole, and is lost if a run is killed."""

_MANY_TIMES = 8
"""An estimate tokenises only a sample of the prompts, if the split has more than this many times as many."""


@dataclass(frozen=True)
class Shard:
    """A part of a split with its tokenised prompts. It is computed and stored as a whole."""

    rows: IntArray
    """Indices of the shard's questions in the split."""
    prompts: FrontCodedIds
    shown: list[list[Question]]
    """Exemplars in the prompt of each question."""
    dropped: int
    """Number of exemplars that were left out, over all prompts, because prompts were too long."""
    given: list[Ids] | None = None
    """Token ids of the answers that another program generated; None if the model answers.

    An answer's reasoning trace is not in these ids, since it is at the end of the prompt.
    """
    traces: list[Ids] | None = None
    """Token ids of the reasoning traces of the answers in `given`; None if the model answers."""
    samples: list[list[Ids]] | None = None
    """Token ids of each question's samples that another program generated; None if the model generates samples."""
    short: int = 0
    """Number of questions with fewer exemplars than requested, because their subject has no more."""


def split_into_shards(subjects: Sequence[str], divisor: int = 1) -> list[IntArray]:
    """Return the indices of the questions of each shard. `subjects` has the subject of each question of the split.

    Subjects in order of appearance are joined to a shard until it has `_SHARD / divisor` questions. Shards of more than
    `_MOST / divisor` questions are divided into nearly equal ones.
    """
    least, most = -(-_SHARD // divisor), -(-_MOST // divisor)
    rows_by_subject: dict[str, list[int]] = {}
    for row, subject in enumerate(subjects):
        rows_by_subject.setdefault(subject, []).append(row)
    joined: list[list[int]] = []
    for rows in rows_by_subject.values():
        if joined and len(joined[-1]) < least:
            joined[-1].extend(rows)
        else:
            joined.append(list(rows))
    arrays = (np.asarray(rows, dtype=np.int64) for rows in joined)
    return [piece for rows in arrays for piece in np.array_split(rows, -(-len(rows) // most))]


@dataclass(frozen=True)
class PromptTokeniser:
    """Builds prompts as token ids for one model."""

    chat: Chat
    context: int
    """Context length of the model in tokens."""
    protocol: Protocol
    sample: int | None = None
    """Approximate number of prompts of a large split that are tokenised for an estimate; None to tokenise all."""
    divisor: int = 1
    """How many times smaller shards are than usual, so that a killed run loses minutes of a slow model's work."""

    def shards(
        self, task: Task, questions: Sequence[Question], released: Mapping[str, Released], progress: Progress, what: str
    ) -> list[Shard]:
        """Return the shards of a split, with tokenised prompts.

        Args:
            task: the task.
            questions: questions of the split.
            released: question id -> answer that another program generated; empty where the model answers.
            progress: display of the number of tokenised prompts.
            what: name of the split, for the progress display.

        Raises:
            UserError: a question is too long for the model's context even without exemplars; a given answer has a token
                id that the tokenizer lacks; or code of the task fails.
        """
        has_prompt = {record.prompt is not None for record in released.values()}
        with plugin_errors(f"task {task.name!r}, pools"):
            pools = {} if True in has_prompt else task.pools()
        index = indices_in_subject(questions)
        shards = []
        with progress.stage(f"prompts {what}", len(questions)) as advance:
            for rows in self._some(split_into_shards([q.subject for q in questions], self.divisor)):
                members = [questions[r] for r in rows]
                stored = (
                    tokenise_answers(self.chat, self.placeholder_prompt(task), members, released) if released else None
                )
                shown: list[list[Question]] = [[] for _ in members]
                most, short = task.prompt_tokens, 0
                if stored is not None and True in has_prompt:  # the given answers come with their prompts
                    prompts, most = [prompt for q in members if (prompt := released[q.id].prompt) is not None], None
                else:
                    with plugin_errors(f"task {task.name!r}, exemplars"):
                        shown = [
                            exemplars(task, q, index[q.id], pools.get(q.subject, ()), self.protocol) for q in members
                        ]
                    short = sum(len(shots) < self.protocol.shots for shots in shown) if pools else 0
                    prompts = [self.prompt(task, q, shots) for q, shots in zip(members, shown, strict=True)]
                shards.append(replace(self._shard(rows, members, task, prompts, shown, most, stored), short=short))
                advance(len(rows))
        return shards

    def _some(self, groups: list[IntArray]) -> list[IntArray]:
        """Return the question indices of each shard; for a split much larger than the sample, only of some shards."""
        total = sum(map(len, groups))
        if self.sample is None or total <= _MANY_TIMES * self.sample:
            return groups
        count = max(1, len(groups) * self.sample // total)
        return [groups[i * len(groups) // count][: self.sample] for i in range(count)]

    def prompt(self, task: Task, question: Question, shown: Sequence[Question] = ()) -> Prompt:
        """Build the prompt of a question."""
        with plugin_errors(f"task {task.name!r}, prompt of {question.id!r}"):
            return templates.build(question, shown, task.style_of(question), task.format, self.protocol)

    def _shard(
        self,
        rows: IntArray,
        questions: Sequence[Question],
        task: Task,
        prompts: Sequence[Prompt],
        shown: list[list[Question]],
        most: int | None,
        stored: TokenizedAnswers | None,
    ) -> Shard:
        """Tokenise the prompts of a shard; exemplars are left out of a prompt until it fits into the model's context.

        Args:
            rows: indices of the questions in the split.
            questions: questions of the shard.
            task: task of the questions.
            prompts: prompt of each question.
            shown: exemplars in each prompt; exemplars that are left out are removed from the lists.
            most: length in tokens above which a prompt loses exemplars; None if only the model's context limits the
                prompt.
            stored: answers that another program generated; None where the model answers.
        """
        ids, dropped = self.chat.prompts(prompts), 0
        suffix, _ = self.query(self.placeholder_prompt(task))
        for i, question in enumerate(questions):
            room = self.context - self.max_new_tokens(task) - len(suffix)
            if stored is not None:  # room for the trace, and for longer answers than the limit
                room -= len(stored.traces[i]) + max(0, stored.longest(i) - self.max_new_tokens(task))
            limit = min(room, most or room)
            while len(ids[i]) > limit and (shown[i] or len(ids[i]) > room):
                if not shown[i] and stored is not None:
                    size = len(stored.traces[i]) + stored.longest(i)
                    raise TooLongError(
                        f"Question {question.id} has {len(ids[i]):,} tokens without exemplars, and its answer or"
                        f" sample, with a trace, {size:,}: more than this model's context can hold. Shorten it, or use"
                        " a model with a longer context."
                    )
                if not shown[i]:
                    raise TooLongError(
                        f"Question {question.id} has {len(ids[i])} tokens without exemplars, and this model's context"
                        f" leaves room for {room}. Use a model with a longer context."
                    )
                shown[i] = shown[i][1:]
                (ids[i],) = self.chat.prompts([self.prompt(task, question, shown[i])])
                dropped += 1
        if stored is None:
            return Shard(rows, FrontCodedIds(ids), shown, dropped)
        ids = [np.concatenate(pair) if len(pair[1]) else pair[0] for pair in zip(ids, stored.traces, strict=True)]
        return Shard(rows, FrontCodedIds(ids), shown, dropped, stored.answers, stored.traces, stored.samples)

    def max_new_tokens(self, task: Task) -> int:
        """Return the maximum number of tokens of an answer."""
        choice = task.format is Format.CHOICE
        return self.protocol.max_new_tokens_choice if choice else self.protocol.max_new_tokens_open

    def prompt_settings(self, task: Task, questions: Sequence[Question], budget: int) -> PromptSettings:
        """Return the prompt settings that all questions of a split share."""
        prompt = self.placeholder_prompt(task)
        n_options = max(len(q.choices) for q in questions) if task.format is Format.CHOICE else 0
        suffix, verdicts = self.query(prompt)
        letters = self.chat.letters(prompt, self.protocol.letters[:n_options])
        return PromptSettings(self.max_new_tokens(task), letters, suffix, verdicts, budget)

    def placeholder_prompt(self, task: Task) -> Prompt:
        """Return a prompt of the task's format with a placeholder as question.

        From it, token ids are found that are the same for all questions.
        """
        messages = (Message("system", templates.SYSTEM[task.format]), Message("user", "?"))
        return Prompt(messages)

    def query(self, prompt: Prompt) -> tuple[Ids, Ids]:
        """Return two tuples of token ids: of the self-check query, and of its verdicts (no, yes).

        Both are empty if the self-check can't be asked of this model.
        """
        try:
            return self.chat.query(prompt, self.protocol).ids, self.chat.letters(prompt, self.protocol.query_letters)
        except UserError:
            return np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.int32)

    def query_unsupported_reason(self, task: Task) -> str | None:
        """Return the reason why the self-check can't be asked of this model; None if it can be."""
        prompt = self.placeholder_prompt(task)
        try:
            self.chat.query(prompt, self.protocol)
            self.chat.letters(prompt, self.protocol.query_letters)
        except UserError as error:
            return str(error)
        return None

    def options(self, task: Task, questions: Sequence[Question]) -> list[list[Ids]]:
        """Tokenise each question's options as answers: letters in choice tasks, texts in open tasks."""
        prompt = self.placeholder_prompt(task)
        if task.format is Format.CHOICE:
            letters: dict[int, list[Ids]] = {}
            for n in {len(question.choices) for question in questions}:
                ids_of = self.chat.letters(prompt, self.protocol.letters[:n])
                letters[n] = [ids_of[k : k + 1] for k in range(n)]
            return [letters[len(question.choices)] for question in questions]
        texts = [text for question in questions for text in question.choices]
        ids = iter(self.chat.continuations(prompt, texts) if texts else ())
        return [list(islice(ids, len(question.choices))) for question in questions]
