"""State of a split while it is read, graded, learned from and predicted: a value, new after each step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from bench.api import AdapterRef, BoolArray, Question, Signal, Task
from bench.api.question import Answer, Released
from bench.data.splits import TaskSplit
from bench.prompts.shards import Shard
from bench.prompts.tails import Ids
from bench.store.folders import Entry, digest_arrays, key_of


@dataclass(frozen=True, eq=False)
class Agreement:
    """Whether samples agree with the answers."""

    agree: BoolArray
    """`(n, N)` in the order of the shards: does sample j say what the greedy answer says (docs/methods.md §2.14)."""
    modal_share: float
    """Share of a question's samples that say what most of them say, mean over the questions (docs/methods.md §2.14)."""


@dataclass(frozen=True, eq=False)
class Reading:
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

    wanted: frozenset[Signal] = frozenset()
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
    relations: Mapping[Signal, npt.NDArray[np.float32] | BaseException] = field(default_factory=dict)
    """Relations among samples by signal, in the order of the shards, or why they could not be had."""
    related_by: Mapping[Signal, str] = field(default_factory=dict)
    """Who related them: a model with its revision, the judge, or `match`."""

    def agreement(self, signal: Signal) -> Agreement:
        """Agreement of a signal's samples.

        Raises:
            Exception: what kept the judge from saying so; it is the failure of the methods that read the samples.
        """
        found = self.agreements[signal]
        if isinstance(found, BaseException):
            raise found
        return found

    def relation(self, signal: Signal) -> npt.NDArray[np.float32]:
        """Relations among a signal's samples.

        Raises:
            Exception: what kept them from being had; it is the failure of the methods that read them.
        """
        found = self.relations[signal]
        if isinstance(found, BaseException):
            raise found
        return found

    @property
    def graded_elsewhere(self) -> bool:
        """Whether its answers came with labels."""
        return bool(self.released) and all(answer.correct is not None for answer in self.released.values())

    @property
    def asked_elsewhere(self) -> bool:
        """Whether its prompts came with the answers."""
        return any(answer.prompt is not None for answer in self.released.values())

    @property
    def samples(self) -> list[list[Ids]] | None:
        """Ids of samples that came with the answers, in the order of the shards; None where they are drawn."""
        parts = [shard.samples for shard in self.shards]
        return None if None in parts else [own for part in parts for own in part or ()]

    @property
    def key(self) -> tuple[TaskSplit, str | None]:
        """Key among the readings of a run: the split, and the fingerprint of its adapter."""
        return self.where, None if self.adapter is None else self.adapter.fingerprint

    @property
    def order(self) -> npt.NDArray[np.int64]:
        """`(n,)` for each question its place in the joined shards."""
        return np.argsort(self.rows, kind="stable")

    @property
    def rows(self) -> npt.NDArray[np.int64]:
        """`(n,)` for each place in the joined shards its question."""
        return np.concatenate([shard.rows for shard in self.shards])

    def pairs(self) -> Iterator[tuple[Ids, Ids]]:
        """Prompt and answer ids of every question, shard by shard."""
        for shard, answers in zip(self.shards, self.answer_ids, strict=True):
            yield from zip(shard.prompts, answers, strict=True)

    @property
    def answered(self) -> npt.NDArray[np.bool_]:
        """`(n,)` bool: the answer is more than white space; the others never enter `fit` or `predict`."""
        return np.asarray([bool(answer.text) for answer in self.answers], dtype=np.bool_)

    @property
    def kept(self) -> npt.NDArray[np.bool_]:
        """`(n,)` bool: the question counts."""
        return np.asarray([question.id not in self.left_out for question in self.questions], dtype=np.bool_)

    @property
    def usable(self) -> npt.NDArray[np.bool_]:
        """`(n,)` bool: the question counts and was answered; what `fit` and `predict` get."""
        return self.answered & self.kept

    @property
    def correct(self) -> npt.NDArray[np.bool_]:
        """`(n,)` bool labels."""
        return np.asarray([answer.correct for answer in self.answers], dtype=np.bool_)

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


Comparer = Callable[[Reading, Sequence[Sequence[str]]], BoolArray]
"""Says which samples agree: from a graded split and, in the order of its shards, the texts of each question's samples,
to `(n, N)` bool."""


Relater = Callable[[Reading, Any, Sequence[tuple[int, str, str]]], npt.NDArray[np.float32]]
"""Relates texts: from a graded split, a `Related` signal and pairs of texts, each with its question's row, to `(k,)` or
`(k, 3)`."""
