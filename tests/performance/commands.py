"""How soon the command line answers: processor time of a fresh process, its children included."""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np

from bench import metrics
from bench.api.protocol import PRESETS
from bench.model.cost import StageTokens
from bench.results import files
from bench.results.question_records import QuestionRecords
from bench.results.row import LabelsSeen, ResultRow
from tests.performance.measure import Line, Options
from tests.performance.sample import ROOT, temporary

MODELS, TASKS, METHODS, SUBJECTS = 8, 9, 10, 57


def lines(options: Options) -> Iterator[Line]:
    """`bench list`, and `bench table` on 720 results with 57 subjects each."""
    _, seconds = _processor_time(["list", "methods"], options.repeats)
    yield Line("bench list methods, seconds of CPU", seconds, "<= 0.5", "median of fresh processes")
    with temporary() as folder:
        count = write_results(folder / "results")
        table = ["table", "--results", str(folder / "results"), "--format", "md"]
        first, seconds = _processor_time(table, max(3, options.repeats // 2), cache=folder / "cache")
    yield Line("bench table, seconds of CPU", seconds, "<= 3", f"{count} results in {SUBJECTS} subjects")
    yield Line("the same, the very first time", first, note="intervals and tests are computed, and kept")


def _processor_time(arguments: list[str], repeats: int, cache: Path | None = None) -> tuple[float, float]:
    """Of the first process, which also compiles and fills caches, and the median of others."""
    command = [sys.executable, "-c", "from bench.cli.app import main; main()", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **({"CONFBENCH_CACHE": str(cache)} if cache else {})}
    times = []
    for _ in range(repeats + 1):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, check=True, capture_output=True, cwd=ROOT, env=environment)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
    return times[0], statistics.median(times[1:])


def write_results(folder: Path) -> int:
    """Results as a run writes them, of random confidences; returns how many."""
    rng = np.random.default_rng(0)
    n = SUBJECTS * 20
    subjects = [f"subject_{i % SUBJECTS}" for i in range(n)]
    protocol = PRESETS["fixed"]
    count = 0
    for model, task in product(range(MODELS), range(TASKS)):
        correct = rng.random(n) < 0.6
        confidence = np.clip(rng.random(n) * 0.5 + correct * 0.4, 0, 1)
        scores = metrics.summarise(confidence, correct, subjects, protocol)
        row = ResultRow(
            method="m0", model=f"organisation/model-{model}", task=f"task-{task}", preset="fixed", seed=0,
            protocol=protocol.digest(), task_version=1, train_on="task:train", labels_seen=LabelsSeen(train=1000),
            status="ok", n=n, n_unparsed=0, n_empty=0, n_shots_dropped=0, llm_accuracy=float(correct.mean()),
            metrics=scores.metrics, n_excluded=scores.n_excluded, n_clipped=scores.n_clipped,
            per_subject=scores.per_subject, n_parameters=9542, forward_tokens_alone=1,
            timings={"fit": 1.0, "predict": 1.0}, peak_memory_mb=1000.0,
            cost={stage: StageTokens(1, 1, 1) for stage in ("answers", "query", "samples")},
        )  # fmt: skip
        records = QuestionRecords(
            [f"q{i}" for i in range(n)], subjects, correct, confidence, ["a"] * n, np.ones(n, dtype=np.bool_)
        )
        for method in range(METHODS):
            files.write(replace(row, method=f"method-{method}"), records, folder)
            count += 1
    return count
