"""Questions -> prompts as token ids, shard by shard, and what else a model is asked: letters, options, the query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from bench.api import Format, IntArray, Question, Task, UserError
from bench.api.errors import TooLongError, fenced
from bench.api.protocol import Protocol
from bench.api.question import Message, Prompt, Released
from bench.prompts import templates
from bench.prompts.answer_tokens import AnswerTokens, written
from bench.prompts.chat import Chat
from bench.prompts.exemplars import exemplars, indices_in_subject
from bench.prompts.front_coding import FrontCodedIds, Ids
from bench.prompts.prompt_settings import PromptSettings

if TYPE_CHECKING:
    from bench.progress import Progress

_SHARD = 256
"""Fewest questions of a shard: subjects are joined until there are so many (bench/DESIGN.md, Signals and store)."""
_MOST = 512
"""Questions of a shard, at most: what is lost when a run is killed, and what is in memory at once."""

_MANY_TIMES = 8
"""A split of so many times the sample is not written whole for an estimate."""


@dataclass(frozen=True)
class Shard:
    """The unit that is computed whole or not at all."""

    rows: IntArray
    """Rows of the shard's questions in the split."""
    prompts: FrontCodedIds
    shown: list[list[Question]]
    """The exemplars of each prompt."""
    dropped: int
    """Exemplars that were left out because the prompt is too long."""
    given: list[Ids] | None = None
    """Ids of answers that were made elsewhere; None where the model answers. Traces before them end the prompts."""
    traces: list[Ids] | None = None
    """Ids of these traces; None where the model answers."""
    samples: list[list[Ids]] | None = None
    """Ids of each question's samples that were made elsewhere; None where the model draws them."""
    short: int = 0
    """Questions with fewer exemplars than asked for, as their subject has no more of them."""


