"""A pool that distributes shards over workers, at most two at a time for each; a lost worker's shards go to others."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from bench.api import UserError
from bench.signals.worker import Outcomes, ShardTask, TaskResult, busy_last

AHEAD = 2
"""Maximum number of tasks that a worker has at a time: the current one and the next."""
_MOST = 2
"""If this many workers are lost while computing the same task, the run stops with an error."""
_REPLACED = 2
"""Largest number of lost workers that are replaced, divided by the number of workers in the group."""
_PATIENCE = 600.0
"""Seconds to wait until any worker is ready; a cluster may first have to free devices, and download a large
model. The weights are loaded later, with the first shard."""
_POLL = 5.0


@dataclass(frozen=True)
class Ready:
    """Event: a worker has started and can take tasks."""


@dataclass(frozen=True)
class Failed:
    """Event: a worker failed in a way that would repeat on every other worker."""

    reason: str
    """Error message for the user, or a traceback; `expected` tells which."""
    expected: bool
    """Whether `reason` is an error message for the user instead of a traceback."""


@dataclass(frozen=True)
class Lost:
    """Event: a worker has ended unexpectedly; `reason` says how."""

    reason: str


Event = Ready | TaskResult | Failed | Lost


class WorkerGroup(Protocol):
    """Interface of a set of workers of the same kind, which are identified by numbers."""

    @property
    def size(self) -> int:
        """Number of workers that the group should have."""

    def start_worker(self) -> int:
        """Start a worker without waiting for it, and return the new worker's number.

        Raises:
            UserError: the worker can't be started.
        """

    def send(self, worker: int, task: ShardTask, *, wait: bool) -> None:
        """Send a task to a started worker; each worker does its tasks in the order in which they were sent.

        Args:
            worker: number of the worker.
            task: the task.
            wait: what the worker does if another run is computing this shard: wait for it (true), or skip the task
                (false).
        """

    def receive(self, seconds: float) -> list[tuple[int, Event]]:
        """Return pairs (number of a worker, event) as soon as there are any; an empty list if `seconds` have passed."""

    def stop_workers(self) -> None:
        """End all workers; the group can start new ones afterwards."""

    def close(self) -> None:
        """End all workers and release the group's resources."""


@dataclass
class Pool:
    """Distributes the tasks of a run, one for each shard to compute, over a group of workers."""

    group: WorkerGroup
    stop_when_idle: bool = False
    """Whether the method `rest` ends the workers. True where they occupy devices that the run's own process needs."""
    devices_busy: Callable[[], bool] = lambda: False
    """Function that returns whether other work occupies the workers' devices. While it does, the pool waits for workers
    without a time limit."""
    _starting: set[int] = field(default_factory=set, init=False)
    _assigned: dict[int, deque[ShardTask]] = field(default_factory=dict, init=False)
    """Number of each ready worker -> its unfinished tasks, the current one first."""
    _losses: Counter[tuple[str, int]] = field(default_factory=Counter, init=False)
    _replacements: int = field(default=0, init=False)

    def work(self, tasks: Iterable[ShardTask]) -> Outcomes:
        """Run tasks, one for each shard to compute, on the workers; yield results in any order.

        If another run is computing a shard, the shard's task comes last, and its worker waits for that run.
        """
        try:
            yield from busy_last(self._run, tasks)
        finally:
            if any(self._assigned.values()):  # interrupted: results of these tasks must not reach the next caller
                self.stop_workers()

    def rest(self) -> None:
        """End the workers if `stop_when_idle` is set; the next task starts new ones."""
        if self.stop_when_idle:
            self.stop_workers()

    def stop_workers(self) -> None:
        """End the workers; the next task starts new ones."""
        self.group.stop_workers()
        self._starting.clear()
        self._assigned.clear()

    def close(self) -> None:
        """End the workers and release the group's resources."""
        self.stop_workers()
        self.group.close()

    # --- handing out --------------------------------------------------------------------------------------------------

    def _run(self, tasks: Iterable[ShardTask], *, wait: bool) -> Iterator[tuple[ShardTask, TaskResult]]:
        source = iter(tasks)
        waiting = deque(task for task in [next(source, None)] if task is not None)
        while waiting and len(self._starting) + len(self._assigned) < self.group.size:  # no worker if all is stored
            self._starting.add(self.group.start_worker())
        since = time.monotonic()
        while waiting or any(self._assigned.values()):
            for most in range(1, AHEAD + 1):  # a first task for each worker, then second ones
                for worker, queue in self._assigned.items():
                    if len(queue) < most and (task := waiting.popleft() if waiting else next(source, None)) is not None:
                        queue.append(task)
                        self.group.send(worker, task, wait=wait)
            for worker, event in self.group.receive(_POLL):
                if isinstance(event, TaskResult):
                    yield self._assigned[worker].popleft(), event
                else:
                    waiting.extendleft(self._handle(worker, event))
            if self.devices_busy():
                since = time.monotonic()
            if not self._assigned and time.monotonic() - since > _PATIENCE:
                raise UserError(
                    f"--workers: none of {self.group.size} workers was there after {_PATIENCE:.0f} s; check that the"
                    " machines have a free device for each, or name fewer."
                )

    def _handle(self, worker: int, event: Ready | Failed | Lost) -> list[ShardTask]:
        """Handle an event of a worker; return the tasks to reassign, in reverse order.

        A lost worker is replaced unless the maximum number of replacements is reached.

        Raises:
            UserError: the worker failed with a message for the user, a task was lost too often, or no worker is left.
            RuntimeError: the worker failed with another error.
        """
        if isinstance(event, Failed):
            raise UserError(event.reason) if event.expected else RuntimeError(event.reason)
        self._starting.discard(worker)
        if isinstance(event, Ready):
            self._assigned[worker] = deque()
            return []
        unfinished, reason = self._assigned.pop(worker, deque()), event.reason
        if unfinished:
            task = unfinished[0]
            self._losses[task.kind, task.number] += 1
            if self._losses[task.kind, task.number] >= _MOST:
                raise UserError(
                    f"Reading {task.split}, shard {task.number + 1}: two workers were lost ({reason}). Lower"
                    " --token-budget or --workers if memory ran out; what was finished is stored."
                )
        if self._replacements < _REPLACED * self.group.size:
            self._replacements += 1
            self._starting.add(self.group.start_worker())
        elif not self._assigned and not self._starting:
            raise UserError(f"No worker is left, the last one was lost ({reason}); what was finished is stored.")
        return list(reversed(unfinished))
