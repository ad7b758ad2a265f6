"""The connection of a run to a Ray cluster: made when it is first needed, and who carries what over it."""

from __future__ import annotations

import logging
import os
import pickle
import platform
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from bench.api import UserError
from bench.signals.worker import WorkerSpec

if TYPE_CHECKING:
    from bench.model.language_model import LanguageModel
    from bench.store.folders import Store

_SETTINGS = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_NUM_REDIS_GET_RETRIES": "2", "RAY_task_oom_retries": "1"}
"""Settings of Ray: it tells nobody of its use, knocks only for seconds where no cluster is, and doesn't start for ever
what takes more memory than there is."""
ABSENT = (
    "Worker on {}: expected the confbench of the run, found none or another one ({}: {}). Install the same on all"
    " machines."
)
"""Sentence of a machine without the package: its name, and the type and words of the error."""
_RING = 5.0
"""Seconds in which a cluster takes a call."""


@dataclass
class Link:
    """Connection of a run to a cluster."""

    lm: LanguageModel
    store: Store
    named: int | None
    """Workers that the user wants; None: as many as there are devices."""
    address: str | None
    workers: int = field(default=1, init=False)
    threads: int = field(default=1, init=False)
    """Those of each worker."""
    spec: bytes = field(default=b"", init=False)
    """The pickled `WorkerSpec`."""
    _cores: int = field(default=1, init=False)
    """Those of the smallest machine."""
    _begun: bool = field(default=False, init=False)
    """Whether this object has connected to the cluster, and so has to part from it."""

    @property
    def cards(self) -> bool:
        """Whether work is done on cards."""
        return self.lm.device.startswith("cuda")

    @property
    def witness(self) -> str:
        """Name of the file in the store by which a worker sees that it is the same."""
        return f".seen-by-workers-{platform.node()[:64]}-{os.getpid()}"

    def begin(self) -> None:
        """Connect, unless that is done.

        Raises:
            UserError: the cluster can't be reached, or has no such device.
        """
        if self._begun:
            return
        for name, value in _SETTINGS.items():  # before Ray is imported, which reads them
            os.environ.setdefault(name, value)
        import ray

        address = self.address or os.environ.get("RAY_ADDRESS")
        own = {} if address else {"include_dashboard": False}
        with _handlers_kept():
            try:
                host, _, port = (address or "").rpartition(":")
                if host and port.isdecimal():  # Ray itself tries for minutes
                    socket.create_connection((host, int(port)), _RING).close()
                ray.init(address, log_to_driver=False, logging_level=logging.ERROR, **own)
            except Exception as error:
                raise UserError(
                    f"--engine ray: expected a Ray cluster {address or 'on this machine'}, none answers"
                    f" ({first_line(error)}). Start one (ray start --head), or name it with --address."
                ) from error
        self._begun = True
        kind = "GPU" if self.cards else "CPU"
        having = [node for node in _nodes() if node.get(kind)]
        there = int(sum(node["GPU"] for node in having)) if self.cards else len(having)
        if not there:
            raise UserError(f"--engine ray: expected a machine with a {kind} in the cluster, found none; add one.")
        self.workers = self.named or there
        self._cores = int(min(node["CPU"] for node in having))
        self.threads = threads_of(min(self._cores, self._cores * len(having) // self.workers))
        (self.store.root / self.witness).write_text("", encoding="utf-8")
        spec = WorkerSpec.of(self.lm, self.store, self.threads, self.witness)
        device = self.lm.device.partition(":")[0]  # which card is for Ray to say
        self.spec = pickle.dumps(replace(spec, options=replace(spec.options, device=device)))

    def end(self) -> None:
        """Part from the cluster; what still goes on there is ended."""
        if not self._begun:
            return
        import ray

        with suppress(OSError):
            (self.store.root / self.witness).unlink()
        ray.shutdown()
        self._begun = False

    def remote(self, work: Any, devices: int = 1, **options: Any) -> Any:
        """A class or function of this machine for another one, which has so many cards for it, or threads on the CPU.

        The run's own copy of the weights goes: cards that Ray takes for free may be where it lies.
        """
        import ray

        if self.cards:
            self.lm.release()
        return ray.remote(work).options(
            **options, **self.needs(devices), scheduling_strategy="SPREAD",
            runtime_env={"env_vars": {"OMP_NUM_THREADS": str(self.threads)}},
        )  # fmt: skip

    def needs(self, devices: int) -> dict[str, int]:
        """Resources that a machine must have for this, as Ray calls them."""
        return {"num_cpus": min(self.threads * devices, self._cores), "num_gpus": devices if self.cards else 0}

    def room(self, devices: int) -> bool:
        """Whether one of the machines that are there has so much when it does nothing else."""
        needs = self.needs(devices)
        return any(
            node.get("CPU", 0) >= needs["num_cpus"] and node.get("GPU", 0) >= needs["num_gpus"] for node in _nodes()
        )


def threads_of(share: int) -> int:
    """Threads of one worker: as many as the user says, else its share of the processors."""
    named = os.environ.get("OMP_NUM_THREADS", "")
    return int(named) if named.isdecimal() and int(named) else max(1, share)


def first_line(error: BaseException) -> str:
    """The first line of what an error says."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)[:200]


def _nodes() -> list[dict[str, float]]:
    """Resources of each machine that is there."""
    import ray

    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


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
