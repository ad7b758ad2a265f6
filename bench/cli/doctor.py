"""`bench doctor`: whether a run can start on this machine, and what would make it better.

Programs are asked with a time limit; a library is imported in a process of its own, where it may crash.
"""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from enum import StrEnum
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import typer

from bench.cli.commands import AsJson
from bench.results import provenance
from bench.store.folders import cache_folder

_LEAST = (3, 11)
_TORCH = """
import json, torch
cuda = torch.cuda.is_available()
mps = getattr(torch.backends, "mps", None)
cards = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())] if cuda else []
print(json.dumps({
    "version": torch.__version__, "cuda": torch.version.cuda, "hip": getattr(torch.version, "hip", None),
    "cards": [[card.name, card.total_memory] for card in cards],
    "mps": bool(mps and mps.is_available()), "bf16": bool(cuda and torch.cuda.is_bf16_supported()),
    "computes": float((torch.ones(8, 8, device="cuda" if cuda else "cpu") @ torch.ones(8, 8).to(
        "cuda" if cuda else "cpu")).sum()) == 512.0,
}))
"""
_DRIVER = Path("/proc/driver/nvidia/version")
_INDEX = "https://download.pytorch.org/whl"
_WHEELS = ((13, 0, "cu130"), (12, 8, "cu128"), (12, 6, "cu126"))
"""Newest CUDA that a driver knows, at least -> wheels of torch."""
_GB = 1e9
IMPORT_S = 120.0
"""Seconds that a library may take to be imported; the first time, from a slow disk, it takes a minute."""
_LONGEST = 300
_HUB_S = 5.0
"""Seconds that the Hub has to answer, names and all."""
_LITTLE = 4e9
"""Bytes of memory below which libraries and a small model barely fit."""
_YES = {"1", "ON", "YES", "TRUE"}
"""Values by which the Hub's library takes a switch for set."""
_LITTLE_SPACE, _NO_SPACE = 10e9, 2e8
"""Free bytes below which a long run may fail, and below which none can start."""


class State(StrEnum):
    """State of one thing."""

    OK = "ok"
    NOTE = "note"
    """A run can start; something is missing or slower."""
    BAD = "bad"
    """No run can start."""


@dataclass(frozen=True)
class Finding:
    """State of one thing, and how to mend it."""

    about: str
    state: State
    what: str
    fix: str = ""
    """Thing to do; empty where nothing needs to be done."""


MARKS = {State.OK: "ok", State.NOTE: "note", State.BAD: "stops a run"}
"""State -> its word."""
Results = Annotated[Path, typer.Option("--out", help="Folder of results that runs will write.")]


def doctor(*, out: Results = Path("results"), as_json: AsJson = False) -> None:
    """Say whether a run can start on this machine, and what to mend. Exit code 1 where it can't."""
    from bench.cli.printing import print_json, print_line

    found = examined(out)
    bad = any(finding.state is State.BAD for finding in found)
    if as_json:
        print_json({"can_run": not bad, "findings": [asdict(finding) for finding in found]})
    else:
        for finding in found:
            print_line(f"{MARKS[finding.state]:<12} {finding.about + ':':<14} {finding.what}")
            if finding.fix:
                print_line(f"{'':<28}-> {finding.fix}")
        print_line("No run can start here; mend what stops it." if bad else "A run can start on this machine.")
    raise typer.Exit(1 if bad else 0)


def examined(out: Path) -> list[Finding]:
    """All findings in order; those that ask other programs are asked for side by side.

    Args:
        out: folder of results.
    """
    checks: list[Callable[[], Iterator[Finding]]] = [
        python, packages, other_bench, torch, others, memory, lambda: folders(out), hub,
    ]  # fmt: skip

    def findings(check: Callable[[], Iterator[Finding]]) -> list[Finding]:
        try:
            return list(check())
        except Exception as error:  # noqa: BLE001 - it examines whatever a machine may be; the others are seen
            name, what = getattr(check, "__name__", "check").strip("<>"), f"{type(error).__name__}: {error}"
            return [Finding(name, State.NOTE, f"could not be examined ({what})")]

    with ThreadPoolExecutor(len(checks)) as pool:
        return [finding for some in pool.map(findings, checks) for finding in some]


