"""Checkpoints of a training: folders that appear whole, with the digest of every file, checked before they are used."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bench.api import UserError
from bench.store.files import write_whole
from bench.store.folders import digest_file, key_of

KEPT = 2
"""The newest ones; the older of them is for the day on which the newer is damaged."""
_MANIFEST = "manifest.json"
_NAME = re.compile(r"step-(\d{1,15})")


def partial(root: Path, step: int) -> Path:
    """The folder that is filled, as it is called until it is `complete`."""
    return root / f"partial-{step}"


def begun(root: Path, step: int) -> Path:
    """The `partial` folder, made and empty."""
    folder = partial(root, step)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def complete(root: Path, step: int, job: str) -> None:
    """Let the filled folder appear under its name, and remove all but the newest `KEPT`.

    Args:
        root: folder of the checkpoints.
        step: that it was taken after.
        job: digest of what is trained.
    """
    folder, whole = partial(root, step), root / f"step-{step}"
    manifest = {"job": job, "step": step, "files": {path.name: digest_file(path) for path in sorted(folder.iterdir())}}
    text = json.dumps(manifest | {"digest": key_of(manifest)}, indent=1)
    write_whole(folder / _MANIFEST, text.encode())
    shutil.rmtree(whole, ignore_errors=True)
    folder.rename(whole)
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
            problem = _damage(folder, job, step)
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


def _damage(folder: Path, job: str, step: int) -> str | None:
    try:
        manifest: Mapping[str, Any] = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
        told = {name: value for name, value in manifest.items() if name != "digest"}
        if manifest["digest"] != key_of(told):
            return f"{_MANIFEST} was altered"
        if (manifest["job"], manifest["step"]) != (job, step):
            return "it is of another training or step"
        return _damaged_file(folder, manifest["files"])
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return "a file is missing"
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        return f"unreadable {_MANIFEST} ({type(error).__name__})"


def _damaged_file(folder: Path, files: Mapping[str, str]) -> str | None:
    there = {path.name for path in folder.iterdir()} - {_MANIFEST}
    for name in sorted(there | files.keys()):
        if name not in there or name not in files:
            return f"{name} is missing or too much"
        if digest_file(folder / name) != files[name]:
            return f"{name} was altered or cut short"
    return None
