"""Messages between a run and the process of a plugin: pickles with their arrays beside them, and a time limit.

Pickles are read from the own child only, whose code was executed here as well; nothing that lies on a disk is one.
"""

from __future__ import annotations

import math
import os
import pickle
import select
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_PIECE = 2**20
_LOOK_S = 1.0
"""Seconds between two looks whether the other process is there."""
_COUNT, _SIZE = struct.Struct("<I"), struct.Struct("<Q")


@dataclass(frozen=True)
class Pipe:
    """Two one-way pipes, seen from one end."""

    reading: int
    """File descriptor."""
    writing: int
    """File descriptor."""
    alive: Callable[[], bool] = lambda: True
    """Whether the other process is there: one that it forked may hold its end open."""

    def send(self, message: Any, deadline: float = math.inf) -> None:
        """Send a message.

        Args:
            message: anything that can be pickled.
            deadline: on the monotonic clock.

        Raises:
            TimeoutError: the other end doesn't read.
            OSError: it is gone.
        """
        beside: list[pickle.PickleBuffer] = []
        body = pickle.dumps(message, protocol=5, buffer_callback=beside.append)
        parts = [memoryview(body), *(buffer.raw() for buffer in beside)]
        sizes = b"".join(_SIZE.pack(part.nbytes) for part in parts)
        for part in (memoryview(_COUNT.pack(len(parts)) + sizes), *parts):
            self._write(part, deadline)

    def receive(self, deadline: float = math.inf) -> Any:
        """Wait for a message.

        Raises:
            TimeoutError: none came in time.
            EOFError: the other end is gone.
            Exception: what came is no message.
        """
        (count,) = _COUNT.unpack(self._read(_COUNT.size, deadline))
        sizes = [_SIZE.unpack(self._read(_SIZE.size, deadline))[0] for _ in range(count)]
        body, *beside = [self._read(size, deadline) for size in sizes]
        return pickle.loads(body, buffers=beside)  # noqa: S301 - see above

    def close(self) -> None:
        """Close this end."""
        os.close(self.reading)
        os.close(self.writing)

    def _write(self, part: memoryview, deadline: float) -> None:
        os.set_blocking(self.writing, False)
        while part:
            self._wait(self.writing, select.POLLOUT, deadline)
            part = part[_nonblocking(lambda left=part: os.write(self.writing, left[:_PIECE])) or 0 :]  # type: ignore[misc]

    def _read(self, size: int, deadline: float) -> bytes:
        whole = bytearray(size)
        rest = memoryview(whole)
        while rest:
            self._wait(self.reading, select.POLLIN, deadline)
            n = os.readv(self.reading, [rest[:_PIECE]])
            if n == 0:
                raise EOFError
            rest = rest[n:]
        return bytes(whole) if size < _PIECE else whole  # type: ignore[return-value]

    def _wait(self, descriptor: int, event: int, deadline: float) -> None:
        """Wait until something can be read or written, or the other end is gone."""
        poll = select.poll()
        poll.register(descriptor, event)
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            if poll.poll(1000 * min(_LOOK_S, left)):
                return
            if not self.alive() and not poll.poll(0):  # it may have written last
                raise EOFError


def _nonblocking(write: Callable[[], int]) -> int:
    try:
        return write()
    except BlockingIOError:  # less room than the system had promised
        return 0
