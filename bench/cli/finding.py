"""Outcome of one check of `bench doctor`, and the memory that checks speak of."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path


class State(StrEnum):
    """Severity of a finding of `bench doctor`."""

    OK = "ok"
    NOTE = "note"
    """A run can start, but something is missing or will be slower."""
    BAD = "bad"
    """No run can start on this machine."""


@dataclass(frozen=True)
class Finding:
    """Outcome of one check: what was found, and what to do if that is a problem."""

    about: str
    state: State
    what: str
    fix: str = ""
    """What the user should do; empty if there is no problem."""


def free_memory() -> float | None:
    """Return how many bytes of main memory are free, taking a container's limit into account; None if unknown.

    On a system without /proc/meminfo and such a limit, it is the total memory.
    """
    limits = []
    with suppress(OSError, ValueError, IndexError):
        lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines())
        limits.append(int(lines["MemAvailable"].split()[0]) * 1024.0)
    with suppress(OSError, ValueError):  # cgroup limit; "max" without one
        folder = Path("/sys/fs/cgroup")
        limit = int((folder / "memory.max").read_text(encoding="ascii"))
        limits.append(float(limit - int((folder / "memory.current").read_text(encoding="ascii"))))
    if not limits:
        with suppress(OSError, ValueError, AttributeError):
            limits.append(float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")))
    return min(limits, default=None)