# --- Python and what is installed in it -------------------------------------------------------------------------------


def python() -> Iterator[Finding]:
    """The version of Python."""
    told = f"{platform.python_version()} ({sys.executable})"
    if sys.version_info >= _LEAST:
        yield Finding("Python", State.OK, told)
    else:
        least = ".".join(map(str, _LEAST))
        yield Finding("Python", State.BAD, f"{told}, older than {least}", f"install Python {least} or newer")


def packages() -> Iterator[Finding]:
    """Packages that this one requires, by their metadata: nothing is imported."""
    from packaging.requirements import Requirement  # comes with transformers

    try:
        required = metadata.requires(provenance.DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        what = f"{provenance.DISTRIBUTION} itself is not installed, so its methods and tasks are not found"
        yield Finding("packages", State.BAD, what, "pip install -e . in the checkout, or pip install confbench")
        return
    lacking = []
    for requirement in map(Requirement, required):
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        version = provenance.version_of(requirement.name)
        if version is None or not requirement.specifier.contains(version, prereleases=True):
            lacking.append(f"{requirement.name}{requirement.specifier} (found {version or 'none'})")
    if lacking:
        names = " ".join(f"'{text.partition(' (')[0]}'" for text in lacking)
        yield Finding("packages", State.BAD, f"missing or too old: {', '.join(lacking)}", f"pip install {names}")
    else:
        code = provenance.code()
        yield Finding("packages", State.OK, f"{provenance.DISTRIBUTION} {code['version']} with all that it requires")


def other_bench() -> Iterator[Finding]:
    """Other packages of our names, and another command `bench` that a shell would find first."""
    owners = metadata.packages_distributions()
    others = {
        (name, owner) for name in provenance.CODE for owner in owners.get(name, ()) if owner != provenance.DISTRIBUTION
    }
    for name, owner in sorted(others):
        fix = f"pip uninstall {owner}, or install {provenance.DISTRIBUTION} into an environment of its own"
        yield Finding("names", State.BAD, f"the package {owner} also installs {name!r}", fix)
    home = Path(__file__).parents[2]
    for name in provenance.CODE:
        found = importlib.util.find_spec(name)
        place = Path(found.origin).parents[1] if found and found.origin else None
        if place is not None and place.resolve() != home.resolve():
            fix = f"start the command elsewhere, or rename {place / name}"
            yield Finding("names", State.BAD, f"{name!r} is found in {place}, not beside this package", fix)
    command = shutil.which("bench")
    ours = Path(sys.executable).parent / "bench"
    if command and ours.exists() and Path(command).resolve() != ours.resolve():
        yield Finding("names", State.NOTE, f"the shell's command bench is {command}, not {ours}", f"call {ours}")
    elif not others:
        yield Finding("names", State.OK, f"no other package is called {', '.join(provenance.CODE)}")


# --- libraries and the accelerator ------------------------------------------------------------------------------------


def torch() -> Iterator[Finding]:
    """The torch build, the accelerator and bfloat16."""
    try:
        found = value_of(_TORCH)
    except FailedError as error:
        yield Finding(
            "torch", State.BAD, f"can't be imported: {error}", f"pip install --force-reinstall torch{_wheels()}"
        )
        return
    state = State.OK if found["computes"] else State.BAD
    what = f"{found['version']}" + ("" if found["computes"] else ", which computes a product of matrices wrongly")
    yield Finding("torch", state, what, "" if found["computes"] else "pip install --force-reinstall torch")
    if found["cards"]:
        told = ", ".join(f"{name} ({memory / _GB:.0f} GB)" for name, memory in found["cards"])
        yield Finding("accelerator", State.OK, told)
        word = "supported" if found["bf16"] else "not supported"
        fix = "" if found["bf16"] else "run with --dtype float16"
        yield Finding("bfloat16", State.OK if found["bf16"] else State.NOTE, word, fix)
    elif found["mps"]:
        yield Finding("accelerator", State.OK, "Apple GPU (mps)")
    elif _DRIVER.exists() or _cards():
        cards, driver = ", ".join(_cards()) or "an NVIDIA card", _driver_cuda()
        fix = f"pip install --force-reinstall torch{_wheels()}"
        why = f"not used, for this torch {found['version']} is built for the CPU alone"
        if found["cuda"] is not None and driver is not None and driver < _numbers(found["cuda"]):
            fix = f"update the driver, or {fix}"
            why = (
                f"not used, for torch is built for CUDA {found['cuda']} and the driver knows CUDA"
                f" {driver[0]}.{driver[1]} at most"
            )
        elif found["cuda"] is not None:
            fix = "look at nvidia-smi, CUDA_VISIBLE_DEVICES and the rights on /dev/nvidia*"
            why = f"there, but torch {found['version']} doesn't find it"
        yield Finding("accelerator", State.NOTE, f"{cards}: {why}", fix)
    else:
        fix = "none is needed for small models; a large one takes days without"
        yield Finding("accelerator", State.NOTE, "none was found: the CPU reads the models, in float32", fix)


def _cards() -> list[str]:
    """Names of NVIDIA cards, as their driver tells them."""
    if shutil.which("nvidia-smi") is None:
        return []
    try:
        return output_of(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], 10.0).strip().splitlines()
    except FailedError:
        return []


