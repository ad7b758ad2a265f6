"""Standard streams that cost no result: closed, full and broken ones only lose what is printed."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO


class Lenient:
    """A text stream that drops what can't be written, and remembers why."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.failure: OSError | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write, unless it failed before."""
        if self.failure is None:
            try:
                return self._stream.write(text)
            except OSError as error:
                self._give_up(error)
        return len(text)

    def flush(self) -> None:
        """Flush, unless it failed before."""
        if self.failure is None:
            try:
                self._stream.flush()
            except OSError as error:
                self._give_up(error)

    def replace_unknown(self) -> None:
        """Write characters that the locale doesn't have as escapes."""
        if isinstance(self._stream, io.TextIOWrapper):
            try:
                self._stream.reconfigure(errors="backslashreplace")
            except OSError as error:  # it flushes
                self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        self.failure = error
        with suppress(OSError, ValueError):  # else Python tries again when it ends, and complains
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())

    @property
    def complaint(self) -> str:
        """Why the reader misses something; empty where nothing is missing, or nobody reads any more."""
        if self.failure is None or self.failure.errno == errno.EPIPE:
            return ""
        return str(self.failure.strerror or self.failure)


@contextmanager
def lenient() -> Iterator[Lenient]:
    """Standard output and error as lenient streams; gives the former."""
    _fill_closed()
    before = sys.stdout, sys.stderr
    streams = [Lenient(stream) for stream in before]
    for stream in streams:
        stream.replace_unknown()
    sys.stdout, sys.stderr = streams
    try:
        yield streams[0]
    finally:
        for stream in streams:
            stream.flush()
        sys.stdout, sys.stderr = before


def _fill_closed() -> None:
    """Open the null device for closed descriptors: the next file that is opened would be taken for the stream."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115, PTH123 - open to the end
