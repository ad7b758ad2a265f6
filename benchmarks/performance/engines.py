"""Two workers against one process: how busy each is, what the run's own process does meanwhile, and the wall time."""

from __future__ import annotations

import importlib.util
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from bench.engine.cluster import Cluster
from bench.engine.local_processes import Processes
from bench.prompts import shards as sharding
from bench.run.config import RunConfig
from bench.run.pipeline import run
from bench.signals.worker import TaskResult, Worker
from benchmarks.performance.measure import Line
from benchmarks.performance.sample import temporary

QUESTIONS = 40
"""Of a shard: the 1,200 test questions of `atlas-oe` make 30."""
METHODS = ("ptrue", "self-consistency")
FEWEST_SHARDS = 24
WORKERS = 2


def lines(_repeats: int, task: str = "atlas-oe", limit: int | None = None) -> Iterator[Line]:
    """Workers of this machine, then actors of Ray."""
    alone = _observed(task, limit)
    for name, asked in (("local", {"workers": WORKERS}), ("ray", {"engine": "ray", "workers": WORKERS})):
        if name == "ray" and importlib.util.find_spec("ray") is None:
            yield Line("two actors of Ray", None, ">= 0.9", "Ray is not installed: pip install -e '.[ray]'")
            continue
        found = _observed(task, limit, **asked)
        note = f"{found.count} shards of {QUESTIONS} questions, load {found.load:.1f} on {os.cpu_count()} cores"
        shares = ", ".join(f"{share:.3f}" for share in found.busy)
        yield Line(f"{name}: busy, the less busy of two", min(found.busy), ">= 0.9", f"{shares}; {note}")
        each = f"{found.driver:.2f} s of CPU in {found.seconds:.1f} s, other processes of the engine aside"
        yield Line(f"{name}: driver, share of a core", found.driver / found.seconds, "<= 0.05", each)
        times = f"{alone.seconds:.1f} s (load {alone.load:.1f}) ÷ {found.seconds:.1f} s"
        yield Line(f"{name}: one process ÷ two workers", alone.seconds / found.seconds, "", times)


@dataclass
class Observed:
    shards: dict[int, list[tuple[float, float]]] = field(default_factory=lambda: defaultdict(list))
    """Worker -> when each of its shards began and ended."""
    cpu: list[float] = field(default_factory=list)
    """Processor time of the run's own process, at the first shard that was handed out and after each that was done."""
    load: float = 0.0

    @property
    def count(self) -> int:
        return sum(map(len, self.shards.values()))

    @property
    def seconds(self) -> float:
        return self._last - min(start for own in self.shards.values() for start, _ in own)

    @property
    def _last(self) -> float:
        return max(end for own in self.shards.values() for _, end in own)

    @property
    def busy(self) -> list[float]:
        """Share of the time from each worker's first shard to the end of the very last in which it reads one."""
        return [sum(b - a for a, b in own) / (self._last - min(a for a, _ in own)) for own in self.shards.values()]

    @property
    def driver(self) -> float:
        """Seconds of processor time of the run's own process and of no other."""
        return self.cpu[-1] - self.cpu[0]


def _observed(task: str, limit: int | None, **asked: Any) -> Observed:
    found = Observed()
    with temporary() as folder, _noting(found):
        out, cache = folder / "results", folder / "cache"
        report = run(RunConfig(METHODS, "tiny", (task,), limit=limit, device="cpu", out=out, cache=cache, **asked))
    if report.any_failed or (limit is None and found.count < FEWEST_SHARDS):
        raise RuntimeError(f"{found.count} shards were read, {[row.reason for row in report.rows]}")
    found.load = os.getloadavg()[0]
    return found


@contextmanager
def _noting(found: Observed) -> Iterator[None]:
    """Within, shards are small, and what workers report is written down; one that this process reads is worker 0's."""
    watched = {(kind, name) for kind in (Processes, Cluster) for name in ("receive", "send")} | {(Worker, "do")}
    with ExitStack() as stack:
        for name in ("_SHARD", "_MOST"):
            stack.enter_context(mock.patch.object(sharding, name, QUESTIONS))
        for kind, name in watched:
            call = _watched(getattr(kind, name), found, begins=name != "receive")
            stack.enter_context(mock.patch.object(kind, name, call))
        yield


def _watched(original: Callable[..., Any], found: Observed, *, begins: bool) -> Callable[..., Any]:
    """The same function; shards that it tells of are written down, and its first call if the work begins with it."""

    def call(*arguments: Any, **settings: Any) -> Any:
        if begins:
            found.cpu = found.cpu or [time.process_time()]
        told = original(*arguments, **settings)
        for worker, event in told if isinstance(told, list) else [(0, told)]:
            if isinstance(event, TaskResult):
                found.shards[worker].append((event.started, event.ended))
                found.cpu.append(time.process_time())
        return told

    return call
