"""The store gives back exactly what was put in, or says that it is damaged, whatever happened to the disk meanwhile."""

from __future__ import annotations

import errno
import io
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file

from bench.api import UserError
from bench.api.errors import DiskError
from bench.store import disk_cache
from bench.store.disk_cache import MANIFEST, Entry, Store, digest_arrays, digest_file, key_of
from bench.store.processes import machine_id

FIELDS = {"weights": "abc", "dtype": "float32"}
CONTENT = bytes(range(256)) * 20


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store(tmp_path / "cache")
    made.prepare()
    return made


def write(folder: Path) -> None:
    (folder / "values.bin").write_bytes(CONTENT)
    (folder / "other.bin").write_bytes(b"other")


def test_digest_knows_values_order_and_ends() -> None:
    ids = [np.arange(3, dtype=np.int32), np.arange(2, dtype=np.int32)]
    # the keys of all stored readings are made of it
    known = "58ab31047e84ad922e84cdca6072d3fd6afac50f150580766a54842583249627"
    assert digest_arrays(ids) == digest_arrays([np.arange(6, dtype=np.int32)[:3], ids[1]]) == known
    others = [ids[::-1], [np.concatenate(ids)], [ids[0], ids[1] + 1], [*ids, ids[0][:0]], []]
    assert len({known, *map(digest_arrays, others)}) == 6
    table = np.arange(6.0).reshape(2, 3)
    assert digest_arrays([table[:, ::-1]]) == digest_arrays([table[:, ::-1].copy()]) != digest_arrays([table])


def put(store: Store) -> Entry:
    return store.put("signals", key_of(FIELDS), FIELDS, write, seconds=1.5)


def get(store: Store) -> Entry | None:
    return store.get("signals", key_of(FIELDS))


def test_entry_comes_back_with_bytes_and_fields(store: Store) -> None:
    put(store)
    entry = get(Store(store.root))
    assert entry is not None
    assert (entry.folder / "values.bin").read_bytes() == CONTENT
    assert entry.manifest["fields"] == FIELDS
    assert entry.manifest["seconds"] == 1.5
    assert store.notes == []
    assert store.get("signals", key_of({"weights": "abd"})) is None
    assert store.get("fits", key_of(FIELDS)) is None
    assert store.entries("fits") == []


def test_entries_come_in_one_order(tmp_path: Path) -> None:
    orders = []
    for name, numbers in (("up", range(6)), ("down", range(5, -1, -1))):
        made = Store(tmp_path / name)
        made.prepare()
        for n in numbers:
            made.put("k", key_of({"n": n}), {"n": n}, write)
        orders.append([entry.manifest["fields"]["n"] for entry in made.entries("k")])
    assert orders[0] == orders[1]
    assert sorted(orders[0]) == list(range(6))


def edit_manifest(folder: Path, **changes: object) -> None:
    manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    (folder / MANIFEST).write_text(json.dumps(manifest | changes), encoding="utf-8")


def altered(folder: Path) -> None:
    (folder / "values.bin").write_bytes(CONTENT[:1000] + b"?" + CONTENT[1001:])


