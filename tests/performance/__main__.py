"""`python -m tests.performance`: prints each ratio beside its target; see `--help`.

Both sides of a ratio run in one process, interleaved, after a warm-up; the number is the median. Nothing is asserted:
times depend on the machine, so a person reads them, and LOG.md keeps what came.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

from tests.performance import commands, engines, features, judging, memory, one_by_one, other_tools, tokens
from tests.performance.measure import Line, NotMeasured, Options

BENCHMARKS: dict[str, Callable[[Options], Iterable[Line]]] = {
    "commands": commands.lines,
    "features": features.lines,
    "pass": features.lines_of_pass,
    "judging": judging.lines,
    "tokens": tokens.lines,
    "backbone": tokens.lines_of_wall_time,
    "one-by-one": one_by_one.lines,
    "memory": memory.lines,
    "engines": engines.lines,
    "lm-eval": other_tools.lm_eval,
    "lm-polygraph": other_tools.lm_polygraph,
}


def main() -> None:
    """Run the benchmarks and print."""
    options = _arguments()
    chosen = [name for name in BENCHMARKS if name in (options.only or BENCHMARKS) and name not in options.skip]
    _say(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, torch {version('torch')}")
    records = []
    for name in chosen:
        start = time.perf_counter()
        for line in _measured(name, Options(repeats=options.repeats)):
            records.append({"benchmark": name, **line.record()})
            _say(str(line))
        _say(f"  {name}: {time.perf_counter() - start:.0f} s, load {os.getloadavg()[0]:.1f}")
    report: dict[str, Any] = {"torch": version("torch"), "cores": os.cpu_count(), "lines": records}
    if options.json is not None:
        options.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def _measured(name: str, options: Options) -> Iterable[Line]:
    try:
        yield from BENCHMARKS[name](options)
    except NotMeasured as reason:
        yield Line(name, None, note=str(reason))


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _names(text: str) -> list[str]:
    names = text.split(",")
    unknown = sorted(set(names) - set(BENCHMARKS))
    if unknown:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(BENCHMARKS)}")
    return names


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.performance", description=__doc__)
    parser.add_argument("--only", type=_names, help=f"some of {','.join(BENCHMARKS)}")
    parser.add_argument("--skip", type=_names, default=[], help="lm-eval and lm-polygraph install what they compare to")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the numbers there")
    return parser.parse_args()


if __name__ == "__main__":
    main()
