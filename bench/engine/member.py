"""A worker in a process of its own: it sends results and errors back to the run as plain values."""

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


def _return_errors(function: Callable[P, T]) -> Callable[P, T | Failed]:
    """Wrap a function so that it returns a `Failed` event instead of raising an exception."""

    def call(*args: P.args, **kwargs: P.kwargs) -> T | Failed:
        try:
            return function(*args, **kwargs)
        except UserError as error:
            return Failed(f"Worker on {platform.node()}: {error}", expected=True)
        except Exception:  # noqa: BLE001 - raised again in the process of the run
            return Failed(f"on {platform.node()}:\n{traceback.format_exc()}", expected=False)

    return call


@dataclass
class RemoteWorker:
    """The worker of this process; `open` must be called before `do`.

    `open` downloads the model if needed and checks it; the weights are loaded with the first shard.
    """

    spec: WorkerSpec
    _worker: Worker | None = field(default=None, init=False)

    @_return_errors
    def open(self) -> Event:
        """Build the worker that `spec` describes; check that its model, store and software are those of the run."""
        self._worker = self.spec.build_worker()
        return Ready()

    @_return_errors
    def do(self, task: ShardTask, *, wait: bool) -> Event:
        """Compute a shard and write its arrays to the store."""
        if self._worker is None:
            raise RuntimeError("a task came before the worker was opened")
        return self._worker.do_for_remote(task, wait=wait)

    @_return_errors
    def train(self, work: Assignment) -> tuple[float, Sequence[str]]:
        """Train an adapter as `work` describes; return the seconds that it took, and notes for the user."""
        start = time.perf_counter()
        store = self.spec.build_worker().store
        work.carry_out(store)
        return time.perf_counter() - start, store.notes


def main() -> None:
    """Compute the shards that the run sends through the connection; exit when the run closes its end."""
    connection: Connection[Any, Any] = Connection(int(sys.argv[1]))
    received: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def receive() -> None:
        try:
            while True:
                received.put(connection.recv())
        except (EOFError, OSError):
            os._exit(0)  # even in the middle of a shard: the run has ended

    threading.Thread(target=receive, daemon=True).start()
    member = RemoteWorker(received.get())
    connection.send(member.open())
    while True:
        task, wait = received.get()
        connection.send(member.do(task, wait=wait))
