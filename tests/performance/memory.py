"""Peak memory of a run above the loaded model, and how it grows with the number of questions."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator

from tests.performance import sample
from tests.performance.measure import Line, Options

FEWER, ALL = 2_000, 14_042
RUN = """
import json, sys
from pathlib import Path
from bench.run.config import RunConfig
from bench.run.pipeline import run
from bench.model import models
from bench.model.language_model import Model, LoadOptions
from bench.model.memory import peak_memory_mb
folder, data, limit = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
model = Model(models.aliases()["tiny"], LoadOptions("cpu", "float32"))
model.uses_packs
loaded = peak_memory_mb("cpu")
overrides = ("ccps.contrastive_steps=20", "ccps.classifier_steps=20")
report = run(RunConfig(methods=("ccps", "ptrue"), model="tiny", tasks=("mmlu-choice",), train_on="atlas-choice",
    data_dir=data, device="cpu", out=folder / "results", cache=folder / "cache", overrides=overrides,
    limit=None if limit < 0 else limit))
assert not report.failed, report.rows
print(json.dumps({"loaded": loaded, "peak": peak_memory_mb("cpu")}))
"""


def lines(_options: Options) -> Iterator[Line]:
    """CCPS and P(True) on all of MMLU, and on 2,000 questions of it, each in a process of its own."""
    few, whole = (_above_model(limit) for limit in (FEWER, -1))
    note = f"ccps and ptrue on {ALL:,} MMLU questions; with {FEWER:,}: {few:.0f} MB"
    yield Line("peak memory above the loaded model, MB", whole, "<= 600", note)
    yield Line(
        "its growth from 2,000 to 14,042 questions", whole / few - 1, "<= 0.05", f"{few:.0f} MB to {whole:.0f} MB"
    )


def _above_model(limit: int) -> float:
    with sample.temporary() as folder:
        done = subprocess.run(
            [sys.executable, "-c", RUN, str(folder), str(sample.data_folder()), str(limit)],
            check=True,
            capture_output=True,
            text=True,
            cwd=sample.ROOT,
            env={**os.environ, "PYTHONPATH": str(sample.ROOT)},
        )
        told = json.loads(done.stdout.splitlines()[-1])
    return float(told["peak"] - told["loaded"])
