"""Tokenise the prompts of a split shard by shard, and what follows them: letters, options, self-check query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
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
from bench.prompts.traces import Thinking, TraceEnd, steps

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
    """Token ids of the reasoning traces, which are in the prompts; None if there are none, or none yet."""
    samples: list[list[Ids]] | None = None
    """Token ids of each question's samples that another program generated; None if the model generates samples."""
    short: int = 0
    """Number of questions with fewer exemplars than requested, because their subject has no more."""
    ends: Sequence[TraceEnd | None] | None = None
    """How each trace ended; None without `Chat.thinking`, or if none is generated yet."""
    closings: list[int] = field(default_factory=list)
    """Number of tokens after each trace with which its prompt ends; empty if there are none."""
    several: int = 0
    """Number of answers in `given` that came with more than one end marker of a trace."""

    def trace_bounds(self, i: int) -> tuple[int, int]:
        """Return the range of positions in prompt i that its reasoning trace has; an empty one without a trace."""
        stop = len(self.prompts[i]) - (self.closings[i] if self.closings else 0)
        return stop - (len(self.traces[i]) if self.traces else 0), stop

    def without_traces(self, i: int) -> Ids:
        """Return the token ids of prompt i up to its trace."""
        return self.prompts[i][: self.trace_bounds(i)[0]]

    def with_traces(self, thinking: Thinking, traces: list[Ids], ends: Sequence[TraceEnd | None]) -> Shard:
        """Return the shard with these traces at the ends of its prompts, each with what closes it."""
        closings, bare = [thinking.closing(end) for end in ends], map(self.without_traces, range(len(self.rows)))
        whole = [np.concatenate(parts) for parts in zip(bare, traces, closings, strict=True)]
        sizes = [len(closing) for closing in closings]
        return replace(self, prompts=FrontCodedIds(whole), traces=traces, ends=ends, closings=sizes)


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
    file_has_traces: bool = False
    """Whether answers come from a file, of which at least one has a reasoning trace."""

    @property
    def thinking(self) -> Thinking | None:
        """How the model reasons before its answers; None if it answers at once."""
        return self.chat.thinking

    @property
    def no_traces_reason(self) -> str | None:
        """Why answers have no reasoning traces; None if they have."""
        if self.thinking is not None or self.file_has_traces:
            return None
        return "it reads a reasoning trace; ask for traces with --think-budget N, or read answers that have some"

    @property
    def no_sample_states_reason(self) -> str | None:
        """Why tokens of samples can't be read; None if they can."""
        if self.thinking is None:
            return None
        return "it reads the tokens of samples; each has a trace of its own (--think-budget), and only its text is read"

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
                bare = replace(self.placeholder_prompt(task), lead="")
                stored = tokenise_answers(self.chat, bare, members, released) if released else None
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
            instructed = self.thinking is not None and not self.thinking.marker
            style = task.style_of(question)
            return templates.build(question, shown, style, task.format, self.protocol, instructed=instructed)

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
            if self.thinking is not None:
                room -= len(self.thinking.cut) + (self.thinking.budget if stored is None else 0)
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
                    less = ", or a smaller --think-budget" if self.thinking is not None else ""
                    raise TooLongError(
                        f"Question {question.id} has {len(ids[i])} tokens without exemplars, and this model's context"
                        f" leaves room for {max(0, room)}. Use a model with a longer context{less}."
                    )
                shown[i] = shown[i][1:]
                (ids[i],) = self.chat.prompts([self.prompt(task, question, shown[i])])
                dropped += 1
        if stored is None:
            return Shard(rows, FrontCodedIds(ids), shown, dropped)
        if self.thinking is not None and stored.ends is not None:
            bare = Shard(rows, FrontCodedIds(ids), shown, dropped, stored.answers, samples=stored.samples)
            return replace(bare.with_traces(self.thinking, stored.traces, stored.ends), several=stored.several)
        ids = [np.concatenate(pair) if len(pair[1]) else pair[0] for pair in zip(ids, stored.traces, strict=True)]
        return Shard(rows, FrontCodedIds(ids), shown, dropped, stored.answers, stored.traces, stored.samples)

    def trace_steps(self, trace: Ids) -> list[int]:
        """Return the index in a trace of the last token of each of its steps."""
        return steps(trace.tolist(), lambda token: self.chat.pieces([token])[0])

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
        closing = np.zeros(0, dtype=np.int32) if self.thinking is None else self.thinking.cut
        return PromptSettings(self.max_new_tokens(task), letters, suffix, verdicts, budget, closing=closing)

    def placeholder_prompt(self, task: Task) -> Prompt:
        """Return a prompt of the task's format with a placeholder as question.

        From it, token ids are found that are the same for all questions.
        """
        messages = (Message("system", templates.SYSTEM[task.format]), Message("user", "?"))
        return Prompt(messages, "" if self.thinking is None else f"\n\n{self.thinking.lead}")

    def query(self, prompt: Prompt) -> tuple[Ids, Ids]:
        """Return two tuples of token ids: of the self-check query, and of its verdicts (no, yes).

        Both are empty if the self-check can't be asked of this model.
        """
        try:
            verdicts = self.chat.letters(replace(prompt, lead=""), self.protocol.query_letters)
            return self.chat.query(prompt, self.protocol).ids, verdicts
        except UserError:
            return np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.int32)

    def continues(self, task: Task) -> bool:
        """Return whether conversations with a user turn after the answer begin with the prompt's own token ids."""
        return self.chat.query(self.placeholder_prompt(task), self.protocol).continues

    def query_prompts(
        self, task: Task, questions: Sequence[Question], shard: Shard, released: Mapping[str, Released]
    ) -> list[Ids] | None:
        """Return how the conversations with a user turn begin, up to the answers of a shard's `questions`.

        None means that they begin with the shard's prompts, as in most templates.
        """
        # a turn after an answer with a trace is appended to the stored ids, since templates drop earlier traces
        if shard.ends is not None or any(map(len, shard.traces or ())) or self.continues(task):
            return None
        records = [released.get(question.id) for question in questions]
        prompts = [
            (record and record.prompt) or self.prompt(task, question, shots)
            for question, shots, record in zip(questions, shard.shown, records, strict=True)
        ]
        return self.chat.before_answers(prompts, self.protocol)

    def query_unsupported_reason(self, task: Task) -> str | None:
        """Return the reason why the self-check can't be asked of this model; None if it can be."""
        prompt = self.placeholder_prompt(task)
        try:
            self.chat.query(prompt, self.protocol)
            self.chat.letters(replace(prompt, lead=""), self.protocol.query_letters)
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
