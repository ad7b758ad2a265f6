"""Locks between processes: one at a time, whoever dies, with and without locks of the file system."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import filelock
import pytest

from bench.store import locks
from bench.store.locks import file_lock, folder_lock

HOLDER = """
import sys, time
from pathlib import Path
from bench.store import locks
if sys.argv[2] == "soft":
    def none(*_, **__):
        raise OSError(37, "No locks available")
    locks.FileLock = none
path = Path(sys.argv[1])
with locks.folder_lock(path) if sys.argv[2] == "folder" else locks.file_lock(path, print):
    print("holds", flush=True)
    time.sleep(60)
"""


def holder(path: Path, kind: str) -> subprocess.Popen[str]:
    """A process that holds the path."""
    command, root = [sys.executable, "-c", HOLDER, str(path), kind], Path(__file__).parents[3]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root)
    assert process.stdout is not None
    assert process.stdout.readline() == "holds\n"
    return process


def no_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(locks, "FileLock", refused)


@pytest.mark.parametrize("kind", ["os", "soft"])
def test_lock_of_a_dead_owner_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    path = tmp_path / "some" / "thing.lock"
    if kind == "soft":
        no_locks(monkeypatch)
    process = holder(path, kind)
    told: list[str] = []

    def waiting(whom: str) -> None:
        told.append(whom)
        process.send_signal(signal.SIGKILL)
        assert process.wait(10) == -signal.SIGKILL  # a dead child that nobody waits for still has its number

    start = time.monotonic()
    with file_lock(path, waiting) as killed:
        assert killed
        assert json.loads(path.with_name("thing.lock.json").read_text())["pid"] == os.getpid()
    assert time.monotonic() - start < 10
    assert process.stdout is not None
    process.stdout.close()
    assert len(told) == 1
    assert told[0].startswith(f"process {process.pid} on ")
    assert not path.with_name("thing.lock.json").exists()


def test_lock_of_a_silent_machine_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    no_locks(monkeypatch)
    monkeypatch.setattr(locks, "LEASE", 0.5)
    path = tmp_path / "thing.lock"
    lease = path.with_name("thing.lock.lease")
    with file_lock(path, pytest.fail):
        content = lease.read_text()
    lease.write_text(content.replace(os.uname().nodename, "elsewhere"))
    told: list[str] = []
    with file_lock(path, told.append):
        pass
    assert told == ["another process"]


def test_lock_that_is_free_is_had_silently(tmp_path: Path) -> None:
    for _ in range(3):
        with file_lock(tmp_path / "thing.lock", pytest.fail) as killed:
            assert not killed
    assert filelock.FileLock(tmp_path / "thing.lock").acquire(blocking=False)
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError), file_lock(tmp_path / "file" / "thing.lock", pytest.fail):  # noqa: PT011
        pass


def test_lock_of_a_folder_leaves_no_file(tmp_path: Path) -> None:
    process = holder(tmp_path, "folder")
    dead: list[bool] = []

    def kill() -> None:
        time.sleep(0.3)
        dead.append(True)
        process.kill()

    killer = threading.Thread(target=kill)
    killer.start()
    with folder_lock(tmp_path):
        assert dead
    killer.join()
    process.communicate()
    assert not list(tmp_path.iterdir())
