"""Signals that end a command: what was begun is cleaned up, one sentence is said, the exit code tells the signal."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn

from bench.api.errors import Interrupter

INTERRUPTED = 130
"""Exit code of a command that was stopped with Ctrl-C."""
_SECONDS = 4.0
"""Time to clean up."""
_SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


class Stop(Interrupter):
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

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Raise `Interrupted` at the first signal; leave at once at another one, or if the end takes too long."""
        if self.signal is not None:
            self._leave()
        self.signal = number
        late = threading.Timer(_SECONDS, self._leave)
        late.daemon = True
        late.start()
        super().__call__(number, frame)

    def _leave(self) -> NoReturn:
        if not self.said:
            with suppress(OSError):
                os.write(2, f"{self.sentence()}\n".encode())
        os._exit(self.code)


@contextmanager
def stoppable() -> Iterator[Stop]:
    """Within this block signals raise `Interrupted`, but those that are ignored, as `nohup` asks for."""
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
