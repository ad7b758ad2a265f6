"""Files that appear whole or not at all, whatever ends the program or the machine while they are written."""

from __future__ import annotations

import contextlib
import os
import platform
from pathlib import Path


def _sweep(folder: Path) -> None:
    """Remove what killed processes of this machine left half-written."""
    for left in folder.glob(".*.tmp"):
        name, _, pid = left.stem.rpartition(".")
        with contextlib.suppress(OSError):
            if name.endswith(f".{platform.node()}") and pid.isdecimal() and _is_gone(int(pid)):
                left.unlink()


def _is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return True
    except PermissionError:  # it is somebody else's
        pass
    return False


def write_whole(path: Path, content: bytes) -> None:
    """Write a file in one step as others see it; missing folders are made, and an older file is replaced.

    What a process of this machine that is gone left half-written beside it is removed.

    Raises:
        OSError: it can't be written; the older file stays.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    _sweep(path.parent)
    # machines that share a folder may have processes of one number; a name has at most 255 bytes
    temporary = path.with_name(f".{path.name[:100]}.{platform.node()}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):  # what failed first is the reason
            temporary.unlink()
        raise
