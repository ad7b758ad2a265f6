"""How commands end: exit codes, one sentence on stderr for an error, signals of the system, broken output streams.

On a signal such as SIGINT, a command cleans up, prints one sentence, and ends with the signal's exit code. If a
standard stream is closed, full or broken, what is printed gets lost, but no result.
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
"""Exit code of a command that Ctrl-C stopped."""
_CLEANUP_SECONDS = 4.0
"""Time limit, in seconds, of a command's cleanup after a signal such as SIGINT."""
_SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


def exit_code(command: Callable[[], object]) -> int:
    """Run a command, report its errors on stderr, and return the exit code."""
    with lossy_streams() as out, catch_signals() as stop:
        try:
            code = _run_command(command, stop)
        except KeyboardInterrupt:
            code = _report_stop(stop)
        out.flush()
        if out.lost_output:
            _report(f"what it prints can't be written ({out.lost_output}); results are stored all the same")
            code = code or 2
        return code


def _run_command(command: Callable[[], object], stop: StopSignal) -> int:
    try:
        for word in sys.argv:
            require_text(word, "the command line")
        if sys.argv[1:2] != ["doctor"]:  # doctor reports these problems itself
            check_installed_files()
            registry.import_built_ins()
        command()
    except (UserError, ContractError) as error:
        _report(str(error))
        return 2
    except OSError as error:
        way_out = {
            errno.ENAMETOOLONG: f" has {len(str(error.filename)):,} letters; name a shorter one",
            errno.EACCES: "; name another one, or change its permissions",
        }.get(error.errno or 0)
        if way_out is None or error.filename is None:
            raise
        _report(f"{error.strerror}: {error.filename!r}{way_out}")
        return 2
    except SystemExit as exit_request:
        if exit_request.code == INTERRUPTED:  # typer turns KeyboardInterrupt into this
            return _report_stop(stop)
        return exit_request.code if isinstance(exit_request.code, int) else int(exit_request.code is not None)
    return 0


def _report_stop(stop: StopSignal) -> int:
    console(stderr=True).print(stop.sentence(), soft_wrap=True)
    return stop.code


def _report(sentence: str) -> None:
    # very long words are shortened, but not comma-separated lists: a printed command must stay complete
    readable = re.sub(r"([^\s,]{100})[^\s,]{150,}", r"\1...", sentence)
    console(stderr=True).print(Text(f"bench: {readable}"), soft_wrap=True)


def check_installed_files() -> None:
    """Check that the `__init__.py` of each of our packages has the digest in the installer's RECORD.

    If two distributions have a package `bench`, the one installed later overwrites the files of the other. An editable
    install has no digests in RECORD, so it is not checked.

    Raises:
        UserError: a file differs or is missing.
    """
    try:
        distribution = metadata.distribution(DISTRIBUTION)
        record = distribution.read_text("RECORD") or ""
    except (metadata.PackageNotFoundError, OSError, UnicodeError):  # the registry reports that it is not installed
        return
    init_files = {f"{name}/__init__.py" for name in CODE}
    for line in csv.reader(line for line in record.splitlines() if line.startswith(tuple(init_files))):
        path, kind, digest = line[0], *line[1].partition("=")[::2]
        file = Path(str(distribution.locate_file(path)))
        if kind != "sha256" or path not in init_files:
            continue
        actual = None
        with suppress(OSError):
            actual = base64.urlsafe_b64encode(hashlib.sha256(file.read_bytes()).digest()).rstrip(b"=").decode()
        if actual != digest:
            name = path.partition("/")[0]
            other_packages = sorted(set(metadata.packages_distributions().get(name, ())) - {DISTRIBUTION})
            owners = f" ({', '.join(other_packages)})" if other_packages else ""
            raise UserError(
                f"{file} is not the file that {DISTRIBUTION} installed: another package with a folder `{name}` has"
                f" replaced it{owners}. Both can't be in one environment; install {DISTRIBUTION} in an"
                " environment of its own, from its clone: python -m venv .venv && .venv/bin/pip install ."
            )


# --- signals ----------------------------------------------------------------------------------------------------------


class StopSignal:
    """Handler of SIGINT, SIGTERM and SIGHUP that remembers the first signal."""

    signal: int | None = None
    reported = False

    @property
    def code(self) -> int:
        """Exit code of a command that was stopped by the signal."""
        return INTERRUPTED if self.signal is None else 128 + self.signal

    def sentence(self) -> str:
        """Return the sentence about the signal for the user, and note that the signal was reported."""
        self.reported = True
        word = "interrupted" if self.code == INTERRUPTED else "stopped"
        return f"bench: {word}; what was finished is stored, run the same command to go on"

    def __call__(self, number: int, _frame: FrameType | None) -> None:
        """Raise `KeyboardInterrupt` at the first signal; exit at once at a second one, or if cleanup is too slow."""
        if self.signal is not None:
            self._exit_now()
        self.signal = number
        late = threading.Timer(_CLEANUP_SECONDS, self._exit_now)
        late.daemon = True
        late.start()
        raise KeyboardInterrupt

    def _exit_now(self) -> NoReturn:
        if not self.reported:
            with suppress(OSError):
                os.write(2, f"{self.sentence()}\n".encode())
        os._exit(self.code)


@contextmanager
def catch_signals() -> Iterator[StopSignal]:
    """Context manager in which SIGINT, SIGTERM and SIGHUP raise `KeyboardInterrupt`.

    Signals that were ignored before, as under `nohup`, stay ignored.
    """
    stop = StopSignal()
    previous = {}
    if threading.current_thread() is threading.main_thread():
        for number in _SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                previous[number] = signal.signal(number, stop)
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            if stop.signal is None:  # else a second signal still exits at once
                signal.signal(number, handler)


# --- streams ----------------------------------------------------------------------------------------------------------


class LossyStream:
    """Text stream on which a failed write raises nothing; later text is dropped, and the error is kept in `failure`."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.failure: OSError | None = None
        if isinstance(stream, io.TextIOWrapper):
            with self._catch_errors():  # it flushes; characters outside the encoding are escaped
                stream.reconfigure(errors="backslashreplace")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    @contextmanager
    def _catch_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.failure = error
            with suppress(OSError, ValueError):  # else Python tries again at exit, and prints an error
                os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())

    def write(self, text: str) -> int:
        """Write a text, unless an earlier write failed; return the text's length."""
        if self.failure is None:
            with self._catch_errors():
                return self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush the stream, unless an earlier write failed."""
        if self.failure is None:
            with self._catch_errors():
                self._stream.flush()

    @property
    def lost_output(self) -> str:
        """Reason why output was lost; empty if none was lost, or if the reader closed the pipe."""
        if self.failure is None or self.failure.errno == errno.EPIPE:
            return ""
        return str(self.failure.strerror or self.failure)


@contextmanager
def lossy_streams() -> Iterator[LossyStream]:
    """Context manager that replaces stdout and stderr by lossy streams; yields that of stdout."""
    # closed descriptors get the null device, since the next opened file would be used as the stream
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115, PTH123 - open until exit
    originals = sys.stdout, sys.stderr
    streams = [LossyStream(stream) for stream in originals]
    sys.stdout, sys.stderr = streams
    try:
        yield streams[0]
    finally:
        for stream in streams:
            stream.flush()
        sys.stdout, sys.stderr = originals
