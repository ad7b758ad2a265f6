"""`python -m tests.mutants [FILE ...] [--draw SEED --count N]`: changes single lines, and says which no test notices.

FILE holds changes that are kept (default: all in tests/mutants). `--draw` makes new ones and keeps them as
`tests/mutants/draw-SEED.json`. For each change the tests that run its line are run in a copy of the checkout, until
one fails. Outcomes are kept in `build/mutants`, so the same command goes on with what is left. The exit code is 1
where a change survives that is not named as equivalent.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import cache_from_source
from pathlib import Path
from queue import SimpleQueue

from bench.report.tables.formats import markdown_table
from tests.mutants.changes import PACKAGES, ROOT, Change, drawn, keep, kept
from tests.mutants.covering import BUILD, Covering, digest, measured

HERE = Path(__file__).parent
SECONDS = 90.0
"""Of tests that are run for one change, as they take undisturbed."""
HUNG = 90
"""Seconds of one test after which it counts as failed; undisturbed none takes a tenth of it."""
MISSED = {"survived", "undecided"}


@dataclass(frozen=True)
class Outcome:
    result: str
    """caught, survived, undecided, or equivalent."""
    by: str
    """The test that failed first; of a survivor how many passed."""
    seconds: float


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE")
    parser.add_argument("--draw", type=int, metavar="SEED", help="draw new changes and keep them")
    parser.add_argument("--count", type=int, default=60, help="changes to draw (default: %(default)s)")
    parser.add_argument("--again", action="store_true", help="also try survivors again that are known")
    options = parser.parse_args()
    if options.draw is not None:
        options.files = [HERE / f"draw-{options.draw}.json"]
        if not options.files[0].is_file():
            keep(options.files[0], drawn(options.draw, options.count))
    changes = []
    for path in options.files or sorted(HERE.glob("*.json")):
        changes += (found := kept(path))
        keep(path, found)  # what replaces a change whose line is gone is kept from now on
    outcomes = _tried(changes, measured(), again=options.again)
    print(table(changes, outcomes))
    results = Counter(outcome.result for outcome in outcomes.values())
    for name in (name for name, outcome in outcomes.items() if outcome.result in MISSED):
        print(f"FAILED {name}")
    print(f"{len(changes)} changes: " + ", ".join(f"{n} {result}" for result, n in sorted(results.items())))
    sys.exit(1 if results.keys() & MISSED else 0)


def table(changes: Sequence[Change], outcomes: dict[str, Outcome]) -> str:
    order = {"survived": 0, "undecided": 1, "equivalent": 2, "caught": 3}
    rows = []
    for change in sorted(changes, key=lambda each: (order[outcomes[each.name].result], each.name)):
        found = outcomes[change.name]
        what = f"`{change.old.strip()}` → `{change.new.strip()}`".replace("|", "\\|").replace("\n", " ⏎ ")
        name = f"{change.name} (instead of {change.replaces})" if change.replaces else change.name
        by = (change.equivalent or found.by).replace("|", "\\|")
        rows.append([name, f"{change.file}:{change.line}", what, found.result, by, f"{found.seconds:.0f}"])
    return "\n".join(markdown_table(["change", "line", "what it is now", "outcome", "by", "s"], rows, "lllllr"))


def _tried(changes: Sequence[Change], covering: Covering, *, again: bool) -> dict[str, Outcome]:
    """Name -> outcome, two changes at a time, each in its own copy of the checkout."""
    ledger = BUILD / "outcomes" / f"{digest(*PACKAGES, 'tests')}.jsonl"
    ledger.parent.mkdir(parents=True, exist_ok=True)
    lines = ledger.read_text(encoding="utf-8").splitlines() if ledger.is_file() else []
    known = {name: Outcome(*values) for name, *values in map(json.loads, lines)}
    left = [each for each in changes if each.name not in known or (again and known[each.name].result in MISSED)]
    copies: SimpleQueue[Path] = SimpleQueue()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(2) as pool:
        for i in range(2):
            copies.put(_copied(Path(folder, str(i))))

        def attempt(change: Change) -> None:
            copy = copies.get()
            try:
                known[change.name] = found = _attempted(change, covering.tests(change, SECONDS), copy)
            finally:
                copies.put(copy)
            with ledger.open("a", encoding="utf-8") as file:
                file.write(json.dumps([change.name, found.result, found.by, found.seconds]) + "\n")
            print(f"{change.name}: {found.result} ({found.seconds:.0f} s): {found.by}", flush=True)

        list(pool.map(attempt, left))
    return {change.name: known[change.name] for change in changes}


def _copied(folder: Path) -> Path:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


def _attempted(change: Change, tests: Sequence[str], copy: Path) -> Outcome:
    """Run tests in a copy that has the change; afterwards the copy is as before."""
    if change.equivalent:
        return Outcome("equivalent", "", 0.0)
    if not tests:
        return Outcome("survived", "no test runs it", 0.0)
    path, arguments = copy / change.file, copy / "tests-to-run"
    before = path.read_text(encoding="utf-8")
    path.write_text(change.applied(before), encoding="utf-8")
    arguments.write_text("\n".join(tests), encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(copy), "OMP_NUM_THREADS": "1", "DURATIONS_FILE": os.devnull}
    command = [
        sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "--tb=no", "-rfE", "-p", "no:randomly",
        "-p", "no:cacheprovider", "-o", f"faulthandler_timeout={HUNG}", "-o", "faulthandler_exit_on_timeout=true",
        f"@{arguments}",
    ]  # fmt: skip
    start = time.monotonic()
    # a file, not a pipe, whose end would be waited for as long as any process that a hung test started
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8") as said,
        subprocess.Popen(command, cwd=copy, stdout=said, stderr=said, env=environment, process_group=0) as run,
    ):
        try:
            run.wait(timeout=6 * SECONDS)
        except subprocess.TimeoutExpired:
            return Outcome("undecided", "the tests were too slow", time.monotonic() - start)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(run.pid, signal.SIGKILL)
            path.write_text(before, encoding="utf-8")
            Path(cache_from_source(path)).unlink(missing_ok=True)  # within one second it looks like the text before
        said.seek(0)
        out = said.read()
    seconds = time.monotonic() - start
    if run.returncode == 0:
        return Outcome("survived", f"{len(tests)} tests pass", seconds)
    failed = [line for line in out.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    other = "a test that hung" if "Timeout" in out else "tests that can't start"
    return Outcome("caught", failed[0].split(" - ")[0].split(" ", 1)[1] if failed else other, seconds)


if __name__ == "__main__":
    main()
