"""Runs of all methods that are killed and begun again, and runs that share a cache with others at the same time."""

from __future__ import annotations

import hashlib
import math
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from tests.faults import commands, workload
from tests.faults.commands import FaultError, Outcome, Ran, cells, require, same
from tests.integration.forked_runs import watch

TITLE = "kill -9, and runs at once"

SHORT = (
    "ccps.contrastive_steps=6", "ccps.classifier_steps=6", "litcab.steps=6", "lts.steps=6", "pik.steps=6",
    "saplma-f.steps=6", "saplma-m.steps=6", "saplma-um.steps=6", "it.steps=4", "ct.steps=4", "ct.deepspeed=false",
    "it.deepspeed=false",
)  # fmt: skip
"""Trainings of a few steps."""
CHANGES, MOMENTS = 13, 12
"""Kills right before a change to a file, and at moments of the run's time; both evenly spread."""
EIGHT = ("ccps", "it", "litcab", "lts", "pik", "ptrue", "saplma-f", "self-consistency")
ORPHANED = 3.0
"""Seconds after which a child of a killed run is an orphan."""
_EQUAL = 1e-4
"""How far numbers may lie apart where another method's run read the answers first: then they are read back, not
generated (bench/DESIGN.md, Signals and store), and a fit amplifies what the last bits differ by."""
_COSTS = {"cost", "forward_tokens_alone", "records_digest", "training"}


def cases(folder: Path) -> Iterator[tuple[str, Callable[[], object]]]:
    runs = Killed(folder)
    for number in range(CHANGES):
        yield f"killed at change {number + 1} of {CHANGES} to a file", partial(runs.killed_at_change, number)
    for number in range(MOMENTS):
        yield f"killed at moment {number + 1} of {MOMENTS}", partial(runs.killed_at_moment, number)
    yield "eight runs of one command", runs.eight_alike
    yield "eight runs of different methods", runs.eight_different
    yield "two runs with different limits", runs.two_limits