def _driver_cuda() -> tuple[int, int] | None:
    """Newest CUDA that the driver knows."""
    try:
        words = output_of(["nvidia-smi"], 10.0).partition("CUDA Version:")[2].split()
        return _numbers(words[0])
    except (FailedError, IndexError, ValueError):
        return None


def _numbers(version: str) -> tuple[int, int]:
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


def _wheels() -> str:
    """Option of pip that gets a torch for this machine's driver; empty where the usual one will do."""
    driver = _driver_cuda()
    names = [name for major, minor, name in _WHEELS if driver is not None and driver >= (major, minor)]
    return f" --index-url {_INDEX}/{names[0]}" if names else ""


def others() -> Iterator[Finding]:
    """Libraries beside torch: transformers, which every run needs, and those that some runs need."""
    for name, otherwise, fix in (
        ("transformers", State.BAD, "pip install --force-reinstall transformers"),
        ("deepspeed", State.NOTE, "pip install deepspeed; without it adapters are trained by torch alone"),
        ("ray", State.NOTE, "pip install 'confbench[ray]'; only --engine ray needs it"),
    ):
        version = provenance.version_of(name)
        if version is None:
            yield Finding(name, otherwise, "not installed", fix)
            continue
        try:
            value_of(f"import json, {name}; print(json.dumps(True))")
            yield Finding(name, State.OK, version)
        except FailedError as error:
            yield Finding(name, otherwise, f"{version}, which can't be imported: {error}", fix)


# --- asking -----------------------------------------------------------------------------------------------------------


class FailedError(Exception):
    """A program ended badly; the message is its last line, or says how it ended."""


def output_of(command: list[str], seconds: float) -> str:
    """Output of a program.

    Raises:
        FailedError: there is no such program, it ends with another exit code than 0, or takes too long.
    """
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            errors="replace", start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        raise FailedError(f"{command[0]}: {error.strerror}") from error
    with process:  # closes its pipes
        try:
            out, err = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            raise FailedError(f"no answer within {seconds:.0f} s") from None
        finally:
            with suppress(ProcessLookupError, PermissionError):  # what it started as well, which may hold its pipes
                os.killpg(process.pid, signal.SIGKILL)
    if process.returncode:
        code = process.returncode
        ended = f"signal {-code}" if code < 0 else f"exit code {code}"
        last = (err.strip() or out.strip()).splitlines()[-1:]
        raise FailedError(last[0][:_LONGEST] if last else f"it ended with {ended}")
    return out


