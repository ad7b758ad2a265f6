"""State of a split while it is read, graded, learned from and predicted: a value, new after each step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from bench.api import AdapterRef, BoolArray, FloatArray, Format, IntArray, Question, Signal, Task, UserError
from bench.api.question import Answer, Released
from bench.data.splits import TaskSplit
from bench.prompts.front_coding import Ids
from bench.prompts.shards import PromptTokeniser, Shard
from bench.signals.files import load_rows
from bench.store.folders import Entry, digest_arrays, key_of

if TYPE_CHECKING:
    from bench.model.language_model import LanguageModel
    from bench.prompts.prompt_settings import PromptSettings

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Agreement:
    """Whether samples agree with the answers."""

    agree: BoolArray
    """`(n, N)` in the order of the shards: does sample j say what the greedy answer says (docs/methods.md §2.14)."""
    modal_share: float
    """Share of a question's samples that say what most of them say, mean over the questions (docs/methods.md §2.14)."""


def unless_failed(value: T | BaseException) -> T:
    """The same, of samples.

    Raises:
        Exception: what was found instead; it is the failure of the methods that read the samples.
    """
    if isinstance(value, BaseException):
        raise value
    return value


@dataclass(frozen=True, eq=False)
class SplitData:
    """A split: its questions and prompts; once read, its answers and signals; once graded, its labels."""

    where: TaskSplit
    task: Task
    questions: list[Question]
    shards: list[Shard]
    released: Mapping[str, Released] = field(default_factory=dict)
    """Question id -> the answer that was made elsewhere instead of being generated."""
    left_out: frozenset[str] = frozenset()
    """Ids of questions that are neither learned from nor scored: contaminated ones, and those without a verdict."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """Further counts of this split for its results, in words, e.g. how many questions are left out and why."""

    requested: frozenset[Signal] = frozenset()
    """Signals that methods read of it."""
    signals: frozenset[Signal] = frozenset()
    """Signals that were measured and stored for that."""
    names: list[dict[Signal, str]] = field(default_factory=list)
    """For each shard, their names in keys."""
    bundles: list[list[Entry]] = field(default_factory=list)
    """Store entries of each shard that hold its answers and signals."""
    answer_ids: list[list[Ids]] = field(default_factory=list)
    """Token ids of each shard's answers."""
    adapter: AdapterRef | None = None
    """Through which adapter the query was read, if any."""

    answers: list[Answer] = field(default_factory=list)
    n_undecided: int = 0
    """Open answers on which the judge came to no verdict."""
    compared_by: str = ""
    """The judge by which samples agree with the answer, where samples were drawn."""
    agreements: Mapping[Signal, Agreement | BaseException] = field(default_factory=dict)
    """Agreement of samples by signal, or why it could not be said."""
    relations: Mapping[Signal, FloatArray | BaseException] = field(default_factory=dict)
    """Relations among samples by signal, in the order of the shards, or why they could not be had."""
    related_by: Mapping[Signal, str] = field(default_factory=dict)
    """Who related them: a model with its revision, the judge, or `match`."""

    @property
    def graded_elsewhere(self) -> bool:
        """Whether its answers came with labels."""
        return bool(self.released) and all(answer.correct is not None for answer in self.released.values())

    @property
    def asked_elsewhere(self) -> bool:
        """Whether its prompts came with the answers."""
        return any(answer.prompt is not None for answer in self.released.values())

    @property
    def key(self) -> tuple[TaskSplit, str | None]:
        """Key among the readings of a run: the split, and the fingerprint of its adapter."""
        return self.where, None if self.adapter is None else self.adapter.fingerprint

    @property
    def order(self) -> IntArray:
        """`(n,)` for each question its place in the joined shards."""
        return np.argsort(self.rows, kind="stable")

    @property
    def rows(self) -> IntArray:
        """`(n,)` for each place in the joined shards its question."""
        return np.concatenate([shard.rows for shard in self.shards])

    def pairs(self) -> Iterator[tuple[Ids, Ids]]:
        """Prompt and answer ids of every question, shard by shard."""
        for shard, answers in zip(self.shards, self.answer_ids, strict=True):
            yield from zip(shard.prompts, answers, strict=True)

    @property
    def answered(self) -> BoolArray:
        """`(n,)` bool: the answer is more than white space; the others never enter `fit` or `predict`."""
        return np.asarray([bool(answer.text) for answer in self.answers], dtype=np.bool_)

    @property
    def kept(self) -> BoolArray:
        """`(n,)` bool: the question counts."""
        return np.asarray([question.id not in self.left_out for question in self.questions], dtype=np.bool_)

    @property
    def usable(self) -> BoolArray:
        """`(n,)` bool: the question counts and was answered; what `fit` and `predict` get."""
        return self.answered & self.kept

    @property
    def correct(self) -> BoolArray:
        """`(n,)` bool labels."""
        return np.asarray([answer.correct for answer in self.answers], dtype=np.bool_)

    @cached_property
    def asked(self) -> str:
        """Digest of its questions and prompts."""
        prompts = [digest_arrays(shard.prompts) for shard in self.shards]
        return key_of({"questions": [repr(question) for question in self.questions], "prompts": prompts})

    def digest(self) -> str:
        """Digest of its answers, labels and signals, for the key of what is learned from them."""
        files = [sorted(entry.manifest["files"].items()) for shard in self.bundles for entry in shard]
        judge: dict[str, object] = {"samples compared by": self.compared_by} if self.compared_by else {}
        if self.related_by:
            judge["samples related by"] = sorted((repr(signal), name) for signal, name in self.related_by.items())
        return key_of({"files": files, "labels": digest_arrays([self.correct]), **judge})


