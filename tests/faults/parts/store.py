"""Faults of the cache's files: each at the store's door, and one of each kind through a whole run."""

from __future__ import annotations

import errno
import functools
import io
import json
import os
import random
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

from bench.api import UserError
from bench.store.disk_cache import Store
from tests.faults import commands, workload
from tests.faults.ledger import Case, FaultError, Outcome

TITLE = "a file of the cache is damaged or can't be read"
METHODS = "ccps,ptrue,pik"
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

Damage = Callable[[Path], None]


def cases(folder: Path) -> Iterator[Case]:
    """All of them."""
    base = Base(folder / "base")
    yield from _at_the_door(base, folder / "door")
    yield from _through_a_run(base, folder / "run")


class Base:
    """An undisturbed run, made when it is first asked for; its cache is copied for each fault."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @functools.cached_property
    def questions(self) -> Path:
        """The questions of all runs."""
        return workload.questions_file(self.folder)

    @functools.cached_property
    def cells(self) -> dict[str, object]:
        """What it found."""
        self.run(self.folder).expect(0)
        return dict(commands.cells(self.folder / "out"))

    def run(self, folder: Path, first: Callable[[], None] | None = None) -> commands.Ran:
        """The same run with the cache and results of a folder."""
        arguments = workload.command(self.questions, folder, METHODS, "--json")
        return commands.bench(*arguments, folder=folder / "said", env=workload.cache(folder), first=first)

    def files(self) -> list[Path]:
        """The files of all entries."""
        assert self.cells
        entries = (path.parent for path in (self.folder / "cache").rglob("manifest.json"))
        return sorted(file for entry in entries for file in entry.iterdir())


# --- at the door ------------------------------------------------------------------------------------------------------


def _at_the_door(base: Base, folder: Path) -> Iterator[Case]:
    for file in base.files():
        for name, damage in _damages(file, base.files(), FLIPS, CUTS):
            yield Case(f"door: {_named(file)}: {name}", functools.partial(_refused, file, damage, folder))
        for number in _MOMENTARY:
            yield Case(
                f"door: {_named(file)}: {errno.errorcode[number]}", functools.partial(_kept, file, number, folder)
            )


def _kind(file: Path) -> str:
    """The part of the store that the file's entry is in."""
    parts = file.parts
    return "/".join(parts[len(parts) - parts[::-1].index("cache") : -3])


def _named(file: Path) -> str:
    return f"{_kind(file).partition('/')[0]}/{file.parent.name[:8]}/{file.name}"


def _damages(file: Path, others: list[Path], flips: int, cuts: int) -> Iterator[tuple[str, Damage]]:
    content, rng = file.read_bytes(), random.Random(file.name)
    for bit in rng.sample(range(8 * len(content)), flips):
        yield f"bit {bit} flipped", lambda path, bit=bit: flip(path, bit)
    for size in sorted({rng.randrange(1, len(content)) for _ in range(cuts)}):
        yield f"cut to {size}", lambda path, size=size: os.truncate(path, size)
    yield "emptied", lambda path: os.truncate(path, 0)
    yield "deleted", lambda path: path.unlink()
    yield "a folder instead", lambda path: (path.unlink(), path.mkdir())
    for other in others:
        if other != file and other.suffix == file.suffix and other.read_bytes() != content:
            yield f"swapped with {_named(other)}", lambda path, other=other: shutil.copyfile(other, path)
    if file.suffix == ".json":
        for name, text in ABSURD.items():
            yield name, lambda path, text=text: path.write_bytes(text)


