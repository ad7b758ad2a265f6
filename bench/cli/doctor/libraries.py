"""Libraries that compute, and the accelerator that they find.

Programs are asked with a time limit; a library is imported in a process of its own, where it may crash.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from bench.cli.doctor.finding import Finding, State
from bench.results.provenance import version_of

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


def torch() -> Iterator[Finding]:
    """The torch build, the accelerator and bfloat16."""
    try:
        found = python(_TORCH)
    except FailedError as error:
        yield Finding(
            "torch", State.BAD, f"can't be imported: {error}", f"pip install --force-reinstall torch{_wheels()}"
        )
        return
    state = State.OK if found["computes"] else State.BAD
    what = f"{found['version']}" + ("" if found["computes"] else ", which computes a product of matrices wrongly")
    yield Finding("torch", state, what, "" if found["computes"] else "pip install --force-reinstall torch")
    yield from _accelerator(found)


def _accelerator(found: dict[str, Any]) -> Iterator[Finding]:
    if found["cards"]:
        told = ", ".join(f"{name} ({memory / _GB:.0f} GB)" for name, memory in found["cards"])
        yield Finding("accelerator", State.OK, told)
        word = "supported" if found["bf16"] else "not supported"
        fix = "" if found["bf16"] else "run with --dtype float16"
        yield Finding("bfloat16", State.OK if found["bf16"] else State.NOTE, word, fix)
    elif found["mps"]:
        yield Finding("accelerator", State.OK, "Apple GPU (mps)")
    elif _DRIVER.exists() or _cards():
        yield _unused(found)
    else:
        fix = "none is needed for small models; a large one takes days without"
        yield Finding("accelerator", State.NOTE, "none was found: the CPU reads the models, in float32", fix)


def _unused(found: dict[str, Any]) -> Finding:
    """An NVIDIA card that torch doesn't use, and why."""
    cards, driver = ", ".join(_cards()) or "an NVIDIA card", _driver_cuda()
    reinstall = f"pip install --force-reinstall torch{_wheels()}"
    if found["cuda"] is None:
        what = f"{cards}: not used, for this torch {found['version']} is built for the CPU alone"
        return Finding("accelerator", State.NOTE, what, reinstall)
    if driver is not None and driver < _numbers(found["cuda"]):
        what = (
            f"{cards}: not used, for torch is built for CUDA {found['cuda']} and the driver knows CUDA"
            f" {driver[0]}.{driver[1]} at most"
        )
        return Finding("accelerator", State.NOTE, what, f"update the driver, or {reinstall}")
    fix = "look at nvidia-smi, CUDA_VISIBLE_DEVICES and the rights on /dev/nvidia*"
    return Finding("accelerator", State.NOTE, f"{cards}: there, but torch {found['version']} doesn't find it", fix)


def _cards() -> list[str]:
    """Names of NVIDIA cards, as their driver tells them."""
    if shutil.which("nvidia-smi") is None:
        return []
    try:
        return asked(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], 10.0).strip().splitlines()
    except FailedError:
        return []


def _driver_cuda() -> tuple[int, int] | None:
    """Newest CUDA that the driver knows."""
    try:
        words = asked(["nvidia-smi"], 10.0).partition("CUDA Version:")[2].split()
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
    yield _imported("transformers", State.BAD, "pip install --force-reinstall transformers")
    yield _imported("deepspeed", State.NOTE, "pip install deepspeed; without it adapters are trained by torch alone")
    yield _imported("ray", State.NOTE, "pip install 'confbench[ray]'; only --engine ray needs it")


def _imported(name: str, otherwise: State, fix: str) -> Finding:
    version = version_of(name)
    if version is None:
        return Finding(name, otherwise, "not installed", fix)
    try:
        python(f"import json, {name}; print(json.dumps(True))")
    except FailedError as error:
        return Finding(name, otherwise, f"{version}, which can't be imported: {error}", fix)
    return Finding(name, State.OK, version)


# --- asking -----------------------------------------------------------------------------------------------------------


class FailedError(Exception):
    """A program ended badly; the message is its last line, or says how it ended."""


def asked(command: list[str], seconds: float) -> str:
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


def python(program: str, seconds: float = IMPORT_S) -> Any:
    """The value that a Python program prints as JSON in its last line, run by this Python.

    Raises:
        FailedError: as `asked`, or it prints no JSON.
    """
    out = asked([sys.executable, "-c", program], seconds)
    try:
        return json.loads(out.strip().splitlines()[-1])
    except (ValueError, IndexError):
        raise FailedError("it printed something unexpected") from None
