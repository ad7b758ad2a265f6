"""Beginning of a process of plugins: its limits, and that it ends with the run that started it."""

from __future__ import annotations

import contextlib
import resource
import sys
from pathlib import Path

from bench.run.isolation.pipe import Pipe
from bench.store.processes import end_with


def begin() -> tuple[Pipe, list[str]]:
    """Tie this process to its parent; returns the pipe to it, and the arguments."""
    reading, writing, parent, most = map(int, sys.argv[1:5])
    end_with(parent)
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")  # rather this one than the run
    _limit(most)
    return Pipe(reading, writing), sys.argv[5:]


def _limit(most: int) -> None:
    """Let it have so many bytes of memory, so that one that wants all gets a MemoryError and not the machine."""
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    lowest = min(most, *(limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY), 2**62)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_DATA, (lowest, hard))