def flip(path: Path, bit: int) -> None:
    """Change one bit of a file."""
    content = bytearray(path.read_bytes())
    content[bit // 8] ^= 1 << (bit % 8)
    path.write_bytes(content)


def _copied(file: Path, folder: Path) -> tuple[Store, Path]:
    """A store with the entry of this file alone, and the file in it."""
    shutil.rmtree(folder, ignore_errors=True)
    place = Path(_kind(file), *file.parent.parts[-2:])
    shutil.copytree(file.parent, folder / place)
    store = Store(folder)
    store.prepare()
    return store, folder / place / file.name


def _refused(file: Path, damage: Damage, folder: Path) -> None:
    """A damaged entry is noted and not used."""
    store, path = _copied(file, folder)
    damage(path)
    try:
        entry = store.get(_kind(file), file.parent.name)
    except Exception as error:
        raise FaultError(Outcome.TRACEBACK, repr(error)) from error
    if entry is None and len(store.notes) == 1 and not path.parent.exists():
        return
    same = path.name == "manifest.json" and json.loads(path.read_text("utf-8")) == json.loads(file.read_text("utf-8"))
    if not same:  # a bit of white space is no damage
        raise FaultError(Outcome.WRONG, f"notes {store.notes}")


def _kept(file: Path, number: int, folder: Path) -> None:
    """An entry that can't be read now is said and stays."""
    store, path = _copied(file, folder)
    try:
        with unreadable(path, number):
            entry = store.get(_kind(file), file.parent.name)
    except UserError as error:
        if str(path) not in str(error):
            raise FaultError(Outcome.WRONG, f"it names another file: {error}") from error
    except Exception as error:
        raise FaultError(Outcome.TRACEBACK, repr(error)) from error
    else:
        raise FaultError(Outcome.LOST if entry is None else Outcome.WRONG, "no word")
    if path.read_bytes() != file.read_bytes() or store.get(_kind(file), file.parent.name) is None:
        raise FaultError(Outcome.LOST, "it is gone")


def unreadable(path: Path, number: int) -> mock._patch[object]:
    """Let nobody open this file in this process."""
    real = io.open

    def opened(file: object, *args: object, **kwargs: object) -> object:
        if str(file) == str(path):
            raise OSError(number, os.strerror(number), str(file))
        return real(file, *args, **kwargs)  # type: ignore[call-overload]

    return mock.patch.object(io, "open", opened)


# --- through a run ----------------------------------------------------------------------------------------------------


def _through_a_run(base: Base, folder: Path) -> Iterator[Case]:
    chosen = {(_kind(file).partition("/")[0], _sort(file)): file for file in base.files()}
    for (kind, sort), file in sorted(chosen.items()):
        faults = dict(_damages(file, [other for other in base.files() if _sort(other) == sort], 1, 1))
        swaps = [fault for fault in faults if fault.startswith("swapped")]
        for fault in [fault for fault in faults if fault not in {*swaps[1:], *ABSURD, "a folder instead"}]:
            yield Case(f"run: {kind} {sort}: {fault}", functools.partial(_same, base, file, faults[fault], folder))
        yield Case(f"run: {kind} {sort}: EIO", functools.partial(_same_afterwards, base, file, folder))


def _sort(file: Path) -> str:
    """What a file is: those of signals have names of hex digits."""
    return "signal" if re.fullmatch("[0-9a-f]{16}", file.stem) else file.name


def _prepared(base: Base, file: Path, folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(base.folder / "cache", folder / "cache")
    return folder / file.relative_to(base.folder)


def _same(base: Base, file: Path, damage: Damage, folder: Path) -> None:
    """A run with a damaged cache finds what an undisturbed one does."""
    damage(_prepared(base, file, folder))
    base.run(folder).expect(0)
    commands.same(commands.cells(folder / "out"), base.cells)


def _same_afterwards(base: Base, file: Path, folder: Path) -> None:
    """A run that can't read the file says so, and takes nothing away; the next one finds all."""
    path = _prepared(base, file, folder)
    ran = base.run(folder, first=unreadable(path, errno.EIO).start)
    ran.expect(1, 2)
    if "Input/output error" not in ran.err + ran.out:
        raise FaultError(Outcome.WRONG, f"no word: {ran.err[-200:]}")
    if not path.exists() or path.read_bytes() != file.read_bytes():
        raise FaultError(Outcome.LOST, f"{_named(file)} is gone")
    base.run(folder).expect(0)
    commands.same(commands.cells(folder / "out"), base.cells)
