"""Processes end with their parents, and groups of them whole."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from bench.store import processes
from bench.store.processes import kill_process_group, process_exists

# the leader ends at the first signal, and what it started does not
STUBBORN = """
import os, signal, time
child = os.fork()
if not child:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print(os.getpid(), flush=True)
time.sleep(60)
"""


def happens(what: Callable[[], bool]) -> bool:
    end = time.monotonic() + 5
    while not what() and time.monotonic() < end:
        time.sleep(0.02)
    return what()


def gone(pid: int) -> bool:
    """Whether a process has ended, be it that nobody has asked for its exit code yet."""
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, check=False).stdout
    return not process_exists(pid) or state[:1] in {b"Z", b""}


@pytest.mark.parametrize("grace", [0.0, 2.0])
def test_process_group_ends_whole(grace: float) -> None:
    with subprocess.Popen([sys.executable, "-c", STUBBORN], stdout=subprocess.PIPE, start_new_session=True) as leader:
        assert leader.stdout is not None
        other = int(leader.stdout.readline())
        kill_process_group(leader, grace)
        assert leader.returncode == (-signal.SIGTERM if grace else -signal.SIGKILL)
        assert happens(lambda: gone(other))
        kill_process_group(leader)  # of a group that is gone there is nothing to end


@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_process_ends_with_its_parent(platform: str) -> None:
    if platform == "linux" != sys.platform:
        pytest.skip("asks Linux")
    reading, writing = os.pipe()
    parent = os.fork()
    if not parent:
        if not os.fork():
            processes.sys.platform = platform  # type: ignore[attr-defined]
            processes.exit_with_parent(os.getppid())
            time.sleep(0.2)  # were it to end before its parent, it would do so now
            os.write(writing, f"{os.getpid()}\n".encode())
            time.sleep(60)
        os.close(writing)
        time.sleep(60)
        os._exit(1)
    os.close(writing)
    child = os.read(reading, 20)  # empty if it has ended
    os.close(reading)
    os.kill(parent, signal.SIGKILL)
    os.waitpid(parent, 0)
    assert child
    assert happens(lambda: gone(int(child)))
