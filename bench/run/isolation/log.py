"""The log of a run: tracebacks of plugins, and what they print, in `<cache>/logs`."""

from __future__ import annotations

import contextlib
import io
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
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
        printed, made = _Printed(self._write), [each for each in self.path.parents[:2] if not each.exists()]
        handlers = [logging.StreamHandler(stream) for stream in (printed, *([] if say is None else [_Printed(say)]))]
        level = PLUGINS.level
        PLUGINS.setLevel(logging.INFO)
        for handler in handlers:
            handler.terminator = ""  # tracebacks end with one
            PLUGINS.addHandler(handler)
        try:
            with contextlib.redirect_stdout(printed):
                yield
        finally:
            PLUGINS.setLevel(level)
            for handler in handlers:
                PLUGINS.removeHandler(handler)
            self._close(made)

    @property
    def written(self) -> bool:
        """Whether there is anything in it."""
        with contextlib.suppress(OSError):
            return self.path.stat().st_size > 0
        return False

    def for_child(self) -> Path | None:
        """The file, for a child to print to; None where it can't be had."""
        if self._out is None:
            with contextlib.suppress(OSError):
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self._out = self.path.open("a", encoding="utf-8", errors="replace", buffering=1)
        return None if self._out is None else self.path

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError):
            if self.for_child() is not None and self._out is not None:
                self._out.write(text)

    def _close(self, made: Sequence[Path]) -> None:
        """Close the file; remove it if it is empty, with the folders that were made for it, and old ones."""
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
            for folder in made:
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
