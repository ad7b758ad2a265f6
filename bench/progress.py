"""Shows the progress of a run's stages: bars on a terminal, plain lines elsewhere, nothing in library calls.

`visible` escapes control characters in text from servers, models, plugins and files before it is shown.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Protocol, TextIO

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

Advance = Callable[[int], None]

DECISIONS = logging.getLogger("bench.decisions")
"""Logs the automatic choices of a run at level INFO: device, dtype, budgets, revisions, cache hits in the store."""

_QUIET_SECONDS = 2.0
"""Stages that take less time print nothing."""
_LINE_SECONDS = 10.0
"""Least time between two plain lines."""
_COMMANDS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters, bidirectional overrides and lone surrogates.

Joiners and direction marks are allowed: Arabic, Persian, Hebrew and composed emoji need them.
"""


def visible(text: str) -> str:
    r"""Escape characters that would control a terminal, reorder the text or be invalid UTF-8.

    Newlines and tabs stay. All text from a server, a model, a plugin or a file passes through this before it is shown:
    in `terminal`, `Lines`, and where tables and the page are written.

    >>> print(visible("\x1b[2J \u202etxt.exe"), visible("שלום"))
    \x1b[2J \u202etxt.exe שלום
    """
    return _COMMANDS.sub(_escape, text.replace("\r\n", "\n"))


def visible_json(text: str) -> str:
    r"""Escape the characters that `visible` escapes in a JSON document, by JSON escapes, which keep its value.

    >>> print(visible_json('"\u202e"'))
    "\u202e"
    """
    return _COMMANDS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code <= 0xFF else f"\\u{code:04x}"  # noqa: PLR2004 - two digits hold so much


def terminal(*, stderr: bool = False) -> Console:
    """Return a rich console on stdout or stderr that prints all text through `visible`."""
    from rich.console import Console

    class Terminal(Console):
        def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
            for piece in super().render(renderable, options):
                yield piece if piece.control else piece._replace(text=visible(piece.text))

    return Terminal(stderr=stderr, highlight=False)


class Progress(Protocol):
    """Receives the progress of a run and shows it."""

    def stage(self, name: str, total: int, unit: str = "questions") -> AbstractContextManager[Advance]:
        """Open a stage; call the yielded function with the number of units done since the last call."""

    def say(self, text: str) -> None:
        """Print one line for the user."""


class Silent:
    """A `Progress` that prints nothing."""

    @contextmanager
    def stage(self, name: str, total: int, unit: str = "questions") -> Iterator[Advance]:
        """See `Progress.stage`."""
        del name, total, unit
        yield lambda _done: None

    def say(self, text: str) -> None:
        """See `Progress.say`."""
        del text


def _speed(done: int, seconds: float) -> str:
    """Return the rate as text: units per second, or seconds per unit if slower than one per second."""
    if 0 < done < seconds:
        return f"{seconds / done:,.1f} s each"
    return f"{done / seconds:,.0f}/s"


class Lines:
    """A `Progress` that prints plain lines, for logs and pipes."""

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
                remaining = f"{max(total - done, 0) / rate:,.0f} s left" if rate else "time left unknown"
                self.say(f"{name}: {done:,}/{total:,} {unit}, {_speed(done, now - start)}, {remaining}")

        yield advance
        seconds = time.monotonic() - start
        if seconds > _QUIET_SECONDS:
            self.say(f"{name}: {done:,} {unit} in {seconds:,.1f} s")

    def say(self, text: str) -> None:
        """See `Progress.say`."""
        print(visible(text), file=self.out, flush=True)


class Bars:
    """A `Progress` that shows bars on a terminal."""

    def __init__(self) -> None:
        self.console = terminal(stderr=True)

    @contextmanager
    def stage(self, name: str, total: int, unit: str = "questions") -> Iterator[Advance]:
        """See `Progress.stage`."""
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        columns = (
            TextColumn("{task.description}", markup=False),
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
                bar.update(job, advance=step, rate=_speed(done, seconds) if seconds else "")

            yield advance

    def say(self, text: str) -> None:
        """See `Progress.say`."""
        self.console.print(text, markup=False, highlight=False)


def progress_on(stream: TextIO) -> Progress:
    """Return a `Progress` that prints to this stream: bars on a terminal, plain lines elsewhere."""
    return Bars() if stream.isatty() else Lines(stream)
