"""Whether another package that is called like one of ours lies where ours was installed."""

from __future__ import annotations

import base64
import csv
import hashlib
from importlib import metadata
from pathlib import Path

from bench.api import UserError

DISTRIBUTION = "confbench"
TOP = ("bench", "methods", "tasks")
"""Import packages of the wheel, whose plain names others have, too."""


def refuse_overwritten() -> None:
    """Compare the first file of each of our packages with what the installer put there.

    An environment has one folder of each name: of two packages that bring a `bench`, the later one wins. A checkout,
    which is installed by a path, has no such list and is passed over.

    Raises:
        UserError: a file is another one, or is gone.
    """
    try:
        distribution = metadata.distribution(DISTRIBUTION)
        record = distribution.read_text("RECORD") or ""
    except (metadata.PackageNotFoundError, OSError, UnicodeError):  # the registry says that it is not installed
        return
    firsts = {f"{name}/__init__.py" for name in TOP}
    for line in csv.reader(line for line in record.splitlines() if line.startswith(tuple(firsts))):
        path, kind, digest = line[0], *line[1].partition("=")[::2]
        there = Path(str(distribution.locate_file(path)))
        if kind == "sha256" and path in firsts and _digest(there) != digest:
            name = path.partition("/")[0]
            raise UserError(
                f"{there} is not the file that {DISTRIBUTION} installed: another package with a folder `{name}` has"
                f" replaced it{_whose(name)}. Both can't be in one environment; install {DISTRIBUTION} into one of its"
                f" own: python -m venv .venv && .venv/bin/pip install {DISTRIBUTION}"
            )


def _digest(path: Path) -> str | None:
    """SHA-256 of a file as an installer writes it; None without the file."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def _whose(name: str) -> str:
    others = sorted(set(metadata.packages_distributions().get(name, ())) - {DISTRIBUTION})
    return f" ({', '.join(others)})" if others else ""
