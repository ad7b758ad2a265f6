"""Shards handed out to workers, at most two to each; what a lost worker had is handed out again."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from bench.api import UserError
from bench.signals.worker import Done, Outcomes, ShardTask, busy_last

AHEAD = 2
"""Tasks of a worker at once: one that it does, and one that it has ready."""
_MOST = 2
"""Workers that a task may outlast; a third one would only be lost, too."""
_REPLACED = 2
"""Workers that are started anew, for each that there should be."""
_PATIENCE = 600.0
"""Seconds in which a first worker is there: a cluster may have to make room, and a large model to be loaded."""
_POLL = 5.0


@dataclass(frozen=True)
class Ready:
    """A worker is there."""


@dataclass(frozen=True)
class Failed:
    """A worker can't do what it is asked for; no other could."""

    reason: str
    """A sentence for the user, or the lines of a traceback."""
    expected: bool
    """Whether it is the first."""


@dataclass(frozen=True)
class Lost:
    """A worker is gone."""

    reason: str


Event = Ready | Done | Failed | Lost


class WorkerGroup(Protocol):
    """Workers of one kind, each called by a number."""

    @property
    def size(self) -> int:
        """Workers that there should be."""

    def hire(self) -> int:
        """Begin to start a worker; returns its number.

        Raises:
            UserError: none can be started.
        """

    def send(self, worker: int, task: ShardTask, *, wait: bool) -> None:
        """Hand a task to a worker that is there; it does them in this order."""

    def receive(self, seconds: float) -> list[tuple[int, Event]]:
        """Wait for something to happen; empty where nothing does for so long."""

    def dismiss(self) -> None:
        """End all workers; others may be hired."""

    def close(self) -> None:
        """End all workers, and whatever was begun for them."""


@dataclass
class Pool:
    """An engine of many workers."""

    crew: WorkerGroup
    gives_back: bool = False
    """Whether workers are ended when there is nothing to do, since they hold devices that the run itself needs."""
    late: Callable[[], bool] = lambda: False
    """Whether their devices do something else meanwhile, so that the first worker may come in hours."""
    _starting: set[int] = field(default_factory=set, init=False)
    _flying: dict[int, deque[ShardTask]] = field(default_factory=dict, init=False)
    """Worker that is there -> its tasks, the one that it does first."""
    _losses: Counter[tuple[str, int]] = field(default_factory=Counter, init=False)
    _replaced: int = field(default=0, init=False)

    def work(self, tasks: Iterable[ShardTask]) -> Outcomes:
        """See `bench.signals.worker.Engine`: those that another run is computing come last."""
        try:
            yield from busy_last(self._each, tasks)
        finally:
            if any(self._flying.values()):  # it was broken off: what they still do is not for those who ask next
                self.dismiss()

    def rest(self) -> None:
        """End the workers where they hold what the run needs; the next task starts others."""
        if self.gives_back:
            self.dismiss()

    def dismiss(self) -> None:
        """End the workers; the next task starts others."""
        self.crew.dismiss()
        self._starting.clear()
        self._flying.clear()

    def close(self) -> None:
        """End the workers, and whatever was begun for them."""
        self.dismiss()
        self.crew.close()

    # --- handing out --------------------------------------------------------------------------------------------------

    def _each(self, tasks: Iterable[ShardTask], *, wait: bool) -> Iterator[tuple[ShardTask, Done]]:
        source = iter(tasks)
        waiting = deque(task for task in [next(source, None)] if task is not None)
        while waiting and len(self._starting) + len(self._flying) < self.crew.size:  # not for what is stored
            self._starting.add(self.crew.hire())
        since = time.monotonic()
        while waiting or any(self._flying.values()):
            for most in range(1, AHEAD + 1):  # first one task to each
                for worker, own in self._flying.items():
                    if len(own) < most and (task := waiting.popleft() if waiting else next(source, None)) is not None:
                        own.append(task)
                        self.crew.send(worker, task, wait=wait)
            for worker, event in self.crew.receive(_POLL):
                if isinstance(event, Done):
                    yield self._flying[worker].popleft(), event
                else:
                    waiting.extendleft(self._noted(worker, event))
            if self.late():
                since = time.monotonic()
            if not self._flying and time.monotonic() - since > _PATIENCE:
                raise UserError(
                    f"--workers: none of {self.crew.size} workers was there after {_PATIENCE:.0f} s; check that the"
                    " machines have a free device for each, or name fewer."
                )

    def _noted(self, worker: int, event: Ready | Failed | Lost) -> list[ShardTask]:
        """Take note of what happened to a worker; returns the tasks that are handed out again, the last one first.

        Another worker is started in the place of a lost one, unless there is no use in trying again.
        """
        if isinstance(event, Failed):
            raise UserError(event.reason) if event.expected else RuntimeError(event.reason)
        self._starting.discard(worker)
        if isinstance(event, Ready):
            self._flying[worker] = deque()
            return []
        left, reason = self._flying.pop(worker, deque()), event.reason
        if left:
            task = left[0]
            self._losses[task.kind, task.number] += 1
            if self._losses[task.kind, task.number] >= _MOST:
                raise UserError(
                    f"Reading {task.split}, shard {task.number + 1}: two workers were lost ({reason}). Lower"
                    " --token-budget or --workers if memory ran out; what was finished is stored."
                )
        if self._replaced < _REPLACED * self.crew.size:
            self._replaced += 1
            self._starting.add(self.crew.hire())
        elif not self._flying and not self._starting:
            raise UserError(f"No worker is left, the last one was lost ({reason}); what was finished is stored.")
        return list(reversed(left))
