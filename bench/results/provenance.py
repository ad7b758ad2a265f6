"""Provenance of a result: commit, packages, hardware, revisions; no paths, no names of people or machines.

No function here raises an error. An unknown value is None. Only `code` gives a reason, under the key `reason`, if the
code can't be identified. Example, the value of `code`:
`{"version": "0.1.0", "git_sha": "<40 hex>", "dirty": false, "record_digest": null, "reason": null}`.
"""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import re
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

DISTRIBUTION = "confbench"
METHODS = "methods"
"""Name of the import package with the built-in methods."""
PLUGIN = "method "
"""The dict `revisions` has under this prefix and a plugin method's name the digest of the plugin's source."""
CODE = ("bench", METHODS, "tasks")
"""Import packages of the harness. If one of them or pyproject.toml has uncommitted changes, a checkout is dirty."""
_PACKAGES = (
    "numpy", "torch", "transformers", "tokenizers", "datasets", "safetensors", "scikit-learn", "pandas", "pyarrow",
    "peft", "deepspeed", "ray",
)  # fmt: skip
"""Installed packages whose versions are recorded, because they can change a result."""
_GIT_TIMEOUT_S = 20


def collect(device: str | None = None, revisions: Mapping[str, str | None] | None = None) -> dict[str, Any]:
    """Collect the provenance of a result as a dict of JSON types.

    Args:
        device: where the model ran, e.g. `cuda:0`, or `cuda:0,cuda:1`.
        revisions: Hub id of a model or data set -> commit that was loaded.
    """
    torch, accelerator = sys.modules.get("torch"), None
    if torch is not None and device is not None and device.startswith("cuda"):
        with suppress(AssertionError, RuntimeError, ValueError):
            accelerator = ", ".join(str(torch.cuda.get_device_name(name)) for name in device.split(","))
    return {
        "code": dict(code()),
        "packages": dict(packages()),
        "python": platform.python_version(),
        "hardware": {**hardware(), "device": device, "accelerator": accelerator},
        "threads": threads(),
        "revisions": dict(revisions or {}),
    }


def has_commit(folder: Path, sha: str) -> bool | None:
    """Return whether the git repository around a folder has a commit.

    None if there is no repository, or if a shallow one doesn't have the commit.
    """
    shallow = _git(folder, "rev-parse", "--is-shallow-repository")
    if shallow is None:
        return None
    if re.fullmatch(r"[0-9a-f]{40}", sha) and _git(folder, "cat-file", "-e", f"{sha}^{{commit}}") is not None:
        return True
    return None if shallow == "true" else False


def tracked_files(folder: Path) -> frozenset[str]:
    """Return the paths, relative to a folder, of files in it that git tracks.

    Empty without git or a repository, and where git refuses to read one, e.g. because another user owns it.
    """
    return frozenset(filter(None, (_git(folder, "ls-files", "-z") or "").split("\0")))


@functools.cache
def code(root: Path | None = None) -> Mapping[str, Any]:
    """Return version and commit of the harness, found from the folder of the package, not from the working directory.

    In a checkout `git_sha` is set, and `dirty` says whether tracked files under CODE or pyproject.toml have changes. If
    the harness was installed from a wheel, `record_digest` is set instead: a digest of the file hashes in RECORD.

    Args:
        root: folder that contains the packages; by default that of this package.
    """
    folder = (root or Path(__file__).parents[2]).resolve()
    info: dict[str, Any] = {"version": version_of(DISTRIBUTION), "git_sha": None, "dirty": None, "record_digest": None}
    sha, toplevel = None, _git(folder, "rev-parse", "--show-toplevel")
    if toplevel is None:
        reason = "git is missing, or this is no git checkout"
    elif Path(toplevel).resolve() != folder:  # e.g. a virtual environment inside somebody's repository
        reason = "the package lies inside a git checkout of something else"
    else:
        sha, reason = _git(folder, "rev-parse", "--verify", "HEAD"), "the git checkout has no commit"
    if sha:
        changes = _git(folder, "status", "--porcelain", "--untracked-files=no", "--", *CODE, "pyproject.toml")
        return {**info, "git_sha": sha, "dirty": None if changes is None else bool(changes), "reason": None}
    digest = record_digest(folder)
    return {**info, "record_digest": digest, "reason": None if digest else f"{reason}; not installed from a wheel"}


def record_digest(folder: Path) -> str | None:
    """Return the SHA-256 over the file hashes in the wheel's RECORD; None if `folder` was not installed from the wheel.

    Only lines with a hash and a path below CODE are used, because installers add other lines.
    """
    try:
        distribution = metadata.distribution(DISTRIBUTION)
        record = distribution.read_text("RECORD") or ""
        installed = Path(str(distribution.locate_file(CODE[0]))).resolve()
    except (metadata.PackageNotFoundError, OSError, UnicodeError):
        return None
    if installed != folder / CODE[0]:
        return None
    prefixes = tuple(f"{name}/" for name in CODE)
    lines = sorted(line for line in record.splitlines() if line.startswith(prefixes) and ",sha256=" in line)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest() if lines else None


@functools.cache  # a look-up takes 50 ms, and every cell records the versions
def packages() -> Mapping[str, str]:
    """Return name -> version of the installed packages among _PACKAGES, without importing any."""
    versions = {name: version_of(name) for name in _PACKAGES}
    return {name: version for name, version in versions.items() if version is not None}


def hardware() -> dict[str, Any]:
    """Return platform, processor name and number of logical cores."""
    cpu = platform.processor() or None
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                cpu = value.strip()
                break
    return {"platform": platform.platform(terse=False), "cpu": cpu, "cores": os.cpu_count()}


def threads() -> dict[str, Any]:
    """Return the number of torch's threads (None if torch is not imported), and the variable OMP_NUM_THREADS."""
    torch = sys.modules.get("torch")  # must not import it
    return {
        "torch": torch.get_num_threads() if torch is not None else None,
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS"),
    }


def version_of(name: str) -> str | None:
    """Return the version of an installed package; None if the package is not installed."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _git(folder: Path, *arguments: str) -> str | None:
    """Return the output of a git command run in `folder`; None if the command fails."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        completed = subprocess.run(
            ["git", "-C", str(folder), "--no-optional-locks", *arguments],
            capture_output=True,
            check=True,
            encoding="utf-8",
            errors="surrogateescape",  # names of files may be of any bytes
            env=environment,
            timeout=_GIT_TIMEOUT_S,
        )
    except (OSError, subprocess.SubprocessError, UnicodeError):
        return None
    return completed.stdout.strip()
