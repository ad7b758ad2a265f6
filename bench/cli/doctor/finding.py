"""One line of `bench doctor`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """State of one thing."""

    OK = "ok"
    NOTE = "note"
    """A run can start; something is missing or slower."""
    BAD = "bad"
    """No run can start."""


@dataclass(frozen=True)
class Finding:
    """State of one thing, and how to mend it."""

    about: str
    state: State
    what: str
    fix: str = ""
    """Thing to do; empty where nothing needs to be done."""
