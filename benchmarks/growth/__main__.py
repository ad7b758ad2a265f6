"""`make growth`: processor time and peak memory of each stage of a run, at 1,000 to 100,000 questions.

Each number of questions is a run from nothing in a process of its own: short sums with four options, asked without
exemplars, a tenth as many to learn on; P(True), which learns nothing, and P(IK), which does. `growth.json` and
`growth.svg` are written here. Some ten minutes on one core; Linux only, for it alone lets a peak be taken anew.
"""

from __future__ import annotations

import argparse
import io
import json
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.performance.measure import HERE, told_by
from benchmarks.performance.sample import temporary

NUMBERS = Path(__file__).with_name("growth.json")
FIGURE = NUMBERS.with_suffix(".svg")
COUNTS = (1_000, 10_000, 100_000)
LEARNED = 10
"""Times as many questions are asked as are learned on."""
METHODS = ("ptrue", "pik")
OVERRIDES = ("pik.steps=200",)
STAGES = ("start", "prompts", "plan", "read", "grade", "fit", "predict", "score")
"""In the order of a run: `start` is imports, the model and the file of questions; `plan` looks into the empty cache."""
_AFTER = {"prompts": "plan", "read": "grade", "fit": "fit", "predict": "score"}
"""Stage -> what happens between it and the next one."""
_PROCESS = Path("/proc/self")
_LEAST_SECONDS = 0.01
"""What took less is not drawn."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth", description=__doc__)
    parser.add_argument("--print", action="store_true", help="print the committed numbers, measure nothing")
    parser.add_argument("--counts", type=lambda text: [int(n) for n in text.split(",")], default=COUNTS)
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)  # in a process of its own
    options = parser.parse_args()
    if options.one is not None:
        print(json.dumps(measured(options.one)))
        return
    if not options.print:
        command = ["python", "-m", "benchmarks.growth", "--one"]
        runs = [told_by([*command, count], HERE) for count in options.counts]
        told = {"methods": METHODS, "overrides": OVERRIDES, "learned on": f"1 for {LEARNED} asked", "runs": runs}
        NUMBERS.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
        FIGURE.write_bytes(drawn(runs))
    print("\n".join(table(json.loads(NUMBERS.read_text(encoding="utf-8"))["runs"])))


def table(runs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Lines of a stage each: milliseconds a question, and peak memory."""
    from bench.report.tables.formats import markdown_table

    rows = []
    for name in (*STAGES, "all"):
        found = [(run if name == "all" else run["stages"][name], run["questions"]) for run in runs]
        rows.append([name, *(f"{1e3 * one['seconds'] / count:.3g}; {one['peak_mb']:.0f}" for one, count in found)])
    counts = (f"{run['questions']:,}" for run in runs)
    yield from markdown_table(["ms of processor time a question; peak MB", *counts], rows, "lr")


def drawn(runs: Sequence[Mapping[str, Any]]) -> bytes:
    """Time and memory of each stage by the number of questions as SVG; the same numbers give the same bytes."""
    from matplotlib.figure import Figure

    from bench.report.figures.drawing import use_style
    from bench.report.style import FAINT, INK, TEXT_WIDTH

    counts = [run["questions"] for run in runs]
    with use_style():
        figure = Figure(figsize=(TEXT_WIDTH, 2.4), layout="constrained")
        panels = zip(
            figure.subplots(1, 2), ("seconds", "peak_mb"), ("processor time, s", "peak memory, MB"), strict=True
        )
        for axes, what, title in panels:
            axes.set_xscale("log")
            axes.set_yscale("log" if what == "seconds" else "linear")
            axes.yaxis.set_major_formatter("{x:,g}")
            axes.set_xlabel("questions")
            axes.set_xticks(counts, [f"{count:,}" for count in counts])
            for name in STAGES:
                points = [(run["questions"], run["stages"][name][what]) for run in runs]
                if points := [point for point in points if point[1] > _LEAST_SECONDS]:
                    axes.plot(*zip(*points, strict=True), marker="o", markersize=2.5, label=name)
            whole = [run[what] for run in runs]
            axes.plot(counts, whole, color=INK, linewidth=1.6, marker="o", markersize=2.5, label="the whole run")
            if what == "seconds":
                linear = [whole[-1] * count / counts[-1] for count in counts]
                axes.plot(counts, linear, color=FAINT, linestyle="--", label="linear")
            else:
                axes.set_ylim(0)
            axes.set_title(title)
        figure.legend(*axes.get_legend_handles_labels(), loc="outside right center", frameon=False)
        content = io.BytesIO()
        figure.savefig(content, format="svg", metadata={"Date": None})
    return content.getvalue()


def questions(count: int) -> Iterator[dict[str, object]]:
    rng = random.Random(0)
    for i in range(count + count // LEARNED):
        a, b = rng.randrange(1_000, 10_000), rng.randrange(1_000, 10_000)  # what is asked twice is not learned on
        choices = [str(a + b + wrong) for wrong in (0, 1, -1, 10)]
        rng.shuffle(choices)
        split = "test" if i < count else "train"
        letter = "abcd"[choices.index(str(a + b))]
        yield {"id": f"q{i}", "question": f"{a} + {b} = ?", "choices": choices, "answer": letter, "split": split}


def measured(count: int) -> dict[str, Any]:
    stages = Stages()
    from bench.run.config import RunConfig
    from bench.run.pipeline import run

    with temporary() as folder:
        asked, out, cache = folder / "sums.jsonl", folder / "results", folder / "cache"
        with asked.open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(question) + "\n" for question in questions(count))
        report = run(
            RunConfig(METHODS, "tiny", (), (asked,), device="cpu", overrides=OVERRIDES, out=out, cache=cache), stages
        )
        if report.any_failed:
            raise RuntimeError(*(row.reason for row in report.rows))
    stages.note()
    return {"questions": count, **stages.whole(), "stages": stages.found}


class Stages:
    """Listens to a run's progress (`bench.progress.Progress`), and takes time and peak memory of each stage."""

    seconds_after = 0.0

    def __init__(self) -> None:
        self.found = {name: {"seconds": 0.0, "peak_mb": 0.0} for name in STAGES}
        self._now, self._since = "start", 0.0

    @contextmanager
    def stage(self, name: str, total: int, unit: str = "questions") -> Iterator[Any]:
        del total, unit
        self.note()
        self._now = name.split()[0]
        yield lambda _done: None
        self.note()
        self._now = _AFTER[self._now]

    def say(self, text: str) -> None:
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
        seconds = sum(stage["seconds"] for stage in self.found.values())
        return {"seconds": round(seconds, 3), "peak_mb": max(stage["peak_mb"] for stage in self.found.values())}


def _kilobytes(name: str) -> int:
    lines = (_PROCESS / "status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


if __name__ == "__main__":
    main()
