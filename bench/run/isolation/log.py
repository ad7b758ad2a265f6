"""Write what plugins print, and the tracebacks of their errors, to the log file of a run in `<cache>/logs`."""

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
    """A text stream to a file that appears when something is written to it.

    If the file can't be written, texts are dropped; a run doesn't fail for its log.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self._new_folders: list[Path] = []
        """Folders that this log created, the innermost first; they are removed again if nothing was written."""

    @classmethod
    def create(cls, cache: Path) -> RunLog:
        """Return the log of this process, a file in `<cache>/logs` named by UTC time and process id."""
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
        return cls(cache / "logs" / f"{stamp}-{os.getpid()}.log")

    @contextlib.contextmanager
    def redirect(self, say: Callable[[str], None] | None = None) -> Iterator[None]:
        """Write tracebacks of plugins and the standard output to the log while the context is open.

        Args:
            say: function that also gets the tracebacks, to show them to the user.
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
        """Open the log file for appending; return the null device if that fails."""
        with contextlib.suppress(OSError):
            if not self.path.parent.exists():
                self._new_folders = [folder for folder in self.path.parents if not folder.exists()]
                self.path.parent.mkdir(parents=True, exist_ok=True)
            return self.path.open("ab")
        return Path(os.devnull).open("ab")

    def write(self, text: str) -> int:
        """Append a text to the log file and return its length."""
        with contextlib.suppress(OSError), self.appended() as out:
            out.write(text.encode(errors="replace"))
        return len(text)
