"""`python -m tests.fuzz [TARGET ...] [--runs N]`: fuzzes these parsers, or all; says how many executions and crashes.

The exit code is 1 where something broke. With atheris (`pip install -e '.[fuzz]'`) coverage guides the inputs; without
it they are plain mutations.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.fuzz.engine import ROOT
from tests.fuzz.targets import TARGETS

_LONGEST = 1200
"""Seconds of one target."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="all, unless named; --list names them")
    parser.add_argument("--runs", type=int, default=10_000, help="executions of each (default: %(default)s)")
    parser.add_argument("--list", action="store_true", help="only name the targets")
    options = parser.parse_args()
    if unknown := sorted(set(options.targets) - set(TARGETS)):
        parser.error(f"no target {unknown[0]!r}: expected of {', '.join(TARGETS)}")
    if options.list:
        print("\n".join(TARGETS))
        return 0
    found = {}
    for name in options.targets or TARGETS:
        found[name] = told = fuzzed(name, options.runs)
        print(f"{name}: {told['executions']:,} executions, {told['refused']:,} refused, {len(told['crashes'])} crashes")
        for kind, crash in told["crashes"].items():
            last = crash["told"].strip().splitlines()[-1][:300]
            print(f"FAILED {name}: {kind}\n  {crash['input'][:400]}\n  {last}", flush=True)
    executions = sum(told["executions"] for told in found.values())
    crashes = sum(len(told["crashes"]) for told in found.values())
    guided = all(told["guided"] for told in found.values())
    how = "guided by coverage" if guided else "plain mutations, for atheris is not installed"
    print(f"{executions:,} executions over {len(found)} parsers, {crashes} crashes ({how})")
    return int(crashes > 0)


def fuzzed(name: str, runs: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        report, log = Path(folder, "report.json"), Path(folder, "log.txt")
        command = [sys.executable, "-m", "tests.fuzz.engine", name, str(runs), str(report)]
        with log.open("wb") as said:
            try:
                subprocess.run(command, cwd=ROOT, check=False, stdout=said, stderr=said, timeout=_LONGEST)
            except subprocess.TimeoutExpired:
                said.write(b"\nno end")
        if report.is_file():
            return dict(json.loads(report.read_text(encoding="utf-8")))
        ended = {"the process ended": {"input": "", "told": log.read_text(encoding="utf-8", errors="replace") or "-"}}
        return {"executions": 0, "refused": 0, "crashes": ended, "guided": True}


if __name__ == "__main__":
    sys.exit(main())
