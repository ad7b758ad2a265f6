"""Main memory, the way to the Hub, and the folders that a run writes to: cache, results, temporary files."""

from __future__ import annotations

import os
import queue
import shutil
import tempfile
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from bench.cli.doctor.finding import Finding, State
from bench.store.folders import cache_folder
from bench.store.usage import size_in_words, used

_HUB_S = 5.0
"""Seconds that the Hub has to answer, names and all."""
_LITTLE = 4e9
"""Bytes of memory below which libraries and a small model barely fit."""
_GB = 1e9
_YES = {"1", "ON", "YES", "TRUE"}
"""Values by which the Hub's library takes a switch for set."""
_LITTLE_SPACE, _NO_SPACE = 10e9, 2e8
"""Free bytes below which a long run may fail, and below which none can start."""


def memory() -> Iterator[Finding]:
    """Main memory that is free, within the limit of a container."""
    found = []
    with suppress(OSError, ValueError, IndexError):
        lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines())
        found.append(int(lines["MemAvailable"].split()[0]) * 1024.0)
    with suppress(OSError, ValueError):  # of a container; without a limit it says "max"
        folder = Path("/sys/fs/cgroup")
        limit = int((folder / "memory.max").read_text(encoding="ascii"))
        found.append(float(limit - int((folder / "memory.current").read_text(encoding="ascii"))))
    if not found:
        with suppress(OSError, ValueError, AttributeError):
            found.append(float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")))
    if not found:
        yield Finding("memory", State.NOTE, "this system doesn't tell")
        return
    free = min(found)
    state = State.NOTE if free < _LITTLE else State.OK
    fix = "end other programs, or run where there is more; bench params --memory tells what a model takes"
    yield Finding("memory", state, f"{free / _GB:.1f} GB free", fix if state is State.NOTE else "")


def hub() -> Iterator[Finding]:
    """Whether models and data can be got, and as whom."""
    switches = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
    offline = next((name for name in switches if os.environ.get(name, "").upper() in _YES), None)
    has_token = _token()
    token = "with a token" if has_token else "without a token"
    if offline:
        what = f"not asked, for {offline} is set ({token}): what lies in its cache is used"
        yield Finding("Hub", State.NOTE, what, f"unset {offline} to get models and data")
        return
    address = os.environ.get("HF_ENDPOINT") or "https://huggingface.co"
    problem = _unreachable(address)
    if problem:
        fix = "look at the network, HTTPS_PROXY and HF_ENDPOINT; what lies in its cache is used, and --data-dir helps"
        yield Finding("Hub", State.NOTE, f"{address} can't be reached ({problem}), {token}", fix)
    else:
        fix = "" if has_token else "hf auth login, for models and data that ask for it"
        yield Finding("Hub", State.OK, f"{address} answers, {token}", fix)


def _token() -> bool:
    """Whether there is a token; it is neither shown nor sent."""
    if os.environ.get("HF_TOKEN") or os.environ.get("HUGGING_FACE_HUB_TOKEN"):
        return True
    home = Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")
    with suppress(OSError):
        path = Path(os.environ.get("HF_TOKEN_PATH") or home / "token")
        return path.is_file() and path.stat().st_size > 0
    return False


def _unreachable(address: str) -> str:
    """Why an address doesn't answer; empty where it does. Looking up a name has no time limit, so a thread does it."""
    answers: queue.Queue[str] = queue.Queue()

    def ask() -> None:
        try:
            request = urllib.request.Request(address, method="HEAD")  # noqa: S310 - the user's own endpoint
            with urllib.request.urlopen(request, timeout=_HUB_S):  # noqa: S310
                answers.put("")
        except urllib.error.HTTPError:  # it answered
            answers.put("")
        except Exception as error:  # noqa: BLE001 - proxies and certificates fail in many ways
            answers.put(str(getattr(error, "reason", None) or error) or type(error).__name__)

    threading.Thread(target=ask, daemon=True).start()
    try:
        return answers.get(timeout=_HUB_S + 1)
    except queue.Empty:
        return f"no answer within {_HUB_S:.0f} s"


def folders(out: Path) -> Iterator[Finding]:
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
    there = next(place for place in (folder.absolute(), *folder.absolute().parents) if place.exists())
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
    if free < _LITTLE_SPACE:
        return Finding(about, State.BAD if free < _NO_SPACE else State.NOTE, what, f"free some space, or {fix}")
    return Finding(about, State.OK, what)