def value_of(program: str, seconds: float = IMPORT_S) -> Any:
    """The value that a Python program prints as JSON in its last line, run by this Python.

    Raises:
        FailedError: as `asked`, or it prints no JSON.
    """
    out = output_of([sys.executable, "-c", program], seconds)
    try:
        return json.loads(out.strip().splitlines()[-1])
    except (ValueError, IndexError):
        raise FailedError("it printed something unexpected") from None


# --- memory, Hub and folders ------------------------------------------------------------------------------------------


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
    home = Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")
    path = Path(os.environ.get("HF_TOKEN_PATH") or home / "token")
    has_token = bool(os.environ.get("HF_TOKEN") or os.environ.get("HUGGING_FACE_HUB_TOKEN"))
    with suppress(OSError):  # it is neither shown nor sent
        has_token = has_token or (path.is_file() and path.stat().st_size > 0)
    token = "with a token" if has_token else "without a token"
    if offline:
        what = f"not asked, for {offline} is set ({token}): what lies in its cache is used"
        yield Finding("Hub", State.NOTE, what, f"unset {offline} to get models and data")
        return
    address = os.environ.get("HF_ENDPOINT") or "https://huggingface.co"
    answers: queue.Queue[str] = queue.Queue()

    def ask() -> None:  # looking up a name has no time limit, so a thread does it
        import urllib.error
        import urllib.request

        try:
            request = urllib.request.Request(address, method="HEAD")  # noqa: S310 - the user's own endpoint
            with urllib.request.urlopen(request, timeout=_HUB_S):  # noqa: S310
                answers.put("")
        except urllib.error.HTTPError:  # it answered
            answers.put("")
        except Exception as error:  # noqa: BLE001 - proxies and certificates fail in many ways
            answers.put(str(getattr(error, "reason", None) or error) or type(error).__name__)

    threading.Thread(target=ask, daemon=True).start()
    problem = f"no answer within {_HUB_S:.0f} s"
    with suppress(queue.Empty):
        problem = answers.get(timeout=_HUB_S + 1)
    if problem:
        fix = "look at the network, HTTPS_PROXY and HF_ENDPOINT; what lies in its cache is used, and --data-dir helps"
        yield Finding("Hub", State.NOTE, f"{address} can't be reached ({problem}), {token}", fix)
    else:
        fix = "" if has_token else "hf auth login, for models and data that ask for it"
        yield Finding("Hub", State.OK, f"{address} answers, {token}", fix)


def folders(out: Path) -> Iterator[Finding]:
    """Whether each folder can be written, how much is free there, and how large the cache is.

    Args:
        out: folder of results.
    """
    from bench.store.usage import size_in_words, used

    cache = cache_folder()
    taken = f", {size_in_words(sum(use.bytes for use in used(cache)))} in it (bench cache)" if cache.is_dir() else ""
    for about, folder, more, fix in (
        ("cache", cache, taken, "set CONFBENCH_CACHE to a folder that can be written"),
        ("results", out, "", "name another folder with --out"),
        ("temporary", Path(tempfile.gettempdir()), "", "set TMPDIR to a folder that can be written"),
    ):
        there = next(place for place in (folder.absolute(), *folder.absolute().parents) if place.exists())
        if folder.exists() and not folder.is_dir():
            yield Finding(about, State.BAD, f"{folder} is no folder", fix)
            continue
        try:
            with tempfile.TemporaryFile(dir=there) as file:
                file.write(b"0" * 4096)
                file.flush()
            free = shutil.disk_usage(there).free
        except OSError as error:
            yield Finding(about, State.BAD, f"{folder} can't be written: {error.strerror or error}", fix)
            continue
        what = f"{folder}, {size_in_words(free)} free{more}"
        if free < _LITTLE_SPACE:
            yield Finding(about, State.BAD if free < _NO_SPACE else State.NOTE, what, f"free some space, or {fix}")
        else:
            yield Finding(about, State.OK, what)
