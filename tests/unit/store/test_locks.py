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

ROOT = Path(__file__).parents[3]
HOLDER = """
import sys, time
from pathlib import Path
from bench.store import locks
if sys.argv[2] == "soft":
    def none(*_, **__):
        raise OSError(37, "No locks available")
    locks.FileLock = none
with locks.file_lock(Path(sys.argv[1]), print):
    print("holds", flush=True)
    time.sleep(60)
"""


def holder(path: Path, kind: str) -> subprocess.Popen[str]:
    """A process that holds the path."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path), kind], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "holds\n"
    return process


def no_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(locks, "FileLock", refused)


@pytest.mark.parametrize("kind", ["os", "soft"])
def test_one_waits_and_says_for_whom_and_a_dead_owner_is_followed_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
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


def test_a_silent_owner_on_another_machine_is_followed_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_what_is_free_is_had_without_a_word_again_and_again(tmp_path: Path) -> None:
    for _ in range(3):
        with file_lock(tmp_path / "thing.lock", pytest.fail) as killed:
            assert not killed
    assert filelock.FileLock(tmp_path / "thing.lock").acquire(blocking=False)


def test_other_errors_are_not_hidden(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError), file_lock(tmp_path / "file" / "thing.lock", pytest.fail):  # noqa: PT011
        pass


def test_a_folder_is_changed_by_one_at_a_time_and_has_no_file_of_the_lock(tmp_path: Path) -> None:
    code = (
        "import sys, time\nfrom pathlib import Path\nfrom bench.store.locks import folder_lock\n"
        "with folder_lock(Path(sys.argv[1])):\n    print('holds', flush=True)\n    time.sleep(60)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "holds\n"
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
