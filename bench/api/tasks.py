"""`Task`, the card of its data, and the rows it is made from."""

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
    """Origin of the rows of a data set; complete, or it does not construct."""

    license: str
    splits: Mapping[Split, str]
    """Our split -> the source's own split."""
    hub: str | None = None
    """Hub id of the data set; None for generated tasks."""
    config: str | None = None
    revision: str | None = None
    """Commit on the Hub, 40 hex digits; None with `unpinned_reason`."""
    unpinned_reason: str = ""
    folder: str = ""
    """Folder below `--data-dir` that holds `<source split>.parquet`."""
    files: str = ""
    """Path of a split's files in the Hub's repository, with `{split}`, where no configuration names them: the Parquet
    branch (`refs/convert/parquet`) of a data set that was a script."""

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
    """Facts that must hold for a task's rows and, unless other cards tell it, their origin."""

    version: int
    """Raised by every fix that changes a number; reports refuse to mix versions."""
    sizes: Mapping[Split, int]
    """Questions expected per split."""
    options: tuple[int, int]
    """Smallest and largest number of options."""
    why: str
    """One sentence on choices that a reader would ask about."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if set(self.sizes) != set(self.splits):
            raise ContractError(
                f"task card: sizes name {sorted(self.sizes)}, splits name {sorted(self.splits)}; they must agree"
            )


@dataclass(frozen=True)
class Row:
    """One row of a source, with the words to name it in an error."""

    index: int
    where: str
    values: Mapping[str, Any]


class Source(Protocol):
    """Gives the rows of a task's splits: from the Hub, or from a folder of Parquet files."""

    def rows(self, card: DataCard, split: Split, columns: Sequence[str]) -> Sequence[Row]:
        """Rows of the split, with exactly these columns; each is made when it is asked for."""

    def has(self, card: DataCard, split: Split) -> bool:
        """Whether the split can be read here; a folder may lack a file that the Hub has."""


class Task(ABC):
    """A set of questions with one way to ask them."""

    name: ClassVar[str]
    """Set by `@task("...")`."""
    format: ClassVar[Format]
    card: ClassVar[TaskCard]
    style: ClassVar[PromptStyle]
    train_on: ClassVar[str] = ""
    """Task on whose train split methods learn unless `--train-on` names another; empty: itself."""
    draws_exemplars: ClassVar[bool] = False
    """Whether each prompt draws its exemplars from a large pool; else it shows the pool's first ones."""
    prompt_tokens: ClassVar[int | None] = None
    """Length above which a prompt loses exemplars; None: the model's context alone."""

    def __init__(self, source: Source, protocol: SharedProtocol | None = None) -> None:
        self.source = source
        self.protocol = protocol or SharedProtocol()
        self.counts: dict[str, int] = {}
        """Counts of what was left out or is odd in the rows read so far, in words; shown with every result."""

    @abstractmethod
    def questions(self, split: Split) -> Iterator[Question]:
        """The questions of a split, in the source's order.

        Raises:
            UserError: a row is not as the card says; names the file and the row.
        """

    def pools(self) -> Mapping[str, Sequence[Question]]:
        """Subject -> questions that may be shown as exemplars in its prompts; the default is the dev split."""
        pools: dict[str, list[Question]] = {}
        for question in self.questions("dev") if "dev" in self.card.splits else ():
            pools.setdefault(question.subject, []).append(question)
        return pools

    def style_of(self, question: Question) -> PromptStyle:
        """The words around a question; the default is the same for all."""
        del question
        return self.style

    def origins(self, split: Split) -> Sequence[tuple[DataCard, Split]]:
        """The data sets that a split is made of, each with its own split, for the result's provenance."""
        return [(self.card, split)] if self.card.hub is not None else []

    def provenance(self, split: Split) -> Mapping[str, str]:
        """Further statements of the result about the rows' origin, e.g. a file's digest; by default nothing."""
        del split
        return {}
