"""Holds our methods to LM-Polygraph's estimators on the same statistics: `make peers`.

LM-Polygraph 0.7.0 runs in an environment of its own, made once from PyPI. The table is printed and written beside this
file, with the values of a few questions, to which `make test` holds our methods without that environment.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers.drawn import Statistics, draw
from benchmarks.peers.table import BOUND, differences, markdown
from benchmarks.performance.measure import NotMeasured, told_by
from benchmarks.performance.other_tools import LM_POLYGRAPH, environment
from benchmarks.performance.sample import temporary

HERE = Path(__file__).parent
RECORD, TABLE = HERE / "lm_polygraph.json", HERE / "lm_polygraph.md"
MANY, FEW = (300, 0), (24, 1)
"""Questions and seed: those of the table, and those whose values are recorded."""
DIGITS = 8


def main() -> int:
    """0 where all values agree; 1 where a difference is too large; 2 where LM-Polygraph can't be run."""
    drawn = draw(*MANY)
    try:
        many, few = _polygraph(drawn), _polygraph(draw(*FEW))
    except NotMeasured as missing:
        sys.stderr.write(f"Not compared: {missing}\n")
        return 2
    largest = differences(drawn, {name: np.asarray(values) for name, values in many["values"].items()})
    record = {
        "versions": many["versions"],
        "questions": len(drawn),
        "largest": {name: float(f"{value:.0e}") for name, value in largest.items()},
        "values": {name: [float(f"{v:.{DIGITS}g}") for v in values] for name, values in few["values"].items()},
    }
    RECORD.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    TABLE.write_text(markdown(record), encoding="utf-8")
    sys.stdout.write(markdown(record))
    apart = [name for name, value in largest.items() if not value <= BOUND]  # also where it is NaN
    for name in apart:
        sys.stderr.write(f"{name}: expected a difference of at most {BOUND:g}, got {largest[name]:g}\n")
    return 1 if apart else 0


def _polygraph(drawn: Statistics) -> dict[str, Any]:
    """Values of LM-Polygraph's estimators, and versions."""
    with temporary() as folder:
        archive = folder / "statistics.npz"
        drawn.save(archive)
        return told_by([str(environment(LM_POLYGRAPH)), str(HERE / "driver.py"), str(archive)])


if __name__ == "__main__":
    sys.exit(main())
