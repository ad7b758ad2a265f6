"""Faults of the cache's files: each at the store's door, and one of each kind through a whole run."""

from __future__ import annotations

import errno
import io
import json
import os
import random
import re
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from unittest import mock

from bench.api import UserError
from bench.store.disk_cache import Store
from tests.faults.commands import FaultError, Outcome, Runs, require

TITLE = "a file of the cache is damaged or can't be read"
FLIPS, CUTS = 40, 10
"""Bits that are flipped in each file at the door, and lengths to which it is cut."""
_MOMENTARY = (errno.EACCES, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ESTALE, errno.ENOMEM)
ABSURD = {
    "deep": b"[" * 200_000,
    "deep objects": b'{"files":' * 200_000,
    "infinite": b'{"digest": 1e999, "files": {}}',
    "no object": b"[1, 2]",
    "no text": b"\xff\xfe\x00",
}
"""What may stand where JSON is expected."""
Damage = Callable[[Path], object]


def cases(folder: Path) -> Iterator[tuple[str, Callable[[], object]]]:
    runs, door, place = Runs(folder / "base", "ccps,ptrue,pik", ("--json",)), folder / "door", folder / "run"
    assert runs.cells
    files = sorted(f for path in (runs.folder / "cache").rglob("manifest.json") for f in path.parent.iterdir())
    for file in files:
        for name, damage in _damages(file, files, FLIPS, CUTS):
            yield f"door: {_named(file)}: {name}", partial(_refused, file, damage, door)
        for number in _MOMENTARY:
            yield f"door: {_named(file)}: {errno.errorcode[number]}", partial(_kept, file, number, door)
    chosen = {(_kind(file).partition("/")[0], _sort(file)): file for file in files}
    for (kind, sort), file in sorted(chosen.items()):
        faults = dict(_damages(file, [other for other in files if _sort(other) == sort], 1, 1))
        swaps = [fault for fault in faults if fault.startswith("swapped")]
        for fault in [fault for fault in faults if fault not in {*swaps[1:], *ABSURD, "a folder instead"}]:
            yield f"run: {kind} {sort}: {fault}", partial(_same, runs, file, faults[fault], place)
        yield f"run: {kind} {sort}: EIO", partial(_same_afterwards, runs, file, place)


def _kind(file: Path) -> str:
    """The part of the store that the file's entry is in."""
    parts = file.parts
    return "/".join(parts[len(parts) - parts[::-1].index("cache") : -3])


def _named(file: Path) -> str:
    return f"{_kind(file).partition('/')[0]}/{file.parent.name[:8]}/{file.name}"


def _sort(file: Path) -> str:
    """What a file is: those of signals have names of hex digits."""
    return "signal" if re.fullmatch("[0-9a-f]{16}", file.stem) else file.name


def _damages(file: Path, others: list[Path], flips: int, cuts: int) -> Iterator[tuple[str, Damage]]:
    content, rng = file.read_bytes(), random.Random(file.name)
    for k, bit in enumerate(rng.sample(range(8 * len(content)), flips), start=1):
        yield f"bit {k} of {flips} flipped", partial(flip, bit=bit)
    for k, size in enumerate(rng.sample(range(1, len(content)), cuts), start=1):
        yield f"cut {k} of {cuts}", partial(os.truncate, length=size)
    yield "emptied", partial(os.truncate, length=0)
    yield "deleted", Path.unlink
    yield "a folder instead", foldered
    for other in others:
        if other != file and other.suffix == file.suffix and other.read_bytes() != content:
            yield f"swapped with {_named(other)}", partial(shutil.copyfile, other)
    if file.suffix == ".json":
        for name, text in ABSURD.items():
            yield name, partial(Path.write_bytes, data=text)


def foldered(path: Path) -> None:
    path.unlink()
    path.mkdir()


def flip(path: Path, bit: int) -> None:
    content = bytearray(path.read_bytes())
    content[bit // 8] ^= 1 << (bit % 8)
    path.write_bytes(content)


def _copied(file: Path, folder: Path) -> tuple[Store, Path]:
    shutil.rmtree(folder, ignore_errors=True)
    place = Path(_kind(file), *file.parent.parts[-2:])
    shutil.copytree(file.parent, folder / place)
    store = Store(folder)
    store.prepare()
    return store, folder / place / file.name


def _refused(file: Path, damage: Damage, folder: Path) -> None:
    store, path = _copied(file, folder)
    damage(path)
    try:
        entry = store.get(_kind(file), file.parent.name)
    except Exception as error:
        raise FaultError(Outcome.TRACEBACK, repr(error)) from error
    if entry is None and len(store.notes) == 1 and not path.parent.exists():
        return
    same = path.name == "manifest.json" and json.loads(path.read_text("utf-8")) == json.loads(file.read_text("utf-8"))
    require(same, Outcome.WRONG, f"notes {store.notes}")  # a bit of white space is no damage


def _kept(file: Path, number: int, folder: Path) -> None:
    store, path = _copied(file, folder)
    try:
        with unreadable(path, number):
            entry = store.get(_kind(file), file.parent.name)
    except UserError as error:
        require(str(path) in str(error), Outcome.WRONG, f"it names another file: {error}")
    except Exception as error:
        raise FaultError(Outcome.TRACEBACK, repr(error)) from error
    else:
        raise FaultError(Outcome.LOST if entry is None else Outcome.WRONG, "no word")
    there = path.read_bytes() == file.read_bytes() and store.get(_kind(file), file.parent.name) is not None
    require(there, Outcome.LOST, "it is gone")


def unreadable(path: Path, number: int) -> mock._patch[object]:
    """Let nobody open this file in this process."""
    real = io.open

    def opened(file: object, *args: object, **kwargs: object) -> object:
        if str(file) == str(path):
            raise OSError(number, os.strerror(number), str(file))
        return real(file, *args, **kwargs)  # type: ignore[call-overload]

    return mock.patch.object(io, "open", opened)


def _same(runs: Runs, file: Path, damage: Damage, folder: Path) -> None:
    damage(runs.copied(folder, "cache") / file.relative_to(runs.folder))
    runs.run(folder).expect(0)
    runs.same(folder)


def _same_afterwards(runs: Runs, file: Path, folder: Path) -> None:
    """A run that can't read the file says so, and takes nothing away; the next one finds all."""
    path = runs.copied(folder, "cache") / file.relative_to(runs.folder)
    ran = runs.run(folder, first=unreadable(path, errno.EIO).start).expect(1, 2)
    require("Input/output error" in ran.err + ran.out, Outcome.WRONG, f"no word: {ran.err[-200:]}")
    stays = path.exists() and path.read_bytes() == file.read_bytes()
    require(stays, Outcome.LOST, f"{_named(file)} is gone")
    runs.run(folder).expect(0)
    runs.same(folder)
