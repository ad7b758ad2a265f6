"""The end of every command: its exit code, and at most one sentence on stderr for whatever stopped it.

A signal ends a command in order: what was begun is cleaned up, one sentence is said, the exit code tells the signal.
Standard streams that are closed, full or broken cost no result: they only lose what is printed.
"""

from __future__ import annotations

import base64
import csv
import errno
import hashlib
import io
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import metadata
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn, TextIO

from rich.text import Text

from bench import registry
from bench.api import ContractError, UserError
from bench.api.errors import require_text
from bench.cli.printing import console
from bench.results.provenance import CODE, DISTRIBUTION

INTERRUPTED = 130
"""Exit code of a command that was stopped with Ctrl-C."""
_SECONDS = 4.0
"""Time to clean up."""
_SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


def exit_code(command: Callable[[], object]) -> int:
    """Run a command line; returns its exit code."""
    with lenient() as out, stoppable() as stop:
        try:
            code = _code(command, stop)
        except KeyboardInterrupt:
            code = _stopped(stop)
        out.flush()
        if out.complaint:
            _say(f"what it prints can't be written ({out.complaint}); results are stored all the same")
            code = code or 2
        return code


def _code(command: Callable[[], object], stop: Stop) -> int:
    try:
        for word in sys.argv:
            require_text(word, "the command line")
        if sys.argv[1:2] != ["doctor"]:  # which says what is wrong with them
            refuse_overwritten()
            registry.import_own()
        command()
    except (UserError, ContractError) as error:
        _say(str(error))
        return 2
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        _say(f"{error.strerror}: {error.filename!r} has {len(str(error.filename)):,} letters; name a shorter one")
        return 2
    except SystemExit as ended:
        if ended.code == INTERRUPTED:  # typer turns KeyboardInterrupt into this
            return _stopped(stop)
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    return 0


def _stopped(stop: Stop) -> int:
    console(stderr=True).print(stop.sentence(), soft_wrap=True)
    return stop.code


def _say(sentence: str) -> None:
    # a word of 5,000 letters hides what is said of it; a command's list of names stays whole, or it can't be run
    readable = re.sub(r"([^\s,]{100})[^\s,]{150,}", r"\1...", sentence)
    console(stderr=True).print(Text(f"bench: {readable}"), soft_wrap=True)


def refuse_overwritten() -> None:
    """Compare the first file of each of our packages with what the installer put there.

    An environment has one folder of each name: of two packages that bring a `bench`, the later one wins. A checkout,
    which is installed by a path, has no such list and is passed over.

    Raises:
        UserError: a file is another one, or is gone.
    """
    try:
        distribution = metadata.distribution(DISTRIBUTION)
        record = distribution.read_text("RECORD") or ""
    except (metadata.PackageNotFoundError, OSError, UnicodeError):  # the registry says that it is not installed
        return
    firsts = {f"{name}/__init__.py" for name in CODE}
    for line in csv.reader(line for line in record.splitlines() if line.startswith(tuple(firsts))):
        path, kind, digest = line[0], *line[1].partition("=")[::2]
        there = Path(str(distribution.locate_file(path)))
        if kind != "sha256" or path not in firsts:
            continue
        found = None
        with suppress(OSError):
            found = base64.urlsafe_b64encode(hashlib.sha256(there.read_bytes()).digest()).rstrip(b"=").decode()
        if found != digest:
            name = path.partition("/")[0]
            others = sorted(set(metadata.packages_distributions().get(name, ())) - {DISTRIBUTION})
            whose = f" ({', '.join(others)})" if others else ""
            raise UserError(
                f"{there} is not the file that {DISTRIBUTION} installed: another package with a folder `{name}` has"
                f" replaced it{whose}. Both can't be in one environment; install {DISTRIBUTION} into one of its"
                f" own: python -m venv .venv && .venv/bin/pip install {DISTRIBUTION}"
            )


# --- signals ----------------------------------------------------------------------------------------------------------


class Stop:
    """The first of the signals that came, if any."""

    signal: int | None = None
    said = False

    @property
    def code(self) -> int:
        """Exit code of the command."""
        return INTERRUPTED if self.signal is None else 128 + self.signal

    def sentence(self) -> str:
        """Sentence for the user; it is said once."""
        self.said = True
        word = "interrupted" if self.code == INTERRUPTED else "stopped"
        return f"bench: {word}; what was finished is stored, run the same command to go on"

    def __call__(self, number: int, _frame: FrameType | None) -> None:
        """Raise `KeyboardInterrupt` at the first signal; leave at once at another one, or if the end takes too long."""
        if self.signal is not None:
            self._leave()
        self.signal = number
        late = threading.Timer(_SECONDS, self._leave)
        late.daemon = True
        late.start()
        raise KeyboardInterrupt

    def _leave(self) -> NoReturn:
        if not self.said:
            with suppress(OSError):
                os.write(2, f"{self.sentence()}\n".encode())
        os._exit(self.code)


@contextmanager
def stoppable() -> Iterator[Stop]:
    """Within this block signals raise `KeyboardInterrupt`, but those that are ignored, as `nohup` asks for."""
    stop = Stop()
    before = {}
    if threading.current_thread() is threading.main_thread():
        for number in _SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                before[number] = signal.signal(number, stop)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            if stop.signal is None:  # else another one still ends it at once
                signal.signal(number, handler)


# --- streams ----------------------------------------------------------------------------------------------------------


class LossyStream:
    """A text stream that drops what can't be written, and remembers why."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.failure: OSError | None = None
        if isinstance(stream, io.TextIOWrapper):
            with self._tolerant():  # it flushes; characters that the locale doesn't have are written as escapes
                stream.reconfigure(errors="backslashreplace")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    @contextmanager
    def _tolerant(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.failure = error
            with suppress(OSError, ValueError):  # else Python tries again when it ends, and complains
                os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())

    def write(self, text: str) -> int:
        """Write, unless it failed before."""
        if self.failure is None:
            with self._tolerant():
                return self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush, unless it failed before."""
        if self.failure is None:
            with self._tolerant():
                self._stream.flush()

    @property
    def complaint(self) -> str:
        """Why the reader misses something; empty where nothing is missing, or nobody reads any more."""
        if self.failure is None or self.failure.errno == errno.EPIPE:
            return ""
        return str(self.failure.strerror or self.failure)


@contextmanager
def lenient() -> Iterator[LossyStream]:
    """Standard output and error as lenient streams; gives the former."""
    # closed descriptors get the null device: the next file that is opened would be taken for the stream
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115, PTH123 - open to the end
    before = sys.stdout, sys.stderr
    streams = [LossyStream(stream) for stream in before]
    sys.stdout, sys.stderr = streams
    try:
        yield streams[0]
    finally:
        for stream in streams:
            stream.flush()
        sys.stdout, sys.stderr = before