@dataclass(frozen=True)
class Killed:
    folder: Path

    @cached_property
    def questions(self) -> Path:
        return workload.questions_file(self.folder)

    def words(self, folder: Path, methods: str, *more: str) -> list[str]:
        short = [name for name in SHORT if methods == "all" or name.partition(".")[0] in methods.split(",")]
        return workload.command(self.questions, folder, methods, *(f"--set={name}" for name in short), *more)

    def ran(self, folder: Path, methods: str = "all", *more: str, **how: Any) -> Ran:
        return commands.bench(*self.words(folder, methods, *more), folder=folder, env=workload.cache(folder), **how)

    @cached_property
    def undisturbed(self) -> tuple[Mapping[str, Any], float, int]:
        """What a run of all methods says, its seconds, and how often it changes a file."""
        folder, count = self.folder / "undisturbed", self.folder / "count.txt"
        self.ran(self.folder / "warm", "ptrue").expect(0)  # what is imported late is in the cache of the disk then
        done = self.ran(folder, first=lambda: watch(folder, lambda n: _write(count, n))).expect(0)
        return said(folder), done.seconds, int(count.read_text(encoding="utf-8"))

    def killed_at_change(self, number: int) -> None:
        _, _, changes = self.undisturbed
        at, folder = 1 + round(number * (changes - 2) / (CHANGES - 1)), self.folder / f"change{number}"

        def first() -> None:
            watch(folder, lambda n: os.kill(os.getpid(), signal.SIGKILL) if n == at else None)

        self._killed(folder, self.ran(folder, first=first))

    def killed_at_moment(self, number: int) -> None:
        _, seconds, _ = self.undisturbed
        folder = self.folder / f"moment{number}"
        ran = self.ran(folder, kill_after=seconds * (number + 0.5) / MOMENTS)
        for _ in range(5):
            if not ran.code:
                shutil.rmtree(folder)  # it was faster this time
                ran = self.ran(folder, kill_after=0.7 * ran.seconds)
        self._killed(folder, ran)

    def _killed(self, folder: Path, ran: Ran) -> None:
        if ran.code != -signal.SIGKILL:
            raise RuntimeError(f"the run was not killed: exit code {ran.code}")
        left = orphans(folder)
        self.ran(folder).expect(0)
        same(said(folder), self.undisturbed[0])
        strays = [path.name for path in folder.rglob("*") if "tmp" in path.name]
        require(not strays, Outcome.LOST, f"left behind: {', '.join(strays)}")
        require(not left, Outcome.HUNG, f"{left} goes on without the run")
        shutil.rmtree(folder)

    def eight_alike(self) -> None:
        alone, root = self.folder / "one", self.folder / "alike"
        self.ran(alone, "ccps,it,ptrue").expect(0)
        self._at_once(root, [(root / str(number), "ccps,it,ptrue") for number in range(8)])
        for number in range(8):
            same(said(root / str(number)), said(alone))

    def eight_different(self) -> None:
        root = self.folder / "different"
        self._at_once(root, [(root / method, method) for method in EIGHT])
        for method in EIGHT:
            self.ran(self.folder / method, method).expect(0)
            got, wanted = said(root / method), said(self.folder / method)
            for name, cell in wanted.items():
                about(name, got.get(name), cell)

    def two_limits(self) -> None:
        root, limits = self.folder / "limits", (("--limit", "8"), ("--limit", "16"))
        for limit in limits:
            self.ran(self.folder / f"alone{limit[1]}", "ccps,ptrue", *limit).expect(0)
        self._at_once(root, [(root, "ccps,ptrue", *limit) for limit in limits])
        for limit in limits:
            same(said(root), said(self.folder / f"alone{limit[1]}"))

    def _at_once(self, root: Path, runs: Sequence[tuple[Any, ...]]) -> None:
        env = workload.cache(root)
        running = [commands.started(*self.words(*run), folder=run[0], env=env) for run in runs]
        failures = [failure for each in running if (failure := _failure(each)) is not None]
        if failures:
            raise failures[0]


def _write(path: Path, number: int) -> None:
    path.write_text(str(number), encoding="utf-8")


def _failure(running: commands.Running) -> FaultError | None:
    try:
        commands.finished(running).expect(0)
    except FaultError as error:
        return error
    return None


def said(folder: Path) -> dict[str, Any]:
    """Results below a folder's `out`, with the digests of their records as these lie there."""
    out = folder / "out"
    records = {str(p.relative_to(out)): hashlib.sha256(p.read_bytes()).hexdigest() for p in out.rglob("*.parquet")}
    found = cells(out)
    return {name: {**cell, "records": records.get(name.replace(".json", ".parquet"))} for name, cell in found.items()}


def about(where: str, got: Any, wanted: Any) -> None:
    if isinstance(wanted, dict) and isinstance(got, dict):
        for key in wanted.keys() - _COSTS - {"records"}:
            about(f"{where}: {key}", got.get(key), wanted[key])
    elif isinstance(wanted, float) and isinstance(got, float):
        require(math.isclose(got, wanted, abs_tol=_EQUAL), Outcome.WRONG, f"{where}: {got} instead of {wanted}")
    else:
        require(got == wanted, Outcome.WRONG if got is not None else Outcome.LOST, f"{where}: {str(got)[:100]}")


def orphans(folder: Path) -> str:
    """Processes that still name a folder in their command line after some seconds; empty where none does."""
    end = time.monotonic() + ORPHANED
    while (left := processes(str(folder))) and time.monotonic() < end:
        time.sleep(0.05)
    return ", ".join(" ".join(words[:4]) for words in left.values())


def processes(*texts: str) -> dict[int, list[str]]:
    """Process -> words of its command line, where each text is in one of them."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode(errors="replace").split("\0")  # empty of one that has ended
        except OSError:
            continue
        if all(any(text in word for word in words) for text in texts):
            found[int(path.parent.name)] = words
    return found
