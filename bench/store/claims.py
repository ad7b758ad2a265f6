"""Claims: of several processes that need the same thing made, one makes it, and the others wait and then take it."""

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

from filelock import BaseFileLock, FileLock, SoftFileLease, Timeout

from bench.store.files import write_whole
from bench.store.folders import key_of

LEASE = 180.0
"""Seconds without a sign of life after which a claim of another machine is over, where the file system has no locks."""
_POLL = 0.1
_RUN = "run-"
"""Beginning of the names of claims that a run holds on a model."""
_PATIENCE = 10
"""Polls within which an owner has written down who it is."""
NO_LOCKS = frozenset({errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL})
"""Errors of a file system that has no locks."""


class TakenError(Exception):
    """Another process holds the claim."""


@contextmanager
def claimed(path: Path, waiting: Callable[[str], None] | None) -> Iterator[None]:
    """Within the context no other process on any machine holds this path; until then it waits.

    The operating system's lock dies with its owner. Where the file system has none, a file with the owner's process
    and machine takes its place: a dead owner's is taken over at once on its own machine, elsewhere after `LEASE`.
    The empty lock file stays: removing it would let two in.

    Args:
        path: of the lock file; its folder is made.
        waiting: told once whom it waits for, e.g. `process 4711 on alpha, since 2026-05-01 10:31:02 UTC`; None does
            not wait.

    Raises:
        TakenError: another process holds it, and this one does not wait.
        OSError: the file can't be made.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    owner = path.with_name(f"{path.name}.json")
    lock = _acquired(path, owner, waiting)
    try:
        told = {"pid": os.getpid(), "host": platform.node(), "since": f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"}
        with suppress(OSError):  # it only helps those who wait
            write_whole(owner, json.dumps(told).encode())
        yield
    finally:
        with suppress(OSError):
            owner.unlink()
        lock.release()


def _acquired(path: Path, owner: Path, waiting: Callable[[str], None] | None) -> BaseFileLock:
    """A lock that this process holds."""
    try:
        return _waited(FileLock(path, fallback_to_soft=False), owner, waiting)
    except OSError as error:
        if isinstance(error, Timeout) or error.errno not in NO_LOCKS:
            raise
    return _waited(SoftFileLease(path.with_name(f"{path.name}.lease"), lease_duration=LEASE), owner, waiting)


def _waited(lock: BaseFileLock, owner: Path, waiting: Callable[[str], None] | None) -> BaseFileLock:
    try:
        lock.acquire(blocking=False)
    except Timeout:
        if waiting is None:
            raise TakenError from None
        waiting(_described(owner))
        lock.acquire(poll_interval=_POLL)
    return lock


def _described(owner: Path) -> str:
    """The owner in words; one who has just begun has not said yet who it is."""
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
                    holding.enter_context(claimed(path, None))

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
            with claimed(path, None):
                _remove(path)
        except (TakenError, OSError):
            held.add(path.name.removeprefix(_RUN).partition("-")[0])
    return lambda model: bool(held) if not model else _digest(model) in held


def shard_claim(root: Path, kind: str) -> Path:
    """Claim on what is read of one shard: the part of the store where its entries lie."""
    return root / "claims" / f"shard-{key_of({'shard': kind})[:32]}.lock"


def adapter_claim(root: Path, key: str) -> Path:
    """Claim on an adapter that is trained."""
    return root / "claims" / f"adapters-{key}.lock"


def _digest(model: str) -> str:
    return key_of({"model": model})[:16]


def _remove(path: Path) -> None:
    for each in (path, path.with_name(f"{path.name}.lease")):
        with suppress(OSError):
            each.unlink()
