"""`python -m tests.faults [PART ...]`: does the faults of these parts, or of all; prints the table of docs/faults.md.

A part takes at most eight minutes. What became of a fault is kept in `build/faults` for the code as it is, so started
again it goes on. The exit code is 1 where a fault was not survived, and 2 where a part is not finished.
"""

from __future__ import annotations

import argparse
import importlib
import json
import pkgutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.report.tables.formats import markdown_table
from bench.store.sources import source_digest
from tests.faults import parts
from tests.faults.commands import FaultError, Outcome

ROOT = Path(__file__).parents[2]
SECONDS = 8 * 60.0
"""The longest that a part takes."""


def main() -> int:
    names = [module.name for module in pkgutil.iter_modules(parts.__path__)]
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(names)}")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)  # the part's own process
    parser.add_argument("--table", action="store_true", help="only print what is known")
    options = parser.parse_args()
    if unknown := sorted(set(options.parts) - set(names)):
        parser.error(f"no part {unknown[0]!r}: expected of {', '.join(names)}")
    if options.inside:
        return 0 if finished(options.parts[0]) else 2
    unfinished = []
    for name in () if options.table else options.parts or names:
        start = time.monotonic()
        if subprocess.run([sys.executable, "-m", "tests.faults", "--inside", name], cwd=ROOT, check=False).returncode:
            unfinished.append(name)  # each in a process of its own, for it forks
        print(f"{name}: {time.monotonic() - start:.0f} s, {len(known(name))} faults", flush=True)
    found = {name: known(name) for name in names}
    counts = {
        importlib.import_module(f"{parts.__name__}.{name}").TITLE: Counter(found[name].values()) for name in names
    }
    counts["all"] = sum(counts.values(), Counter[str]())
    cells = ([title, *(f"{n:,}" for n in [c.total(), *(c[o] for o in Outcome)])] for title, c in counts.items() if c)
    print("\n".join(markdown_table(["faults", "tried", *Outcome], cells, "lr")))
    bad = [f"FAILED {n}: {case}: {became}" for n in names for case, became in found[n].items() if became != "survived"]
    print("\n".join([*bad, f"{counts['all'].total():,} faults, {counts['all'].total() - len(bad):,} survived"]))
    if unfinished:
        print(f"not finished: {', '.join(unfinished)}; the same command goes on")
    return 2 if unfinished else int(bool(bad))


def kept(part: str) -> Path:
    digest = source_digest(ROOT / folder for folder in ("bench", "methods", "tasks"))[:16]
    return ROOT / "build" / "faults" / f"{part}-{digest}.jsonl"


def known(part: str) -> dict[str, str]:
    path = kept(part)
    return dict(map(json.loads, path.read_text(encoding="utf-8").splitlines())) if path.is_file() else {}


def finished(part: str) -> bool:
    """Do the faults that are left, for as long as a part may take; returns whether all are done."""
    before, path, start = known(part), kept(part), time.monotonic()
    path.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=f"faults-{part}-", ignore_cleanup_errors=True) as folder:
        for name, trial in importlib.import_module(f"{parts.__name__}.{part}").cases(Path(folder)):
            if name in before:
                continue
            if time.monotonic() - start > SECONDS:
                return False
            became = Outcome.SURVIVED
            try:
                trial()
            except FaultError as failure:
                became = failure.outcome
                print(f"  {part}: {name}: {became}: {failure}", flush=True)
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps([name, became]) + "\n")
    return True


if __name__ == "__main__":
    sys.exit(main())
