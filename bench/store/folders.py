"""Content-addressed folders on disk: a key says what is inside, the manifest comes last, the bytes are checked.

Layout: `<root>/<kind>/<key[:2]>/<key>/` with `manifest.json` and the files that it names by SHA-256.
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

from bench.api import UserError
from bench.store.files import synced, write_json
from bench.store.processes import alive, machine

MANIFEST = "manifest.json"
DIGEST = "digest"
"""Field of a JSON object: SHA-256 of the others, so that nothing is changed without being noticed."""
_GONE = (FileNotFoundError, NotADirectoryError, IsADirectoryError)
"""Errors about a file of a damaged entry; whatever else the system says may pass."""
_OF_SYSTEM = re.compile(r"\(os error \d+\)")
"""Words of the system in an exception of safetensors, which is no OSError."""
_OLD_S = 7 * 86_400
"""Age of a half-written folder from which on nobody writes it any more, wherever its process was."""


def cache_folder() -> Path:
    """`$CONFBENCH_CACHE`, else the user's cache folder."""
    named = os.environ.get("CONFBENCH_CACHE")
    return Path(named) if named else Path(platformdirs.user_cache_dir("confbench"))


def key_of(fields: Mapping[str, Any]) -> str:
    """SHA-256 of the fields as canonical JSON: equal fields, equal key, on every machine."""
    return hashlib.sha256(json.dumps(fields, sort_keys=True, ensure_ascii=True).encode()).hexdigest()


