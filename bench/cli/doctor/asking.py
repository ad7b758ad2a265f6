"""Programs that are asked with a time limit; a library is imported in a process of its own, where it may crash."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from typing import Any

IMPORT_S = 120.0
"""Seconds that a library may take to be imported; the first time, from a slow disk, it takes a minute."""
_LONGEST = 300


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
        last = (err.strip() or out.strip()).splitlines()[-1:]
        raise FailedError(last[0][:_LONGEST] if last else f"it ended with {_ending(process.returncode)}")
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


def _ending(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"
