"""Shelves of released answers: a folder of this machine, or the authors' data set on the Hub.

Example: `open_shelf("", Path("data")).files("CT-CHOICE/Meta-Llama-3.1-8B-Instruct")`.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.api import UserError
from bench.data.sources import ENVIRONMENT, hub_file, probe, revision_of

_HUB = "ledengary/CCPS"
FOLDER = "CCPS"
"""Below `--data-dir`."""
FILES: Mapping[str, Sequence[str]] = {
    "train": ("train.jsonl",),
    "validation": ("validation.jsonl", "val.jsonl"),
    "test": ("test.jsonl",),
}
"""Names that the file of a split may have."""
INSTEAD = f"lay its files out as {FOLDER}/PART/MODEL/SPLIT.jsonl in a folder and name that with --data-dir"


@dataclass(frozen=True)
class FolderShelf:
    """Files below `--data-dir`."""

    folder: Path

    def files(self, folder: str) -> list[str]:
        """JSON Lines files in a folder and those below it, by their paths within it, sorted."""
        top = self.folder / folder
        return sorted(path.relative_to(top).as_posix() for path in top.rglob("*.jsonl") if path.is_file())

    def path(self, name: str) -> Path:
        """Path of a file on this machine."""
        return self.folder / name

    def describe(self, names: Sequence[str]) -> dict[str, str]:
        """The SHA-256 of the files' bytes, one after the other."""
        digest = hashlib.sha256()
        for name in names:
            digest.update(self.path(name).read_bytes())
        return {"source": "folder", "sha256": digest.hexdigest()}


@dataclass
class HubShelf:
    """Files of the data set on the Hub; what was loaded once needs no network, unless a split is several files."""

    revision: str
    """Commit or branch, as it was asked for."""
    _found: list[str] | None = None
    """All files of the repository; None where the Hub can't be reached."""
    _probed: bool = False

    def files(self, folder: str) -> list[str]:
        """See `FolderShelf.files`."""
        if not self._probed:
            info = probe(_HUB, self.revision, INSTEAD)
            self._found = None if info is None else [file.rfilename for file in info.siblings or ()]
            self._probed = True
        names = self._found
        if names is None:  # files of known names that were loaded before; of others nobody knows whether all are there
            from huggingface_hub import try_to_load_from_cache

            known = [f"{folder}/{name}" for files in FILES.values() for name in files]
            cached = {name: try_to_load_from_cache(_HUB, name, None, self.revision, "dataset") for name in known}
            names = [name for name, path in cached.items() if isinstance(path, str)]
        inside = [name.removeprefix(f"{folder}/") for name in names if name.startswith(f"{folder}/")]
        return sorted(name for name in inside if name.endswith(".jsonl"))

    def path(self, name: str) -> Path:
        """See `FolderShelf.path`; downloads the file."""
        return hub_file(_HUB, name, self.revision, online=self._found is not None, instead=INSTEAD)

    def describe(self, names: Sequence[str]) -> dict[str, str]:
        """The commit that the revision meant."""
        commits = sorted({revision_of(self.path(name)) for name in names})
        if len(commits) > 1:
            raise UserError(f"{_HUB} at {self.revision} changed while it was loaded ({', '.join(commits)}); run again")
        requested = {} if commits == [self.revision] else {"asked for": self.revision}
        return {"source": "hub", "hub": _HUB, **requested, "revision": ", ".join(commits)}


Shelf = FolderShelf | HubShelf
"""The released files."""


def open_shelf(revision: str, data_dir: Path | None) -> Shelf:
    """The released files.

    Args:
        revision: of the data set on the Hub; empty: they lie in a folder.
        data_dir: that folder; None: the one that the environment names.

    Raises:
        UserError: both a revision and a folder are named, or neither, or nothing lies there.
    """
    given = f"--data-dir {data_dir}" if data_dir else f"${ENVIRONMENT}"
    folder = data_dir or Path(os.environ.get(ENVIRONMENT) or "")
    named = data_dir is not None or bool(os.environ.get(ENVIRONMENT))
    if named and revision:
        raise UserError(
            f"--answers released@{revision} loads from the Hub, but {given} names a folder; leave out @{revision} or"
            " the folder."
        )
    if revision:
        return HubShelf(revision)
    if not named:
        raise UserError(
            f"--answers released: expected a revision of {_HUB} on the Hub, as released@COMMIT or released@BRANCH, or"
            f" its files below --data-dir as {FOLDER}/PART/MODEL/SPLIT.jsonl."
        )
    if not (folder / FOLDER).is_dir():
        raise UserError(
            f"--answers released: expected a folder {FOLDER} in {given}, found none; put the files there, or name a"
            " revision on the Hub instead: released@REVISION."
        )
    return FolderShelf(folder / FOLDER)
