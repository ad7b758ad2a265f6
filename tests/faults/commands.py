"""The command `bench`, each time in a fork of this process, which has loaded the libraries; and what came of it."""

from __future__ import annotations

import functools
import importlib
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from bench import registry
from bench.cli import app
from tests.faults.ledger import FaultError, Outcome

LONGEST = 120.0
"""Seconds after which a command hangs."""
MEASURED = {"timings", "peak_memory_mb", "provenance", "seconds", "digest"}
"""Fields of a result that are times, memory, tell of the machine, or are a digest of such."""


@dataclass(frozen=True)
class Ran:
    """A command that ended."""

    code: int
    """Exit code, or minus the signal."""
    out: str
    err: str
    seconds: float

    def expect(self, *codes: int) -> Ran:
        """This command, if it ended so and without a traceback.

        Raises:
            FaultError: otherwise.
        """
        said = f"exit {self.code}: {(self.err or self.out)[-300:]!r}"
        if "Traceback" in self.err + self.out:
            raise FaultError(Outcome.TRACEBACK, said)
        if self.code not in codes:
            raise FaultError(Outcome.LOST, said)
        return self

    def refused(self, within: float = 30.0) -> Ran:
        """This command, if it ended soon with one sentence for the user.

        Raises:
            FaultError: otherwise.
        """
        self.expect(2)
        if sum(line.startswith("bench: ") for line in self.err.splitlines()) != 1:
            raise FaultError(Outcome.LOST, f"no sentence: {self.err[-300:]!r}")
        if self.seconds > within:
            raise FaultError(Outcome.HUNG, f"a sentence after {self.seconds:.0f} s")
        return self


def bench(
    *arguments: object,
    folder: Path,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    first: Callable[[], None] | None = None,
    kill_after: float | None = None,
    sign: signal.Signals = signal.SIGKILL,
) -> Ran:
    """Run a command to its end.

    Args:
        arguments: as on the command line, without `bench`.
        folder: for what it prints.
        env: further environment.
        cwd: where it starts.
        first: called in the command's own process before it begins, e.g. to take rights away.
        kill_after: seconds after which it gets a signal.
        sign: that signal.

    Raises:
        FaultError: it does not end.
    """
    return finished(started(*arguments, folder=folder, env=env, cwd=cwd, first=first), kill_after, sign)


@dataclass(frozen=True)
class Running:
    """A command that runs."""

    pid: int
    out: Path
    err: Path
    since: float


def started(
    *arguments: object,
    folder: Path,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    first: Callable[[], None] | None = None,
) -> Running:
    """Start a command; see `bench`."""
    torch.set_num_threads(1)
    _load()
    folder.mkdir(parents=True, exist_ok=True)
    out, err = (folder / f"{name}-{time.monotonic_ns()}.txt" for name in ("out", "err"))
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return Running(pid, out, err, time.monotonic())
    code = 70
    try:
        os.setsid()
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job of a shell ignores it
        for path, descriptor in ((out, 1), (err, 2)):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), descriptor)
        os.environ |= {"COLUMNS": "200", "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1", **(env or {})}
        os.chdir(cwd or folder)
        sys.argv = ["bench", *map(str, arguments)]
        if first is not None:
            first()
        code = _ended()
    finally:
        os._exit(code)


@functools.cache
def _load() -> None:
    """Import here what every command would import for itself; no work is done with it, so a fork is as if fresh."""
    for name in (
        "bench.run.pipeline", "bench.model.extractor", "bench.model.adapter", "bench.report.tables.build",
        "transformers.models.llama.modeling_llama", "pandas", "pyarrow.parquet", "scipy.stats", "sklearn.metrics",
        "safetensors.torch", "datasets",
    ):  # fmt: skip
        importlib.import_module(name)
    registry.methods()
    registry.tasks()


def _ended() -> int:
    """The exit code of the command, run here."""
    import traceback

    code = 0
    try:
        app.main()
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:  # noqa: BLE001 - whatever comes is what the user would see
        traceback.print_exc()
        code = 70
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        code = code or 120
    return code


def finished(running: Running, kill_after: float | None = None, sign: signal.Signals = signal.SIGKILL) -> Ran:
    """Wait for a command; see `bench`."""
    sent = False
    while True:
        pid, status = os.waitpid(running.pid, os.WNOHANG)
        seconds = time.monotonic() - running.since
        if pid:
            texts = (
                p.read_text(encoding="utf-8", errors="replace") if p.exists() else ""
                for p in (running.out, running.err)
            )
            return Ran(os.waitstatus_to_exitcode(status), *texts, seconds)
        if kill_after is not None and not sent and seconds > kill_after:
            os.kill(running.pid, sign)
            sent = True
        if seconds > LONGEST:
            os.killpg(running.pid, signal.SIGKILL)
            os.waitpid(running.pid, 0)
            raise FaultError(Outcome.HUNG, f"no end within {LONGEST:.0f} s")
        time.sleep(0.01)


def replaced(descriptor: int, new: int) -> None:
    """Put another file under a standard stream, as if it had been there when Python began."""
    os.dup2(new, descriptor)
    stream = os.fdopen(descriptor, "w", encoding="utf-8", closefd=False)
    setattr(sys, ("stdin", "stdout", "stderr")[descriptor], stream)


def limited(kind: int, amount: int) -> Callable[[], None]:
    """For `first`: a resource limit, e.g. of `resource.RLIMIT_FSIZE`, which fails writes instead of killing."""

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(kind, (amount, amount))

    return limit


def cells(results: Path) -> dict[str, dict[str, Any]]:
    """What the results below a folder say, without times and memory: name -> fields, and the digest of the records."""
    found = {}
    for path in sorted(results.rglob("*.json")):
        if "questions" not in path.parts:
            row = json.loads(path.read_text(encoding="utf-8"))
            found[str(path.relative_to(results))] = _bare(row)
    return found


def _bare(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _bare(item) for key, item in value.items() if key not in MEASURED}
    return [_bare(item) for item in value] if isinstance(value, list) else value


def same(got: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Refuse results that are not those of an undisturbed run.

    Raises:
        FaultError: a cell is missing, or says something else.
    """
    if missing := sorted(wanted.keys() - got.keys()):
        raise FaultError(Outcome.LOST, f"no {missing[0]}")
    for name in wanted:
        if got[name] != wanted[name]:
            fields = [key for key in wanted[name] if got[name].get(key) != wanted[name][key]]
            raise FaultError(Outcome.WRONG, f"{name}: {', '.join(fields)}")
