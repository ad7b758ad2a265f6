"""The log of a run: tracebacks of plugins, and what they print, in `<cache>/logs`."""

from __future__ import annotations

import contextlib
import io
import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from io import TextIOWrapper
from pathlib import Path

from bench.api.errors import PLUGINS

KEPT = 20
"""Logs; older ones are removed."""


@dataclass
class RunLog:
    """A file that appears when something is written to it."""

    path: Path
    _out: TextIOWrapper | None = None
    _made: list[Path] = field(default_factory=list)
    """Folders that were not there before."""

    @classmethod
    def below(cls, cache: Path) -> RunLog:
        """The log of this process, named by the time in UTC and by its number."""
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
        return cls(cache / "logs" / f"{stamp}-{os.getpid()}.log")

    @contextlib.contextmanager
    def opened(self, say: Callable[[str], None] | None = None) -> Iterator[None]:
        """Within it tracebacks of plugins, and what is printed on the standard output, go to the log.

        Where the folder can't be written, they go nowhere; a run doesn't fail for its log.

        Args:
            say: also told the tracebacks.
        """
        handlers: list[logging.Handler] = [_Telling(self._write)]
        if say is not None:
            handlers.append(_Telling(say))
        level = PLUGINS.level
        PLUGINS.setLevel(logging.INFO)
        for handler in handlers:
            PLUGINS.addHandler(handler)
        try:
            with contextlib.redirect_stdout(_Printed(self._write)):
                yield
        finally:
            PLUGINS.setLevel(level)
            for handler in handlers:
                PLUGINS.removeHandler(handler)
            self._close()

    @property
    def written(self) -> bool:
        """Whether there is anything in it."""
        with contextlib.suppress(OSError):
            return self.path.stat().st_size > 0
        return False

    def for_child(self) -> Path | None:
        """The file, for a child to print to; None where it can't be had."""
        return self.path if self._file() is not None else None

    def _file(self) -> TextIOWrapper | None:
        if self._out is None:
            with contextlib.suppress(OSError):
                self._made += [each for each in (self.path.parent, self.path.parent.parent) if not each.exists()]
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self._out = self.path.open("a", encoding="utf-8", errors="replace", buffering=1)
        return self._out

    def _write(self, text: str) -> None:
        file = self._file()
        if file is not None:
            with contextlib.suppress(OSError):
                file.write(text)

    def _close(self) -> None:
        if self._out is None:
            return
        out, self._out = self._out, None
        with contextlib.suppress(OSError):
            out.close()
        with contextlib.suppress(OSError):
            if not self.written:
                self.path.unlink()
            for old in sorted(self.path.parent.glob("*.log"))[:-KEPT]:
                old.unlink(missing_ok=True)
            for folder in self._made:
                folder.rmdir()  # if there is nothing in it


class _Printed(io.TextIOBase):
    """Stream that tells a function what is printed."""

    def __init__(self, say: Callable[[str], None]) -> None:
        super().__init__()
        self.say = say

    def write(self, text: str) -> int:
        """Tell a text."""
        self.say(text)
        return len(text)


class _Telling(logging.Handler):
    """Tells a function what is logged."""

    def __init__(self, say: Callable[[str], None]) -> None:
        super().__init__()
        self.say = say

    def emit(self, record: logging.LogRecord) -> None:
        """Tell one record."""
        self.say(record.getMessage())
