"""Progress of a stage: a bar with rate and time left on a terminal, plain lines elsewhere, nothing in library calls."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol, TextIO

Advance = Callable[[int], None]

_QUIET_SECONDS = 2.0
"""A stage shorter than this says nothing."""
_LINE_SECONDS = 10.0
"""Between two plain lines."""


class Progress(Protocol):
    """Listener that a run tells what it is doing."""

    def stage(self, name: str, total: int, unit: str = "questions") -> AbstractContextManager[Advance]:
        """Within the context, call the function with what was done since the last call."""

    def say(self, text: str) -> None:
        """One line for the user."""


class Silent:
    """Tells nothing."""

    @contextmanager
    def stage(self, name: str, total: int, unit: str = "questions") -> Iterator[Advance]:
        """See `Progress.stage`."""
        del name, total, unit
        yield lambda _done: None

    def say(self, text: str) -> None:
        """See `Progress.say`."""
        del text


class Lines:
    """Plain lines, for logs and pipes."""

    def __init__(self, out: TextIO) -> None:
        self.out = out

    @contextmanager
    def stage(self, name: str, total: int, unit: str = "questions") -> Iterator[Advance]:
        """See `Progress.stage`."""
        start = last = time.monotonic()
        done = 0

        def advance(step: int) -> None:
            nonlocal done, last
            done += step
            now = time.monotonic()
            if now - start > _QUIET_SECONDS and now - last > _LINE_SECONDS:
                last = now
                rate = done / (now - start)
                left = f"{max(total - done, 0) / rate:,.0f} s left" if rate else "time left unknown"
                self.say(f"{name}: {done:,}/{total:,} {unit}, {rate:,.0f}/s, {left}")

        yield advance
        seconds = time.monotonic() - start
        if seconds > _QUIET_SECONDS:
            self.say(f"{name}: {done:,} {unit} in {seconds:,.1f} s")

    def say(self, text: str) -> None:
        """See `Progress.say`."""
        print(text, file=self.out, flush=True)


class Bars:
    """Bars on a terminal."""

    def __init__(self) -> None:
        from rich.console import Console

        self.console = Console(stderr=True)

    @contextmanager
    def stage(self, name: str, total: int, unit: str = "questions") -> Iterator[Advance]:
        """See `Progress.stage`."""
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn(unit),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(),
        )
        start = time.monotonic()
        with RichProgress(*columns, console=self.console, transient=True) as bar:
            job = bar.add_task(name, total=total, rate="")
            done = 0

            def advance(step: int) -> None:
                nonlocal done
                done += step
                seconds = time.monotonic() - start
                bar.update(job, advance=step, rate=f"{done / seconds:,.0f}/s" if seconds else "")

            yield advance

    def say(self, text: str) -> None:
        """See `Progress.say`."""
        self.console.print(text, markup=False, highlight=False)


def progress_on(stream: TextIO) -> Progress:
    """Progress for whoever reads the stream: bars on a terminal, plain lines elsewhere."""
    return Bars() if stream.isatty() else Lines(stream)
