"""The store by what lies in it: kinds, models, tasks and bytes; no link is followed out of it.

Example: `used(cache_folder())` gives an entry of 40 MB, answers and signals of `llama8b` on `mmlu-choice/test`.
"""

from __future__ import annotations

import json
import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.store.folders import MANIFEST

READINGS, FITS, ADAPTERS = "readings", "fits", "adapters"
ENTRIES = (READINGS, FITS, ADAPTERS)
"""Folders of the store with entries that can be made again; `readings` has answers and signals."""
_ANSWERS = "answers.safetensors"
_UNITS = ("B", "kB", "MB", "GB", "TB")
_STEP = 1000.0
_KEY = re.compile(r"[0-9a-f]{64}")
"""Name of an entry; whatever else lies there is somebody else's."""


@dataclass(frozen=True)
class UsageRow:
    """A folder of an entry, or one of another kind."""

    kind: str
    """The folder below the root that it lies in, e.g. `fits`."""
    path: Path
    bytes: int
    answers: int = 0
    """Bytes of answers among them, where it is a reading."""
    store_kind: str = ""
    """The part of the store, where it is an entry: `readings/<hash>` or as `kind`."""
    model: str = ""
    """Label of the model; empty where it isn't known."""
    split: str = ""
    """Task and split, e.g. `mmlu-choice/test`; empty where it isn't known."""
    written: float = 0.0
    """Seconds since 1970."""

    @property
    def corpus(self) -> str:
        """The task, without the split."""
        return self.split.rpartition("/")[0] or self.split


def used(root: Path) -> list[UsageRow]:
    """All that lies in the store; what vanishes meanwhile is left out."""
    found: list[UsageRow] = []
    for folder in _folders(root):
        if folder.name not in ENTRIES:
            kind = "half-written" if folder.name.startswith("tmp-") else folder.name
            found.append(UsageRow(kind, folder, _bytes(folder)[0]))
            continue
        # entries lie below two digits of their key, those of readings below the hash of a shard as well
        shards = _folders(folder) if folder.name == READINGS else [folder]
        paths = [path for shard in shards for digits in _folders(shard) for path in _folders(digits)]
        for path in filter(lambda path: _KEY.fullmatch(path.name), paths):
            size, answers = _bytes(path)
            manifest: Any = {}  # as it stands there, checked or not; empty where it is damaged
            with suppress(OSError, ValueError, RecursionError):
                manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
            told = manifest if isinstance(manifest, dict) else {}
            model, split = (value if isinstance(value := told.get(name), str) else "" for name in ("model", "split"))
            written = 0.0
            with suppress(OSError):
                written = path.stat(follow_symlinks=False).st_mtime
            answers *= folder.name == READINGS
            store_kind = path.parents[1].relative_to(root).as_posix()
            found.append(UsageRow(folder.name, path, size, answers, store_kind, model, split, written))
    return found


def size_in_words(n: float) -> str:
    """Bytes for people.

    >>> size_in_words(999), size_in_words(2_930_000), size_in_words(1.2e16)
    ('999 B', '2.9 MB', '12000.0 TB')
    """
    power = 0
    while n >= _STEP and power < len(_UNITS) - 1:
        n, power = n / _STEP, power + 1
    return f"{n:.1f} {_UNITS[power]}" if power else f"{n:.0f} B"


def _folders(folder: Path) -> list[Path]:
    """Folders right below this one, by name; links are none."""
    with suppress(OSError), os.scandir(folder) as found:
        return sorted(folder / each.name for each in found if each.is_dir(follow_symlinks=False))
    return []


def _bytes(folder: Path) -> tuple[int, int]:
    """Bytes of all files of a folder, and of its answers."""
    size = answers = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                n = os.stat(os.path.join(parent, name), follow_symlinks=False).st_size  # noqa: PTH116, PTH118 - quick
                size += n
                answers += n if name == _ANSWERS else 0
    return size, answers
