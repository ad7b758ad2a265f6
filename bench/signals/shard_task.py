"""The work on one shard as a plain value: token ids and names, so that whoever does it needs no task and no plugin."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from bench.api import AdapterRef, Signal
from bench.backbone.measure import Sampling
from bench.prompts.asking import Asking
from bench.prompts.tails import Ids, Tails
from bench.store.folders import Entry

_NOTHING: Ids = np.zeros(0, dtype=np.int32)


@dataclass(frozen=True, eq=False)
class AskedQuestion:
    """One question besides its prompt."""

    id: str
    """Samples are drawn by it."""
    options: int
    """Number of lettered options; 0 for an open question."""
    gold: Ids = field(default_factory=lambda: _NOTHING)
    """The right answer of an open question."""
    wrong: tuple[Ids, ...] = ()
    """The wrong answers of an open question."""
    query_prompt: Ids | None = None
    """Ids before the answer in the self-check conversation; None where that is the prompt itself."""

    def read(self) -> dict[str, Any]:
        """What the extractor reads of it: arguments of an `Item`."""
        return {name: value for name, value in vars(self).items() if name != "id"}


@dataclass(frozen=True, eq=False)
class ShardTask:
    """The missing part of one shard."""

    number: int
    """Number of the shard in its split, from 0."""
    split: str
    kind: str
    """The part of the store where the shard's entries lie."""
    held: tuple[str, ...] | None
    """Keys of the entries that lay there: where others lie beside them, somebody was quicker. None: compute anyway."""
    prompts: Tails
    questions: tuple[AskedQuestion, ...]
    answers: list[Ids] | None
    """Answers that are read; None where they are generated."""
    asking: Asking
    names: Mapping[Signal, str]
    """Signals that are measured, with their names in keys."""
    seed: int
    """Seed of samples."""
    stage: str | None = None
    """Stage under which all costs are counted; None: each under its own."""
    adapter: AdapterRef | None = None
    """Through which adapter it is read."""
    samples: Mapping[Sampling, list[list[Ids]]] = field(default_factory=dict)
    """Samples that the store has, of each question; others are drawn."""


@dataclass(frozen=True, eq=False)
class Done:
    """Outcome of a task; its numbers lie in the store."""

    key: str | None = None
    """Key of the entry that was put; None where nothing was computed, since others have put some meanwhile."""
    entry: Entry | None = None
    """The entry, where it was put by this process."""
    forward_tokens: int = 0
    """Token positions fed to the model."""
    peak_memory_mb: float = 0.0
    """Largest memory so far of a process other than this one."""
    started: float = 0.0
    """Seconds since 1970 on the clock of the machine that did it; so is `ended`."""
    ended: float = 0.0
    taken: bool = False
    """Whether another run is computing the shard."""


class Engine(Protocol):
    """Does tasks, in this process or elsewhere."""

    def work(self, tasks: Iterable[ShardTask]) -> Generator[tuple[ShardTask, Done], None, None]:
        """Do tasks in any order; each is drawn from `tasks` when somebody is there to do it.

        Raises:
            UserError: one of them can't be done.
        """

    def rest(self) -> None:
        """Give devices back until there is work again."""

    def close(self) -> None:
        """End whatever was started."""
