"""`make growth`: processor time and peak memory of each stage of a run, at 1,000 to 100,000 questions.

Each number of questions is a run from nothing in a process of its own: short sums with four options, asked without
exemplars, a tenth as many to learn on; P(True), which learns nothing, and P(IK), which does. `growth.json` and
`growth.svg` are written here. Some ten minutes on one core; Linux only, for it alone lets a peak be taken anew.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.performance.growth.figure import FIGURE, drawn
from tests.performance.sample import ROOT, temporary

NUMBERS = Path(__file__).with_name("growth.json")
COUNTS = (1_000, 10_000, 100_000)
LEARNED = 10
"""Times as many questions are asked as are learned on."""
METHODS = ("ptrue", "pik")
OVERRIDES = ("pik.steps=200",)
_PROCESS = Path("/proc/self")
STAGES = ("start", "prompts", "plan", "read", "grade", "fit", "predict", "score")
"""In the order of a run: `start` is imports, the model and the file of questions; `plan` looks into the empty cache."""
_AFTER = {"prompts": "plan", "read": "grade", "fit": "fit", "predict": "score"}
"""Stage -> what happens between it and the next one."""


def main() -> None:
    """Measure, write and print."""
    options = _arguments()
    if options.one is not None:
        options.to.write_text(json.dumps(measured(options.one)), encoding="utf-8")
        return
    if not options.print:
        runs = [_alone(count) for count in options.counts]
        told = {"methods": METHODS, "overrides": OVERRIDES, "learned on": f"1 for {LEARNED} asked", "runs": runs}
        NUMBERS.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
        FIGURE.write_bytes(drawn(runs, STAGES))
    sys.stdout.write("\n".join(table(json.loads(NUMBERS.read_text(encoding="utf-8"))["runs"])) + "\n")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.performance.growth", description=__doc__)
    parser.add_argument("--print", action="store_true", help="print the committed numbers, measure nothing")
    parser.add_argument("--counts", type=lambda text: [int(n) for n in text.split(",")], default=COUNTS)
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--to", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def table(runs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Lines of a stage each: milliseconds a question, and peak memory."""
    from bench.report.tables.formats import markdown_table

    rows = []
    for name in (*STAGES, "all"):
        found = [run if name == "all" else run["stages"][name] for run in runs]
        cells = (
            f"{1e3 * one['seconds'] / run['questions']:.3g}; {one['peak_mb']:.0f}"
            for one, run in zip(found, runs, strict=True)
        )
        rows.append([name, *cells])
    counts = (f"{run['questions']:,}" for run in runs)
    yield from markdown_table(["ms of processor time a question; peak MB", *counts], rows, "lr")


def questions(count: int) -> Iterator[dict[str, object]]:
    """Sums of two numbers with four options: so many to ask, then some to learn on."""
    rng = random.Random(0)
    for i in range(count + count // LEARNED):
        a, b = rng.randrange(1_000, 10_000), rng.randrange(1_000, 10_000)  # what is asked twice is not learned on
        choices = [str(a + b + wrong) for wrong in (0, 1, -1, 10)]
        rng.shuffle(choices)
        split = "test" if i < count else "train"
        letter = "abcd"[choices.index(str(a + b))]
        yield {"id": f"q{i}", "question": f"{a} + {b} = ?", "choices": choices, "answer": letter, "split": split}


# --- in a process of its own ------------------------------------------------------------------------------------------


def _alone(count: int) -> dict[str, Any]:
    """A run in a process of its own."""
    with temporary() as folder:
        told = folder / "told.json"
        command = [sys.executable, "-m", "tests.performance.growth", "--one", str(count), "--to", str(told)]
        subprocess.run(command, check=True, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})
        found: dict[str, Any] = json.loads(told.read_text(encoding="utf-8"))
    return found


def measured(count: int) -> dict[str, Any]:
    """A run over so many questions in this process."""
    stages = Stages()
    from bench.run.config import RunConfig
    from bench.run.pipeline import run

    with temporary() as folder:
        asked = folder / "sums.jsonl"
        with asked.open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(question) + "\n" for question in questions(count))
        config = RunConfig(
            METHODS, "tiny", task_files=(asked,), device="cpu", overrides=OVERRIDES,
            out=folder / "results", cache=folder / "cache",
        )  # fmt: skip
        report = run(config, stages)
        if report.any_failed:
            raise RuntimeError(*(row.reason for row in report.rows))
    stages.note()
    return {"questions": count, **stages.whole(), "stages": stages.found}


class Stages:
    """Listens to a run's progress, and takes processor time and peak memory of each stage."""

    def __init__(self) -> None:
        self.found = {name: {"seconds": 0.0, "peak_mb": 0.0} for name in STAGES}
        self._now, self._since = "start", 0.0

    @contextmanager
    def stage(self, name: str, total: int, unit: str = "questions") -> Iterator[Any]:
        """See `bench.progress.Progress`."""
        del total, unit
        self.note()
        self._now = name.split()[0]
        yield lambda _done: None
        self.note()
        self._now = _AFTER[self._now]

    def say(self, text: str) -> None:
        """See `bench.progress.Progress`."""
        del text

    def note(self) -> None:
        """Close what went on since the last call, and take the next peak anew."""
        spent, peak = time.process_time(), _kilobytes("VmHWM") / 1024
        stage = self.found[self._now]
        stage["seconds"] = round(stage["seconds"] + spent - self._since, 3)
        stage["peak_mb"] = round(max(stage["peak_mb"], peak), 1)
        self._since = spent
        (_PROCESS / "clear_refs").write_text("5", encoding="ascii")

    def whole(self) -> dict[str, float]:
        """Of the whole run."""
        seconds = sum(stage["seconds"] for stage in self.found.values())
        return {"seconds": round(seconds, 3), "peak_mb": max(stage["peak_mb"] for stage in self.found.values())}


def _kilobytes(name: str) -> int:
    """A line of what Linux says of this process."""
    lines = (_PROCESS / "status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


if __name__ == "__main__":
    main()
