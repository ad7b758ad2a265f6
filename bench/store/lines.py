"""Files of JSON lines, each with a digest: what a server answered, kept at once, so that nothing is asked twice."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bench.store.disk_cache import key_of, with_digest
from bench.store.files import fsync_path


def asked_path(root: Path, kind: str) -> Path:
    """Return the file of what a server answered in a shard, by the kind of the shard's entries in the store."""
    return root / "asked" / f"{key_of({'shard': kind})[:32]}.jsonl"


def append_line(path: Path, fields: Mapping[str, Any], *, flush: bool = True) -> None:
    """Append a JSON object with its digest to a file; the file and its folder are made.

    Args:
        path: the file.
        fields: the object.
        flush: whether the disk has it before this returns, so that it outlives a power cut, not the process alone.

    Raises:
        OSError: the file can't be written.
    """
    line = json.dumps(with_digest(fields)).encode() + b"\n"
    new = not path.exists()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab+", buffering=0) as file:
        file.seek(max(0, file.tell() - 1))
        data = line if file.read() in {b"", b"\n"} else b"\n" + line  # ends a truncated line
        # one write, so that lines of several processes don't mix
        if os.write(file.fileno(), data) != len(data):
            raise OSError(None, "no space left for a whole line")
        if flush:
            os.fsync(file.fileno())
    if new:
        fsync_path(path.parent)


def read_lines(path: Path) -> Iterator[dict[str, Any] | None]:
    """Yield the objects of a file that `append_line` wrote; None for a damaged line. A missing file has no lines.

    Raises:
        OSError: the file can't be read.
    """
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return
    for line in filter(None, lines):
        try:
            fields = json.loads(line)
            yield fields if fields == with_digest(fields) else None
        except (ValueError, TypeError, AttributeError, RecursionError):
            yield None
