"""The command `bench`, each time in a fork of this process, which has loaded the libraries; and what came of it."""

from __future__ import annotations

import functools
import importlib
import json
import os
import resource
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import torch

from bench import registry
from bench.cli import app
from tests.faults import workload

LONGEST = 120.0
"""Seconds after which a command hangs."""
MEASURED = {"timings", "peak_memory_mb", "provenance", "seconds", "digest"}
"""Fields of a result that are times, memory, tell of the machine, or are a digest of such."""
LIBRARIES = (
    "bench.run.pipeline", "bench.model.extractor", "bench.model.adapter", "bench.report.tables.build",
    "transformers.models.llama.modeling_llama", "pandas", "pyarrow.parquet", "scipy.stats", "sklearn.metrics",
    "safetensors.torch", "datasets",
)  # fmt: skip


class Outcome(StrEnum):
    """What a user had of a fault."""

    SURVIVED = "survived"
    """The right result, or one sentence that says what to do, and nothing lost."""
    WRONG = "wrong without a word"
    LOST = "lost"
    PAID = "paid twice"
    """A judge was asked again for what it had said."""
    TRACEBACK = "traceback"
    HUNG = "hung"


class FaultError(Exception):
    def __init__(self, outcome: Outcome, detail: object) -> None:
        super().__init__(detail)
        self.outcome = outcome


def require(met: object, outcome: Outcome, detail: object) -> None:
    """Raise a `FaultError` where something is not met."""
    if not met:
        raise FaultError(outcome, str(detail)[-300:])


@dataclass(frozen=True)
class Ran:
    """A command that ended, with its exit code or minus the signal."""

    code: int
    out: str
    err: str
    seconds: float

    def expect(self, *codes: int) -> Ran:
        said = f"exit {self.code}: {(self.err or self.out)[-280:]!r}"
        require("Traceback" not in self.err + self.out, Outcome.TRACEBACK, said)
        require(self.code in codes, Outcome.LOST, said)
        return self

    def refused(self, within: float = 30.0) -> Ran:
        self.expect(2)
        sentences = sum(line.startswith("bench: ") for line in self.err.splitlines())
        require(sentences == 1, Outcome.LOST, f"no sentence: {self.err[-280:]!r}")
        require(self.seconds <= within, Outcome.HUNG, f"a sentence after {self.seconds:.0f} s")
        return self


@dataclass(frozen=True)
class Running:
    pid: int
    out: Path
    err: Path
    since: float


def bench(
    *arguments: object, kill_after: float | None = None, sign: signal.Signals = signal.SIGKILL, **how: Any
) -> Ran:
    """Run a command as `started` does to its end, which may be a signal after some seconds."""
    return finished(started(*arguments, **how), kill_after, sign)


def started(
    *arguments: object,
    folder: Path,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    first: Callable[[], object] | None = None,
) -> Running:
    """Start a command.

    Args:
        arguments: as on the command line, without `bench`.
        folder: for what it prints.
        env: further environment.
        cwd: where it starts.
        first: called in the command's own process before it begins, e.g. to take rights away.
    """
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
    for name in LIBRARIES:
        importlib.import_module(name)
    registry.methods()
    registry.tasks()


def _ended() -> int:
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
    sent = False
    while True:
        pid, status = os.waitpid(running.pid, os.WNOHANG)
        seconds = time.monotonic() - running.since
        if pid:
            paths = (running.out, running.err)
            out, err = (p.read_text(encoding="utf-8", errors="replace") if p.exists() else "" for p in paths)
            return Ran(os.waitstatus_to_exitcode(status), out, err, seconds)
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


def limit(kind: int, amount: int) -> None:
    """Limit a resource, e.g. `resource.RLIMIT_FSIZE`, so that writes fail and nothing is killed."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(kind, (amount, amount))


def cells(results: Path) -> dict[str, dict[str, Any]]:
    """What the results below a folder say, without times and memory: name -> fields, and the digest of the records."""
    paths = [path for path in sorted(results.rglob("*.json")) if "questions" not in path.parts]
    return {str(path.relative_to(results)): _bare(json.loads(path.read_text(encoding="utf-8"))) for path in paths}


def _bare(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _bare(item) for key, item in value.items() if key not in MEASURED}
    return [_bare(item) for item in value] if isinstance(value, list) else value


def same(got: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    for name in wanted:
        require(name in got, Outcome.LOST, f"no {name}")
        fields = [key for key in wanted[name] if got[name].get(key) != wanted[name][key]]
        require(got[name] == wanted[name], Outcome.WRONG, f"{name}: {', '.join(fields)}")


@dataclass(frozen=True)
class Runs:
    """Runs of some methods, each with cache, results and what it prints below a folder of its own."""

    folder: Path
    methods: str = "ccps,ptrue"
    more: tuple[str, ...] = ()
    """Further words of each command."""
    sizes: tuple[int, int, int] = (40, 48, 24)
    """Questions to test, train and validate on."""

    @functools.cached_property
    def questions(self) -> Path:
        test, train, validation = self.sizes
        return workload.questions_file(self.folder, sizes={"test": test, "train": train, "validation": validation})

    @functools.cached_property
    def cells(self) -> dict[str, dict[str, Any]]:
        """What an undisturbed run found; its cache and results lie in `folder`."""
        self.run(self.folder).expect(0)
        return cells(self.folder / "out")

    def words(self, folder: Path, *more: str) -> list[str]:
        return workload.command(self.questions, folder, self.methods, *self.more, *more)

    def run(self, place: Path, *more: str, env: Mapping[str, str] | None = None, **how: Any) -> Ran:
        env = {**workload.cache(place), **(env or {})}
        return bench(*self.words(place, *more), **{"folder": place, **how}, env=env)

    def other(self, folder: Path, *words: object) -> Ran:
        return bench(*words, folder=self.folder / "said", env=workload.cache(folder))

    def same(self, folder: Path) -> None:
        same(cells(folder / "out"), self.cells)

    def copied(self, folder: Path, *names: str) -> Path:
        """The folder emptied, with copies of these folders of the undisturbed run."""
        assert self.cells
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for name in names:
            shutil.copytree(self.folder / name, folder / name)
        return folder
