"""File locks between processes, also on machines that share a folder, and the paths of the store's lock files (claims).

If several processes need the same entry of the store, one computes it; the others wait and then read it. The operating
system holds a lock, so it ends when its process ends.
"""

from __future__ import annotations

import errno
import json
import os
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from filelock import BaseFileLock, FileLock, SoftFileLease, lock_descriptor
from filelock import Timeout as Timeout

from bench.store.disk_cache import key_of
from bench.store.files import write_json

LEASE = 180.0
"""Seconds without renewal after which another machine's lease expires.

A lease is a file that replaces a lock where the file system has no locks.
"""
_POLL_S = 0.1
"""Seconds between two attempts to take a lock."""
_READ_ATTEMPTS = 10
"""Maximum number of attempts to read who holds a lock; the holder writes its name only after it has the lock."""
_RUN_PREFIX = "run-"
"""First letters of the names of lock files by which a run marks a model as in use."""
_NO_LOCKS = frozenset({errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL})
"""Errors of a file system that has no locks."""


def acquire(path: Path, *, wait: bool = False) -> BaseFileLock:
    """Lock a file, which is created with its folder; the caller releases the lock.

    Where the file system has no locks, a lease file with the owner's process and machine replaces the lock. If the
    owner dies, its own machine ends the lease at once; other machines wait `LEASE` seconds.

    Raises:
        Timeout: another process holds the lock, and `wait` is false.
        OSError: the file can't be created.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        lock: BaseFileLock = FileLock(path, fallback_to_soft=False)
        lock.acquire(blocking=wait, poll_interval=_POLL_S)
    except OSError as error:
        if error.errno not in _NO_LOCKS:  # a Timeout is an OSError, too
            raise
        lock = SoftFileLease(path.with_name(f"{path.name}.lease"), lease_duration=LEASE)
        lock.acquire(blocking=wait, poll_interval=_POLL_S)
    return lock


@contextmanager
def file_lock(path: Path, waiting: Callable[[str], None] | None) -> Iterator[bool]:
    """Hold an exclusive lock on a path within the context, after waiting for other processes.

    Yields whether the previous holder was killed while it held the lock. The empty lock file is not removed, since
    waiting processes have it open.

    Args:
        path: the lock file; its folder is created.
        waiting: function that is called once before the process waits, with the holder's name, e.g. `process 4711 on
            alpha, since 2026-05-01 10:31:02 UTC`; None: do not wait.

    Raises:
        Timeout: another process holds the lock, and `waiting` is None.
        OSError: the file can't be created.
    """
    owner = path.with_name(f"{path.name}.json")
    try:
        lock = acquire(path)
    except Timeout:
        if waiting is None:
            raise
        for _ in range(_READ_ATTEMPTS):
            if not owner.exists():
                time.sleep(_POLL_S)
        holder = "another process"
        with suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
            record = json.loads(owner.read_text(encoding="utf-8"))
            holder = f"process {int(record['pid'])} on {str(record['host'])[:100]!s}, since {str(record['since'])[:30]}"
        waiting(holder)
        lock = acquire(path, wait=True)
    killed = owner.exists()
    try:
        with suppress(OSError):  # only waiting processes read it
            since = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"
            write_json(owner, {"pid": os.getpid(), "host": platform.node(), "since": since})
        yield killed
    finally:
        with suppress(OSError):
            owner.unlink()
        lock.release()


@contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Hold an exclusive lock on a folder within the context; other processes wait. There is no lock file.

    Without effect where the file system has no locks.

    Raises:
        OSError: the folder does not exist or can't be opened.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):
            lock_descriptor(descriptor)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def mark_in_use(root: Path, model: str) -> Iterator[Callable[[str], None]]:
    """Mark a model's entries as in use within the context, so that `bench cache prune` keeps them.

    Yields a function that marks a further model by its label. A run needs it to read entries that were stored under
    another label of the same weights. If the cache folder can't be written, nothing is marked.

    Args:
        root: the cache folder.
        model: label of the model.
    """
    paths: dict[str, Path] = {}
    with ExitStack() as holding:

        def add(label: str) -> None:
            if label and label not in paths:
                name = f"{_RUN_PREFIX}{_model_digest(label)}-{os.urandom(8).hex()}.lock"
                path = paths[label] = root / "claims" / name
                with suppress(OSError):
                    holding.enter_context(file_lock(path, None))

        add(model)
        try:
            yield add
        finally:
            for path in paths.values():
                _remove_lock(path)


def used_models(root: Path) -> Callable[[str], bool]:
    """Return a function of a model's label: whether a running process uses the store's entries of this model.

    Entries without a model have the empty label, which counts as used if any model is used. Lock files of dead
    processes are removed.
    """
    used: set[str] = set()
    for path in (root / "claims").glob(f"{_RUN_PREFIX}*.lock"):
        try:
            with file_lock(path, None):
                _remove_lock(path)
        except OSError:
            used.add(path.name.removeprefix(_RUN_PREFIX).partition("-")[0])
    return lambda model: bool(used) if not model else _model_digest(model) in used


def shard_claim(root: Path, kind: str) -> Path:
    """Return the path of the lock file of a shard: a process locks it while it computes entries of the shard.

    `kind` is the kind of these entries, `readings/<digest of the shard>`.
    """
    return root / "claims" / f"shard-{key_of({'shard': kind})[:32]}.lock"


def judge_claim(root: Path, judge: str) -> Path:
    """Return the path of a judge's lock file. Only its holder calls the judge's server: no verdict is paid twice."""
    return root / "claims" / f"judge-{judge}.lock"


def adapter_claim(root: Path, key: str) -> Path:
    """Return the path of an adapter's lock file, held by the process that trains it; `key` is the adapter's key."""
    return root / "claims" / f"adapters-{key}.lock"


def _model_digest(model: str) -> str:
    return key_of({"model": model})[:16]


def _remove_lock(path: Path) -> None:
    for file in (path, path.with_name(f"{path.name}.lease")):
        with suppress(OSError):
            file.unlink()
