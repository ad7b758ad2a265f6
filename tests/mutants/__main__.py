"""`python -m tests.mutants [FILE ...] [--draw SEED --count N]`: changes single lines, and says which no test notices.

FILE holds changes that are kept (default: all in tests/mutants). `--draw` makes new ones and keeps them as
`tests/mutants/draw-SEED.json`. For each change the test that noticed it last is run in a copy of the checkout; if it
passes, those that run the changed line, until one fails. Outcomes are kept in `build/mutants`, so the same command goes
on with what is left. The exit code is 1 where a change survives that is not named as equivalent.
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
from dataclasses import dataclass, replace
from importlib.util import cache_from_source
from itertools import chain
from pathlib import Path
from queue import SimpleQueue

from bench.report.tables.formats import markdown_table
from tests.mutants.changes import PACKAGES, ROOT, Change, drawn, keep, kept
from tests.mutants.covering import BUILD, digest, measured

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

    @property
    def test(self) -> str:
        """The test that caught the change; empty if none did."""
        return self.by * (self.result == "caught" and "::" in self.by)


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
    files = {path: kept(path) for path in options.files or sorted(HERE.glob("*.json"))}
    for path, found in files.items():
        keep(path, found)  # what replaces a change whose line is gone is kept from now on
    changes = list(chain.from_iterable(files.values()))
    outcomes = _tried(changes, again=options.again)
    for path, found in files.items():
        keep(path, [replace(each, by=outcomes[each.name].test) for each in found])
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


def _tried(changes: Sequence[Change], *, again: bool) -> dict[str, Outcome]:
    """Name -> outcome, two changes at a time, each in its own copy of the checkout.

    Only where a change is not caught by the test that noticed it last is it measured which tests run its line.
    """
    ledger = BUILD / "outcomes" / f"{digest(*PACKAGES, 'tests')}.jsonl"
    ledger.parent.mkdir(parents=True, exist_ok=True)
    lines = ledger.read_text(encoding="utf-8").splitlines() if ledger.is_file() else []
    known = {name: Outcome(*values) for name, *values in map(json.loads, lines)}
    left = [each for each in changes if each.name not in known or (again and known[each.name].result in MISSED)]
    copies: SimpleQueue[Path] = SimpleQueue()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(2) as pool:
        for i in range(2):
            copies.put(_copied(Path(folder, str(i))))

        def attempt(change: Change, tests: Sequence[str], *, alone: bool = False) -> bool:
            copy = copies.get()
            try:
                found = _attempted(change, tests, copy)
            finally:
                copies.put(copy)
            if alone and not found.test:
                return False  # another test may notice it
            known[change.name] = found
            with ledger.open("a", encoding="utf-8") as file:
                file.write(json.dumps([change.name, found.result, found.by, found.seconds]) + "\n")
            print(f"{change.name}: {found.result} ({found.seconds:.0f} s): {found.by}", flush=True)
            return True

        done = list(pool.map(lambda each: bool(each.by) and attempt(each, [each.by], alone=True), left))
        if left := [each for each, is_done in zip(left, done, strict=True) if not is_done]:
            covering = measured()
            list(pool.map(lambda each: attempt(each, covering.tests(each, SECONDS)), left))
        tests = sorted({outcome.test for outcome in known.values()} - {""})
        unchanged = _run(tests, copies.get(), None) if tests else Outcome("survived", "", 0.0)
    if unchanged.result == "caught":
        sys.exit(f"{unchanged.by} fails without any change, so what it caught is not known; mend it and start again")
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
    path = copy / change.file
    before = path.read_text(encoding="utf-8")
    path.write_text(change.applied(before), encoding="utf-8")
    try:
        return _run(tests, copy, 6 * SECONDS)
    finally:
        path.write_text(before, encoding="utf-8")
        Path(cache_from_source(path)).unlink(missing_ok=True)  # within one second it looks like the text before


def _run(tests: Sequence[str], copy: Path, most: float | None) -> Outcome:
    """Run tests in a copy until one fails, for at most so many seconds, if given."""
    arguments = copy / "tests-to-run"
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
            run.wait(timeout=most)
        except subprocess.TimeoutExpired:
            return Outcome("undecided", "the tests were too slow", time.monotonic() - start)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(run.pid, signal.SIGKILL)
        said.seek(0)
        out = said.read()
    seconds = time.monotonic() - start
    if run.returncode == 0:
        return Outcome("survived", f"{len(tests)} tests pass", seconds)
    failed = [line.split(" ", 1)[1] for line in out.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    if not failed:
        return Outcome("caught", "a test that hung" if "Timeout" in out else "tests that can't start", seconds)
    by = max((test for test in tests if failed[0].startswith(test)), key=len, default=failed[0].split(" - ")[0])
    return Outcome("caught", by, seconds)


if __name__ == "__main__":
    main()
