"""Messages between a run and a process that it started, and the beginning of such a process.

They are pickles, read from the own child only, whose code was executed here as well; nothing on a disk is one.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import resource
import socket
import sys
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from bench.store.processes import end_with


@dataclass(frozen=True)
class Pipe:
    """One end of a connection; arrays go beside the pickles, so that they are not copied to be sent."""

    connection: Connection

    def send(self, message: Any) -> None:
        """Send a message.

        Raises:
            OSError: the other end is gone.
        """
        beside: list[pickle.PickleBuffer] = []
        body = pickle.dumps(message, protocol=5, buffer_callback=beside.append)
        self.connection.send_bytes(str(len(beside)).encode())
        self.connection.send_bytes(body)
        for buffer in beside:
            self.connection.send_bytes(buffer.raw())

    def receive(self) -> Any:
        """Wait for a message; its arrays can be written.

        Raises:
            EOFError: the other end is gone; or an OSError.
            Exception: what came is no message.
        """
        count = int(self.connection.recv_bytes())
        body = self.connection.recv_bytes()
        beside = [bytearray(self.connection.recv_bytes()) for _ in range(count)]
        return pickle.loads(body, buffers=beside)  # noqa: S301 - from the own child, see above

    def shut(self) -> None:
        """End every wait for the other process, also amid a message; what it has sent can still be received."""
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(self.connection.fileno())) as end:
            end.shutdown(socket.SHUT_RDWR)


def begin() -> tuple[Pipe, list[str]]:
    """Tie this process to its parent, and limit its memory; returns the pipe to the parent, and the arguments.

    So one that wants all memory of the machine, or of the part of it that the run may use, gets a MemoryError.
    """
    descriptor, parent = map(int, sys.argv[1:3])
    end_with(parent)
    with contextlib.suppress(OSError):  # Linux alone has it: rather this process than the run, where memory is short
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    with contextlib.suppress(OSError, ValueError):
        limits.append(int(Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii")))
    limits += [limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY]
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_DATA, (min(limits), hard))
    return Pipe(Connection(descriptor)), sys.argv[3:]
