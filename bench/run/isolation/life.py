"""Beginning of a process of plugins: its limits, and that it ends with the one that started it."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sys
import threading
from pathlib import Path

from bench.run.isolation.pipe import Pipe

_PARENT_DEATH_SIGNAL = 1
"""`PR_SET_PDEATHSIG`."""


def begin() -> tuple[Pipe, list[str]]:
    """Tie this process to its parent; returns the pipe to it, and the arguments."""
    reading, writing, life, parent, most = map(int, sys.argv[1:6])
    _end_with(parent, life)
    _limit(most)
    return Pipe(reading, writing), sys.argv[6:]


def _end_with(parent: int, life: int) -> None:
    """End this process and what it started when the run is gone: `life` is a pipe that the run holds open."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL)
        with contextlib.suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")  # rather this one than the run
    if os.getppid() != parent:
        os._exit(1)

    def wait() -> None:
        os.read(life, 1)
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=wait, daemon=True).start()


def _limit(most: int) -> None:
    """Let it have so many bytes of memory, so that one that wants all gets a MemoryError and not the machine."""
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    lowest = min(most, *(limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY), 2**62)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_DATA, (lowest, hard))
