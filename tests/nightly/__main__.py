"""`python -m tests.nightly [PART ...]`: runs these parts, or all, one after the other, and writes `docs/nightly.md`.

What a part prints goes to `build/nightly/PART.log`, what became of it to `PART.json`. Started again, parts that are
green for the code as it is are left out. The exit code is 1 where a part is red, and 2 where one is not finished.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.nightly.ledger import State
from tests.nightly.running import Nightly

ROOT = Path(__file__).parents[2]


def main(nightly: Nightly, words: Sequence[str] | None = None) -> int:
    """Do what the arguments say; returns the exit code."""
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
        parser.error("--page: no part was run here, and the page would lose what it says; run one first")
    for number in (signal.SIGTERM, signal.SIGHUP):  # as Ctrl-C, but what nohup has ignored stays so
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, signal.default_int_handler)
    try:
        for part in chosen if not options.page else ():
            _say(f"{part.name}: {part.command}")
            ran, known = nightly.run(part, again=options.again), nightly.outcome(part)
            nightly.write_page()
            _say(f"  {known.state}: {known.said}" if ran and known else "  another process runs it")
    except KeyboardInterrupt:
        _say("  interrupted; the same command goes on")
    nightly.write_page()
    states = {nightly.state(part) for part in chosen}
    return 1 if State.RED in states else 2 if State.UNFINISHED in states else 0


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(Nightly(ROOT)))
