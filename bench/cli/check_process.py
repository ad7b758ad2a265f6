"""Child process that checks a plugin's file for `bench check FILE`, and the parent's side of it.

If checking a rule hangs or ends the process, the parent still reports the rule's name.
"""

from __future__ import annotations

import os
from pathlib import Path

from bench.api import UserError
from bench.data.sources import open_folder
from bench.run.isolation.log import RunLog
from bench.run.isolation.process import Child, begin, send
from bench.testing import CheckResult, checks_of, without_repeats


def check_file(path: Path, data_dir: Path | None, seconds: float, log: RunLog) -> list[CheckResult]:
    """Check the plugins of a file by the rules of `bench.api`, in a child process.

    Args:
        path: the file.
        data_dir: folder of a task's data sets as Parquet files, read instead of the Hub.
        seconds: time limit of each rule; after a timeout the remaining rules are not checked.
        log: log file for what the plugins print.

    Raises:
        UserError: the file can't be used.
    """
    child = Child("bench.cli.check_process", [str(path), str(data_dir or "")], log)
    names: list[str] | str = []
    results: list[CheckResult] = []
    try:
        with child.kill_after(seconds):
            names = child.connection.recv()
        if isinstance(names, str):
            raise UserError(names)
        while len(results) < len(names):
            with child.kill_after(seconds):
                result = child.connection.recv()
            results.append(result)
        return without_repeats(results)
    except TimeoutError:
        why = f"it took longer than {seconds:g} s"
    except (EOFError, OSError):
        why = f"its process ended ({child.describe_end()})"
    finally:
        child.end()
    if not names:
        raise UserError(f"{path} can't be imported: {why}")
    message = f"{why}; the rules after it were not checked"
    return without_repeats([*results, CheckResult(names[len(results)], ok=False, message=message)])


def main() -> None:
    """Run the child process: send the names of all rules, then the result of each, or an error about the file."""
    connection, (path, data_dir) = begin()
    try:
        checks = list(checks_of(path, open_folder(Path(data_dir) if data_dir else None)))
        send(connection, [name for name, _ in checks])
        for _, outcome in checks:
            send(connection, outcome())
    except UserError as error:
        send(connection, str(error))
    finally:
        os._exit(0)
