"""`python -m benchmarks.performance`: prints each ratio beside its target; see `--help`.

Both sides of a ratio run in one process, interleaved, after a warm-up; the number is the median. Nothing is asserted:
times depend on the machine, so a person reads them, and LOG.md keeps what came.
"""

from __future__ import annotations

import argparse
import os
import platform
import time
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import version
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")

from benchmarks.performance import engines, features, judging, other_tools, passes, processes, processor
from benchmarks.performance.measure import Line, NotMeasured, report

BENCHMARKS: dict[str, Callable[[int], Iterable[Line]]] = {
    "commands": processes.commands,
    "features": features.lines,
    "pass": features.lines_of_pass,
    "judging": judging.lines,
    "tokens": passes.tokens,
    "backbone": passes.wall_time,
    "one-by-one": passes.one_by_one,
    "memory": processes.memory,
    "threads": processor.threads,
    "logits": processor.logits,
    "engines": engines.lines,
    "lm-eval": other_tools.lm_eval,
    "lm-polygraph": other_tools.lm_polygraph,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.performance", description=__doc__)
    parser.add_argument("--only", type=_names, default=[*BENCHMARKS], help=f"some of {','.join(BENCHMARKS)}")
    parser.add_argument("--skip", type=_names, default=[], help="lm-eval and lm-polygraph install what they compare to")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the numbers there")
    options = parser.parse_args()
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, torch {version('torch')}")
    chosen = [name for name in BENCHMARKS if name in options.only and name not in options.skip]
    lines = (line for name in chosen for line in _measured(name, options.repeats))
    report(lines, options.json, cores=os.cpu_count())


def _measured(name: str, repeats: int) -> Iterator[Line]:
    start = time.perf_counter()
    try:
        yield from BENCHMARKS[name](repeats)
    except NotMeasured as reason:
        yield Line(name, None, note=str(reason))
    print(f"  {name}: {time.perf_counter() - start:.0f} s, load {os.getloadavg()[0]:.1f}")


def _names(text: str) -> list[str]:
    names = text.split(",")
    if unknown := sorted(set(names) - set(BENCHMARKS)):
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(BENCHMARKS)}")
    return names


if __name__ == "__main__":
    main()
