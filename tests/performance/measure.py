"""How things are timed and what a line of the report holds."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any


class NotMeasured(Exception):  # noqa: N818 - it is an outcome
    """Something outside this program is missing; the message says what."""


@dataclass(frozen=True)
class Line:
    """One number beside its target."""

    name: str
    value: float | None
    """None where it could not be measured."""
    target: str = ""
    """E.g. `>= 10`; empty where the number only explains another."""
    note: str = ""
    """Of what it is the ratio, and on what; or why there is no number."""

    @property
    def met(self) -> bool | None:
        """Whether the target is reached; None where there is no number or no target."""
        if self.value is None or not self.target:
            return None
        kind, limit = self.target.split()[:2]
        return self.value >= float(limit) if kind == ">=" else self.value <= float(limit)

    def __str__(self) -> str:
        """For the terminal."""
        value = "not measured" if self.value is None else f"{self.value:.3g}"
        mark = {True: "ok", False: "MISSED", None: ""}[self.met]
        return f"{self.name:<44} {value:>12}  {self.target:<9} {mark:<6} {self.note}".rstrip()

    def record(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "met": self.met}


@dataclass(frozen=True)
class Options:
    """What the runner was asked for."""

    repeats: int = 5
    """Interleaved repetitions after the warm-up; slow benchmarks take fewer."""


def seconds_of(side: Callable[[], object]) -> float:
    """Wall time of one call, without the garbage of the one before."""
    gc.collect()
    start = time.perf_counter()
    side()
    return time.perf_counter() - start


def interleaved(sides: Sequence[Callable[[], object]], repeats: int, *, warm_up: bool = True) -> list[float]:
    """Median seconds of each side, measured A B A B ... after one call of each."""
    if warm_up:
        for side in sides:
            side()
    times: list[list[float]] = [[] for _ in sides]
    for _ in range(repeats):
        for own, side in zip(times, sides, strict=True):
            own.append(seconds_of(side))
    return [statistics.median(own) for own in times]
