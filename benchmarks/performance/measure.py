"""How things are timed, what a process of its own tells, and what a line of the report holds."""

from __future__ import annotations

import gc
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
HERE = {"PYTHONPATH": str(ROOT)}
"""Environment of a process that imports this checkout."""


class NotMeasured(Exception):  # noqa: N818 - it is an outcome
    """Something outside this program is missing; the message says what."""


@dataclass(frozen=True)
class Line:
    """One number, None where it could not be measured, beside its target, such as `>= 10`, and what it is of."""

    name: str
    value: float | None
    target: str = ""
    note: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the target is reached; None where there is no number or no target."""
        if self.value is None or not self.target:
            return None
        kind, limit = self.target.split()[:2]
        return self.value >= float(limit) if kind == ">=" else self.value <= float(limit)

    def __str__(self) -> str:
        value = "not measured" if self.value is None else f"{self.value:.3g}"
        mark = {True: "ok", False: "MISSED", None: ""}[self.met]
        return f"{self.name:<44} {value:>12}  {self.target:<9} {mark:<6} {self.note}".rstrip()


def report(lines: Iterable[Line], path: Path | None, **head: Any) -> None:
    """Print lines as they come, and also write them to a file."""
    records = []
    for line in lines:
        records.append({**asdict(line), "met": line.met})
        print(line, flush=True)
    if path is not None:
        told = {"torch": version("torch"), **head, "lines": records}
        path.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


def seconds_of(side: Callable[[], object], wait: Callable[[], object] = bool) -> float:
    """Wall time of one call, without the garbage of the one before, and with a device waited for."""
    gc.collect()
    wait()
    start = time.perf_counter()
    side()
    wait()
    return time.perf_counter() - start


def median(side: Callable[[], object], repeats: int, wait: Callable[[], object]) -> float:
    """Median seconds of a call on a device, after one for warming up."""
    return statistics.median([seconds_of(side, wait) for _ in range(repeats + 1)][1:])


def interleaved(sides: Sequence[Callable[[], object]], repeats: int, *, warm_up: bool = True) -> list[float]:
    """Median seconds of each side, measured A B A B ... after one call of each."""
    for side in sides if warm_up else ():
        side()
    rounds = [[seconds_of(side) for side in sides] for _ in range(repeats)]
    return [statistics.median(times) for times in zip(*rounds, strict=True)]


def told_by(command: Sequence[object], env: Mapping[str, str] = {}, seconds: float = 3600.0) -> dict[str, Any]:
    """The JSON of the last line that a process of its own prints; the first word is `python` for this one.

    Raises:
        NotMeasured: it ended with an error.
    """
    words = [sys.executable if word == "python" else str(word) for word in command]
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | {"HF_HUB_OFFLINE": "1", **env}
    done = subprocess.run(
        words, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=seconds, check=False
    )
    if done.returncode:
        name = Path(words[1]).name
        raise NotMeasured(f"{name} ended with: {(done.stderr.strip().splitlines() or ['nothing'])[-1]}")
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told
