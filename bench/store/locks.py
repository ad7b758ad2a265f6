"""Locks between processes, on one machine or on several that share a folder, and the claims that are made with them.

Of several processes that need the same thing made, one makes it, and the others wait and then take it. A lock is the
operating system's, which dies with its owner.
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

from filelock import BaseFileLock, FileLock, SoftFileLease, Timeout, lock_descriptor

from bench.store.files import write_json
from bench.store.folders import key_of

__all__ = [
    "Timeout",
    "adapter_claim",
    "file_lock",
    "folder_lock",
    "in_use",
    "judge_claim",
    "shard_claim",
    "used_models",
]

LEASE = 180.0
"""Seconds without a sign of life after which a lock of another machine is over, where the file system has no locks."""
_POLL = 0.1
"""Seconds between two attempts to take a lock."""
_PATIENCE = 10
"""Attempts to read who holds a lock, which its owner writes down after it has it."""
_RUN = "run-"
"""Beginning of the names of claims that a run holds on a model."""
_NO_LOCKS = frozenset({errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL})
"""Errors of a file system that has no locks."""


def acquire(path: Path, *, wait: bool = False) -> BaseFileLock:
    """Lock a file, which is made with its folder; to be released.

    Where the file system has no locks, a file with the owner's process and machine takes the place of the lock: a dead
    owner's is taken over at once on its own machine, elsewhere after `LEASE`.

    Raises:
        Timeout: another process holds the lock, and this one does not wait.
        OSError: the file can't be made.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        lock: BaseFileLock = FileLock(path, fallback_to_soft=False)
        lock.acquire(blocking=wait, poll_interval=_POLL)
    except OSError as error:
        if error.errno not in _NO_LOCKS:  # so is a Timeout
            raise
        lock = SoftFileLease(path.with_name(f"{path.name}.lease"), lease_duration=LEASE)
        lock.acquire(blocking=wait, poll_interval=_POLL)
    return lock


@contextmanager
def file_lock(path: Path, waiting: Callable[[str], None] | None) -> Iterator[bool]:
    """Within the context no other process on any machine holds this path; until then it waits.

    Gives whether the last process that held it was killed meanwhile. The empty lock file stays, for whoever waits for
    it has it open.

    Args:
        path: of the lock file; its folder is made.
        waiting: told once whom it waits for, e.g. `process 4711 on alpha, since 2026-05-01 10:31:02 UTC`; None does
            not wait.

    Raises:
        Timeout: another process holds it, and this one does not wait.
        OSError: the file can't be made.
    """
    owner = path.with_name(f"{path.name}.json")
    try:
        lock = acquire(path)
    except Timeout:
        if waiting is None:
            raise
        waiting(_described(owner))
        lock = acquire(path, wait=True)
    killed = owner.exists()
    try:
        with suppress(OSError):  # it only helps those who wait
            since = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"
            write_json(owner, {"pid": os.getpid(), "host": platform.node(), "since": since})
        yield killed
    finally:
        with suppress(OSError):
            owner.unlink()
        lock.release()


@contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Let one process at a time change what belongs together in a folder, without a file in it; others wait.

    Where the file system has no locks, two processes may meet.

    Raises:
        OSError: there is no such folder, or it can't be opened.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):
            lock_descriptor(descriptor)
        yield
    finally:
        os.close(descriptor)


def _described(owner: Path) -> str:
    """Process, machine and time of whoever holds a lock, in words."""
    for _ in range(_PATIENCE):
        if owner.exists():
            break
        time.sleep(_POLL)
    try:
        told = json.loads(owner.read_text(encoding="utf-8"))
        return f"process {int(told['pid'])} on {str(told['host'])[:100]!s}, since {str(told['since'])[:30]}"
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return "another process"


@contextmanager
def in_use(root: Path, model: str) -> Iterator[Callable[[str], None]]:
    """Within the context `used_models` tells every process that a run reads and keeps what is stored of this model.

    The context's function adds another model: what was stored under another name of the same weights is read as well.
    Where the folder can't be written, nobody is told: it only keeps `bench cache prune` away.

    Args:
        root: the cache folder.
        model: its label.
    """
    paths: dict[str, Path] = {}
    with ExitStack() as holding:

        def add(label: str) -> None:
            if label and label not in paths:
                path = paths[label] = root / "claims" / f"{_RUN}{_digest(label)}-{os.urandom(8).hex()}.lock"
                with suppress(OSError):
                    holding.enter_context(file_lock(path, None))

        add(model)
        try:
            yield add
        finally:
            for path in paths.values():
                _remove(path)


def used_models(root: Path) -> Callable[[str], bool]:
    """A function that says whether a running process uses what is stored of a model; claims of the dead are removed.

    An empty label, of what was stored before models were noted, is used where anything is.
    """
    held: set[str] = set()
    for path in (root / "claims").glob(f"{_RUN}*.lock"):
        try:
            with file_lock(path, None):
                _remove(path)
        except OSError:
            held.add(path.name.removeprefix(_RUN).partition("-")[0])
    return lambda model: bool(held) if not model else _digest(model) in held


def shard_claim(root: Path, kind: str) -> Path:
    """Claim on what is read of one shard: the part of the store where its entries lie."""
    return root / "claims" / f"shard-{key_of({'shard': kind})[:32]}.lock"


def judge_claim(root: Path, judge: str) -> Path:
    """Claim on asking a judge behind a server: each of its verdicts is paid for by one run."""
    return root / "claims" / f"judge-{judge}.lock"


def adapter_claim(root: Path, key: str) -> Path:
    """Claim on an adapter that is trained."""
    return root / "claims" / f"adapters-{key}.lock"


def _digest(model: str) -> str:
    return key_of({"model": model})[:16]


def _remove(path: Path) -> None:
    for each in (path, path.with_name(f"{path.name}.lease")):
        with suppress(OSError):
            each.unlink()
