"""`python -m tests.levels`: simulates answers whose truth is known, and writes `docs/levels.md`.

What a cell measured is kept in `build/levels`, so the same command goes on with those that are left. The exit code is 1
where a criterion of the page fails.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from bench.store.sources import source_digest
from benchmarks.performance.judging import lines
from tests.levels.measure import levels, shapes
from tests.levels.page import criteria, written
from tests.levels.populations import CELLS, POWERED, SHAPED, SHAPES
from tests.levels.power import power
from tests.nightly.ledger import commit, machine

ROOT = Path(__file__).parents[2]
PAGE = "docs/levels.md"
READS = (
    *(f"bench/stats/{name}.py" for name in ("comparison", "influence", "intervals", "settings", "strata", "summary")),
    *(f"bench/metrics/{name}.py" for name in ("validation", "calibration", "paper")),
    *(f"tests/levels/{name}.py" for name in ("measure", "populations", "power")), "benchmarks/performance/judging.py",
)  # fmt: skip
"""Code on which the numbers depend."""
FORMER = Path(__file__).with_name("former.json")


def jobs(most: int = 1100) -> dict[str, Callable[[], Any]]:
    sets = {cell: min(cell.data_sets, most) for cell in (*CELLS, *POWERED, *SHAPED)}
    return {
        "time": lambda: min(next(lines()).value or 0 for _ in range(3)),
        **{f"power: {cell.name}": partial(power, cell, sets[cell]) for cell in POWERED},
        **{f"levels: {cell.name}": partial(levels, cell, sets[cell]) for cell in CELLS},
        **{f"shapes: {c.name}: {shape}": partial(shapes, c, shape, sets[c]) for c in SHAPED for shape in SHAPES},
    }


def main(words: Sequence[str] | None = None, root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.levels", description=__doc__)
    few_help = "at most so many, to see it work; keeps and writes nothing"
    parser.add_argument("--data-sets", type=int, metavar="N", help=few_help)
    few: int | None = parser.parse_args(words).data_sets
    ledger = root / "build" / "levels" / "outcomes.jsonl"
    ledger.parent.mkdir(parents=True, exist_ok=True)
    text = ledger.read_text(encoding="utf-8") if ledger.is_file() and few is None else ""
    code = source_digest(ROOT / name for name in READS)[:16]
    known = {line["job"]: line for line in map(json.loads, text.splitlines()) if line["code"] == code}
    for name, job in jobs(few or 1100).items():
        if name not in known:
            start, of = time.monotonic(), commit(ROOT, READS)
            line = {"job": name, "outcome": job(), "code": code, "commit": of, "machine": machine()}
            known[name] = line | {"seconds": time.monotonic() - start}
            print(f"{name}: {known[name]['seconds']:.0f} s", flush=True)
            if few is None:
                with ledger.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(known[name]) + "\n")
    outcomes = {name: line["outcome"] for name, line in known.items()}
    former = json.loads(FORMER.read_text(encoding="utf-8"))
    last = [*known.values()][-1]
    minutes = sum(line["seconds"] for line in known.values()) / 60
    page = written(outcomes, former, f"Commit {last['commit']}, {last['machine']}, {minutes:.0f} minutes.")
    if few is None:
        (root / PAGE).write_text(page, encoding="utf-8")
    else:
        print(page)
    failed = [each for each in criteria(outcomes, former) if not each.met]
    for each in failed:
        print(f"FAILED {each.text}: {each.found}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
