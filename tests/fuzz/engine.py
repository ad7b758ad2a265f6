"""One target in this process: so many executions, guided by coverage where atheris is; what broke is written down.

`python -m tests.fuzz.engine TARGET RUNS REPORT`
"""

from __future__ import annotations

import importlib
import json
import os
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.fuzz.inputs import Target

ROOT = Path(__file__).parents[2]
LONGEST = 4096
"""Bytes of an input."""
SECONDS, MEGABYTES = 1.0, 500
"""More processor time or memory for one input is a crash, too."""
_HANGS = 5.0


@dataclass
class Watch:
    """Counts executions and crashes of one target; the same crash at the same line is one."""

    call: Callable[[bytes], object]
    refusals: tuple[type[BaseException], ...]
    """Errors with which a parser may answer."""
    runs: int
    hangs: float = 0.0
    """Seconds of processor time after which one input is given up; 0: never."""
    done: int = 0
    refused: int = 0
    crashes: dict[str, dict[str, str]] = field(default_factory=dict)

    def __call__(self, data: bytes) -> None:
        self.done += 1
        before, start = _peak(), time.process_time()
        signal.setitimer(signal.ITIMER_PROF, self.hangs)
        try:
            self.call(data)
        except self.refusals:
            self.refused += 1
        except Exception as error:  # noqa: BLE001 - each is a crash
            self._note(f"{type(error).__name__} at {_place(error)}", data, traceback.format_exc())
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        seconds, megabytes = time.process_time() - start, (_peak() - before) / 1024
        if seconds > SECONDS:
            self._note("too slow", data, f"{seconds:.1f} s")
        if megabytes > MEGABYTES:
            self._note("too large", data, f"{megabytes:.0f} MB")

    def _note(self, kind: str, data: bytes, told: str) -> None:
        self.crashes.setdefault(kind, {"input": data.hex(), "told": told[-2000:]})


def _hangs(*_: object) -> None:
    raise TimeoutError(f"no end within {_HANGS} s")


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _place(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "/bench/" in frame.filename or "/tasks/" in frame.filename] or frames
    return f"{Path(own[-1].filename).name}:{own[-1].lineno}"


def run(name: str, runs: int, report: Path) -> None:
    """Fuzz one target and write what came to a file; does not return."""
    signal.signal(signal.SIGPROF, _hangs)
    try:
        atheris: Any = importlib.import_module("atheris")
    except ImportError:
        atheris = None
    with atheris.instrument_imports(include=["bench", "tasks"]) if atheris else nullcontext():
        targets = importlib.import_module("tests.fuzz.targets")
    target: Target = targets.TARGETS[name]
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108 - a folder without a disk behind it
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        watch = Watch(target.prepare(Path(folder)), targets.REFUSALS, runs, _HANGS)
        seeds = target.seeds()
        for seed in seeds:
            watch.call(seed) if target.valid else watch(seed)  # what the program itself wrote must be taken
        if atheris is None:
            _mutations(watch, seeds)
        else:
            _guided(atheris, watch, seeds, Path(folder), lambda: _tell(watch, report, guided=True))
        _tell(watch, report, guided=False)


def _tell(watch: Watch, report: Path, *, guided: bool) -> None:
    told = {"executions": watch.done, "refused": watch.refused, "crashes": watch.crashes, "guided": guided}
    report.write_text(json.dumps(told), encoding="utf-8")


def _guided(atheris: Any, watch: Watch, seeds: Sequence[bytes], folder: Path, tell: Callable[[], None]) -> None:
    corpus = folder / "corpus"
    corpus.mkdir()
    for number, seed in enumerate(seeds):
        (corpus / str(number)).write_bytes(seed)

    def one(data: bytes) -> None:
        watch(data)
        if watch.done >= watch.runs:
            tell()
            sys.stdout.flush()
            os._exit(0)  # the fuzzer's loop has no other end before its own

    flags = [f"-max_len={LONGEST}", "-seed=1", "-rss_limit_mb=0", "-timeout=120", "-verbosity=0"]
    flags.append(f"-artifact_prefix={folder}/")
    atheris.Setup([sys.argv[0], *flags, str(corpus)], one)
    atheris.Fuzz()


def _mutations(watch: Watch, seeds: Sequence[bytes]) -> None:
    """Without atheris: bytes of the seeds put elsewhere, changed, doubled and taken away, the same each time."""
    draw = random.Random(0)
    while watch.done < watch.runs:
        data = bytearray(draw.choice(seeds))
        for _ in range(draw.choice((1, 1, 2, 4, 16))):
            _mutate(data, draw, seeds)
        watch(bytes(data[:LONGEST]))


def _mutate(data: bytearray, draw: random.Random, seeds: Sequence[bytes]) -> None:
    at = draw.randrange(len(data) + 1)
    other = draw.choice(seeds)
    start = draw.randrange(len(other) + 1)
    piece = other[start : start + draw.choice((1, 2, 4, 16))]
    kind = draw.randrange(5)
    if kind == 0:
        data[at:at] = bytes(draw.choices(range(256), k=draw.choice((1, 2, 3, 6))))
    elif kind == 1:
        data[at:at] = piece
    elif kind == 2:
        del data[at : at + len(piece)]
    elif kind == 3:
        data[at : at + len(piece)] = piece
    elif at < len(data):
        data[at] = draw.randrange(256)


if __name__ == "__main__":
    run(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
