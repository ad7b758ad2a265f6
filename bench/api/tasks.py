"""`Task`, the base class of tasks; `TaskCard`, the facts on its data; `Source`, which loads its rows."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from bench.api.errors import ContractError
from bench.api.protocol import Protocol as SharedProtocol
from bench.api.question import Format, PromptStyle, Question, Split


@dataclass(frozen=True, kw_only=True)
class DataCard:
    """Origin of a data set's rows; an incomplete card raises an error."""

    license: str
    splits: Mapping[Split, str]
    """Split of the task -> split of the data set."""
    hub: str | None = None
    """Id of the data set on the Hugging Face Hub; None for generated tasks."""
    config: str | None = None
    revision: str | None = None
    """Commit on the Hub, 40 hex digits; None if `unpinned_reason` is set."""
    unpinned_reason: str = ""
    folder: str = ""
    """Folder below `--data-dir` with the files `<source split>.parquet`."""
    files: str = ""
    """Path of a split's files in the Hub repository, with `{split}`, where no configuration lists them: e.g. on the
    Parquet branch (`refs/convert/parquet`) of a script-based data set."""

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
    """Facts that are checked against a task's rows, and the rows' origin unless `Task.origins` names other cards."""

    version: int
    """Version, increased by every fix that changes a number; reports refuse to mix versions."""
    sizes: Mapping[Split, int]
    """Expected number of questions per split."""
    options: tuple[int, int]
    """Smallest and largest number of options."""
    why: str
    """One sentence that justifies unusual choices."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if set(self.sizes) != set(self.splits):
            raise ContractError(
                f"task card: sizes name {sorted(self.sizes)}, splits name {sorted(self.splits)}; they must agree"
            )


@dataclass(frozen=True)
class Row:
    """One row of a source; `where` says in messages which row it is."""

    index: int
    where: str
    values: Mapping[str, Any]


class Source(Protocol):
    """Loads the rows of a task's splits: from the Hub, or from a folder of Parquet files."""

    def rows(self, card: DataCard, split: Split, columns: Sequence[str]) -> Sequence[Row]:
        """Return the rows of the split with exactly these columns, each built on access."""

    def has(self, card: DataCard, split: Split) -> bool:
        """Return whether the split is available; a folder may lack a file that the Hub has."""


class Task(ABC):
    """A set of questions with one prompt style."""

    name: ClassVar[str]
    """Set by `@task("...")`."""
    format: ClassVar[Format]
    card: ClassVar[TaskCard]
    style: ClassVar[PromptStyle]
    train_on: ClassVar[str] = ""
    """Task on whose train split methods train unless `--train-on` names another; empty: this task."""
    draws_exemplars: ClassVar[bool] = False
    """Whether each prompt samples its exemplars from a large pool; else it shows the pool's first ones."""
    prompt_tokens: ClassVar[int | None] = None
    """Length limit in tokens, above which a prompt drops exemplars; None: the model's context alone."""

    def __init__(self, source: Source, protocol: SharedProtocol | None = None) -> None:
        self.source = source
        self.protocol = protocol or SharedProtocol()
        self.counts: dict[str, int] = {}
        """Description -> count of excluded or unusual rows among those read so far; shown with every result."""

    @abstractmethod
    def questions(self, split: Split) -> Iterator[Question]:
        """Yield the questions of a split, in the source's order.

        Raises:
            UserError: a row contradicts the card; names the file and the row.
        """

    def pools(self) -> Mapping[str, Sequence[Question]]:
        """Return subject -> questions available as exemplars for its prompts; the default is the dev split."""
        pools: dict[str, list[Question]] = {}
        for question in self.questions("dev") if "dev" in self.card.splits else ():
            pools.setdefault(question.subject, []).append(question)
        return pools

    def style_of(self, question: Question) -> PromptStyle:
        """Return the prompt style of a question; the default is the same for all."""
        del question
        return self.style

    def origins(self, split: Split) -> Sequence[tuple[DataCard, Split]]:
        """Return the data sets of a split, each with the name of its split, for the result's provenance."""
        return [(self.card, split)] if self.card.hub is not None else []

    def provenance(self, split: Split) -> Mapping[str, str]:
        """Return further facts on the rows' origin for the result, e.g. a file's digest; by default none."""
        del split
        return {}
