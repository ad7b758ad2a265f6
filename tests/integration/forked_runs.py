"""Does something right before each change to a file, at which other moments of a run could not be told apart."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

CHANGES = {"os.rename", "os.mkdir", "os.remove", "os.rmdir", "shutil.rmtree"}


def watch(folder: Path, at: Callable[[int], None]) -> None:
    """Call a function with 1, 2, 3 ... right before each change to a file below the folder."""
    count = 0

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal count
        if not arguments or not str(arguments[0]).startswith(str(folder)):
            return
        if event in CHANGES or (event == "open" and isinstance(arguments[1], str) and arguments[1][0] in "wax"):
            count += 1
            at(count)

    sys.addaudithook(hook)
