"""The shards of a split on their way to be complete: looked up, handed to an engine, gathered."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from bench.backbone.memory import give_back
from bench.prompts.shards import Shard
from bench.signals.shard_task import ShardTask
from bench.store.folders import Entry

if TYPE_CHECKING:
    from bench.progress import Advance


@dataclass(frozen=True)
class Found:
    """Holdings of the store of a shard."""

    entries: list[Entry]
    task: ShardTask | None
    """The missing part, if any."""


@dataclass
class Completion:
    """Gathers the entries of each shard: those that lie in the store, and last the one that is computed now."""

    shards: list[Shard]
    look: Callable[[int], Found]
    """Says what the store has of the shard of a number."""
    advance: Advance
    """Told the tokens of each complete shard."""
    done: dict[int, list[Entry]] = field(default_factory=dict, init=False)
    _begun: dict[int, list[Entry]] = field(default_factory=dict, init=False)

    @property
    def over(self) -> bool:
        """Whether all are complete."""
        return len(self.done) == len(self.shards)

    def missing(self, *, anyway: bool) -> Iterator[ShardTask]:
        """The work on shards that are not complete; each is looked up when it is asked for.

        Args:
            anyway: compute what is missing whatever others put there meanwhile.
        """
        for i in range(len(self.shards)):
            if i in self.done:
                continue
            found = self.look(i)
            if found.task is None:
                self._keep(i, found.entries)
            else:
                self._begun[i] = found.entries
                yield replace(found.task, held=None) if anyway else found.task

    def made(self, task: ShardTask, entry: Entry | None) -> None:
        """Take the entry that was put for a task; None where the shard has to be looked up again."""
        if entry is not None:
            self._keep(task.number, [*self._begun[task.number], entry])

    def _keep(self, i: int, entries: list[Entry]) -> None:
        self.done[i] = entries
        self.advance(self.shards[i].tokens)
        give_back()
