"""`Task`, the base class of tasks; `TaskCard`, the facts on a task's data; `Source`, which loads its rows."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn, Protocol

from bench.api.errors import ContractError
from bench.api.protocol import Protocol as SharedProtocol
from bench.api.question import Format, PromptStyle, Question, Split


@dataclass(frozen=True, kw_only=True)
class DataCard:
    """Origin of a data set's rows.

    A card with a Hub id raises a `ContractError` if it has no folder, or neither a revision nor `unpinned_reason`.
    """

    license: str
    splits: Mapping[Split, str]
    """Name of the task's split -> name of the data set's split."""
    hub: str | None = None
    """Id of the data set on the Hugging Face Hub; None for generated tasks."""
    config: str | None = None
    revision: str | None = None
    """Commit on the Hub, 40 hex digits; None if `unpinned_reason` is set, and for generated tasks."""
    unpinned_reason: str = ""
    folder: str = ""
    """Name of the folder below `--data-dir` that has one file `<split of the data set>.parquet` for each split."""
    files: str = ""
    """Path of a split's files in the Hub repository, with the placeholder `{split}`. Needed only where the repository's
    configurations don't list the files, e.g. for a script-based data set, whose files are on the Parquet branch
    (`refs/convert/parquet`)."""

    def __post_init__(self) -> None:
        pinned = self.revision is not None and re.fullmatch(r"[0-9a-f]{40}", self.revision) is not None
        if self.hub is not None and not pinned and not self.unpinned_reason:
            raise ContractError(
                f"card of {self.hub}: expected a revision of 40 hex digits, or None with unpinned_reason;"
                f" got {self.revision!r}"
            )
        if self.hub is not None and not self.folder:
            raise ContractError(f"card of {self.hub}: folder is empty; name the folder below --data-dir")


@dataclass(frozen=True, kw_only=True)
class TaskCard(DataCard):
    """Facts on a task that are checked against its rows, and the rows' origin.

    `Task.origins` can name other data cards as the origin.
    """

    version: int
    """Version of the task. Every fix that changes a number of the task raises it, and reports refuse to mix
    versions."""
    sizes: Mapping[Split, int]
    """Name of a split -> expected number of questions."""
    options: tuple[int, int]
    """Smallest and largest number of options of a question."""
    why: str
    """One sentence that justifies unusual choices in this task."""
    overlaps: Sequence[str] = ()
    """Other data sets on the Hub from which rows of this one were taken. Results that learned on one and were tested on
    the other say so."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if set(self.sizes) != set(self.splits):
            raise ContractError(
                f"task card: sizes name {sorted(self.sizes)}, splits name {sorted(self.splits)}; they must agree"
            )

    def overlaps_with(self, other: TaskCard) -> bool:
        """Return whether rows of one of the two tasks' data sets were taken from that of the other."""
        return other.hub in self.overlaps or self.hub in other.overlaps


@dataclass(frozen=True)
class Row:
    """One row of a data set; `where` names the row in error messages, e.g. its file and line."""

    index: int
    where: str
    values: Mapping[str, Any]


class Source(Protocol):
    """Loader of the rows of a data set's splits, from the Hub or from a folder of Parquet files."""

    def rows(self, card: DataCard, split: Split, columns: Sequence[str]) -> Sequence[Row]:
        """Return the rows of a split with exactly these columns; each row is built when it is accessed."""

    def has(self, card: DataCard, split: Split) -> bool:
        """Return whether a split is available; a local folder may lack files that the Hub has."""


class _NoSource(Source):
    def has(self, card: DataCard, split: Split) -> bool:
        """Return False."""
        del card, split
        return False

    def rows(self, card: DataCard, split: Split, columns: Sequence[str]) -> NoReturn:
        """Raise a ContractError."""
        raise ContractError(f"{card.hub or card.folder}: no source to read {', '.join(columns)} of {split} from")


NO_SOURCE: Source = _NoSource()
"""Data source without rows, for a task that generates its questions or isn't read; reading raises a ContractError."""


class Task(ABC):
    """A set of questions with one format and one prompt style."""

    name: ClassVar[str]
    """Name of the task, set by `@task("...")`."""
    format: ClassVar[Format]
    card: ClassVar[TaskCard]
    style: ClassVar[PromptStyle]
    train_on: ClassVar[str] = ""
    """Name of the task whose train split methods learn from, if `--train-on` names no other; empty: this task
    itself."""
    draws_exemplars: ClassVar[bool] = False
    """Whether each prompt samples its exemplars from a large pool. If not, `Protocol.exemplar_order` decides: all
    prompts show the first ones of the pool, or each prompt permutes the pool."""
    prompt_tokens: ClassVar[int | None] = None
    """Number of tokens above which a prompt drops exemplars; a prompt without exemplars may be longer. None: only the
    model's context limits prompts."""

    def __init__(self, source: Source, protocol: SharedProtocol | None = None) -> None:
        self.source = source
        self.protocol = protocol or SharedProtocol()
        self.counts: dict[str, int] = {}
        """Description -> number of excluded or unusual rows among the rows read so far; shown with every result."""

    @abstractmethod
    def questions(self, split: Split) -> Iterator[Question]:
        """Yield the questions of a split, in the order of its rows.

        Raises:
            AbsentError: the split has no question; a run does without such a validation split.
            UserError: a row contradicts the task's card; the message names the file and the row.
        """

    def pools(self) -> Mapping[str, Sequence[Question]]:
        """Return subject -> questions that may be exemplars in its prompts; by default those of the dev split."""
        pools: dict[str, list[Question]] = {}
        for question in self.questions("dev") if "dev" in self.card.splits else ():
            pools.setdefault(question.subject, []).append(question)
        return pools

    def style_of(self, question: Question) -> PromptStyle:
        """Return the prompt style of a question; by default all questions of the task have the same style."""
        del question
        return self.style

    def origins(self, split: Split) -> Sequence[tuple[DataCard, Split]]:
        """Return the data sets that a split's rows come from, each with its own name of the split, for results."""
        return [(self.card, split)] if self.card.hub is not None else []

    def provenance(self, split: Split) -> Mapping[str, str]:
        """Return further facts on the origin of a split's rows for results, e.g. a file's digest; by default none."""
        del split
        return {}
