"""Files that appear whole or not at all."""

from __future__ import annotations

import os
import re
import stat
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bench.store import files
from bench.store.files import write_atomic
from bench.store.processes import machine_id


def test_file_is_written_below_new_folders_and_replaced(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "a.txt"
    write_atomic(path, b"first\n")
    write_atomic(path, b"second\r\n")
    assert path.read_bytes() == b"second\r\n"
    assert list(path.parent.iterdir()) == [path]


def test_file_has_the_mode_of_the_mask(tmp_path: Path) -> None:
    mask = os.umask(0o022)
    try:
        write_atomic(tmp_path / "a", b"")
    finally:
        os.umask(mask)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o644


@pytest.mark.parametrize("step", ["fsync", "replace"])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_file_stays_as_it_was_where_writing_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, error: BaseException
) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old")
    seen = []

    def fail(*_: object) -> None:
        seen.extend(sorted(file.name for file in tmp_path.iterdir()))
        raise error

    monkeypatch.setattr(os, step, fail) if step == "fsync" else monkeypatch.setattr(Path, step, fail)
    monkeypatch.setattr(files, "machine_id", lambda: "machine")
    with pytest.raises(type(error)):
        write_atomic(path, b"new")
    assert re.fullmatch(rf"\.[0-9a-f]{{8}}\.machine\.{os.getpid()}\.tmp", seen[0])
    assert seen[1:] == ["a"]
    assert list(tmp_path.iterdir()) == [path]
    assert path.read_bytes() == b"old"


def test_file_may_have_a_long_name(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 255)
    write_atomic(path, b"whole")
    assert path.read_bytes() == b"whole"
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(OSError, match="file"):
        write_atomic(tmp_path / "file" / "a", b"")


def test_file_of_a_killed_process_goes_later(tmp_path: Path) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    left = tmp_path / f".a.parquet.{machine_id()}.{gone.pid}.tmp"
    others = {
        tmp_path / f".a.parquet.{machine_id()}.{os.getpid()}.tmp",
        tmp_path / f".a.parquet.{machine_id()}x.{gone.pid}.tmp",
        tmp_path / f"a.{machine_id()}.{gone.pid}.tmp",
    }
    for path in {left, *others}:
        path.write_bytes(b"half")
    write_atomic(tmp_path / "b.json", b"{}")
    assert set(tmp_path.iterdir()) == others | {tmp_path / "b.json"}


def test_file_of_two_threads_is_whole(tmp_path: Path) -> None:
    def write(byte: bytes) -> set[int]:
        found: set[int] = set()
        for _ in range(50):
            write_atomic(tmp_path / "a", byte * 100_000)
            found.add(len(set((tmp_path / "a").read_bytes())))
        return found

    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(write, (b"a", b"b"))) == [{1}, {1}]
