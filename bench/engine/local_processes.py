"""Workers that are processes on this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import count
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait

from bench.engine.pool import Event, Failed, Lost, Ready
from bench.signals.worker import ShardTask, WorkerSpec
from bench.store.processes import describe_exit, kill_process_group

_START = """
import json, sys
sys.path[:] = json.loads(sys.argv.pop())
from bench.engine.member import main
main()
"""
"""Python code of a worker process. The last command-line argument of the process is `sys.path` as JSON."""


@dataclass
class Processes:
    """Worker group with one local process for each entry of `devices`."""

    spec: WorkerSpec
    devices: Sequence[str]
    """Device of each worker; a device may be named several times."""
    _running: dict[int, _Process] = field(default_factory=dict, init=False)
    _ready: set[int] = field(default_factory=set, init=False)
    _numbers: count[int] = field(default_factory=count, init=False)

    @property
    def size(self) -> int:
        """Number of workers that the group should have."""
        return len(self.devices)

    def start_worker(self) -> int:
        """Start a process for an entry of `devices` that has no worker; return its number without waiting for it.

        Workers share a device that `devices` names several times, such as `cpu`.
        """
        free = list(self.devices)
        for process in self._running.values():
            free.remove(process.device)
        connection, child_end = Pipe()
        child = subprocess.Popen(
            [sys.executable, "-P", "-c", _START, str(child_end.fileno()), json.dumps(sys.path)],
            stdin=subprocess.DEVNULL,
            stdout=2,  # stdout belongs to the output of the command
            pass_fds=[child_end.fileno()],
            env=os.environ | {"OMP_NUM_THREADS": str(self.spec.threads), "TOKENIZERS_PARALLELISM": "false"},
            start_new_session=True,  # Ctrl-C goes to the run, which ends its workers
        )
        child_end.close()
        with suppress(OSError):  # the process has ended: `receive` reports it
            connection.send(replace(self.spec, options=replace(self.spec.options, device=free[0])))
        number = next(self._numbers)
        self._running[number] = _Process(free[0], child, connection)
        return number

    def send(self, worker: int, task: ShardTask, *, wait: bool) -> None:
        """Send a shard task to the process of a worker; if the process has ended, the next `receive` reports that."""
        with suppress(OSError):
            self._running[worker].connection.send((task, wait))

    def receive(self, seconds: float) -> list[tuple[int, Event]]:
        """Wait up to `seconds`; return pairs (number of a worker, event).

        The event of an ended process is `Lost`. It is `Failed` if the process exited by itself, i.e. not by a signal,
        before it was ready.
        """
        ready = wait([process.connection for process in self._running.values()], seconds)
        events: list[tuple[int, Event]] = []
        for number, process in list(self._running.items()):
            if process.connection not in ready:
                continue
            try:
                event: Event = process.connection.recv()
            except (EOFError, OSError):
                del self._running[number]
                event = Lost(process.end())
                if number not in self._ready and process.process.returncode >= 0:  # a new process would end likewise
                    event = Failed(
                        "--workers: expected a process that loads the model, got one that ended before with"
                        f" {event.reason}; what it wrote says why. Check that no file of the package has changed since"
                        " the run began.",
                        expected=True,
                    )
            if isinstance(event, Ready):
                self._ready.add(number)
            events.append((number, event))
        return events

    def stop_workers(self) -> None:
        """Kill all worker processes; the group can start new workers afterwards."""
        for process in self._running.values():
            process.end()
        self._running.clear()

    close = stop_workers


@dataclass(frozen=True)
class _Process:
    device: str
    process: subprocess.Popen[bytes]
    connection: Connection

    def end(self) -> str:
        """Kill the process; return how it had ended before this call, or "killed" if it was still running."""
        self.connection.close()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(1.0)  # a process closes its connection a moment before it can be waited for
        code = self.process.poll()
        kill_process_group(self.process)
        self.process.wait()
        return "killed" if code is None else describe_exit(code)
