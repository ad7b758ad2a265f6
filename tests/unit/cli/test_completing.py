"""Names that a shell completes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.cli.options import BY_FIELD
from bench.grading.judges import KINDS
from bench.metrics.recalibration import RECALIBRATORS
from bench.run.config import RunConfig

LINES = {
    "bench run --method ptr": ["ptrue"],
    "bench run --method ptrue,saplma-u": ["ptrue,saplma-um"],
    "bench run --model tin": ["tiny"],
    "bench run --preset re": ["refcode"],
    "bench table --tasks atlas-choice,atlas-": ["atlas-choice,atlas-oe"],
    "bench show protoc": ["protocol"],
    "bench cac": ["cache"],
}
PROGRAM = """
import contextlib, os, sys
lines, sys.argv = sys.argv[1:], ["bench"]
from bench.cli.__main__ import main
for line in lines:
    os.environ.update(COMP_WORDS=line, COMP_CWORD=str(len(line.split(" ")) - 1))
    with contextlib.suppress(SystemExit):
        main()
    print(end="\\0")
"""


def test_names_are_completed() -> None:
    root = str(Path(__file__).parents[3])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *LINES], capture_output=True, text=True, check=True, timeout=60,
        env={**os.environ, "PYTHONPATH": root, "_BENCH_COMPLETE": "complete_bash"},
    )  # fmt: skip
    *found, end = done.stdout.split("\0")
    assert dict(zip(LINES, map(str.split, found), strict=True)) == LINES
    assert not end


@pytest.mark.parametrize(
    ("field", "names"), [("recalibrate", RECALIBRATORS), ("judge", KINDS), ("engine", ("local", "ray"))]
)
def test_names_of_a_field_are_all_completed(field: str, names: tuple[str, ...]) -> None:
    assert BY_FIELD[field]("") == list(names)
    assert BY_FIELD.keys() - {"compare", "models"} <= set(RunConfig.__dataclass_fields__)
