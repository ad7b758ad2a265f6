"""Content-addressed store on disk: entries are folders named by their cache key, with a manifest and checked digests.

Layout: `<root>/<kind>/<key[:2]>/<key>/`. An entry's `manifest.json`, written last, holds the SHA-256 of each other
file. A kind of entries is `fits` (fitted methods), `adapters`, `relations` (of texts), or `readings/<digest of a
shard>` (answers and signals).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import platformdirs

from bench.api.errors import DiskError
from bench.store.files import fsync_path, write_json
from bench.store.processes import machine_id, process_exists

MANIFEST = "manifest.json"
DIGEST = "digest"
"""Name of a field in a JSON object. Its value is the SHA-256 of all other fields, by which any change is detected."""
_MISSING_FILE = (FileNotFoundError, NotADirectoryError, IsADirectoryError)
"""Exceptions in reading an entry that show that the entry is damaged. Any other OSError may be temporary."""
_OS_ERROR = re.compile(r"\(os error \d+\)")
"""Pattern of an operating-system error in the message of a safetensors exception, which is no OSError."""
_STALE_S = 7 * 86_400
"""Age in seconds from which a temporary folder of another machine counts as abandoned."""


def cache_folder() -> Path:
    """Return the root folder of the cache: `$CONFBENCH_CACHE` if set, otherwise the user's cache folder."""
    configured = os.environ.get("CONFBENCH_CACHE")
    return Path(configured) if configured else Path(platformdirs.user_cache_dir("confbench"))


def key_of(fields: Mapping[str, Any]) -> str:
    """Return the cache key of an entry: SHA-256 of the canonical JSON of its fields, the same on every machine."""
    return hashlib.sha256(json.dumps(fields, sort_keys=True, ensure_ascii=True).encode()).hexdigest()


def digest_file(path: Path) -> str:
    """Return the SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest_arrays(arrays: Sequence[npt.NDArray[Any]]) -> str:
    """Return the SHA-256 of the lengths and bytes of arrays; it does not cover dtypes and further dimensions."""
    digest = hashlib.sha256(np.asarray([len(array) for array in arrays], dtype=np.int64).tobytes())
    for array in arrays:
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def with_digest(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a JSON object with `DIGEST` set to the digest of its other fields."""
    fields = {name: value for name, value in values.items() if name != DIGEST}
    return {**fields, DIGEST: key_of(fields)}


