"""Workers that are actors of a Ray cluster. Token ids and keys go through Ray, states through the store alone."""

from __future__ import annotations

import logging
import os
import pickle
import platform
import signal
import socket
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any

from bench.api import UserError
from bench.engine.pool import Event, Failed, Lost
from bench.signals.shard_task import ShardTask
from bench.signals.worker import WorkerSpec

if TYPE_CHECKING:
    from bench.backbone.model import Backbone
    from bench.store.folders import Store

_SETTINGS = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_NUM_REDIS_GET_RETRIES": "2"}
"""Settings of Ray: it tells nobody of its use, and does not knock for minutes where no cluster is."""
_RING = 5.0
"""Seconds in which a cluster takes a call."""


@dataclass
class Cluster:
    """Crew of one actor for each card of a cluster, or on the CPU for each machine of it."""

    backbone: Backbone
    store: Store
    workers: int | None
    """None: as many as there are."""
    address: str | None
    _begun: bool = field(default=False, init=False)
    """Whether this object has connected to the cluster, and so has to part from it."""
    _spec: bytes = field(default=b"", init=False)
    _threads: int = field(default=1, init=False)
    _actors: dict[int, Any] = field(default_factory=dict, init=False)
    _awaited: dict[int, deque[Any]] = field(default_factory=dict, init=False)
    """Worker -> what it was asked, in this order."""
    _numbers: Iterator[int] = field(default_factory=count, init=False)

    @property
    def size(self) -> int:
        """See `Crew`.

        Raises:
            UserError: the cluster can't be reached.
        """
        self._connect()
        return self.workers or 1

    def hire(self) -> int:
        """See `Crew`."""
        import ray

        self._connect()
        card = self.backbone.device.startswith("cuda")
        actor = ray.remote(_actor_class()).options(
            num_cpus=self._threads, num_gpus=1 if card else 0, max_restarts=0, max_task_retries=0,
            scheduling_strategy="SPREAD", runtime_env={"env_vars": {"OMP_NUM_THREADS": str(self._threads)}},
        )  # fmt: skip
        number = next(self._numbers)
        self._actors[number] = actor.remote()
        self._awaited[number] = deque([self._actors[number].open.remote(self._spec)])
        return number

    def send(self, worker: int, task: ShardTask, *, wait: bool) -> None:
        """See `Crew`."""
        self._awaited[worker].append(self._actors[worker].do.remote(task, wait))

    def receive(self, seconds: float) -> list[tuple[int, Event]]:
        """See `Crew`."""
        import ray

        awaited = [ref for refs in self._awaited.values() for ref in refs]
        ready, _ = ray.wait(awaited, num_returns=1, timeout=seconds)
        ready, _ = ray.wait(awaited, num_returns=len(awaited), timeout=0) if ready else ([], [])
        there = set(ready)
        return [(number, self._event(number)) for number in list(self._awaited) for _ in self._first(number, there)]

    def close(self) -> None:
        """See `Crew`."""
        if not self._begun:
            return
        import ray

        for number in list(self._actors):
            self._forget(number)
        with suppress(OSError):
            (self.store.root / self._witness).unlink()
        ray.shutdown()
        self._begun = False

    # --- connecting ---------------------------------------------------------------------------------------------------

    @property
    def _witness(self) -> str:
        return f".seen-by-workers-{platform.node()[:64]}-{os.getpid()}"

    def _connect(self) -> None:
        if self._begun:
            return
        for name, value in _SETTINGS.items():  # before Ray is imported, which reads them
            os.environ.setdefault(name, value)
        import ray

        address = self.address or os.environ.get("RAY_ADDRESS")
        own = {} if address else {"include_dashboard": False}
        with _handlers_kept():
            try:
                _ring(address or "")
                ray.init(address, log_to_driver=False, logging_level=logging.ERROR, **own)
            except Exception as error:
                raise UserError(
                    f"--engine ray: expected a Ray cluster {address or 'on this machine'}, none answers"
                    f" ({_first_line(error)}). Start one (ray start --head), or name it with --address."
                ) from error
        self._begun = True
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        self._count(nodes)
        (self.store.root / self._witness).write_text("", encoding="utf-8")
        self._spec = pickle.dumps(WorkerSpec.of(self.backbone, self.store, self._threads, self._witness))

    def _count(self, nodes: list[dict[str, float]]) -> None:
        """Set how many workers there are, and the threads of each."""
        kind = "GPU" if self.backbone.device.startswith("cuda") else "CPU"
        having = [node for node in nodes if node.get(kind)]
        there = int(sum(node["GPU"] for node in having)) if kind == "GPU" else len(having)
        if not there:
            raise UserError(f"--engine ray: expected a machine with a {kind} in the cluster, found none; add one.")
        self.workers = self.workers or there
        named = os.environ.get("OMP_NUM_THREADS", "")
        each = min(node["CPU"] for node in having) * len(having) // self.workers
        self._threads = int(named) if named.isdecimal() and int(named) else max(1, int(each))

    # --- answers ------------------------------------------------------------------------------------------------------

    def _first(self, number: int, there: set[Any]) -> Iterator[None]:
        """One item for each answer of a worker that is there and has none before it that isn't."""
        while self._awaited.get(number) and self._awaited[number][0] in there:
            yield

    def _event(self, number: int) -> Event:
        import ray

        try:
            answer = ray.get(self._awaited[number].popleft())
        except ray.exceptions.RayTaskError as error:
            return Failed(str(error), expected=False)
        except ray.exceptions.RayError as error:
            self._forget(number)
            return Lost(_first_line(error))
        event: Event = Failed(answer, expected=True) if isinstance(answer, str) else answer
        return event

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
                return (
                    f"Worker on {platform.node()}: expected the confbench of the run, found none or another one"
                    f" ({type(error).__name__}: {error}). Install the same on all machines."
                )
            return self._member.open()

        def do(self, task: ShardTask, wait: bool) -> Event:  # noqa: FBT001 - Ray passes it on
            return self._member.do(task, wait=wait)

    return ConfbenchWorker


def _ring(address: str) -> None:
    """Call at the address of a cluster, since Ray itself tries for minutes.

    Raises:
        OSError: nobody answers.
    """
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host, int(port)), _RING).close()


@contextmanager
def _handlers_kept() -> Iterator[None]:
    """Keep this program's own way to end on signals, where Ray installs one of its own."""
    main = threading.current_thread() is threading.main_thread()
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)} if main else {}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)[:200]
