"""Amount that the commands say on stderr: errors alone, as usual, or also what was decided."""

from __future__ import annotations

import logging
import sys

from bench.api import UserError
from bench.progress import DECISIONS, Progress, Silent, progress_on, visible


class _Said(logging.Handler):
    """Writes each decision as a line on whatever is stderr by then: a bar on a terminal replaces it."""

    def emit(self, record: logging.LogRecord) -> None:
        sys.stderr.write(f"decided: {visible(record.getMessage())}\n")


_now = ""
"""What was asked for: verbose, quiet, or neither."""
_said = _Said()


def choose(*, verbose: bool, quiet: bool) -> None:
    """Set it for this process.

    Raises:
        UserError: both were asked for.
    """
    global _now  # noqa: PLW0603 - one command line is run at a time, and each begins with this
    if verbose and quiet:
        raise UserError("--verbose, --quiet: expected one of them, got both; leave one out")
    _now = "verbose" if verbose else "quiet" if quiet else ""
    DECISIONS.removeHandler(_said)
    DECISIONS.setLevel(logging.NOTSET)
    if verbose:
        DECISIONS.addHandler(_said)
        DECISIONS.setLevel(logging.INFO)


def is_verbose() -> bool:
    """Whether what was decided is said, too."""
    return _now == "verbose"


def is_quiet() -> bool:
    """Whether nothing but results and errors is printed."""
    return _now == "quiet"


def words() -> list[str]:
    """Option that makes another command as loud."""
    return [f"--{_now}"] if _now else []


def progress() -> Progress:
    """Progress on stderr; silent where the command is quiet."""
    return Silent() if is_quiet() else progress_on(sys.stderr)
