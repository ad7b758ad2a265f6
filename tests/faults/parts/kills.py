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
from tests.faults.ledger import Case, FaultError, Outcome
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


def cases(folder: Path) -> Iterator[Case]:
    """Every moment, then the runs at once."""
    runs = Runs(folder)
    for number in range(CHANGES):
        yield Case(f"killed at change {number + 1} of {CHANGES} to a file", partial(runs.killed_at_change, number))
    for number in range(MOMENTS):
        yield Case(f"killed at moment {number + 1} of {MOMENTS}", partial(runs.killed_at_moment, number))
    yield Case("eight runs of one command", runs.eight_alike)
    yield Case("eight runs of different methods", runs.eight_different)
    yield Case("two runs with different limits", runs.two_limits)


@dataclass
class Runs:
    """Runs below a folder."""

    folder: Path

    @cached_property
    def questions(self) -> Path:
        """What is asked."""
        return workload.questions_file(self.folder)

    def arguments(self, folder: Path, methods: str, *more: str) -> list[str]:
        """A command with results below a folder."""
        short = [name for name in SHORT if methods == "all" or name.partition(".")[0] in methods.split(",")]
        return workload.command(self.questions, folder, methods, *(f"--set={name}" for name in short), *more)

    def ran(self, folder: Path, methods: str, *more: str) -> commands.Ran:
        """A command to its end, undisturbed."""
        arguments = self.arguments(folder, methods, *more)
        return commands.bench(*arguments, folder=folder, env=workload.cache(folder)).expect(0)

    @cached_property
    def undisturbed(self) -> tuple[Mapping[str, Any], float, int]:
        """What a run of all methods says, its seconds, and how often it changes a file."""
        folder, count = self.folder / "undisturbed", self.folder / "count.txt"

        def count_to(n: int) -> None:
            count.write_text(str(n), encoding="utf-8")

        def first() -> None:
            watch(folder, count_to)

        self.ran(self.folder / "warm", "ptrue")  # what is imported late is in the cache of the disk then
        done = commands.bench(
            *self.arguments(folder, "all"), folder=folder, env=workload.cache(folder), first=first
        ).expect(0)
        return said(folder), done.seconds, int(count.read_text(encoding="utf-8"))

    def killed_at_change(self, number: int) -> None:
        """Kill right before a change to a file of the parent, then run again."""
        _, _, changes = self.undisturbed
        at, folder = 1 + round(number * (changes - 2) / (CHANGES - 1)), self.folder / f"change{number}"

        def first() -> None:
            watch(folder, lambda n: os.kill(os.getpid(), signal.SIGKILL) if n == at else None)

        self._killed(folder, lambda: self._disturbed(folder, first))

    def killed_at_moment(self, number: int) -> None:
        """Kill after some part of the run's time, wherever it is: mostly while the child trains; then run again."""
        _, seconds, _ = self.undisturbed
        after, folder = seconds * (number + 0.5) / MOMENTS, self.folder / f"moment{number}"

        def killed() -> commands.Ran:
            ran = self._disturbed(folder, kill_after=after)
            for _ in range(5):
                if ran.code:
                    break
                shutil.rmtree(folder)  # it was faster this time
                ran = self._disturbed(folder, kill_after=0.7 * ran.seconds)
            return ran

        self._killed(folder, killed)

    def _disturbed(
        self, folder: Path, first: Callable[[], None] | None = None, kill_after: float | None = None
    ) -> commands.Ran:
        arguments = self.arguments(folder, "all")
        return commands.bench(*arguments, folder=folder, env=workload.cache(folder), first=first, kill_after=kill_after)

    def _killed(self, folder: Path, killed: Callable[[], commands.Ran]) -> None:
        if (code := killed().code) != -signal.SIGKILL:
            raise RuntimeError(f"the run was not killed: exit code {code}")
        left = orphans(folder)
        self.ran(folder, "all")
        commands.same(said(folder), self.undisturbed[0])
        if strays := [path.name for path in folder.rglob("*") if "tmp" in path.name]:
            raise FaultError(Outcome.LOST, f"left behind: {', '.join(strays)}")
        if left:
            raise FaultError(Outcome.HUNG, f"{left} goes on without the run")
        shutil.rmtree(folder)

    # --- at once --------------------------------------------------------------------------------------------------

    def eight_alike(self) -> None:
        """One command, eight times on one cache."""
        alone = self.folder / "one"
        self.ran(alone, "ccps,it,ptrue")
        self._at_once("alike", ["ccps,it,ptrue"] * 8)
        for number in range(8):
            commands.same(said(self.folder / "alike" / str(number)), said(alone))

    def eight_different(self) -> None:
        """Eight methods, each in a run of its own, on one cache."""
        self._at_once("different", EIGHT)
        for number, method in enumerate(EIGHT):
            self.ran(self.folder / method, method)
            got, wanted = said(self.folder / "different" / str(number)), said(self.folder / method)
            for name, cell in wanted.items():
                about(f"{name}", got.get(name), cell)

    def two_limits(self) -> None:
        """Two limits at once, into one folder of results."""
        limits = (("--limit", "8"), ("--limit", "16"))
        for limit in limits:
            self.ran(self.folder / f"alone{limit[1]}", "ccps,ptrue", *limit)
        self._at_once("limits", ["ccps,ptrue"] * 2, limits, one_folder=True)
        got = said(self.folder / "limits" / "0")
        for limit in limits:
            commands.same(got, said(self.folder / f"alone{limit[1]}"))

    def _at_once(
        self, name: str, methods: Sequence[str], more: Sequence[Sequence[str]] = ((),) * 8, *, one_folder: bool = False
    ) -> None:
        root = self.folder / name
        running = []
        for number, (chosen, options) in enumerate(zip(methods, more, strict=False)):
            folder = root / str(0 if one_folder else number)
            arguments = self.arguments(folder, chosen, *options)
            running.append(commands.started(*arguments, folder=folder, env=workload.cache(root)))
        failures = [failure for each in running if (failure := _failure(each)) is not None]
        if failures:
            raise failures[0]


