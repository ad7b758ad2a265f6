"""Folders that a run writes to: the cache, the results, and the one for temporary files."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.cli.doctor.finding import Finding, State
from bench.store.folders import cache_folder
from bench.store.usage import size_in_words, used

_LITTLE, _NONE = 10e9, 2e8
"""Free bytes below which a long run may fail, and below which none can start."""


def findings(out: Path) -> Iterator[Finding]:
    """Whether each folder can be written, how much is free there, and how large the cache is.

    Args:
        out: folder of results.
    """
    cache = cache_folder()
    taken = f", {size_in_words(sum(use.bytes for use in used(cache)))} in it (bench cache)" if cache.is_dir() else ""
    yield _folder("cache", cache, taken, "set CONFBENCH_CACHE to a folder that can be written")
    yield _folder("results", out, "", "name another folder with --out")
    yield _folder("temporary", Path(tempfile.gettempdir()), "", "set TMPDIR to a folder that can be written")


def _folder(about: str, folder: Path, more: str, fix: str) -> Finding:
    there = folder.absolute()
    while not there.exists() and there != there.parent:
        there = there.parent
    if folder.exists() and not folder.is_dir():
        return Finding(about, State.BAD, f"{folder} is no folder", fix)
    try:
        with tempfile.TemporaryFile(dir=there) as file:
            file.write(b"0" * 4096)
            file.flush()
        free = shutil.disk_usage(there).free
    except OSError as error:
        return Finding(about, State.BAD, f"{folder} can't be written: {error.strerror or error}", fix)
    what = f"{folder}, {size_in_words(free)} free{more}"
    if free < _LITTLE:
        return Finding(about, State.BAD if free < _NONE else State.NOTE, what, f"free some space, or {fix}")
    return Finding(about, State.OK, what)
