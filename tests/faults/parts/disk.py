"""A disk that is full, small or not to be written: a sentence, and what an undisturbed run finds once it is mended."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from shutil import copytree
from typing import Any

from tests.faults.commands import Outcome, Ran, Runs, limit, replaced, require

TITLE = "the disk is full, files may not grow, nothing may be written"
SIZES = (0, 500, 2_000, 8_000, 20_000, 60_000, 200_000)
"""Bytes that a file may have."""
DESCRIPTORS = (64, 32, 20)
_ROOM = (200_000, 1_000_000)
"""Bytes of a file system."""
First = Callable[[], None]


def cases(folder: Path) -> Iterator[tuple[str, First]]:
    base, place = Piped(folder / "base", more=("--json",)), folder / "run"
    for size in SIZES:
        small = partial(limit, resource.RLIMIT_FSIZE, size)
        yield f"files of at most {size} bytes", partial(_mended, base, place, small)
        yield f"a result replaced, of at most {size} bytes", partial(_kept, base, place, small)
    for number in DESCRIPTORS:
        yield f"{number} open files", partial(_mended, base, place, partial(limit, resource.RLIMIT_NOFILE, number))
    for name in ("cache", "out"):
        yield f"the {name} folder is read-only", partial(_read_only, base, place, name)
    yield "a home that can't be written", partial(_homeless, base, place)
    if _can_mount(folder / "disk"):
        for room in _ROOM:
            yield f"a full disk of {room} bytes", partial(_full, base, folder / "disk", room)


class Piped(Runs):
    """Runs whose own output is not limited: it goes through pipes, of which `cat` makes files elsewhere."""

    def run(self, place: Path, *more: str, first: First | None = None, **how: Any) -> Ran:
        said = self.folder / "said"
        said.mkdir(parents=True, exist_ok=True)
        paths = [said / "piped-out.txt", said / "piped-err.txt"]
        with contextlib.ExitStack() as stack:
            files = [stack.enter_context(path.open("wb")) for path in paths]
            cats = [
                stack.enter_context(subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=file)) for file in files
            ]
            ends = [cat.stdin for cat in cats if cat.stdin]

            def begin() -> None:
                for number, end in enumerate(ends, start=1):
                    replaced(number, end.fileno())
                if first is not None:
                    first()

            ran = super().run(place, *more, first=begin, **{**how, "folder": said})
            for end in ends:
                end.close()
        out, err = (path.read_text(encoding="utf-8", errors="replace") for path in paths)
        return Ran(ran.code, out, err, ran.seconds)


def _mended(base: Runs, folder: Path, first: First) -> None:
    if base.run(base.copied(folder), first=first).expect(0, 1, 2).code == 0:
        base.same(folder)
    _afterwards(base, folder)


def _afterwards(base: Runs, folder: Path) -> None:
    base.run(folder).expect(0)
    base.same(folder)
    left = [path for path in folder.rglob("*") if path.name.startswith("tmp-") or path.name.endswith(".tmp")]
    require(not left, Outcome.LOST, f"half-written and left: {left}")


def _kept(base: Runs, folder: Path, first: First) -> None:
    base.run(base.copied(folder, "cache", "out"), first=first).expect(0, 1, 2)
    base.same(folder)
    base.other(folder, "table", "--deviations", "--results", folder / "out").expect(0)


def bound_by_permissions() -> None:
    """Give up the superuser's right to pass over permissions (capabilities 1 and 2)."""
    if os.geteuid() == 0:
        libc = ctypes.CDLL(None)
        header, sets = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
        libc.capget(header, sets)
        for place in (0, 1):  # effective and permitted ones
            sets[place] &= ~0b110
        libc.capset(header, sets)


def _read_only(base: Runs, folder: Path, name: str) -> None:
    base.copied(folder)
    for each in ("cache", "out"):
        (folder / each).mkdir()
        (folder / each).chmod(0o555 if each == name else 0o777)
    ran = base.run(folder, first=bound_by_permissions).expect(2)
    require("can't be written" in ran.err and len(ran.err.strip().splitlines()) == 1, Outcome.WRONG, ran.err)
    (folder / name).chmod(0o777)
    base.run(folder, first=bound_by_permissions).expect(0)
    base.same(folder)


def _homeless(base: Runs, folder: Path) -> None:
    """Without a home the cache has no place, which is said; with `CONFBENCH_CACHE` a run needs none."""
    base.copied(folder)
    for name in ("home", "cache", "out"):
        (folder / name).mkdir()
        (folder / name).chmod(0o555 if name == "home" else 0o777)
    home = {"HOME": str(folder / "home"), "XDG_CACHE_HOME": ""}
    ran = base.run(folder, first=bound_by_permissions, env={**home, "CONFBENCH_CACHE": ""}).expect(2)
    require("CONFBENCH_CACHE" in ran.err, Outcome.WRONG, ran.err)
    base.run(folder, first=bound_by_permissions, env=home).expect(0)
    base.same(folder)


def _can_mount(folder: Path) -> bool:
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(OSError), _mounted(folder, 100_000):
        return folder.is_mount()
    return False


@contextlib.contextmanager
def _mounted(folder: Path, room: int) -> Iterator[None]:
    options = ["-t", "tmpfs", "-o", f"size={room}", "tmpfs", str(folder)]
    done = subprocess.run(["mount", *options], capture_output=True, check=False)
    try:
        yield
    finally:
        if done.returncode == 0:
            subprocess.run(["umount", "--lazy", str(folder)], check=False)


def _full(base: Runs, folder: Path, room: int) -> None:
    assert base.cells
    with _mounted(folder, room):
        base.run(folder).expect(0, 1, 2)
        saved = base.copied(folder.with_name("saved")) / "all"
        copytree(folder, saved)
    _afterwards(base, saved)
