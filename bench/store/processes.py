"""Operating-system processes: whether one is alive, ending a child with its parent, and killing a process group."""

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
"""Number of the option `PR_SET_PDEATHSIG` of Linux: the signal that a process gets when its parent dies."""
_POLL_SECONDS = 0.5
_KILL_SECONDS = 10.0
"""Maximum seconds to wait for a killed process to exit."""


def process_exists(pid: int) -> bool:
    """Return whether a process with this ID runs on this machine."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # it runs, as another user
        pass
    return True


@cache
def machine_id() -> str:
    """Return a name for the namespace in which process IDs are unique: this machine, or this container on it."""
    try:
        return f"{platform.node()[:64]}.{Path('/proc/self/ns/pid').stat().st_ino}"
    except OSError:  # not Linux
        return platform.node()[:64]


def exit_with_parent(parent: int) -> None:
    """Make this process exit as soon as its parent does; `parent` is the parent's process ID.

    On Linux the parent is the thread that started this process: the process is killed when this thread ends.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)
    else:

        def watch() -> None:
            while os.getppid() == parent:
                time.sleep(_POLL_SECONDS)
            os._exit(1)

        threading.Thread(target=watch, daemon=True).start()
    if os.getppid() != parent:  # the parent has ended already
        os._exit(1)


def kill_process_group(leader: subprocess.Popen[str] | subprocess.Popen[bytes], grace: float = 0.0) -> None:
    """End a child process that leads a process group, and all other processes of the group.

    Args:
        leader: the child.
        grace: seconds between SIGTERM and SIGKILL; 0: SIGKILL at once.
    """
    if grace:
        _signal_group(leader.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            leader.wait(grace)
    _signal_group(leader.pid, signal.SIGKILL)
    with suppress(subprocess.TimeoutExpired):
        leader.wait(_KILL_SECONDS)


def describe_exit(code: int) -> str:
    """Describe how a child process ended; `code` is its `returncode`, negative for a signal."""
    if code >= 0:
        return f"exit code {code}"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    return f"ended by {name}" + (", perhaps for want of memory" if name == "SIGKILL" else "")


def _signal_group(group: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):  # the latter on macOS, if only zombies are left
        os.killpg(group, number)
