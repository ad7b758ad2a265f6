"""Workers that are Ray actors.

Token ids and cache keys are sent through Ray; hidden states are only written to and read from the store on disk.
"""

from __future__ import annotations

import pickle
import platform
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from bench.api.errors import first_line
from bench.engine.link import ABSENT, RayConnection
from bench.engine.pool import Event, Failed, Lost
from bench.signals.worker import ShardTask


@dataclass
class Cluster:
    """Worker group of Ray actors, by default one for each GPU of the cluster; on CPUs, one for each machine."""

    link: RayConnection
    _actors: dict[int, Any] = field(default_factory=dict, init=False)
    _pending: dict[int, deque[Any]] = field(default_factory=dict, init=False)
    """Number of a worker -> the Ray references of its unfinished calls, in order."""
    _numbers: Iterator[int] = field(default_factory=count, init=False)

    @property
    def size(self) -> int:
        """Number of workers that the group should have; reading this property connects to the cluster.

        Raises:
            UserError: the cluster can't be reached, or has no device of the kind (GPU or CPU) that the run uses.
        """
        self.link.connect()
        return self.link.workers

    def start_worker(self) -> int:
        """Start a Ray actor without waiting for it, and return the new worker's number.

        Raises:
            UserError: the cluster can't be reached.
        """
        self.link.connect()
        number = next(self._numbers)
        self._actors[number] = self.link.remote(_actor_class(), max_restarts=0, max_task_retries=0).remote()
        self._pending[number] = deque([self._actors[number].open.remote(self.link.spec)])
        return number

    def send(self, worker: int, task: ShardTask, *, wait: bool) -> None:
        """Queue a task at the Ray actor of a worker.

        Args:
            worker: number of the worker.
            task: the task.
            wait: what the worker does if another run is computing this shard: wait for it (true), or skip the task
                (false).
        """
        self._pending[worker].append(self._actors[worker].do.remote(task, wait))

    def receive(self, seconds: float) -> list[tuple[int, Event]]:
        """Wait up to `seconds`; return pairs (number of a worker, result or failure), in call order for each worker."""
        import ray

        pending = [ref for refs in self._pending.values() for ref in refs]
        ready, _ = ray.wait(pending, num_returns=1, timeout=seconds)
        ready, _ = ray.wait(pending, num_returns=len(pending), timeout=0) if ready else ([], [])
        ready_refs = set(ready)
        events: list[tuple[int, Event]] = []
        for number in list(self._pending):  # results are taken in the order of the calls
            while self._pending.get(number) and self._pending[number][0] in ready_refs:
                try:
                    answer = ray.get(self._pending[number].popleft())
                    events.append((number, Failed(answer, expected=True) if isinstance(answer, str) else answer))
                except ray.exceptions.RayTaskError as error:
                    events.append((number, Failed(str(error), expected=False)))
                except ray.exceptions.RayError as error:
                    self._drop_worker(number)
                    events.append((number, Lost(first_line(error)[:200])))
        return events

    def stop_workers(self) -> None:
        """Kill all Ray actors of the group; the group can start new workers afterwards."""
        for number in list(self._actors):
            self._drop_worker(number)

    def close(self) -> None:
        """Kill all Ray actors of the group and disconnect from the cluster."""
        self.stop_workers()
        self.link.disconnect()

    def _drop_worker(self, number: int) -> None:
        import ray

        del self._pending[number]
        with suppress(Exception):  # the actor has already ended
            ray.kill(self._actors.pop(number), no_restart=True)


def _actor_class() -> type:
    """Return the class of the Ray actors.

    The class is defined inside this function, so that Ray pickles its code: a worker's machine may lack this package.
    """

    class ConfbenchWorker:
        def open(self, spec: bytes) -> Any:
            try:
                from bench.engine.member import RemoteWorker

                self._member = RemoteWorker(pickle.loads(spec))  # noqa: S301 - from the run, which also sends code
            except Exception as error:  # noqa: BLE001 - another version may fail by any error
                return ABSENT.format(platform.node(), type(error).__name__, error)
            return self._member.open()

        def do(self, task: ShardTask, wait: bool) -> Event:  # noqa: FBT001 - Ray passes it on
            return self._member.do(task, wait=wait)

    return ConfbenchWorker
