"""Files that appear whole or not at all, whatever ends the program or the machine while they are written."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.store.processes import alive, machine


def write_whole(path: Path, content: bytes) -> None:
    """Write a file in one step as others see it; missing folders are made, and an older file is replaced.

    What a process of this machine that is gone left half-written beside it is removed.

    Raises:
        OSError: it can't be written; the older file stays.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    _sweep(path.parent)
    temporary = _temporary(path)
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):  # what failed first is the reason
            temporary.unlink()
        raise


def json_text(values: Any, *, sort_keys: bool = False) -> str:
    """Values as a JSON document.

    Raises:
        ValueError: a number is NaN or infinite.
    """
    return json.dumps(values, indent=2, ensure_ascii=False, allow_nan=False, sort_keys=sort_keys) + "\n"


def write_json(path: Path, values: Any, *, sort_keys: bool = False) -> None:
    """Write a JSON file in one step, as `write_whole`; what is no Unicode text, as in names of files, is escaped.

    Raises:
        OSError: it can't be written; the older file stays.
        ValueError: a number is NaN or infinite.
    """
    write_whole(path, json_text(values, sort_keys=sort_keys).encode(errors="backslashreplace"))


def write_whole_folder(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a folder, then make it appear at once under its name; an older folder is replaced.

    What a process of this machine that is gone left half-written beside it is removed.

    Raises:
        OSError: it can't be written; the older folder stays.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    _sweep(path.parent)
    made, away = (_temporary(path) for _ in range(2))
    try:
        made.mkdir()
        write(made)
        for file in (*made.rglob("*"), made):
            synced(file)
        if path.exists():
            path.rename(away)
        made.rename(path)
        synced(path.parent)
    except BaseException:
        if away.exists() and not path.exists():
            away.rename(path)
        raise
    finally:
        for left in (made, away):
            shutil.rmtree(left, ignore_errors=True)


def _temporary(path: Path) -> Path:
    """A name beside a path for this process; machines that share a folder have processes of one number."""
    return path.with_name(f".{os.urandom(4).hex()}.{machine()}.{os.getpid()}.tmp")


def synced(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk.

    Raises:
        OSError: they can't be written there.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError:
        if not path.is_dir():  # which not every file system can wait for
            raise
    finally:
        os.close(descriptor)


def _sweep(folder: Path) -> None:
    """Remove what killed processes of this machine left half-written."""
    for left in folder.glob(".*.tmp"):
        name, _, pid = left.stem.rpartition(".")
        with contextlib.suppress(OSError):
            if name.endswith(f".{machine()}") and pid.isdecimal() and not alive(int(pid)):
                shutil.rmtree(left) if left.is_dir() else left.unlink()
