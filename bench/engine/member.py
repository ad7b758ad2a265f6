"""A worker in a process of its own: opened there, and what it answers as plain values."""

from __future__ import annotations

import platform
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field

from bench.api import UserError
from bench.engine.pool import Event, Failed, Ready
from bench.signals.shard_task import ShardTask
from bench.signals.worker import Worker, WorkerSpec


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

    def _open(self) -> Event:
        self._worker = self.spec.opened()
        return Ready()

    def _do(self, task: ShardTask, *, wait: bool) -> Event:
        worker = self._worker
        if worker is None:
            raise RuntimeError("a task came before the worker was opened")
        return worker.told(task, wait=wait)

    def _told(self, act: Callable[[], Event]) -> Event:
        try:
            return act()
        except UserError as error:
            return Failed(f"Worker on {platform.node()}: {error}", expected=True)
        except Exception:  # noqa: BLE001 - raised where the run is
            return Failed(f"on {platform.node()}:\n{traceback.format_exc()}", expected=False)