def write_manifest(folder: Path, fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Write a folder's manifest, with `fields` and the digests of the folder's files; flush all files to the disk.

    Raises:
        OSError: the manifest can't be written.
    """
    files = {path.name: digest_file(path) for path in sorted(folder.iterdir())}
    manifest = with_digest({**fields, "files": files})
    write_json(folder / MANIFEST, manifest, sort_keys=True)
    for path in (*folder.iterdir(), folder):
        fsync_path(path)
    return manifest


def read_manifest(folder: Path) -> Mapping[str, Any]:
    """Return the manifest of a folder, which is not verified; empty if it is unreadable."""
    with contextlib.suppress(OSError, ValueError, RecursionError):
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        return manifest if isinstance(manifest, dict) else {}
    return {}


def verify_folder(folder: Path, fields: Mapping[str, Any]) -> tuple[str | None, Mapping[str, Any]]:
    """Verify a folder against its manifest.

    Args:
        folder: a folder whose manifest `write_manifest` wrote.
        fields: manifest fields with the values that they must have, e.g. the key.

    Returns:
        A sentence about the damage, or None for an intact folder; and the manifest. The manifest is empty if it is
        damaged itself or lacks the values in `fields`; it is not empty if only another file is damaged.

    Raises:
        OSError: a file can't be read at the moment, which does not count as damage.
    """
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        if manifest != with_digest(manifest):
            return f"{MANIFEST} was altered", {}
        if any(manifest[name] != value for name, value in fields.items()):
            return f"it is of another {' or '.join(fields)}", {}
        for name, digest in manifest["files"].items():
            try:
                if digest_file(folder / Path(name).name) != digest:
                    return f"{name} was altered or cut short", manifest
            except _MISSING_FILE:
                return f"{name} is missing", manifest
    except (*_MISSING_FILE, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        return f"unreadable {MANIFEST} ({type(error).__name__})", {}
    return None, manifest


@dataclass(frozen=True)
class Entry:
    """A folder of the store that is complete and was verified."""

    folder: Path
    manifest: Mapping[str, Any]


_FileStats = tuple[tuple[str, int, int, int, int], ...]


def _file_stats(folder: Path) -> _FileStats:
    """Return inode, size and times of a folder's files; writing a file changes them."""
    try:
        entries = [(entry.name, entry.stat()) for entry in os.scandir(folder)]
    except _MISSING_FILE:
        return ()
    return tuple(sorted((name, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns) for name, s in entries))


@dataclass
class Store:
    """Content-addressed store of answers, signals and fitted methods, shared by all runs."""

    root: Path
    notes: list[str] = field(default_factory=list)
    """Notes for the user about damaged entries, whose content is computed again."""
    keep_damaged: bool = False
    """Whether damaged entries are left in place, as in a dry run."""
    reads: Callable[[str], object] = field(default=str, repr=False, compare=False)
    """Function that `get` calls for each verified entry, with the model name in the entry's manifest ("" without
    one)."""
    _verified: dict[Path, tuple[_FileStats, Entry]] = field(default_factory=dict, init=False, repr=False)
    """Verified entries by folder, each with the file stats that the folder had when it was verified."""

    def prepare(self) -> None:
        """Make the root folder; remove temporary folders of this machine's dead processes.

        Temporary folders of other machines are removed once they are older than `_STALE_S`.

        Raises:
            DiskError: the root folder can't be written.
        """
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            (self.root / ".writable").write_text("", encoding="utf-8")
        except OSError as error:
            raise DiskError(
                f"The cache folder can't be written: {error.strerror}. Set CONFBENCH_CACHE to a folder that can."
            ) from error
        # folders of dead processes of this machine, and old folders of other machines, whose process IDs are unknown
        tmp_name = re.compile(rf"{re.escape(_machine_prefix())}(\d+)-\w+")
        for path in self.root.glob("tmp-*"):
            name = tmp_name.fullmatch(path.name)
            with contextlib.suppress(OSError):
                is_stale = not process_exists(int(name[1])) if name else time.time() - path.stat().st_mtime > _STALE_S
                if is_stale:
                    shutil.rmtree(path, ignore_errors=True)

    def get(self, kind: str, key: str) -> Entry | None:
        """Return an entry; None if it is missing or damaged.

        Damage is noted in `notes`, and the damaged entry is removed unless `keep_damaged` is set. An entry's files are
        hashed once by each `Store` object, and again after one of them was written.

        Raises:
            DiskError: the entry can't be read at the moment; this does not count as damage, and nothing is removed.
        """
        folder = self._folder(kind, key)
        try:
            if not folder.exists():
                return None
            stats = _file_stats(folder)
            cached = self._verified.get(folder)
            if stats and cached is not None and cached[0] == stats:
                return cached[1]
            problem, manifest = verify_folder(folder, {"key": key})
        except (OSError, MemoryError) as error:
            place = getattr(error, "filename", None) or folder
            raise DiskError(
                f"The cache can't be read ({getattr(error, 'strerror', None) or type(error).__name__}: {place}). Try"
                " again; if it stays so, mend permissions or disk, or delete that entry."
            ) from error
        if problem is None:
            self.reads(str(manifest.get("model") or ""))
            self._verified[folder] = stats, Entry(folder, manifest)
            return self._verified[folder][1]
        if self.keep_damaged:
            note = f"cache entry {kind}/{key[:12]} is damaged ({problem}); a run computes it again"
            self.notes += [] if note in self.notes else [note]
            return None
        self.remove(kind, key, unless=lambda there: verify_folder(there, {"key": key})[0] is None)
        self.notes.append(f"cache entry {kind}/{key[:12]} was damaged ({problem}); it is computed again")
        return None

    def remove(self, kind: str, key: str, unless: Callable[[Path], bool] = lambda _: False) -> None:
        """Remove an entry: rename its folder, since another process may be reading it; then delete the renamed folder.

        Args:
            kind: the kind of the entry, e.g. `fits`.
            key: the cache key of the entry.
            unless: function that is called with the renamed folder. If it returns true, the folder is renamed back:
                another process has replaced the entry meanwhile.
        """
        folder = self._folder(kind, key)
        away = self.root / f"{_process_prefix()}{os.urandom(4).hex()}"
        with contextlib.suppress(OSError):
            folder.rename(away)
            if unless(away):
                away.rename(folder)
            shutil.rmtree(away, ignore_errors=True)

    def entries(self, kind: str) -> list[Entry]:
        """Return all intact entries of a kind, sorted by key."""
        return [entry for key in self.keys(kind) if (entry := self.get(kind, key)) is not None]

    def keys(self, kind: str) -> list[str]:
        """Return the cache keys of all entries of a kind, sorted; entries are neither read nor verified."""
        return sorted(path.name for path in (self.root / kind).glob("??/*") if path.is_dir())

    def manifests(self, kind: str) -> Iterator[Mapping[str, Any]]:
        """Yield the manifests of all entries of a kind. Entries are not verified; unreadable manifests are left out."""
        return filter(None, (read_manifest(self._folder(kind, key)) for key in self.keys(kind)))

    def put(self, kind: str, key: str, fields: Mapping[str, Any], write: Callable[[Path], None], **extra: Any) -> Entry:
        """Store an entry atomically and return it; an intact entry that another process stored first is kept instead.

        Args:
            kind: the kind of the entry, e.g. `fits`, `adapters` or `readings/<digest of a shard>`.
            key: the cache key, `key_of(fields)`.
            fields: all that the entry depends on; the key is their hash, and the manifest holds them.
            write: function that writes the entry's files into a given temporary folder.
            **extra: further manifest fields, which don't enter the key.

        Raises:
            DiskError: the entry can't be written.
        """
        temporary = None
        try:
            temporary = Path(tempfile.mkdtemp(prefix=_process_prefix(), dir=self.root))
            write(temporary)
            manifest = write_manifest(temporary, {"kind": kind, "key": key, "fields": dict(fields), **extra})
            folder = self._folder(kind, key)
            folder.parent.mkdir(parents=True, exist_ok=True)
            try:  # an entry that another process wrote first stays, since that process may be reading it
                if (existing := self.get(kind, key)) is None:
                    temporary.rename(folder)
            except OSError:
                if (existing := self.get(kind, key)) is None:
                    raise
            if existing is not None:
                return existing
            fsync_path(folder.parent)
            return Entry(folder, manifest)
        except Exception as error:
            if not isinstance(error, OSError) and not _OS_ERROR.search(str(error)):
                raise
            raise DiskError(
                f"The cache could not be written: {getattr(error, 'strerror', None) or error}. Free some disk space, or"
                " set CONFBENCH_CACHE to another folder."
            ) from error
        finally:
            if temporary is not None:
                shutil.rmtree(temporary, ignore_errors=True)

    def _folder(self, kind: str, key: str) -> Path:
        return self.root / kind / key[:2] / key


def _machine_prefix() -> str:
    """Return the beginning of the names that this machine gives to temporary folders."""
    return f"tmp-{machine_id()}-"


def _process_prefix() -> str:
    """Return that of this process; if it is killed, a later run on this machine removes its folders (`prepare`)."""
    return f"{_machine_prefix()}{os.getpid()}-"