def split_into_shards(subjects: Sequence[str]) -> list[IntArray]:
    """Row numbers of each shard: subjects in order of appearance, joined until a shard has at least _SHARD of them.

    What has more than _MOST is cut into pieces of nearly one size; their questions stay in order.
    """
    members: dict[str, list[int]] = {}
    for row, subject in enumerate(subjects):
        members.setdefault(subject, []).append(row)
    joined: list[list[int]] = []
    for rows in members.values():
        if joined and len(joined[-1]) < _SHARD:
            joined[-1].extend(rows)
        else:
            joined.append(list(rows))
    arrays = (np.asarray(rows, dtype=np.int64) for rows in joined)
    return [piece for rows in arrays for piece in np.array_split(rows, -(-len(rows) // _MOST))]


@dataclass(frozen=True)
class PromptTokeniser:
    """Writes what one model is asked as token ids."""

    chat: Chat
    context: int
    """Tokens that the model can read at once."""
    protocol: Protocol
    sample: int | None = None
    """Prompts of a large split that are written, for an estimate; None: all."""

    def shards(
        self, task: Task, questions: Sequence[Question], released: Mapping[str, Released], progress: Progress, what: str
    ) -> list[Shard]:
        """The prompts of a split as token ids.

        Raises:
            UserError: a question alone is too long for the model's context.
        """
        own = {record.prompt is not None for record in released.values()}
        with fenced(f"task {task.name!r}, pools"):
            pools = {} if True in own else task.pools()
        numbers = indices_in_subject(questions)
        shards = []
        with progress.stage(f"prompts {what}", len(questions)) as advance:
            for rows in self._some(split_into_shards([q.subject for q in questions])):
                members = [questions[r] for r in rows]
                given = written(self.chat, self.stand_in(task), members, released) if released else None
                shown: list[list[Question]] = [[] for _ in members]
                most, short = task.prompt_tokens, 0
                if given is not None and True in own:  # the release's own prompts, word by word
                    asked, most = [prompt for q in members if (prompt := released[q.id].prompt) is not None], None
                else:
                    with fenced(f"task {task.name!r}, exemplars"):
                        shown = [
                            exemplars(task, q, numbers[q.id], pools.get(q.subject, ()), self.protocol) for q in members
                        ]
                    short = sum(len(own) < self.protocol.shots for own in shown) if pools else 0
                    asked = [self.prompt(task, question, own) for question, own in zip(members, shown, strict=True)]
                shards.append(replace(self._shard(rows, members, task, asked, shown, most, given), short=short))
                advance(len(rows))
        return shards

    def _some(self, groups: list[IntArray]) -> list[IntArray]:
        """The rows of each shard; of a split with many times the sample, those of some, cut where one is longer."""
        total = sum(map(len, groups))
        if self.sample is None or total <= _MANY_TIMES * self.sample:
            return groups
        count = max(1, len(groups) * self.sample // total)
        return [groups[i * len(groups) // count][: self.sample] for i in range(count)]

    def prompt(self, task: Task, question: Question, shown: Sequence[Question] = ()) -> Prompt:
        """The conversation that asks a question."""
        with fenced(f"task {task.name!r}, prompt of {question.id!r}"):
            return templates.build(question, shown, task.style_of(question), task.format, self.protocol)

    def _shard(
        self,
        rows: IntArray,
        questions: Sequence[Question],
        task: Task,
        prompts: Sequence[Prompt],
        shown: list[list[Question]],
        most: int | None,
        given: AnswerTokens | None,
    ) -> Shard:
        """Prompts as token ids, of which exemplars are left out until they fit.

        Args:
            rows: of the questions in the split.
            questions: that are asked.
            task: theirs.
            prompts: what asks them.
            shown: the exemplars of each.
            most: length above which a prompt loses exemplars; None: the model's context alone.
            given: answers that were made elsewhere.
        """
        ids, dropped = self.chat.prompts(prompts), 0
        suffix, _ = self.query(self.stand_in(task))
        for i, question in enumerate(questions):
            room = self.context - self.max_new_tokens(task) - len(suffix)
            if given is not None:  # a trace, and what is longer than any answer may be
                room -= len(given.traces[i]) + max(0, given.longest(i) - self.max_new_tokens(task))
            limit = min(room, most or room)
            while len(ids[i]) > limit and (shown[i] or len(ids[i]) > room):
                if not shown[i] and given is not None:
                    taken = len(given.traces[i]) + given.longest(i)
                    raise TooLongError(
                        f"Question {question.id} has {len(ids[i]):,} tokens without exemplars, and its answer or"
                        f" sample, with a trace, {taken:,}: more than this model's context can hold. Shorten it, or use"
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
        if given is None:
            return Shard(rows, FrontCodedIds(ids), shown, dropped)
        read = [np.concatenate(pair) if len(pair[1]) else pair[0] for pair in zip(ids, given.traces, strict=True)]
        return Shard(rows, FrontCodedIds(read), shown, dropped, given.answers, given.traces, given.samples)

    def max_new_tokens(self, task: Task) -> int:
        """Length limit of an answer."""
        choice = task.format is Format.CHOICE
        return self.protocol.max_new_tokens_choice if choice else self.protocol.max_new_tokens_open

    def asking(self, task: Task, questions: Sequence[Question], budget: int) -> PromptSettings:
        """Settings that are the same for all questions of a split."""
        prompt = self.stand_in(task)
        widest = max(len(q.choices) for q in questions) if task.format is Format.CHOICE else 0
        suffix, verdicts = self.query(prompt)
        letters = self.chat.letters(prompt, self.protocol.letters[:widest])
        return PromptSettings(self.max_new_tokens(task), letters, suffix, verdicts, budget)

    def stand_in(self, task: Task) -> Prompt:
        """A prompt of the task's format, for what doesn't depend on the question."""
        messages = (Message("system", templates.SYSTEM[task.format]), Message("user", "?"))
        return Prompt(messages)

    def query(self, prompt: Prompt) -> tuple[Ids, Ids]:
        """Ids of the self-check turn and of (no, yes); empty where this model can't be asked (`query_hindrance`)."""
        try:
            return self.chat.query(prompt, self.protocol).ids, self.chat.letters(prompt, self.protocol.query_letters)
        except UserError:
            return np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.int32)

    def query_hindrance(self, task: Task) -> str | None:
        """Why this model can't be asked whether its answer is right; None where it can."""
        prompt = self.stand_in(task)
        try:
            self.chat.query(prompt, self.protocol)
            self.chat.letters(prompt, self.protocol.query_letters)
        except UserError as error:
            return str(error)
        return None

    def options(self, task: Task, questions: Sequence[Question]) -> list[list[Ids]]:
        """Ids of each question's options as the model would have to say them: letters, or texts."""
        prompt = self.stand_in(task)
        if task.format is Format.CHOICE:
            letters: dict[int, list[Ids]] = {}
            for n in {len(question.choices) for question in questions}:
                ids_of = self.chat.letters(prompt, self.protocol.letters[:n])
                letters[n] = [ids_of[k : k + 1] for k in range(n)]
            return [letters[len(question.choices)] for question in questions]
        texts = [text for question in questions for text in question.choices]
        ids = iter(self.chat.continuations(prompt, texts) if texts else ())
        return [list(islice(ids, len(question.choices))) for question in questions]
