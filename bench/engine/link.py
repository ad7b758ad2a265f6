"""The connection of a run to a Ray cluster, made when it is first needed."""

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
from bench.api.errors import first_line
from bench.signals.worker import WorkerSpec

if TYPE_CHECKING:
    from bench.model.language_model import LanguageModel
    from bench.store.disk_cache import Store

_SETTINGS = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_NUM_REDIS_GET_RETRIES": "2", "RAY_task_oom_retries": "1"}
"""Environment variables for Ray: no usage statistics, few connection retries, a single retry of tasks that run out of
memory."""
ABSENT = (
    "Worker on {}: expected the confbench of the run, found none or another one ({}: {}). Install the same on all"
    " machines."
)
"""Error message for a worker's machine where this package is missing or has another version. Its three placeholders are
the name of the machine, the type of the error and the error's text."""
_RING = 5.0
"""Timeout in seconds of an attempt to connect to a cluster."""


@dataclass
class RayConnection:
    """Connection of a run to a Ray cluster."""

    lm: LanguageModel
    store: Store
    requested_workers: int | None
    """Requested number of workers; None requests one for each GPU or, on CPUs, one for each machine."""
    address: str | None
    """Address of the cluster; None for $RAY_ADDRESS, or a cluster that is started on this machine."""
    workers: int = field(default=1, init=False)
    """Number of workers, set when connected."""
    threads: int = field(default=1, init=False)
    """CPU threads of each worker, set when connected."""
    spec: bytes = field(default=b"", init=False)
    """The pickled `WorkerSpec` (what a worker needs to load the model and open the store), set when connected."""
    _cores: int = field(default=1, init=False)
    """Number of processors of the cluster's smallest machine."""
    _connected: bool = field(default=False, init=False)
    """Whether this object has connected, and so has to disconnect."""

    @property
    def on_gpus(self) -> bool:
        """Whether workers compute on GPUs."""
        return self.lm.device.startswith("cuda")

    @property
    def store_check_file(self) -> str:
        """Name of a file that the run writes into its store; a worker that finds the file uses the same store."""
        return f".seen-by-workers-{platform.node()[:64]}-{os.getpid()}"

    def connect(self) -> None:
        """Connect to the cluster, unless this object is connected already.

        Raises:
            UserError: the cluster can't be reached, or has no device of the kind (GPU or CPU) that the run uses.
        """
        if self._connected:
            return
        for name, value in _SETTINGS.items():  # Ray reads them when it is imported
            os.environ.setdefault(name, value)
        import ray

        address = self.address or os.environ.get("RAY_ADDRESS")
        settings = {} if address else {"include_dashboard": False}
        with _preserve_signal_handlers():
            try:
                host, _, port = (address or "").rpartition(":")
                if host and port.isdecimal():  # Ray itself would try for minutes
                    socket.create_connection((host, int(port)), _RING).close()
                ray.init(address, log_to_driver=False, logging_level=logging.ERROR, **settings)
            except Exception as error:
                raise UserError(
                    f"--engine ray: expected a Ray cluster {address or 'on this machine'}, none answers"
                    f" ({first_line(error)[:200]}). Start one (ray start --head), or name it with --address."
                ) from error
        self._connected = True
        kind = "GPU" if self.on_gpus else "CPU"
        nodes = [node for node in _nodes() if node.get(kind)]
        n_devices = int(sum(node["GPU"] for node in nodes)) if self.on_gpus else len(nodes)
        if not n_devices:
            raise UserError(f"--engine ray: expected a machine with a {kind} in the cluster, found none; add one.")
        self.workers = self.requested_workers or n_devices
        self._cores = int(min(node["CPU"] for node in nodes))
        self.threads = threads_per_worker(min(self._cores, self._cores * len(nodes) // self.workers))
        (self.store.root / self.store_check_file).write_text("", encoding="utf-8")
        spec = WorkerSpec.of(self.lm, self.store, self.threads, self.store_check_file)
        device = self.lm.device.partition(":")[0]  # Ray assigns the card
        self.spec = pickle.dumps(replace(spec, options=replace(spec.options, device=device)))

    def disconnect(self) -> None:
        """Disconnect from the cluster; Ray tasks of this run that are still running are ended."""
        if not self._connected:
            return
        import ray

        with suppress(OSError):
            (self.store.root / self.store_check_file).unlink()
        ray.shutdown()
        self._connected = False

    def remote(self, work: Any, devices: int = 1, **options: Any) -> Any:
        """Return `work` (a class or function) as a Ray actor class or remote function that reserves `devices` devices.

        A device is a GPU or, on CPUs, the threads of one worker. If the run's own process holds the model on a GPU, the
        model's
        weights are released first, since Ray may assign this GPU to a worker.
        """
        import ray

        if self.on_gpus:
            self.lm.release()
        return ray.remote(work).options(
            **options, **self.resources(devices), scheduling_strategy="SPREAD",
            runtime_env={"env_vars": {"OMP_NUM_THREADS": str(self.threads)}},
        )  # fmt: skip

    def resources(self, devices: int) -> dict[str, int]:
        """Return the Ray options `num_cpus` and `num_gpus` that reserve this many devices."""
        return {"num_cpus": min(self.threads * devices, self._cores), "num_gpus": devices if self.on_gpus else 0}

    def has_room(self, devices: int) -> bool:
        """Return whether any machine of the cluster has at least this many devices, free or in use."""
        needs = self.resources(devices)
        return any(
            node.get("CPU", 0) >= needs["num_cpus"] and node.get("GPU", 0) >= needs["num_gpus"] for node in _nodes()
        )


def threads_per_worker(share: int) -> int:
    """Return the CPU threads of a worker: $OMP_NUM_THREADS if it is a positive integer, else `share` but at least 1."""
    threads = os.environ.get("OMP_NUM_THREADS", "")
    return int(threads) if threads.isdecimal() and int(threads) else max(1, share)


def _nodes() -> list[dict[str, float]]:
    """Return the Ray resources of each living machine of the cluster, e.g. `{"CPU": 16, "GPU": 1}`."""
    import ray

    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


@contextmanager
def _preserve_signal_handlers() -> Iterator[None]:
    """Restore this program's signal handlers at the end of the context, since Ray installs its own."""
    main = threading.current_thread() is threading.main_thread()
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)} if main else {}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