def digest_file(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest_arrays(arrays: Sequence[npt.NDArray[Any]]) -> str:
    """SHA-256 of arrays in this order, their lengths included; dtypes and further dimensions are no part of it."""
    digest = hashlib.sha256(np.asarray([len(array) for array in arrays], dtype=np.int64).tobytes())
    for array in arrays:
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def sealed(values: Mapping[str, Any]) -> dict[str, Any]:
    """A JSON object with a digest of all its other fields."""
    told = {name: value for name, value in values.items() if name != DIGEST}
    return {**told, DIGEST: key_of(told)}


def seal(folder: Path, fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Write a folder's manifest, with these fields and the digests of its files; all is on the disk when this returns.

    Raises:
        OSError: it can't be written.
    """
    files = {path.name: digest_file(path) for path in sorted(folder.iterdir())}
    manifest = sealed({**fields, "files": files})
    write_json(folder / MANIFEST, manifest, sort_keys=True)
    for path in (*folder.iterdir(), folder):
        synced(path)
    return manifest


def inspected(folder: Path, fields: Mapping[str, Any]) -> tuple[str | None, Mapping[str, Any]]:
    """Damage of a sealed folder in words, None where it is whole; and its manifest.

    Args:
        folder: as `seal` left it.
        fields: that its manifest must have.

    Raises:
        OSError: it can't be read now, which is no damage.
    """
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        if manifest != sealed(manifest):
            return f"{MANIFEST} was altered", {}
        if any(manifest[name] != value for name, value in fields.items()):
            return f"it is of another {' or '.join(fields)}", {}
        for name, digest in manifest["files"].items():
            try:
                if digest_file(folder / Path(name).name) != digest:
                    return f"{name} was altered or cut short", manifest
            except _GONE:
                return f"{name} is missing", manifest
    except (*_GONE, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        return f"unreadable {MANIFEST} ({type(error).__name__})", {}
    return None, manifest


@dataclass(frozen=True)
class Entry:
    """A complete, verified folder of the store."""

    folder: Path
    manifest: Mapping[str, Any]


_Stamps = tuple[tuple[str, int, int, int, int], ...]


def _stamps(folder: Path) -> _Stamps:
    """Stamps of a folder's files, as the system keeps them: whoever writes one changes it."""
    try:
        found = [(entry.name, entry.stat()) for entry in os.scandir(folder)]
    except _GONE:
        return ()
    return tuple(sorted((name, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns) for name, s in found))


@dataclass
class Store:
    """Folder in which answers, signals and fitted methods are kept between runs."""

    root: Path
    notes: list[str] = field(default_factory=list)
    """Notes for the user on what was found damaged and is computed again."""
    looks_only: bool = False
    """Whether a damaged entry stays where it is, as in a dry run."""
    reads: Callable[[str], object] = field(default=str, repr=False, compare=False)
    """Told the model of each entry that is found, by its name in the manifest."""
    _whole: dict[Path, tuple[_Stamps, Entry]] = field(default_factory=dict, init=False, repr=False)
    """Entries that were found whole, with what the system said of their files then."""

    def prepare(self) -> None:
        """Make the folder, and remove what processes that are gone left half-written.

        Raises:
            UserError: the folder can't be written.
        """
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            (self.root / ".writable").write_text("", encoding="utf-8")
        except OSError as error:
            raise UserError(
                f"The cache folder can't be written: {error.strerror}. Set CONFBENCH_CACHE to a folder that can."
            ) from error
        # what processes of this machine that are gone left half-written, and what is old of all others
        own = re.compile(rf"{re.escape(_prefix())}(\d+)-\w+")  # of another machine, a number may be alive there
        for path in self.root.glob("tmp-*"):
            name = own.fullmatch(path.name)
            with contextlib.suppress(OSError):
                left = not alive(int(name[1])) if name else time.time() - path.stat().st_mtime > _OLD_S
                if left:
                    shutil.rmtree(path, ignore_errors=True)

    def get(self, kind: str, key: str) -> Entry | None:
        """The entry, if it is there and whole; a damaged one is noted, and removed unless this only looks.

        Its bytes are hashed once, and again where a file was touched since.

        Raises:
            UserError: it can't be read now, which is no damage: nothing is removed.
        """
        folder = self._folder(kind, key)
        try:
            if not folder.exists():
                return None
            stamps = _stamps(folder)
            known = self._whole.get(folder)
            if stamps and known is not None and known[0] == stamps:
                return known[1]
            problem, manifest = inspected(folder, {"key": key})
        except (OSError, MemoryError) as error:
            place = getattr(error, "filename", None) or folder
            raise UserError(
                f"The cache can't be read ({getattr(error, 'strerror', None) or type(error).__name__}: {place}). Try"
                " again; if it stays so, mend permissions or disk, or delete that entry."
            ) from error
        if problem is None:
            self.reads(str(manifest.get("model") or ""))
            self._whole[folder] = stamps, Entry(folder, manifest)
            return self._whole[folder][1]
        if self.looks_only:
            note = f"cache entry {kind}/{key[:12]} is damaged ({problem}); a run computes it again"
            self.notes += [] if note in self.notes else [note]
            return None
        self.remove(kind, key, unless=lambda there: inspected(there, {"key": key})[0] is None)
        self.notes.append(f"cache entry {kind}/{key[:12]} was damaged ({problem}); it is computed again")
        return None

    def remove(self, kind: str, key: str, unless: Callable[[Path], bool] = lambda _: False) -> None:
        """Remove an entry at once, as others see it, for another process may be reading it.

        Args:
            kind: the part of the store.
            key: of the entry.
            unless: asked of the folder, since another process may have put a whole one there meanwhile: it stays.
        """
        folder = self._folder(kind, key)
        away = self.root / f"{_own_prefix()}{os.urandom(4).hex()}"
        with contextlib.suppress(OSError):
            folder.rename(away)
            if unless(away):
                away.rename(folder)
            shutil.rmtree(away, ignore_errors=True)

    def entries(self, kind: str) -> list[Entry]:
        """All whole entries of a kind, by key."""
        return [entry for key in self.keys(kind) if (entry := self.get(kind, key)) is not None]

    def keys(self, kind: str) -> list[str]:
        """Keys of a kind in order, whether or not their entries are whole: nothing is read."""
        return sorted(path.name for path in (self.root / kind).glob("??/*") if path.is_dir())

    def manifests(self, kind: str) -> Iterator[Mapping[str, Any]]:
        """Manifests of a kind as they stand there, whether or not their entries are whole."""
        for key in self.keys(kind):
            with contextlib.suppress(OSError, ValueError, RecursionError):
                manifest = json.loads((self._folder(kind, key) / MANIFEST).read_text(encoding="utf-8"))
                if isinstance(manifest, dict):
                    yield manifest

    def put(self, kind: str, key: str, fields: Mapping[str, Any], write: Callable[[Path], None], **extra: Any) -> Entry:
        """Let `write` fill a folder, then make it appear at once under the key, with its manifest.

        Args:
            kind: the part of the store, e.g. `answers`.
            key: `key_of(fields)`.
            fields: what the key was made of, and readable notes; they go into the manifest.
            write: writes the files into the folder it is given.
            **extra: further manifest entries that are no part of the key.
        """
        temporary = None
        try:
            temporary = fresh_folder(self.root)
            write(temporary)
            manifest = seal(temporary, {"kind": kind, "key": key, "fields": dict(fields), **extra})
            folder = self._folder(kind, key)
            folder.parent.mkdir(parents=True, exist_ok=True)
            try:  # what another process put there first stays, for that one may read it
                if (other := self.get(kind, key)) is None:
                    temporary.rename(folder)
            except OSError:
                if (other := self.get(kind, key)) is None:
                    raise
            if other is not None:
                return other
            synced(folder.parent)
            return Entry(folder, manifest)
        except Exception as error:
            if not isinstance(error, OSError) and not _OF_SYSTEM.search(str(error)):
                raise
            raise UserError(
                f"The cache could not be written: {getattr(error, 'strerror', None) or error}. Free some disk space, or"
                " set CONFBENCH_CACHE to another folder."
            ) from error
        finally:
            if temporary is not None:
                shutil.rmtree(temporary, ignore_errors=True)

    def _folder(self, kind: str, key: str) -> Path:
        return self.root / kind / key[:2] / key


def fresh_folder(root: Path) -> Path:
    """A new folder in the store, for this process alone; if it is killed, a later run on this machine removes it.

    Raises:
        OSError: it can't be made.
    """
    return Path(tempfile.mkdtemp(prefix=_own_prefix(), dir=root))


def _prefix() -> str:
    """Beginning of the names of half-written folders of this machine."""
    return f"tmp-{machine()}-"


def _own_prefix() -> str:
    return f"{_prefix()}{os.getpid()}-"
