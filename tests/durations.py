"""Seconds of each test: what a run took, beside what is committed in `tests/durations.json`.

`python -m tests.durations` compares the last run of the whole suite with the committed one, and `--keep` commits it.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
COMMITTED = Path(__file__).with_suffix(".json")
LAST = ROOT / "build" / "durations.json"
LONGEST = 3.0
"""Seconds that a test without a mark takes at most. What tests share is made in the setup of the first: that is its own
line, `FILE::setup`."""
SINGLE = 1.0
"""Seconds from which on a test is committed by name; of the others the sum of their file is."""
_seconds: dict[str, float] = defaultdict(float)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add a phase of a test: setup, call, or teardown."""
    shared = report.when == "setup" and report.duration >= SINGLE
    _seconds[f"{report.nodeid.partition('::')[0]}::setup" if shared else report.nodeid] += report.duration


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Keep them, once for all workers; a run without workers, or of some files, leaves those of the last whole one."""
    config, path = session.config, Path(os.environ.get("DURATIONS_FILE", LAST))
    whole = config.args_source is config.ArgsSource.TESTPATHS and config.option.markexpr.startswith("not slow")
    whole = whole and not config.option.keyword
    wanted = path != LAST or (whole and getattr(config.option, "numprocesses", None))
    if wanted and _seconds and not hasattr(config, "workerinput"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({name: round(s, 3) for name, s in sorted(_seconds.items())}), encoding="utf-8")


def summary(seconds: dict[str, float]) -> dict[str, Any]:
    files: dict[str, float] = defaultdict(float)
    for name, spent in seconds.items():
        files[name.partition("::")[0]] += spent
    return {
        "machine": f"{os.cpu_count()} cores, Python {platform.python_version()}",
        "tests": len(seconds),
        "seconds": round(sum(seconds.values()), 1),
        "single": {name: round(spent, 1) for name, spent in sorted(seconds.items()) if spent >= SINGLE},
        "files": {name: round(spent, 1) for name, spent in sorted(files.items())},
    }


def compared(now: dict[str, Any], before: dict[str, Any]) -> list[str]:
    """Lines that say which files take longer than the speed of this run explains, and which tests take too long."""
    speed = now["seconds"] / before["seconds"]
    totals = [f"{run['tests']:,} tests, {run['seconds']:.0f} s" for run in (now, before)]
    lines = [f"{totals[0]} in all; committed are {totals[1]}"]
    for name, spent in now["files"].items():
        usual = before["files"].get(name, 0.0) * speed
        if spent > 1.5 * usual + 2:
            lines.append(f"{name}: {spent:.1f} s, expected {usual:.1f} s")
    lines += [f"{name}: {spent:.1f} s" for name, spent in now["single"].items() if spent > LONGEST * max(1.0, speed)]
    return lines


def main() -> None:
    if not LAST.is_file():
        sys.exit("Expected a whole run to compare, got none: run `make test` first")
    now = summary(json.loads(LAST.read_text(encoding="utf-8")))
    if "--keep" in sys.argv:
        COMMITTED.write_text(json.dumps(now, indent=1) + "\n", encoding="utf-8")
    before = json.loads(COMMITTED.read_text(encoding="utf-8"))
    print("\n".join(compared(now, before)))


if __name__ == "__main__":
    main()
