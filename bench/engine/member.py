"""A worker in a process of its own: opened there, and what it answers as plain values."""

from __future__ import annotations

import platform
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeVar

from bench.api import UserError
from bench.engine.pool import Event, Failed, Ready
from bench.signals.worker import ShardTask, Worker, WorkerSpec

if TYPE_CHECKING:
    from bench.store.folders import Store


T = TypeVar("T")


class Work(Protocol):
    """A training as a plain value."""

    @property
    def method(self) -> str:
        """Name of the method, for messages."""

    @property
    def processes(self) -> int:
        """Those that train together; on cards each has one of its own."""

    @property
    def steps(self) -> int:
        """Steps of the whole training."""

    def taken(self, store: Store) -> int:
        """Steps that were taken so far."""

    def carry_out(self, store: Store) -> object:
        """Train, and put the adapter into the store.

        Raises:
            UserError: it failed.
        """


@dataclass
class Member:
    """Holder of a process's worker."""

    spec: WorkerSpec
    _worker: Worker | None = field(default=None, init=False)

    def open(self) -> Event:
        """Load what the spec names, and check that it is what the run has."""
        return self._told(self._open)

    def do(self, task: ShardTask, *, wait: bool) -> Event:
        """Do a task; its numbers go into the store and nowhere else."""
        return self._told(lambda: self._do(task, wait=wait))

    def train(self, work: Work) -> tuple[float, Sequence[str]] | Failed:
        """Carry out a training; its seconds and notes for the user, or why it failed."""
        start = time.perf_counter()

        def trained() -> tuple[float, Sequence[str]]:
            store = self.spec.opened().store
            work.carry_out(store)
            return time.perf_counter() - start, store.notes

        return self._told(trained)

    def _open(self) -> Event:
        self._worker = self.spec.opened()
        return Ready()

    def _do(self, task: ShardTask, *, wait: bool) -> Event:
        worker = self._worker
        if worker is None:
            raise RuntimeError("a task came before the worker was opened")
        return worker.told(task, wait=wait)

    def _told(self, act: Callable[[], T]) -> T | Failed:
        try:
            return act()
        except UserError as error:
            return Failed(f"Worker on {platform.node()}: {error}", expected=True)
        except Exception:  # noqa: BLE001 - raised where the run is
            return Failed(f"on {platform.node()}:\n{traceback.format_exc()}", expected=False)