def overwritten(content: bytes, folder: Path) -> None:
    (folder / MANIFEST).write_bytes(content)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "truncated": lambda folder: os.truncate(folder / "values.bin", len(CONTENT) // 2),
    "emptied": lambda folder: os.truncate(folder / "values.bin", 0),
    "altered": altered,
    "deleted": lambda folder: (folder / "values.bin").unlink(),
    "without manifest": lambda folder: (folder / MANIFEST).unlink(),
    "cut manifest": lambda folder: os.truncate(folder / MANIFEST, 40),
    "manifest that names no file": lambda folder: edit_manifest(folder, files={}),
    "manifest with another number": lambda folder: edit_manifest(folder, seconds=2.5),
    "manifest with another field": lambda folder: edit_manifest(folder, fields={"weights": "abd"}),
    **{
        repr(content[:20]): partial(overwritten, content)
        for content in (
            b"\xff\xfe\x00", b"[1, 2]", b"[" * 200_000, b'{"digest": 1e999}', b'{"files": {"\\ud800": 1}}'
        )
    },
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_damage_is_noted_once_and_put_right(store: Store, damage: Callable[[Path], None]) -> None:
    damage(put(store).folder)
    assert get(store) is None
    assert len(store.notes) == 1
    assert "damaged" in store.notes[0]
    assert "computed again" in store.notes[0]
    assert get(store) is None  # the second look finds nothing, and says nothing more
    assert len(store.notes) == 1
    entry = put(store)
    assert (entry.folder / "values.bin").read_bytes() == CONTENT
    assert get(store) is not None


def test_bytes_are_hashed_once_unless_touched(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = put(store)
    hashed: list[str] = []

    def counted(path: Path) -> str:
        hashed.append(path.name)
        return digest_file(path)

    monkeypatch.setattr(disk_cache, "digest_file", counted)
    for _ in range(3):
        (found,) = store.entries("signals")
        assert found == entry
    assert sorted(hashed) == ["other.bin", "values.bin"]
    again = Store(store.root)
    assert again.get("signals", entry.folder.name) == entry
    assert len(hashed) == 4

    time.sleep(0.02)  # the system's clock of files has steps
    path = entry.folder / "values.bin"
    path.write_bytes(CONTENT[:-1] + b"?")
    assert store.entries("signals") == []
    assert "values.bin was altered" in store.notes[0]
    assert again.get("signals", entry.folder.name) is None


def test_entry_under_another_key_is_damage(store: Store) -> None:
    folder = put(store).folder
    other = key_of({"weights": "other"})
    target = store.root / "signals" / other[:2] / other
    target.parent.mkdir(exist_ok=True)
    folder.rename(target)
    assert store.get("signals", other) is None
    assert len(store.notes) == 1


def test_entry_is_not_written_a_second_time(store: Store) -> None:
    first = put(store)
    with (first.folder / "values.bin").open("rb") as file:
        before = os.fstat(file.fileno()).st_ino
    second = Store(store.root).put("signals", key_of(FIELDS), FIELDS, write, seconds=9.0)
    assert second.folder == first.folder
    assert (first.folder / "values.bin").stat().st_ino == before
    assert second.manifest["seconds"] == 1.5


def test_write_that_fails_leaves_nothing(store: Store) -> None:
    def fail(folder: Path) -> None:
        assert folder.name.startswith(f"tmp-{machine_id()}-{os.getpid()}-")
        (folder / "half.bin").write_bytes(b"half")
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        store.put("signals", key_of(FIELDS), FIELDS, fail)
    assert get(store) is None
    assert [path.name for path in store.root.iterdir()] == [".writable"]


def test_leftovers_of_dead_processes_go(store: Store) -> None:
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    child.wait()
    host, week = machine_id(), 8 * 86_400
    stay = [
        f"tmp-{host}-{os.getpid()}-abc",
        f"tmp-{host}-{os.getpid()}-old",  # of a run that takes more than a week
        f"tmp-other-{child.pid}-abc",
        f"tmp-{child.pid}-abc",
        f"tmp-{host}-5-{child.pid}-abc",
    ]
    go = [f"tmp-{host}-{child.pid}-abc", "tmp-other-1-old", "tmp-1-old"]
    for name in (*stay, *go):
        (store.root / name).mkdir()
        (store.root / name / "values.bin").write_bytes(CONTENT)
        if name.endswith("old"):
            os.utime(store.root / name, times=(time.time() - week,) * 2)
    Store(store.root).prepare()
    assert sorted(path.name for path in store.root.glob("tmp-*")) == sorted(stay)


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ESTALE, errno.ENOMEM])
@pytest.mark.parametrize("name", [MANIFEST, "values.bin"])
def test_entry_unreadable_for_the_moment_stays(
    store: Store, monkeypatch: pytest.MonkeyPatch, number: int, name: str
) -> None:
    folder = put(store).folder
    real = io.open

    def broken(file: object, *args: object, **kwargs: object) -> object:
        if str(file).endswith(name):
            raise OSError(number, os.strerror(number), str(file))
        return real(file, *args, **kwargs)  # type: ignore[call-overload]

    with monkeypatch.context() as patch:
        patch.setattr(io, "open", broken)
        with pytest.raises(DiskError, match=rf"can't be read \({os.strerror(number)}: .*{name}\)\. Try again"):
            get(store)
        assert sorted(path.name for path in folder.iterdir()) == [MANIFEST, "other.bin", "values.bin"]
        assert store.notes == []
    assert get(store) is not None


