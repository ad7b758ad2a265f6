"""`python -m tests.faults [PART ...]`: does the faults of these parts, or of all; prints the README's table.

A part takes at most eight minutes; started again, it goes on with the cases that are left. The exit code is 1 where a
fault was not survived, and 2 where a part is not finished.
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from types import ModuleType

from tests.faults import parts
from tests.faults.ledger import ROOT, Ledger, as_markdown, not_survived, tried

SECONDS = 8 * 60.0
"""The longest that a part takes."""


def main() -> None:
    """Do what the arguments say."""
    names = [module.name for module in pkgutil.iter_modules(parts.__path__)]
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(names)}")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)  # the part's own process
    parser.add_argument("--table", action="store_true", help="only print what is known")
    options = parser.parse_args()
    if unknown := sorted(set(options.parts) - set(names)):
        parser.error(f"no part {unknown[0]!r}: expected of {', '.join(names)}")
    chosen = options.parts or names
    if options.inside:
        sys.exit(0 if _done(chosen[0]) else 2)
    unfinished = [] if options.table else [name for name in chosen if not _started(name)]
    counts = {_module(name).TITLE: Counter(Ledger(name).known().values()) for name in names}
    _say(as_markdown({title: found for title, found in counts.items() if found}))
    bad = [line for name in names for line in not_survived(Ledger(name))]
    tried_in_all = sum(found.total() for found in counts.values())
    _say("\n".join([*bad, f"{tried_in_all:,} faults, {tried_in_all - len(bad):,} survived"]))
    if unfinished:
        _say(f"not finished: {', '.join(unfinished)}; the same command goes on")
        sys.exit(2)
    sys.exit(1 if bad else 0)


def _started(part: str) -> bool:
    """A part in a process of its own, for it forks; returns whether it is finished."""
    start = time.monotonic()
    code = subprocess.run([sys.executable, "-m", "tests.faults", "--inside", part], cwd=ROOT, check=False).returncode
    _say(f"{part}: {time.monotonic() - start:.0f} s, {sum(Counter(Ledger(part).known().values()).values())} faults")
    return code == 0


def _done(part: str) -> bool:
    folder = Path(tempfile.mkdtemp(prefix=f"faults-{part}-"))
    try:
        return tried(Ledger(part), _module(part).cases(folder), SECONDS, _say)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _module(part: str) -> ModuleType:
    return importlib.import_module(f"{parts.__name__}.{part}")


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
