"""Write what plugins print, and the tracebacks of their errors, to a log file of the run in `<cache>/logs`."""

from __future__ import annotations

import contextlib
import io
import logging
import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, BinaryIO

from bench.api.errors import PLUGINS

MAX_LOGS = 20
"""Largest number of log files that are kept; older ones are removed."""


class RunLog(io.TextIOBase):
    """A text stream to a log file that is created at the first write.

    If the file can't be written, texts are dropped, so that a run never fails because of its log.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self._new_folders: list[Path] = []
        """Folders that this log created, the innermost first; removed at the end if nothing was written."""

    @classmethod
    def create(cls, cache: Path) -> RunLog:
        """Return a new log for this process: a file in `<cache>/logs` whose name is the UTC time and the process id."""
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
        return cls(cache / "logs" / f"{stamp}-{os.getpid()}.log")

    @contextlib.contextmanager
    def redirect(self, say: Callable[[str], None] | None = None) -> Iterator[None]:
        """Context in which the tracebacks of plugins and the standard output are written to the log.

        Args:
            say: function that also gets the tracebacks, to show them to the user; None: they are not shown.
        """
        streams: list[Any] = [self, *([] if say is None else [SimpleNamespace(write=say)])]
        handlers, level = [logging.StreamHandler(stream) for stream in streams], PLUGINS.level
        PLUGINS.setLevel(logging.INFO)
        for handler in handlers:
            handler.terminator = ""  # tracebacks end with a newline
            PLUGINS.addHandler(handler)
        try:
            with contextlib.redirect_stdout(self):
                yield
        finally:
            PLUGINS.setLevel(level)
            for handler in handlers:
                PLUGINS.removeHandler(handler)
            with contextlib.suppress(OSError):
                for old in sorted(self.path.parent.glob("*.log"))[:-MAX_LOGS]:
                    old.unlink(missing_ok=True)
                if not self.has_text:
                    self.path.unlink(missing_ok=True)
                    for folder in self._new_folders:  # a dry run leaves no empty cache behind
                        folder.rmdir()

    @property
    def has_text(self) -> bool:
        """Whether anything was written to the log file."""
        with contextlib.suppress(OSError):
            return self.path.stat().st_size > 0
        return False

    def appended(self) -> BinaryIO:
        """Open the log file for appending; if that fails, return the null device, which drops all texts."""
        with contextlib.suppress(OSError):
            if not self.path.parent.exists():
                self._new_folders = [folder for folder in self.path.parents if not folder.exists()]
                self.path.parent.mkdir(parents=True, exist_ok=True)
            return self.path.open("ab")
        return Path(os.devnull).open("ab")

    def write(self, text: str) -> int:
        """Append a text to the log file, and return the length of the text."""
        with contextlib.suppress(OSError), self.appended() as out:
            out.write(text.encode(errors="replace"))
        return len(text)
