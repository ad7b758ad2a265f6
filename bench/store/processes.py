"""Processes: which are there, how a child ends with its parent, and how a parent ends a child."""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from functools import cache
from pathlib import Path

_SET_DEATH_SIGNAL = 1
"""`PR_SET_PDEATHSIG` of Linux."""
_WATCH_SECONDS = 0.5
_GONE_SECONDS = 10.0
"""Time in which a process that was killed is gone."""


def alive(pid: int) -> bool:
    """Whether there is a process of this number on this machine."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # it is somebody else's
        pass
    return True


@cache
def machine() -> str:
    """Name of the space in which a process number means one process: this machine, or this container of it."""
    try:
        return f"{platform.node()[:64]}.{Path('/proc/self/ns/pid').stat().st_ino}"
    except OSError:  # no Linux
        return platform.node()[:64]


def end_with(parent: int) -> None:
    """Let this process end at once when its parent does, however that ends.

    Linux means the thread that started it: whoever starts a child waits for it there.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)
    else:

        def watch() -> None:
            while os.getppid() == parent:
                time.sleep(_WATCH_SECONDS)
            os._exit(1)

        threading.Thread(target=watch, daemon=True).start()
    if os.getppid() != parent:  # it had ended before
        os._exit(1)


def end_group(leader: subprocess.Popen[str] | subprocess.Popen[bytes], grace: float = 0.0) -> None:
    """End a child that leads a process group, and all others in the group.

    Args:
        leader: the child.
        grace: seconds that it has to end by itself.
    """
    if grace:
        _send(leader.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            leader.wait(grace)
    _send(leader.pid, signal.SIGKILL)
    with suppress(subprocess.TimeoutExpired):
        leader.wait(_GONE_SECONDS)


def ended(code: int) -> str:
    """A child's end in words, by its exit code."""
    if code >= 0:
        return f"exit code {code}"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    return f"ended by {name}" + (", perhaps for want of memory" if name == "SIGKILL" else "")


def _send(group: int, sign: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):  # the latter, on macOS, where only the dead are left of it
        os.killpg(group, sign)
