"""Atomic writes: a file or folder appears complete or not at all, even if the process or machine stops meanwhile."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from bench.api.errors import DiskError
from bench.store.processes import machine_id, process_exists

T = TypeVar("T")
NO_SPACE = ". Free some disk space, or set CONFBENCH_CACHE to another folder."
"""Way out for `named_errors` where the cache can't be read or written."""


@contextlib.contextmanager
def named_errors(what: str, way_out: str) -> Iterator[None]:
    """Context that raises an OSError as a DiskError: `what`, the reason in brackets, and `way_out`.

    Example: `with named_errors(f"{path} can't be written", "; name another file"):`.
    """
    try:
        yield
    except OSError as error:
        raise DiskError(f"{what} ({error.strerror or error}){way_out}") from error


def write_atomic(path: Path, content: bytes) -> None:
    """Write a file atomically; missing folders are made, and an existing file is replaced.

    Temporary files that dead processes of this machine left in the folder are removed.

    Raises:
        OSError: the file can't be written; an existing file stays as it was.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove_leftovers(path.parent)
    temporary = _temporary_path(path)
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):  # the first error is raised, not this one
            temporary.unlink()
        raise


def json_text(values: Any, *, sort_keys: bool = False) -> str:
    """Format values as a JSON document.

    Raises:
        ValueError: a number is NaN or infinite.
    """
    return json.dumps(values, indent=2, ensure_ascii=False, allow_nan=False, sort_keys=sort_keys) + "\n"


def write_json(path: Path, values: Any, *, sort_keys: bool = False) -> None:
    """Write a JSON file atomically; lone surrogates, as in undecodable file names, are escaped.

    Raises:
        OSError: the file can't be written; an existing file stays as it was.
        ValueError: a number is NaN or infinite.
    """
    write_atomic(path, json_text(values, sort_keys=sort_keys).encode(errors="backslashreplace"))


def write_cached(path: Path, value: Any) -> None:
    """Write a value as MessagePack behind its SHA-256, for `read_cached`.

    Raises:
        OSError: the file can't be written.
    """
    body = msgspec.msgpack.encode(value)
    write_atomic(path, hashlib.sha256(body).digest() + body)


def read_cached(path: Path, kind: type[T]) -> T | None:
    """Read a value that `write_cached` wrote; None if the file is missing, damaged or of another type."""
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        content = path.read_bytes()
        if hashlib.sha256(content[32:]).digest() == content[:32]:
            return msgspec.msgpack.decode(content[32:], type=kind)
    return None


def write_folder_atomic(path: Path, write: Callable[[Path], object]) -> None:
    """Write a folder atomically: `write` fills a temporary folder, which is then renamed to `path`.

    An existing folder is replaced. Temporary folders that dead processes of this machine left beside `path` are
    removed.

    Raises:
        OSError: the folder can't be written; an existing folder stays as it was.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove_leftovers(path.parent)
    temporary, replaced = (_temporary_path(path) for _ in range(2))
    try:
        temporary.mkdir()
        write(temporary)
        for file in (*temporary.rglob("*"), temporary):
            fsync_path(file)
        if path.exists():
            path.rename(replaced)
        temporary.rename(path)
        fsync_path(path.parent)
    except BaseException:
        if replaced.exists() and not path.exists():
            replaced.rename(path)
        raise
    finally:
        for leftover in (temporary, replaced):
            shutil.rmtree(leftover, ignore_errors=True)


def _temporary_path(path: Path) -> Path:
    """Return a path for a temporary file beside `path`.

    The name has the process ID and the machine, since machines may share the folder.
    """
    return path.with_name(f".{os.urandom(4).hex()}.{machine_id()}.{os.getpid()}.tmp")


def fsync_path(path: Path) -> None:
    """Flush a file, or the entries of a folder, to the disk (fsync).

    Raises:
        OSError: flushing a file failed.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError:
        if not path.is_dir():  # not every file system can sync a folder
            raise
    finally:
        os.close(descriptor)


def _remove_leftovers(folder: Path) -> None:
    """Remove the temporary files and folders that dead processes of this machine left in a folder."""
    for leftover in folder.glob(".*.tmp"):
        name, _, pid = leftover.stem.rpartition(".")
        with contextlib.suppress(OSError):
            if name.endswith(f".{machine_id()}") and pid.isdecimal() and not process_exists(int(pid)):
                shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()
