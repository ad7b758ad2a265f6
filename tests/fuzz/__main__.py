"""`python -m tests.fuzz [TARGET ...] [--runs N]`: fuzzes these parsers, or all; says how many executions and crashes.

Each runs in a process of its own, and its figures are kept in `build/fuzz.json`, so the same command goes on with what
is left; those of other code are forgotten. The exit code is 1 where something broke, 2 where a target did not finish.
With atheris (`pip install -e '.[fuzz]'`) coverage guides the inputs; without it they are plain mutations.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.faults.ledger import ROOT, code_digest
from tests.fuzz import engine

KEPT = ROOT / "build" / "fuzz.json"
RUNS = 10_000
"""Executions of each target."""
_LONGEST = 1200
"""Seconds of one target."""


def main() -> None:
    """Do what the arguments say."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="all, unless named; --list names them")
    parser.add_argument("--runs", type=int, default=RUNS, help="executions of each (default: %(default)s)")
    parser.add_argument("--list", action="store_true", help="only name the targets")
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)  # the target's own process
    options = parser.parse_args()
    if options.inside is not None:
        engine.run(options.targets[0], options.runs, options.inside)
        return
    names = _names()
    if unknown := sorted(set(options.targets) - set(names)):
        parser.error(f"no target {unknown[0]!r}: expected of {', '.join(names)}")
    if options.list:
        _say("\n".join(names))
        return
    known = _known()
    for name in options.targets or names:
        if known.get(name, {}).get("executions", 0) < options.runs:
            known[name] = _fuzzed(name, options.runs)
            KEPT.parent.mkdir(parents=True, exist_ok=True)
            KEPT.write_text(json.dumps({"code": code_digest(), "targets": known}, indent=1), encoding="utf-8")
        _say(f"{name}: {_in_words(known[name])}")
    failed = [f"FAILED {name}: {kind}" for name, found in known.items() for kind in found["crashes"]]
    _say("\n".join([*failed, summary(known)]))
    unfinished = [name for name in options.targets or names if known[name]["executions"] < options.runs]
    sys.exit(1 if failed else 2 if unfinished else 0)


def summary(known: dict[str, Any]) -> str:
    """The line of the README."""
    executions = sum(found["executions"] for found in known.values())
    crashes = sum(len(found["crashes"]) for found in known.values())
    guided = all(found["guided"] for found in known.values())
    how = "guided by coverage" if guided else "plain mutations, for atheris is not installed"
    return f"{executions:,} executions over {len(known)} parsers, {crashes} crashes ({how})"


def _names() -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", "from tests.fuzz.targets import TARGETS; print(*TARGETS)"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    )  # fmt: skip
    return done.stdout.split()


def _known() -> dict[str, Any]:
    if not KEPT.is_file():
        return {}
    kept = json.loads(KEPT.read_text(encoding="utf-8"))
    return dict(kept["targets"]) if kept["code"] == code_digest() else {}


def _fuzzed(name: str, runs: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        report, log = Path(folder, "report.json"), Path(folder, "log.txt")
        command = [sys.executable, "-m", "tests.fuzz", name, f"--runs={runs}", f"--inside={report}"]
        with log.open("wb") as said:
            try:
                subprocess.run(command, cwd=ROOT, check=False, stdout=said, stderr=said, timeout=_LONGEST)
            except subprocess.TimeoutExpired:
                said.write(b"\nno end")
        if report.is_file():
            return dict(json.loads(report.read_text(encoding="utf-8")))
        told = log.read_text(encoding="utf-8", errors="replace")[-3000:]
        return {
            "executions": 0,
            "refused": 0,
            "crashes": {"the process ended": {"input": "", "told": told}},
            "guided": True,
        }


def _in_words(found: dict[str, Any]) -> str:
    lines = [f"{found['executions']:,} executions, {found['refused']:,} refused, {len(found['crashes'])} crashes"]
    for kind, crash in found["crashes"].items():
        lines.append(f"  {kind}: {crash['input'][:400]}\n    {crash['told'].strip().splitlines()[-1][:300]}")
    return "\n".join(lines)


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
