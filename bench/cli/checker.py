"""The process in which `bench check FILE` checks, so that a rule that hangs or exits is named; and its parent."""

from __future__ import annotations

import os
from pathlib import Path

from bench.api import UserError
from bench.api.errors import interrupts_told_apart
from bench.data.sources import open_folder
from bench.run.isolation.log import RunLog
from bench.run.isolation.pipe import begin
from bench.run.isolation.process import Child
from bench.testing import CheckResult, checks_of, without_repeats

_ENDED = "ended"


def check_file(path: Path, data_dir: Path | None, seconds: float, log: RunLog) -> list[CheckResult]:
    """Check the plugins of a file in a process of their own.

    Args:
        path: the file.
        data_dir: Parquet files of a task's data sets, instead of the Hub.
        seconds: the longest that a rule may take; the rules after one that takes longer are not checked.
        log: to which everything goes that the plugins print.

    Raises:
        UserError: the file can't be used.
    """
    child = Child("bench.cli.checker", [str(path), str(data_dir or "")], log)
    results: list[CheckResult] = []
    name = why = ""
    try:
        while not why:
            with child.limited(seconds):
                kind, value = child.pipe.receive()
            if kind == "error":
                raise UserError(value)
            if kind == _ENDED:
                return without_repeats(results)
            if kind == "begun":
                name = value
            else:
                results.append(CheckResult(*value))
    except TimeoutError:
        why = f"it took longer than {seconds:g} s"
    except (EOFError, OSError):
        why = f"its process ended ({child.own_ending()})"
    finally:
        child.end()
    if not name:
        raise UserError(f"{path} can't be imported: {why}")
    rest = "; the rules after it were not checked"
    return without_repeats([*results, CheckResult(name, ok=False, message=why + rest)])


def main() -> None:
    """Check, and tell the parent of each rule when it begins and when it is done."""
    pipe, (path, data_dir) = begin()
    try:
        with interrupts_told_apart():
            source = open_folder(Path(data_dir) if data_dir else None)
            for name, outcome in checks_of(path, source):
                pipe.send(("begun", name))
                pipe.send(("done", tuple(outcome())))
        pipe.send((_ENDED, None))
    except UserError as error:
        pipe.send(("error", str(error)))
    finally:
        os._exit(0)
