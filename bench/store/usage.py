"""Disk usage of the store: bytes of each entry with its kind, model and task. Links are not followed.

Example: `list_usage(cache_folder())` lists an entry of 40 MB: answers and signals of `llama8b` on `mmlu-choice/test`.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from bench.store.disk_cache import read_manifest

READINGS, FITS, ADAPTERS, MODELS, ESTIMATES = "readings", "fits", "adapters", "models", "estimates"
SERVERS = "servers"
ENTRIES = (READINGS, FITS, ADAPTERS, MODELS, ESTIMATES, SERVERS)
"""Top-level folders of the store whose entries can be computed again; `readings` has answers and signals, `models`
converted GGUF files, `estimates` seconds by which --max-time decided, `servers` what tells their models apart."""
_ANSWERS = "answers.safetensors"
_UNITS = ("B", "kB", "MB", "GB", "TB")
_STEP = 1000.0
_ENTRY_NAME = re.compile(r"[0-9a-f]{64}")
"""Pattern of a cache key, which names an entry's folder. Folders with other names are no entries."""


@dataclass(frozen=True)
class UsageRow:
    """Disk usage of one entry of the store, or of another folder in the cache."""

    kind: str
    """Name of the top-level folder that holds the entry, e.g. `fits`; `half-written` for a temporary folder."""
    path: Path
    bytes: int
    answers: int = 0
    """Bytes of the answers in an entry of `readings`; `bytes` includes them."""
    store_kind: str = ""
    """Kind of the entry in `Store`: `readings/<digest of a shard>`, or else `kind`; empty for a folder that is no
    entry."""
    model: str = ""
    """Label of the model; empty if unknown."""
    corpus: str = ""
    """Name of the entry's task, e.g. `mmlu-choice`; empty if unknown."""
    written: float = 0.0
    """Time of the last write, in seconds since 1970."""


def list_usage(root: Path) -> list[UsageRow]:
    """List all entries in the folders `ENTRIES`, and each other top-level folder of the store as one row.

    A folder that is removed meanwhile raises no error. It is left out, or its row has the bytes counted before.
    """
    rows: list[UsageRow] = []
    for folder in _subfolders(root):
        if folder.name not in ENTRIES:
            kind = "half-written" if folder.name.startswith("tmp-") else folder.name
            rows.append(UsageRow(kind, folder, _count_bytes(folder)[0]))
            continue
        # entries are at KIND/<key[:2]>/<key>; those of readings at KIND/<hash of the shard>/<key[:2]>/<key>
        shards = _subfolders(folder) if folder.name == READINGS else [folder]
        paths = [path for shard in shards for digits in _subfolders(shard) for path in _subfolders(digits)]
        for path in filter(lambda path: _ENTRY_NAME.fullmatch(path.name), paths):
            size, answers = _count_bytes(path)
            fields = read_manifest(path)
            model, split = (value if isinstance(value := fields.get(name), str) else "" for name in ("model", "split"))
            written = 0.0
            with suppress(OSError):
                written = path.stat(follow_symlinks=False).st_mtime
            answers *= folder.name == READINGS
            store_kind = path.parents[1].relative_to(root).as_posix()
            corpus = split.rpartition("/")[0] or split
            rows.append(UsageRow(folder.name, path, size, answers, store_kind, model, corpus, written))
    return rows


def format_size(n: float) -> str:
    """Format a number of bytes.

    >>> format_size(999), format_size(2_930_000), format_size(1.2e16)
    ('999 B', '2.9 MB', '12000.0 TB')
    """
    power = 0
    while n >= _STEP and power < len(_UNITS) - 1:
        n, power = n / _STEP, power + 1
    return f"{n:.1f} {_UNITS[power]}" if power else f"{n:.0f} B"


def _subfolders(folder: Path) -> list[Path]:
    """List the direct subfolders of a folder, sorted by name; links are left out."""
    with suppress(OSError), os.scandir(folder) as entries:
        return sorted(folder / entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    return []


def _count_bytes(folder: Path) -> tuple[int, int]:
    """Return two numbers: the bytes of all files below a folder, and the bytes of the answers among them."""
    size = answers = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                n = os.stat(os.path.join(parent, name), follow_symlinks=False).st_size  # noqa: PTH116, PTH118 - quick
                size += n
                answers += n if name == _ANSWERS else 0
    return size, answers
