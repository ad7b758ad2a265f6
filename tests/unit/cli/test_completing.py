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

ROOT = Path(__file__).parents[3]


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
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "_BENCH_COMPLETE": "complete_bash"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *LINES], capture_output=True, text=True, check=True, env=environment, timeout=60
    )
    *found, end = done.stdout.split("\0")
    assert dict(zip(LINES, map(str.split, found), strict=True)) == LINES
    assert not end


def test_completion_loads_nothing_that_only_a_command_computes_with() -> None:
    program = "import sys, bench.cli.app; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    heavy = {"pandas", "torch", "bench.stats", "bench.report.tables", "bench.report.figures"}
    assert not heavy & set(loaded.split())


@pytest.mark.parametrize(
    ("field", "names"), [("recalibrate", RECALIBRATORS), ("judge", KINDS), ("engine", ("local", "ray"))]
)
def test_names_that_are_written_down_are_all_there(field: str, names: tuple[str, ...]) -> None:
    assert BY_FIELD[field]("") == list(names)


def test_every_completer_of_a_run_is_of_one_of_its_fields() -> None:
    of_others = {"compare", "models"}
    assert BY_FIELD.keys() - of_others <= set(RunConfig.__dataclass_fields__)
