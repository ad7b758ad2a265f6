"""Checkpoints of a training: folders that appear whole, with the digest of every file, checked before they are used."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

from bench.api import UserError
from bench.store.folders import MANIFEST, inspected, seal

KEPT = 2
"""The newest ones; the older of them is for the day on which the newer is damaged."""
_NAME = re.compile(r"step-(\d{1,15})")


def complete(filled: Path, step: int, job: str) -> None:
    """Let a filled folder appear under its name, and remove all but the newest `KEPT` beside it.

    Args:
        filled: folder of the checkpoint, within that of all.
        step: that it was taken after.
        job: digest of what is trained.
    """
    root, whole = filled.parent, filled.with_name(f"step-{step}")
    seal(filled, {"job": job, "step": step})
    shutil.rmtree(whole, ignore_errors=True)
    filled.rename(whole)
    keep = {root / f"step-{kept}" for kept in _steps(root)[:KEPT]}
    for other in root.iterdir():
        if other not in keep:
            shutil.rmtree(other, ignore_errors=True)


def newest(root: Path, job: str, say: Callable[[str], None]) -> int:
    """The step of the newest whole checkpoint of this job, 0 without one; damaged ones are removed, and that is said.

    Raises:
        UserError: one can't be read at the moment; it stays.
    """
    for step in _steps(root):
        folder = root / f"step-{step}"
        try:
            problem, manifest = inspected(folder, {"job": job, "step": step})
            if problem is None:
                more = {path.name for path in folder.iterdir()} - {MANIFEST, *manifest["files"]}
                problem = f"{min(more)} is too much" if more else None
        except OSError as error:
            raise UserError(
                f"The checkpoint {folder.name} of a training can't be read: {error.strerror}. Nothing was removed; run"
                " the command again when it can."
            ) from error
        if problem is None:
            return step
        shutil.rmtree(folder, ignore_errors=True)
        say(f"checkpoint {folder.name} of a training was damaged ({problem}); training repeats the steps before it")
    return 0


def _steps(root: Path) -> list[int]:
    """Steps of the checkpoints, the newest first."""
    names = [path.name for path in root.iterdir()] if root.is_dir() else []
    return sorted((int(found[1]) for name in names if (found := _NAME.fullmatch(name))), reverse=True)
