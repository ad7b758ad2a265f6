"""`python -m tests.nightly [PART ...]`: runs these parts, or all, one after the other, and writes `docs/nightly.md`.

What a part prints goes to `build/nightly/PART.log`, what became of it to `tests/nightly/outcomes/PART.json`, which is
committed: the page keeps what other machines ran. Started again, parts that are green for the code as it is are left
out. The exit code is 1 where a part is red, and 2 where one is not finished.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock, Timeout

from tests.nightly import ledger, page
from tests.nightly.ledger import Outcome, State
from tests.nightly.log import Log
from tests.nightly.parts import PARTS, Part

ROOT = Path(__file__).parents[2]
UNFINISHED = 2
"""Exit code of a command that goes on when it is given again."""
_PATIENCE = 10.0
"""Seconds that an interrupted command has to clean up."""


@dataclass(frozen=True)
class Nightly:
    """The parts of a checkout, and what is kept of them."""

    root: Path
    parts: Sequence[Part] = PARTS

    def kept(self, name: str) -> Path:
        return self.root / "build" / "nightly" / name

    def outcome(self, part: Part) -> Outcome | None:
        return ledger.read(self.root / ledger.OUTCOMES / f"{part.name}.json")

    def state(self, part: Part) -> State:
        """Whether a part is green or red; unfinished where that was other code."""
        known = self.outcome(part)
        same = known is not None and known.code == ledger.digest(self.root, part.reads)
        return known.state if known is not None and same else State.UNFINISHED

    def run(self, part: Part, *, again: bool = False) -> bool:
        """Run a part unless it is green already; returns false where another process runs it."""
        try:
            with FileLock(self.kept(f"{part.name}.lock"), timeout=0):
                if again or self.state(part) is not State.GREEN:
                    self._run(part, again=again)
        except Timeout:
            return False
        return True

    def write_page(self) -> None:
        with FileLock(self.kept("page.lock")):
            known = {part.name: outcome for part in self.parts if (outcome := self.outcome(part))}
            (self.root / ledger.PAGE).write_text(page.written(self.parts, known), encoding="utf-8")

    def _run(self, part: Part, *, again: bool) -> None:
        known, code = self.outcome(part), ledger.digest(self.root, part.reads)
        kept = self.root / ledger.OUTCOMES / f"{part.name}.json"
        minutes = 0.0
        if again and part.keeps is not None:
            path = self.root / part.keeps
            path.unlink() if path.is_file() else shutil.rmtree(path, ignore_errors=True)
        elif part.keeps is not None and known is not None and known.code == code:
            minutes = known.minutes  # the command goes on
        begun = Outcome(
            State.UNFINISHED, "not finished", part.command, code, ledger.commit(self.root, part.reads),
            ledger.machine(), datetime.now(UTC).isoformat(timespec="seconds"), minutes, (os.getloadavg()[0],) * 2,
        )  # fmt: skip
        if part.need is not None and not part.need.there():
            missing = f"not run: {part.need.name} is missing, install it with {part.need.install}"
            ledger.write(kept, replace(begun, said=missing))
            return
        ledger.write(kept, begun)
        start, ended = time.monotonic(), replace(begun, said="not finished: interrupted")
        try:
            ended = self._judged(part, begun, self._exit_code(part))
        finally:
            minutes += (time.monotonic() - start) / 60
            ledger.write(kept, replace(ended, minutes=minutes, load=(begun.load[0], os.getloadavg()[0])))

    def _exit_code(self, part: Part) -> int:
        """Give the command until it is finished, at most as often as it may take."""
        words = [sys.executable if word == "python" else word for word in shlex.split(part.command)]
        code = UNFINISHED
        with self.kept(f"{part.name}.log").open("wb") as log:
            for _ in range(part.rounds):
                process = subprocess.Popen(
                    words, cwd=self.root, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
                )
                try:
                    code = process.wait()
                except BaseException:
                    _end(process)
                    raise
                if code != UNFINISHED:
                    break
        return code

    def _judged(self, part: Part, begun: Outcome, code: int) -> Outcome:
        text = self.kept(f"{part.name}.log").read_text(encoding="utf-8", errors="replace")
        log = Log(text, self.root)
        state, said = State.GREEN, log.said
        if code == UNFINISHED and part.rounds > 1:
            state, said = State.UNFINISHED, f"not finished: {said.removeprefix('not finished: ')}"
        elif code != 0:
            state, said = State.RED, said if log.counts else f"exit code {code}: {said}"
        elif log.nothing_passed:
            state, said = State.UNFINISHED, f"not run: {said}"
        if ledger.digest(self.root, part.reads) != begun.code:
            state, said = State.UNFINISHED, f"not finished: the code changed meanwhile ({said})"
        failures = log.failures if state is State.RED else []
        return replace(begun, state=state, said=said, exit_code=code, failures=failures, skips=log.skips)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Interrupt a command's whole group, then kill what is left of it."""
    try:
        os.killpg(process.pid, signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_PATIENCE)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def main(nightly: Nightly, words: Sequence[str] | None = None) -> int:
    names = [part.name for part in nightly.parts]
    parser = argparse.ArgumentParser(prog="python -m tests.nightly", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(names)}")
    parser.add_argument("--again", action="store_true", help="run these parts from nothing, green or not")
    parser.add_argument("--page", action="store_true", help="only write the page")
    options = parser.parse_args(words)
    if unknown := sorted(set(options.parts) - set(names)):
        parser.error(f"no part {unknown[0]!r}: expected of {', '.join(names)}")
    chosen = [part for part in nightly.parts if part.name in (options.parts or names)]
    if options.page and not any(map(nightly.outcome, nightly.parts)):
        parser.error("--page: no part was run yet; run one first")
    for number in (signal.SIGTERM, signal.SIGHUP):  # as Ctrl-C, but what nohup has ignored stays so
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, signal.default_int_handler)
    try:
        for part in chosen if not options.page else ():
            print(f"{part.name}: {part.command}", flush=True)
            ran, known = nightly.run(part, again=options.again), nightly.outcome(part)
            nightly.write_page()
            print(f"  {known.state}: {known.said}" if ran and known else "  another process runs it", flush=True)
    except KeyboardInterrupt:
        print("  interrupted; the same command goes on")
    nightly.write_page()
    states = {nightly.state(part) for part in chosen}
    return 1 if State.RED in states else 2 if State.UNFINISHED in states else 0


if __name__ == "__main__":
    sys.exit(main(Nightly(ROOT)))
