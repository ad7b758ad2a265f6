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
"""Logger of a run's automatic choices, at level INFO: device, dtype, budgets, revisions, cache hits in the store."""

_QUIET_SECONDS = 2.0
"""Number of seconds up to which a stage prints no plain line."""
_LINE_SECONDS = 10.0
"""Minimum number of seconds between two plain lines."""
_MINUTES, _HOURS = 600, 7200
"""Smallest number of seconds that is shown in minutes, and smallest number that is shown in hours."""
_COMMANDS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Pattern of the characters that `visible` escapes: control characters, marks of text direction, lone surrogates.

Joiners are not escaped, because Persian and composed emoji need them.
"""


def visible(text: str) -> str:
    r"""Escape characters that would control a terminal, reorder the text or be invalid UTF-8.

    Newlines and tabs stay. Text from servers, models, plugins and files passes through this function before display:
    in `terminal`, `Lines`, and where tables and the page are written.

    >>> print(visible("\x1b[2J \u202etxt.exe"), visible("שלום"))
    \x1b[2J \u202etxt.exe שלום
    """
    return _COMMANDS.sub(_escape, text.replace("\r\n", "\n"))


def visible_json(text: str) -> str:
    r"""Escape in a JSON document what `visible` escapes, by JSON escapes, which keep the document's value.

    >>> print(visible_json('"\u202e"'))
    "\u202e"
    """
    return _COMMANDS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code <= 0xFF else f"\\u{code:04x}"  # two digits hold so much


def terminal(*, stderr: bool = False) -> Console:
    """Return a rich console on stdout or stderr that prints all text through `visible`."""
    from rich.console import Console

    class Terminal(Console):
        def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
            for piece in super().render(renderable, options):
                yield piece if piece.control else piece._replace(text=visible(piece.text))

    return Terminal(stderr=stderr, highlight=False)


def format_duration(seconds: float, sign: str = "about") -> str:
    """Format seconds as seconds, minutes or hours.

    >>> format_duration(0.2), format_duration(95), format_duration(700, "at most"), format_duration(9_000)
    ('less than 1 s', 'about 95 s', 'at most 12 min', 'about 2.5 h')
    """
    if seconds < 1:
        return "less than 1 s"
    if seconds < _MINUTES:
        return f"{sign} {seconds:,.0f} s"
    return f"{sign} {seconds / 60:,.0f} min" if seconds < _HOURS else f"{sign} {seconds / 3600:,.1f} h"


class Progress(Protocol):
    """Interface that receives the progress of a run and shows it to the user."""

    seconds_after: float
    """Expected seconds of the run after the current stage, shown beside the stage's own; 0 if nothing is known."""

    def stage(self, name: str, total: int, unit: str = "questions") -> AbstractContextManager[Advance]:
        """Show one stage of a run within the context.

        Yields a function, to be called with the number of units done since its last call. `total` is the number of all
        units.
        """

    def say(self, text: str) -> None:
        """Print one line for the user."""


class Silent:
    """A `Progress` that prints nothing."""

    seconds_after = 0.0

    @contextmanager
    def stage(self, name: str, total: int, unit: str = "questions") -> Iterator[Advance]:
        """Yield a function that does nothing, and show nothing."""
        del name, total, unit
        yield lambda _done: None

    def say(self, text: str) -> None:
        """Ignore the text."""
        del text


def _speed(done: int, seconds: float) -> str:
    """Return a speed as text: units per second, or seconds per unit if a unit takes more than a second."""
    if 0 < done < seconds:
        return f"{seconds / done:,.1f} s each"
    return f"{done / seconds:,.0f}/s"


def _then(seconds: float) -> str:
    return f", then {format_duration(seconds)}" if seconds >= 1 else ""


class Lines:
    """A `Progress` that prints plain lines, for logs and pipes."""

    seconds_after = 0.0

    def __init__(self, out: TextIO) -> None:
        self.out = out

    @contextmanager
    def stage(self, name: str, total: int, unit: str = "questions") -> Iterator[Advance]:
        """Print the progress of a stage as plain lines within the context.

        Yields a function, to be called with the number of units done since its last call.
        """
        start = last = time.monotonic()
        done = 0

        def advance(step: int) -> None:
            nonlocal done, last
            done += step
            now = time.monotonic()
            if now - start > _QUIET_SECONDS and now - last > _LINE_SECONDS:
                last = now
                rate = done / (now - start)
                remaining = f"{format_duration(max(total - done, 0) / rate)} left" if rate else "time left unknown"
                speed = _speed(done, now - start)
                self.say(f"{name}: {done:,}/{total:,} {unit}, {speed}, {remaining}{_then(self.seconds_after)}")

        yield advance
        seconds = time.monotonic() - start
        if seconds > _QUIET_SECONDS:
            self.say(f"{name}: {done:,} {unit} in {seconds:,.1f} s")

    def say(self, text: str) -> None:
        """Print one line for the user, with control characters escaped."""
        print(visible(text), file=self.out, flush=True)


class Bars:
    """A `Progress` that shows bars on a terminal."""

    seconds_after = 0.0

    def __init__(self) -> None:
        self.console = terminal(stderr=True)

    @contextmanager
    def stage(self, name: str, total: int, unit: str = "questions") -> Iterator[Advance]:
        """Show the progress of a stage as a bar within the context.

        Yields a function, to be called with the number of units done since its last call.
        """
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn(unit),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(),
            TextColumn(_then(self.seconds_after)),
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
        """Print one line for the user above the bars."""
        self.console.print(text, markup=False, highlight=False)


def progress_on(stream: TextIO) -> Progress:
    """Return a `Progress`: bars on stderr if this stream is a terminal, otherwise plain lines on this stream."""
    return Bars() if stream.isatty() else Lines(stream)
