"""How much the commands print on stderr: quiet (--quiet), normal, or verbose (--verbose: with decisions)."""

from __future__ import annotations

import logging
import os
import sys

from bench.api import UserError
from bench.progress import DECISIONS, Progress, Silent, progress_on, visible


class _DecisionHandler(logging.Handler):
    """Logging handler that writes records of decisions to the current `sys.stderr`.

    A progress bar may have replaced the stream that was there at import.
    """

    def emit(self, record: logging.LogRecord) -> None:
        sys.stderr.write(f"decided: {visible(record.getMessage())}\n")


_level = ""
"""Verbosity of this process: `verbose`, `quiet`, or empty for normal."""
_handler = _DecisionHandler()


def set_level(*, verbose: bool, quiet: bool) -> None:
    """Set the verbosity of this process.

    Raises:
        UserError: both are true.
    """
    global _level  # noqa: PLW0603 - a process runs one command line at a time
    if verbose and quiet:
        raise UserError("--verbose, --quiet: expected one of them, got both; leave one out")
    _level = "verbose" if verbose else "quiet" if quiet else ""
    DECISIONS.removeHandler(_handler)
    DECISIONS.setLevel(logging.NOTSET)
    if not verbose:  # each retry of an unreachable Hub is two lines; what it comes to is said in a sentence
        os.environ.setdefault("HF_HUB_VERBOSITY", "error")  # read when huggingface_hub is imported
    if verbose:
        DECISIONS.addHandler(_handler)
        DECISIONS.setLevel(logging.INFO)


def is_verbose() -> bool:
    """Return whether decisions are printed, as --verbose asks."""
    return _level == "verbose"


def is_quiet() -> bool:
    """Return whether only results and errors are printed, as --quiet asks."""
    return _level == "quiet"


def flags() -> list[str]:
    """Return the command-line option that gives another command the verbosity of this process."""
    return [f"--{_level}"] if _level else []


def progress() -> Progress:
    """Return a progress display on stderr; with --quiet one that shows nothing."""
    return Silent() if is_quiet() else progress_on(sys.stderr)
