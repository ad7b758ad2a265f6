"""Fresh processes: how soon the command line answers, and the peak memory of a run."""

from __future__ import annotations

import json
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
from benchmarks.performance import sample
from benchmarks.performance.measure import HERE, ROOT, Line, told_by

MODELS, TASKS, METHODS, SUBJECTS = 8, 9, 10, 57
FEWER, ALL = 2_000, 14_042
PEAKS = "import sys; from benchmarks.performance.processes import peaks; peaks(*sys.argv[1:])"


def commands(repeats: int) -> Iterator[Line]:
    """Processor time of `bench list`, and of `bench table` on 720 results with 57 subjects each."""
    _, seconds = _processor_time(["list", "methods"], repeats)
    yield Line("bench list methods, seconds of CPU", seconds, "<= 0.5", "median of fresh processes")
    with sample.temporary() as folder:
        count = write_results(folder / "results")
        table = ["table", "--results", str(folder / "results"), "--format", "md"]
        first, seconds = _processor_time(table, max(3, repeats // 2), CONFBENCH_CACHE=str(folder / "cache"))
    yield Line("bench table, seconds of CPU", seconds, "<= 3", f"{count} results in {SUBJECTS} subjects")
    yield Line("the same, the very first time", first, note="intervals and tests are computed, and kept")


def _processor_time(arguments: list[str], repeats: int, **environment: str) -> tuple[float, float]:
    """Of the first process, which also compiles and fills caches, and the median of others, children included."""
    command = [sys.executable, "-c", "from bench.cli.app import main; main()", *arguments]
    times = []
    for _ in range(repeats + 1):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, check=True, capture_output=True, cwd=ROOT, env={**os.environ, **HERE, **environment})
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
    return times[0], statistics.median(times[1:])


def write_results(folder: Path) -> int:
    rng = np.random.default_rng(0)
    n = SUBJECTS * 20
    subjects = [f"subject_{i % SUBJECTS}" for i in range(n)]
    protocol = PRESETS["fixed"]
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
        names = [f"q{i}" for i in range(n)]
        records = QuestionRecords(names, subjects, correct, confidence, ["a"] * n, np.ones(n, dtype=np.bool_))
        for method in range(METHODS):
            files.write(replace(row, method=f"method-{method}"), records, folder)
    return MODELS * TASKS * METHODS


def memory(_repeats: int) -> Iterator[Line]:
    """CCPS and P(True) on all of MMLU, and on 2,000 questions of it, each in a process of its own."""
    few, whole = (_above_model(limit) for limit in (FEWER, ALL))
    note = f"ccps and ptrue on {ALL:,} MMLU questions; with {FEWER:,}: {few:.0f} MB"
    yield Line("peak memory above the loaded model, MB", whole, "<= 600", note)
    name = f"its growth from {FEWER:,} to {ALL:,} questions"
    yield Line(name, whole / few - 1, "<= 0.05", f"{few:.0f} MB to {whole:.0f} MB")


def _above_model(limit: int) -> float:
    with sample.temporary() as folder:
        told = told_by(["python", "-c", PEAKS, folder, sample.data_folder(), limit], HERE)
    return float(told["peak"] - told["loaded"])


def peaks(folder: str, data: str, limit: str) -> None:
    from bench.model.memory import peak_memory_mb
    from bench.run.config import RunConfig
    from bench.run.pipeline import run

    assert sample.tiny().uses_packs
    loaded = peak_memory_mb("cpu")
    report = run(
        RunConfig(
            methods=("ccps", "ptrue"), model="tiny", tasks=("mmlu-choice",), train_on="atlas-choice",
            data_dir=Path(data), device="cpu", out=Path(folder, "results"), cache=Path(folder, "cache"),
            overrides=("ccps.contrastive_steps=20", "ccps.classifier_steps=20"),
            limit=None if int(limit) == ALL else int(limit),
        )
    )  # fmt: skip
    assert not report.any_failed, report.rows
    print(json.dumps({"loaded": loaded, "peak": peak_memory_mb("cpu")}))
