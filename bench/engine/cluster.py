"""Workers that are actors of a Ray cluster. Token ids and keys go through Ray, states through the store alone."""

from __future__ import annotations

import pickle
import platform
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from bench.engine.link import ABSENT, Link, first_line
from bench.engine.pool import Event, Failed, Lost
from bench.signals.worker import ShardTask


@dataclass
class Cluster:
    """Crew of one actor for each card of a cluster, or on the CPU for each machine of it."""

    link: Link
    _actors: dict[int, Any] = field(default_factory=dict, init=False)
    _awaited: dict[int, deque[Any]] = field(default_factory=dict, init=False)
    """Worker -> what it was asked, in this order."""
    _numbers: Iterator[int] = field(default_factory=count, init=False)

    @property
    def size(self) -> int:
        """See `WorkerGroup`.

        Raises:
            UserError: the cluster can't be reached.
        """
        self.link.begin()
        return self.link.workers

    def hire(self) -> int:
        """See `WorkerGroup`."""
        self.link.begin()
        number = next(self._numbers)
        self._actors[number] = self.link.remote(_actor_class(), max_restarts=0, max_task_retries=0).remote()
        self._awaited[number] = deque([self._actors[number].open.remote(self.link.spec)])
        return number

    def send(self, worker: int, task: ShardTask, *, wait: bool) -> None:
        """See `WorkerGroup`."""
        self._awaited[worker].append(self._actors[worker].do.remote(task, wait))

    def receive(self, seconds: float) -> list[tuple[int, Event]]:
        """See `WorkerGroup`."""
        import ray

        awaited = [ref for refs in self._awaited.values() for ref in refs]
        ready, _ = ray.wait(awaited, num_returns=1, timeout=seconds)
        ready, _ = ray.wait(awaited, num_returns=len(awaited), timeout=0) if ready else ([], [])
        there = set(ready)
        found: list[tuple[int, Event]] = []
        for number in list(self._awaited):  # of each worker the answers before which none is missing
            while self._awaited.get(number) and self._awaited[number][0] in there:
                try:
                    answer = ray.get(self._awaited[number].popleft())
                    found.append((number, Failed(answer, expected=True) if isinstance(answer, str) else answer))
                except ray.exceptions.RayTaskError as error:
                    found.append((number, Failed(str(error), expected=False)))
                except ray.exceptions.RayError as error:
                    self._forget(number)
                    found.append((number, Lost(first_line(error))))
        return found

    def dismiss(self) -> None:
        """See `WorkerGroup`."""
        for number in list(self._actors):
            self._forget(number)

    def close(self) -> None:
        """See `WorkerGroup`."""
        self.dismiss()
        self.link.end()

    def _forget(self, number: int) -> None:
        import ray

        del self._awaited[number]
        with suppress(Exception):  # it is gone already
            ray.kill(self._actors.pop(number), no_restart=True)


def _actor_class() -> type:
    """The actor's class, made in here so that Ray carries it itself: the package may be missing where it goes."""

    class ConfbenchWorker:
        def open(self, spec: bytes) -> Any:
            try:
                from bench.engine.member import Member

                self._member = Member(pickle.loads(spec))  # noqa: S301 - from the run, which sends code as well
            except Exception as error:  # noqa: BLE001 - whatever another version is like
                return ABSENT.format(platform.node(), type(error).__name__, error)
            return self._member.open()

        def do(self, task: ShardTask, wait: bool) -> Event:  # noqa: FBT001 - Ray passes it on
            return self._member.do(task, wait=wait)

    return ConfbenchWorker