def test_damaged_entry_goes_at_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its files are removed under another name, so that nobody finds half of them."""
    folder = put(store).folder
    altered(folder)
    seen = []
    monkeypatch.setattr(shutil, "rmtree", lambda path, **_: seen.append(Path(path)))
    assert get(store) is None
    assert not folder.exists()
    assert [path.name.startswith("tmp-") for path in seen] == [True]


def test_full_disk_in_safetensors_is_a_user_error(store: Store) -> None:
    """Done in a child, with a real limit: safetensors raises an error of its own."""
    pid = os.fork()
    if not pid:
        code = 1
        try:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
            store.put("k", key_of({}), {}, lambda folder: save_file({"a": np.zeros(9999)}, folder / "a.safetensors"))
        except UserError as error:
            code = 0 if "File too large" in str(error) and "CONFBENCH_CACHE" in str(error) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert [path.name for path in store.root.iterdir()] == [".writable"]


def test_store_that_looks_takes_nothing_away(store: Store) -> None:
    altered(put(store).folder)
    looking = Store(store.root, keep_damaged=True)
    files = sorted(store.root.rglob("*"))
    assert get(looking) is None
    assert get(looking) is None
    assert sorted(store.root.rglob("*")) == files
    (note,) = looking.notes
    assert "is damaged" in note
    assert "a run computes it again" in note


def test_looking_makes_no_folder(tmp_path: Path) -> None:
    store = Store(tmp_path / "cache")
    assert get(store) is None
    assert store.entries("signals") == []
    assert not (tmp_path / "cache").exists()


def test_folder_not_written_is_a_user_error(store: Store, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x", encoding="utf-8")
    with pytest.raises(UserError, match=r"cache folder can't be written.*CONFBENCH_CACHE"):
        Store(tmp_path / "file" / "cache").prepare()

    def full(folder: Path) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(DiskError, match=r"No space left on device.*Free some disk space"):
        store.put("signals", key_of(FIELDS), FIELDS, full)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), JSON, max_size=5))
def test_key_survives_json_and_another_order(fields: dict[str, object]) -> None:
    assert key_of(json.loads(json.dumps(fields))) == key_of(fields)
    assert key_of(dict(reversed(list(fields.items())))) == key_of(fields)


@given(st.dictionaries(st.text(), st.integers(), max_size=4), st.dictionaries(st.text(), st.integers(), max_size=4))
def test_keys_are_equal_where_fields_are(a: dict[str, int], b: dict[str, int]) -> None:
    assert (key_of(a) == key_of(b)) == (a == b)


def test_digest_of_a_file_is_its_sha256(tmp_path: Path) -> None:
    (tmp_path / "abc").write_bytes(b"abc")
    assert digest_file(tmp_path / "abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def test_entry_that_others_just_put_stays(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = put(store)
    (entry.folder / "values.bin").write_bytes(b"damaged")
    real = disk_cache.verify_folder

    def meanwhile(folder: Path, fields: Mapping[str, Any]) -> tuple[str | None, Mapping[str, Any]]:
        found = real(folder, fields)
        monkeypatch.setattr(disk_cache, "verify_folder", real)
        Store(store.root).get("signals", key_of(FIELDS))
        put(Store(store.root))
        return found

    monkeypatch.setattr(disk_cache, "verify_folder", meanwhile)
    assert get(store) is None
    assert "was damaged" in store.notes[0]
    assert get(store) is not None
    assert not list(store.root.glob("tmp-*"))
