"""`bench audit` as a whole: exit codes, what it prints and writes, and how much it takes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.kit.command import bench

ROOT = Path(__file__).parents[2]


def scores(folder: Path, n: int = 400, columns: int = 2) -> Path:
    rng = np.random.default_rng(0)
    p = rng.beta(4, 2, n)
    table = pd.DataFrame({"id": range(n), "subject": rng.choice(["a", "b", "c"], n), "correct": rng.random(n) < p})
    for k in range(columns):
        table[f"confidence_{k}"] = np.clip(p + rng.normal(0, 0.1, n) + 0.15 * k, 0, 1).round(4)
    table.to_csv(folder / "scores.csv", index=False)
    return folder / "scores.csv"


def test_audit_exits_with_1_above_a_limit(tmp_path: Path) -> None:
    file, name = scores(tmp_path), "confidence_1"
    done = bench("audit", file, "--fail-above", f"{name}=0.02,confidence_0=0.5")
    assert (done.returncode, done.stderr) == (1, "")
    lines = done.stdout.splitlines()
    assert [line.partition(":")[0] for line in lines[-2:]] == ["failed", "passed"]
    assert lines[0] == "all answers on scores"
    assert lines[1].startswith("Overconfident: confidence_1 by ")
    assert bench("audit", file, "--fail-above", f"{name}=0.5").returncode == 0
    few = bench("audit", scores(tmp_path, 50), "--fail-above", f"{name}=0.5")
    assert (few.returncode, few.stdout.splitlines()[-1][:12]) == (1, "not tested: ")


def test_audit_prints_json_and_writes_its_files(tmp_path: Path) -> None:
    done = bench("audit", scores(tmp_path), "--json", "--by", "subject", "--risk", "0.3", "--out", tmp_path / "out")
    assert done.returncode == 0
    data = json.loads(done.stdout)
    assert len(data["guards"]) == 1
    assert {record["value"] for record in data["by"]} == {"a", "b", "c"}
    assert (tmp_path / "out/audit.html").is_file()
    assert "note: wrote" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["none.csv"], "Expected a file with confidences at none.csv"),
        (["scores.csv", "--out", "scores.csv"], "can't be written"),
    ],
)
def test_audit_says_a_sentence_and_exits_with_2(
    arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores(tmp_path)
    monkeypatch.chdir(tmp_path)
    done = bench("audit", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_audit_of_100_000_rows_takes_seconds(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench.cli", "audit", str(scores(tmp_path, 100_000, 5))]
    # a small process in between: the peak of a child is never below the memory of the process that started it
    measured = (
        "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True);"
        " used = resource.getrusage(resource.RUSAGE_CHILDREN); print(used.ru_utime + used.ru_stime, used.ru_maxrss)"
    )
    done = subprocess.run(
        [sys.executable, "-c", measured, *command], check=True, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert "n = 100,000 answers in 3 subjects" in done.stdout
    seconds, peak = map(float, done.stdout.splitlines()[-1].split())
    assert seconds < 10  # of a processor, as others may use the machine
    assert peak < 1_000_000
