"""A worker in a process of its own: opened there, and what it answers as plain values."""

from __future__ import annotations

import os
import platform
import queue
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from bench.api import UserError
from bench.engine.pool import Event, Failed, Ready
from bench.signals.worker import ShardTask, Worker, WorkerSpec

if TYPE_CHECKING:
    from bench.training.assignment import Assignment


P = ParamSpec("P")
T = TypeVar("T")


def _failing_as_value(act: Callable[P, T]) -> Callable[P, T | Failed]:
    """Wrap a function so that it returns what it raises, as a `Failed`."""

    def call(*args: P.args, **kwargs: P.kwargs) -> T | Failed:
        try:
            return act(*args, **kwargs)
        except UserError as error:
            return Failed(f"Worker on {platform.node()}: {error}", expected=True)
        except Exception:  # noqa: BLE001 - raised where the run is
            return Failed(f"on {platform.node()}:\n{traceback.format_exc()}", expected=False)

    return call


@dataclass
class Member:
    """Holder of a process's worker."""

    spec: WorkerSpec
    _worker: Worker | None = field(default=None, init=False)

    @_failing_as_value
    def open(self) -> Event:
        """Load what the spec names, and check that it is what the run has."""
        self._worker = self.spec.opened()
        return Ready()

    @_failing_as_value
    def do(self, task: ShardTask, *, wait: bool) -> Event:
        """Do a task; its numbers go into the store and nowhere else."""
        if self._worker is None:
            raise RuntimeError("a task came before the worker was opened")
        return self._worker.told(task, wait=wait)

    @_failing_as_value
    def train(self, work: Assignment) -> tuple[float, Sequence[str]]:
        """Carry out a training; its seconds and notes for the user, or why it failed."""
        start = time.perf_counter()
        store = self.spec.opened().store
        work.carry_out(store)
        return time.perf_counter() - start, store.notes


def main() -> None:
    """Serve the run that started this process on a connection, until its end of it is closed."""
    connection: Connection[Any, Any] = Connection(int(sys.argv[1]))
    received: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def receive() -> None:
        try:
            while True:
                received.put(connection.recv())
        except (EOFError, OSError):
            os._exit(0)  # in the middle of a shard: nobody wants it any more

    threading.Thread(target=receive, daemon=True).start()
    member = Member(received.get())
    connection.send(member.open())
    while True:
        task, wait = received.get()
        connection.send(member.do(task, wait=wait))