@dataclass(frozen=True, eq=False)
class StoredSplit:
    """Stored signals of a split, or of some of its questions, with all that makes columns of them."""

    split_data: SplitData
    lm: LanguageModel
    prompts: PromptTokeniser
    asking: PromptSettings
    seed: int
    """Seed of samples."""
    chosen: IntArray | None = None
    """`(m,)` rows of the questions that are seen, in this order; None: all, in the order of the shards."""

    def arrays(self, signal: Signal) -> dict[str, npt.NDArray[Any]]:
        """The arrays of a signal that was measured, as the store has them, the shards joined."""
        names = [shard_names[signal] for shard_names in self.split_data.names]
        return load_rows(self.split_data.bundles, names, self.places)

    @cached_property
    def rows(self) -> IntArray:
        """`(m,)` rows of the questions."""
        return self.split_data.rows if self.chosen is None else self.chosen

    @cached_property
    def questions(self) -> list[Question]:
        """The questions."""
        return [self.split_data.questions[row] for row in self.rows]

    def pairs(self) -> Iterator[tuple[Ids, Ids]]:
        """Prompt and answer ids of every question."""
        firsts = np.cumsum([0, *(len(shard.rows) for shard in self.split_data.shards)])
        shards = np.searchsorted(firsts, self.places, side="right") - 1
        for i, k in zip(shards.tolist(), (self.places - firsts[shards]).tolist(), strict=True):
            yield self.split_data.shards[i].prompts[k], self.split_data.answer_ids[i][k]

    @cached_property
    def places(self) -> IntArray:
        """`(m,)` places of the questions in the joined shards."""
        return np.arange(len(self.rows)) if self.chosen is None else self.split_data.order[self.chosen]

    @cached_property
    def samples(self) -> list[list[Ids]] | None:
        """Ids of each question's samples that were made elsewhere; None where they are drawn."""
        shard_samples = [shard.samples for shard in self.split_data.shards]
        joined = [sampled for part in shard_samples for sampled in part or ()]
        return None if None in shard_samples else [joined[place] for place in self.places]

    @cached_property
    def options(self) -> list[list[Ids]]:
        """Ids of each question's options as the model would have to say them: letters, or texts."""
        return self.prompts.options(self.split_data.task, self.questions)

    @cached_property
    def unlabelled(self) -> list[list[int]]:
        """Numbers of each question's options in an order that does not tell the right one: see `Of.OPTIONS`.

        Raises:
            UserError: a question has one option alone.
        """
        for question in self.questions:
            if len(question.choices) == 1:
                raise UserError(
                    f"it reads the options without labels, and question {question.id!r} of {self.split_data.where} has"
                    " the right one alone"
                )
        if self.split_data.task.format is Format.CHOICE:
            return [list(range(len(question.choices))) for question in self.questions]
        return [sorted(range(len(q.choices)), key=q.choices.__getitem__) for q in self.questions]


CompareSamples = Callable[[SplitData, Sequence[Sequence[str]]], BoolArray]
"""Says which samples agree: from a graded split and, in the order of its shards, the texts of each question's samples,
to `(n, N)` bool."""


RelateTexts = Callable[[SplitData, Any, Sequence[tuple[int, str, str]]], FloatArray]
"""Relates texts: from a graded split, a `Related` signal and pairs of texts, each with its question's row, to `(k,)` or
`(k, 3)`."""
