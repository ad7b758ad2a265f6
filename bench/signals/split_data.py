"""`SplitData`, a split's questions, prompts, answers and labels; `StoredSplit`, which loads the split's stored signals.

A `SplitData` is immutable: opening, reading and grading a split each return a new one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from bench.api import AdapterRef, BoolArray, FloatArray, Format, IntArray, Question, Samples, Signal, Task, UserError
from bench.api.question import Answer, Released
from bench.data.splits import TaskSplit
from bench.prompts.front_coding import Ids
from bench.prompts.shards import PromptTokeniser, Shard
from bench.signals.files import load_rows
from bench.store.disk_cache import Entry, digest_arrays, key_of

if TYPE_CHECKING:
    from bench.model.language_model import LanguageModel
    from bench.model.trace_decoder import TraceText
    from bench.prompts.prompt_settings import PromptSettings

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Agreement:
    """Which samples of a signal agree with the answers."""

    agree: BoolArray
    """`(n, N)`, questions in the order of the shards: whether each of the N samples agrees with the greedy answer
    (docs/methods.md §2.14)."""
    modal_share: float
    """Share of a question's samples that are in its largest group of samples that agree; mean over the questions
    (docs/methods.md §2.14)."""


def raise_if_failed(value: T | BaseException) -> T:
    """Return a value computed from samples; if computing it failed, `value` is the exception, and it is raised.

    Raises:
        Exception: the recorded exception; methods that read the samples then fail with it.
    """
    if isinstance(value, BaseException):
        raise value
    return value


@dataclass(frozen=True, eq=False)
class SplitData:
    """A split: its questions and prompts. It has answers and signals once it is read, and labels once it is graded."""

    where: TaskSplit
    task: Task
    questions: list[Question]
    shards: list[Shard]
    released: Mapping[str, Released] = field(default_factory=dict)
    """Question id -> answer from the authors' release or a user's file, used instead of a generated answer."""
    left_out: frozenset[str] = frozenset()
    """Ids of questions that are neither used to fit methods nor scored: questions without a verdict; in a split to
    learn on, questions that are also in a test split or in the validation split, if the run drops them; and those that
    an analysis takes out."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """Description -> number of questions, shown in the results; e.g. how many questions are excluded, and why."""

    requested: frozenset[Signal] = frozenset()
    """Signals that the methods of the run read."""
    signals: frozenset[Signal] = frozenset()
    """Stored signals from which the signals in `requested` are computed."""
    names: list[dict[Signal, str]] = field(default_factory=list)
    """For each shard: stored signal -> its name in store keys."""
    bundles: list[list[Entry]] = field(default_factory=list)
    """Store entries of each shard, which have its answers and signals."""
    answer_ids: list[list[Ids]] = field(default_factory=list)
    """Token ids of each shard's answers."""
    generated: Mapping[Samples | None, list[list[TraceText]]] = field(default_factory=dict)
    """Sampling settings, or None -> the texts with traces that were generated with them, or greedily, for each question
    in the order of the shards. Empty if the model does not reason, or if the answers are from a file."""
    trace_entries: list[Entry] = field(default_factory=list)
    """Store entries of generated traces."""
    adapter: AdapterRef | None = None
    """Adapter with which the model read the self-check query; None without one."""

    answers: list[Answer] = field(default_factory=list)
    n_undecided: int = 0
    """Number of open answers on which the judge has no verdict."""
    compared_by: str = ""
    """Name of the judge that compared samples with the answers; empty without agreements, and where letters are
    compared."""
    agreements: Mapping[Signal, Agreement | BaseException] = field(default_factory=dict)
    """Signal -> agreement of its samples with the answers, or the exception that computing it raised."""
    relations: Mapping[Signal, FloatArray | BaseException] = field(default_factory=dict)
    """Signal -> how its samples are related, in the order of the shards; or the exception that computing this
    raised."""
    related_by: Mapping[Signal, str] = field(default_factory=dict)
    """Signal -> name of what compared its samples: a model with its revision, the judge, or `match` for normalised
    texts."""

    @property
    def has_external_labels(self) -> bool:
        """Whether all answers come with labels from the authors' release or a user's file."""
        return bool(self.released) and all(answer.correct is not None for answer in self.released.values())

    @property
    def has_external_prompts(self) -> bool:
        """Whether at least one answer from a release or a file comes with the prompt that it answers."""
        return any(answer.prompt is not None for answer in self.released.values())

    @property
    def key(self) -> tuple[TaskSplit, str | None]:
        """Key of this split within a run: the split's name and, with an adapter, the adapter's fingerprint."""
        return self.where, None if self.adapter is None else self.adapter.fingerprint

    @property
    def order(self) -> IntArray:
        """`(n,)` position of each question in the concatenated shards."""
        return np.argsort(self.rows, kind="stable")

    @property
    def rows(self) -> IntArray:
        """`(n,)` index in the split of the question at each position of the concatenated shards."""
        return np.concatenate([shard.rows for shard in self.shards])

    def pairs(self) -> Iterator[tuple[Ids, Ids]]:
        """Yield the token ids of prompt and answer of every question, shard by shard."""
        for shard, answers in zip(self.shards, self.answer_ids, strict=True):
            yield from zip(shard.prompts, answers, strict=True)

    @property
    def answered(self) -> BoolArray:
        """`(n,)` bool: whether the answer has text. Methods never get questions with a blank answer."""
        return np.asarray([bool(answer.text) for answer in self.answers], dtype=np.bool_)

    @property
    def included(self) -> BoolArray:
        """`(n,)` bool: whether the question is not in `left_out`."""
        return np.asarray([question.id not in self.left_out for question in self.questions], dtype=np.bool_)

    @property
    def usable(self) -> BoolArray:
        """`(n,)` bool: whether a question is answered and not in `left_out`. Methods get no other questions."""
        return self.answered & self.included

    @property
    def correct(self) -> BoolArray:
        """`(n,)` bool labels: whether the answer is right."""
        return np.asarray([answer.correct for answer in self.answers], dtype=np.bool_)

    def bounds(self, signal: Signal) -> list[tuple[str, int, float]]:
        """Return the questions of which a stored signal has bounds instead of values, as a model's server gave no more.

        Returns:
            For each: its id, the number of bounds, and the width of the interval that they leave open.
        """
        found = (
            entry.manifest.get("bounds", {}).get(names.get(signal), ())
            for names, entries in zip(self.names, self.bundles, strict=True)
            for entry in entries
        )
        return [(str(row[0]), int(row[1]), float(row[2])) for rows in found for row in rows]

    @cached_property
    def content_digest(self) -> str:
        """Digest of the questions and prompts."""
        prompts = [digest_arrays(shard.prompts) for shard in self.shards]
        return key_of({"questions": [repr(question) for question in self.questions], "prompts": prompts})

    def digest(self) -> str:
        """Return a digest of answers, labels and signals, for the cache keys of fitted methods."""
        bundles = [*self.bundles, self.trace_entries]
        files = [sorted(entry.manifest["files"].items()) for shard in bundles for entry in shard]
        judge: dict[str, object] = {"samples compared by": self.compared_by} if self.compared_by else {}
        if self.related_by:
            judge["samples related by"] = sorted((repr(signal), name) for signal, name in self.related_by.items())
        given = [  # which no stored file may have
            [*map(digest_arrays, (answers, *(shard.samples or ())))]
            for shard, answers in zip(self.shards, self.answer_ids, strict=True)
            if shard.given is not None
        ]
        texts = {"given": given} if given else {}
        return key_of({"files": files, "labels": digest_arrays([self.correct]), **judge, **texts})