def _failure(running: commands.Running) -> FaultError | None:
    try:
        commands.finished(running).expect(0)
    except FaultError as error:
        return error
    return None


def said(folder: Path) -> dict[str, Any]:
    """Results below a folder's `out`, with the digests of their records as these lie there."""
    out = folder / "out"
    records = {
        str(path.relative_to(out)): hashlib.sha256(path.read_bytes()).hexdigest() for path in out.rglob("*.parquet")
    }
    cells = commands.cells(out)
    return {name: {**cell, "records": records.get(name.replace(".json", ".parquet"))} for name, cell in cells.items()}


def about(where: str, got: Any, wanted: Any) -> None:
    """Refuse results that are further apart than rounding takes them.

    Raises:
        FaultError: they are.
    """
    if isinstance(wanted, dict) and isinstance(got, dict):
        for key in wanted.keys() - _COSTS - {"records"}:
            about(f"{where}: {key}", got.get(key), wanted[key])
    elif isinstance(wanted, float) and isinstance(got, float):
        if not math.isclose(got, wanted, abs_tol=_EQUAL):
            raise FaultError(Outcome.WRONG, f"{where}: {got} instead of {wanted}")
    elif got != wanted:
        raise FaultError(Outcome.WRONG if got is not None else Outcome.LOST, f"{where}: {str(got)[:100]}")


def orphans(folder: Path) -> str:
    """Processes that still name a folder in their command line after some seconds; empty where none does."""
    end = time.monotonic() + ORPHANED
    while (left := _processes(str(folder))) and time.monotonic() < end:
        time.sleep(0.05)
    return ", ".join(left)


def _processes(name: str) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue  # it has ended
        if any(name in word for word in words):
            found.append(" ".join(words[:4]))
    return found
