"""What became of each part, and of which code."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

import msgspec

PAGE = "docs/nightly.md"
OUTCOMES = "tests/nightly/outcomes"
"""One file for each part. They are committed, so that several machines share the parts of one page."""
_NOT_WRITTEN = (f":(exclude){PAGE}", f":(exclude){OUTCOMES}", ":(exclude)tests/mutants/*.json")  # by the parts


class State(StrEnum):
    GREEN = "green"
    RED = "red"
    UNFINISHED = "unfinished"


@dataclass(frozen=True)
class Outcome:
    state: State
    said: str
    """One line, such as how many tests passed."""
    command: str
    code: str
    """Digest of the files that the part reads."""
    commit: str
    machine: str
    start: str
    minutes: float
    load: tuple[float, float]
    """Load average at the start and at the end."""
    exit_code: int | None = None
    failures: list[str] = field(default_factory=list)
    skips: dict[str, int] = field(default_factory=dict)
    """Reason -> skipped tests."""


def read(path: Path) -> Outcome | None:
    """What was written there; nothing where it's missing or has an older form."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Outcome)
    except (FileNotFoundError, msgspec.MsgspecError):
        return None


def write(path: Path, outcome: Outcome) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(outcome), indent=1))


def digest(root: Path, paths: Sequence[str]) -> str:
    """Digest of these files of a checkout as they are, without those that git ignores."""
    found = hashlib.sha256()
    names = _git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *paths, *_NOT_WRITTEN)
    for name in sorted(set(names.split("\0"))):
        if (root / name).is_file():
            found.update(f"{name}\0{hashlib.sha256((root / name).read_bytes()).hexdigest()}".encode())
    return found.hexdigest()[:16]


def commit(root: Path, paths: Sequence[str]) -> str:
    changed = _git(root, "status", "--porcelain", "--", *paths, *_NOT_WRITTEN)
    return _git(root, "rev-parse", "--short", "HEAD").strip() + "+changes" * bool(changed)


def machine() -> str:
    """Cores, processor, memory and Python."""
    told = Path("/proc/cpuinfo")
    names = re.findall(r"^model name\s*: (.+)$", told.read_text("utf-8"), re.MULTILINE) if told.is_file() else []
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    processor = names[0] if names else platform.machine()
    return f"{os.cpu_count()} cores of {processor}, {memory:.0f} GiB, Python {platform.python_version()}"


def _git(root: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=root, check=True, capture_output=True, encoding="utf-8").stdout
