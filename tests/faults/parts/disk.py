"""A disk that is full, small or not to be written: a sentence, and what an undisturbed run finds once it is mended."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import resource
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.faults import commands, workload
from tests.faults.ledger import Case, FaultError, Outcome

TITLE = "the disk is full, files may not grow, nothing may be written"
SIZES = (0, 500, 2_000, 8_000, 20_000, 60_000, 200_000)
"""Bytes that a file may have."""
DESCRIPTORS = (64, 32, 20)
_ROOM = (200_000, 1_000_000)
"""Bytes of a file system."""


def cases(folder: Path) -> Iterator[Case]:
    """All of them."""
    base = Base(folder / "base")
    for size in SIZES:
        limit = commands.limited(resource.RLIMIT_FSIZE, size)
        yield Case(f"files of at most {size} bytes", functools.partial(_mended, base, folder / "run", limit))
        yield Case(f"a result replaced, of at most {size} bytes", functools.partial(_kept, base, folder / "run", limit))
    for number in DESCRIPTORS:
        limit = commands.limited(resource.RLIMIT_NOFILE, number)
        yield Case(f"{number} open files", functools.partial(_mended, base, folder / "run", limit))
    for name in ("cache", "out"):
        yield Case(f"the {name} folder is read-only", functools.partial(_read_only, base, folder / "run", name))
    yield Case("a home that can't be written", functools.partial(_homeless, base, folder / "run"))
    if _can_mount(folder / "disk"):
        for room in _ROOM:
            yield Case(f"a full disk of {room} bytes", functools.partial(_full, base, folder / "disk", room))


class Base:
    """An undisturbed run."""

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
        arguments = workload.command(self.questions, folder, "ccps,ptrue", "--json")
        # what it prints goes elsewhere, for that must not grow either
        return _piped(arguments, self.folder / "said", workload.cache(folder), first)


def _piped(arguments: list[str], said: Path, env: dict[str, str], first: Callable[[], None] | None) -> commands.Ran:
    """A command whose own output is not limited: it goes through pipes, of which `cat` makes files."""
    said.mkdir(parents=True, exist_ok=True)
    paths = [said / "piped-out.txt", said / "piped-err.txt"]
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(path.open("wb")) for path in paths]
        cats = [stack.enter_context(subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=file)) for file in files]

        def begin() -> None:
            for number, cat in enumerate(cats, start=1):
                assert cat.stdin is not None
                commands.replaced(number, cat.stdin.fileno())
            if first is not None:
                first()

        ran = commands.bench(*arguments, folder=said, env=env, first=begin)
        for cat in cats:
            assert cat.stdin is not None
            cat.stdin.close()
    out, err = (path.read_text(encoding="utf-8", errors="replace") for path in paths)
    return commands.Ran(ran.code, out, err, ran.seconds)


def _fresh(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def _mended(base: Base, folder: Path, first: Callable[[], None]) -> None:
    """A disturbed run ends in a sentence or in the right results; without the fault all is found."""
    wanted = base.cells
    ran = base.run(_fresh(folder), first).expect(0, 1, 2)
    if ran.code == 0:
        commands.same(commands.cells(folder / "out"), wanted)
    _afterwards(base, folder)


def _afterwards(base: Base, folder: Path) -> None:
    base.run(folder).expect(0)
    commands.same(commands.cells(folder / "out"), base.cells)
    if left := [path for path in folder.rglob("*") if path.name.startswith("tmp-") or path.name.endswith(".tmp")]:
        raise FaultError(Outcome.LOST, f"half-written and left: {left[0].name}")


def _kept(base: Base, folder: Path, first: Callable[[], None]) -> None:
    """Results that are there and can't be replaced stay."""
    wanted = base.cells
    shutil.copytree(base.folder / "cache", _fresh(folder) / "cache")
    shutil.copytree(base.folder / "out", folder / "out")
    base.run(folder, first).expect(0, 1, 2)
    commands.same(commands.cells(folder / "out"), wanted)
    shown = ("table", "--deviations", "--results", folder / "out")
    commands.bench(*shown, folder=base.folder / "said", env=workload.cache(folder)).expect(0)


def _bound_by_permissions() -> None:
    """Give up the superuser's right to pass over permissions (capabilities 1 and 2)."""
    if os.geteuid() == 0:
        libc = ctypes.CDLL(None)
        header, sets = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
        libc.capget(header, sets)
        for place in (0, 1):  # effective and permitted ones
            sets[place] &= ~0b110
        libc.capset(header, sets)


def _read_only(base: Base, folder: Path, name: str) -> None:
    """A folder that may not be written is said at once."""
    assert base.cells
    _fresh(folder)
    for each in ("cache", "out"):
        (folder / each).mkdir()
        (folder / each).chmod(0o555 if each == name else 0o777)
    ran = base.run(folder, _bound_by_permissions).expect(2)
    if "can't be written" not in ran.err or len(ran.err.strip().splitlines()) != 1:
        raise FaultError(Outcome.WRONG, ran.err[-300:])
    (folder / name).chmod(0o777)
    base.run(folder, _bound_by_permissions).expect(0)
    commands.same(commands.cells(folder / "out"), base.cells)


def _homeless(base: Base, folder: Path) -> None:
    """Without a home the cache has no place, which is said; with `CONFBENCH_CACHE` a run needs none."""
    wanted = base.cells
    _fresh(folder)
    for name in ("home", "cache", "out"):
        (folder / name).mkdir()
        (folder / name).chmod(0o555 if name == "home" else 0o777)
    home = {"HOME": str(folder / "home"), "XDG_CACHE_HOME": ""}
    arguments = workload.command(base.questions, folder, "ccps,ptrue", "--json")
    without = {**home, "CONFBENCH_CACHE": "", "HF_HUB_OFFLINE": "1"}
    ran = _piped(arguments, base.folder / "said", without, _bound_by_permissions).expect(2)
    if "CONFBENCH_CACHE" not in ran.err:
        raise FaultError(Outcome.WRONG, ran.err[-300:])
    _piped(arguments, base.folder / "said", {**home, **workload.cache(folder)}, _bound_by_permissions).expect(0)
    commands.same(commands.cells(folder / "out"), wanted)


def _can_mount(folder: Path) -> bool:
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(OSError), _mounted(folder, 100_000):
        return folder.is_mount()
    return False


@contextlib.contextmanager
def _mounted(folder: Path, room: int) -> Iterator[None]:
    """A file system of so many bytes."""
    options = ["-t", "tmpfs", "-o", f"size={room}", "tmpfs", str(folder)]
    done = subprocess.run(["mount", *options], capture_output=True, check=False)
    try:
        yield
    finally:
        if done.returncode == 0:
            subprocess.run(["umount", "--lazy", str(folder)], check=False)


def _full(base: Base, folder: Path, room: int) -> None:
    """A full disk is said; what was written on it is whole, and is used once there is room."""
    assert base.cells
    with _mounted(folder, room):
        base.run(folder).expect(0, 1, 2)
        saved = _fresh(folder.with_name("saved")) / "all"
        shutil.copytree(folder, saved)
    _afterwards(base, saved)