def exemplar_notes(splits: Sequence[SplitData], shots: int) -> list[str]:
    """Return a note if of a test and the splits that are learned from for it, some show exemplars and others don't.

    It compares tasks, since a task has the same exemplars for all its splits. Prompts that come with answers are not
    compared; exemplars that were left out of a prompt because it was too long are counted as shown.

    Args:
        splits: the test, and splits of the task that is learned from.
        shots: requested number of exemplars.
    """
    shown = {each.where.task for each in splits if any(shard.dropped or any(shard.shown) for shard in each.shards)}
    bare = {each.where.task for each in splits if not each.has_external_prompts} - shown
    return [
        f"{task} is asked without exemplars, {other} with up to {shots}, so methods learn on other prompts than they"
        f" are tested on; rows of split dev would be exemplars of {task}"
        for task in bare
        for other in shown
    ]


@dataclass(frozen=True, eq=False)
class StoredSplit:
    """Loads the stored signals of a split, or of some of its questions; has the model and the tokeniser."""

    split_data: SplitData
    lm: LanguageModel
    prompts: PromptTokeniser
    settings: PromptSettings
    seed: int
    """Seed of the samples."""
    selected_rows: IntArray | None = None
    """`(m,)` indices in the split of the selected questions, in the wanted order; None for all questions in the order
    of the shards."""

    def arrays(self, signal: Signal) -> dict[str, npt.NDArray[Any]]:
        """Load the arrays of a stored signal for the selected questions, in the order of `rows`."""
        names = [shard_names[signal] for shard_names in self.split_data.names]
        return load_rows(self.split_data.bundles, names, self.positions)

    @cached_property
    def rows(self) -> IntArray:
        """`(m,)` indices of the selected questions in the split."""
        return self.split_data.rows if self.selected_rows is None else self.selected_rows

    @cached_property
    def questions(self) -> list[Question]:
        """The selected questions."""
        return [self.split_data.questions[row] for row in self.rows]

    def pairs(self) -> Iterator[tuple[Ids, Ids]]:
        """Yield the token ids of prompt and answer of every selected question."""
        for i, k in self._places():
            yield self.split_data.shards[i].prompts[k], self.split_data.answer_ids[i][k]

    def query_prompts(self) -> Iterator[Ids]:
        """Yield the token ids up to the answer with which every selected question's self-check conversation begins."""
        data = self.split_data
        begins = [
            self.prompts.query_prompts(data.task, [data.questions[row] for row in shard.rows], shard, data.released)
            for shard in data.shards
        ]
        for i, k in self._places():
            yield (begins[i] or data.shards[i].prompts)[k]

    def traces(self) -> Iterator[Ids]:
        """Yield the token ids of every selected question's reasoning trace, which may be empty."""
        for i, k in self._places():
            traces = self.split_data.shards[i].traces
            yield np.zeros(0, dtype=np.int32) if traces is None else traces[k]

    def _places(self) -> Iterator[tuple[int, int]]:
        """Yield for every selected question the index of its shard, and its index in the shard."""
        firsts = np.cumsum([0, *(len(shard.rows) for shard in self.split_data.shards)])
        shards = np.searchsorted(firsts, self.positions, side="right") - 1
        yield from zip(shards.tolist(), (self.positions - firsts[shards]).tolist(), strict=True)

    @cached_property
    def positions(self) -> IntArray:
        """`(m,)` positions of the selected questions in the concatenated shards."""
        return np.arange(len(self.rows)) if self.selected_rows is None else self.split_data.order[self.selected_rows]

    @cached_property
    def samples(self) -> list[list[Ids]] | None:
        """Token ids of each question's samples from a release or a file; None if the model generates samples."""
        shard_samples = [shard.samples for shard in self.split_data.shards]
        joined = [sampled for part in shard_samples for sampled in part or ()]
        return None if None in shard_samples else [joined[place] for place in self.positions]

    @cached_property
    def options(self) -> list[list[Ids]]:
        """Token ids of each question's options as the model would generate them: letters in choice tasks, or texts."""
        return self.prompts.options(self.split_data.task, self.questions)

    @cached_property
    def unlabelled(self) -> list[list[int]]:
        """Indices of each question's options, in an order that does not reveal the right one (see `Of.OPTIONS`).

        Raises:
            UserError: a question has only one option.
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
"""Function that returns which samples agree with the answer, `(n, N)` bool. Arguments: a graded split, and the texts of
each question's samples in the order of the split's shards."""


RelateTexts = Callable[[SplitData, Any, Sequence[tuple[int, str, str]]], FloatArray]
"""Function that returns how the texts of k pairs are related: `(k, 3)` probabilities for entailment, else `(k,)` (see
`Related`). Arguments: a graded split, a `Related` signal, and k triples (index of the question, text, other text)."""
