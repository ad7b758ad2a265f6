"""What `bench new` writes runs as it is, and its tests pass."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.cli import new

Command = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_new_methods_and_tasks_run(bench: Command, folder: Path, rivers: Path) -> None:
    new.write("method", "new-entropy", "untrained")
    new.write("method", "new-probe", "trained")
    new.write("task", "new-quiz", "choice")
    done = bench(
        "run", "--plugin", "new_entropy.py", "--plugin", "new_probe.py", "--plugin", "new_quiz.py", "--plugin", rivers,
        "--method", "new-entropy,new-probe", "--task", "rivers,new-quiz", "--train-on", "rivers", "--limit", 40,
        "--scale-training", "--model", "tiny", "--json", env={"CONFBENCH_CACHE": str(folder / "cache")},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    found = {(row["method"], row["task"]): row for row in told["rows"]}
    assert {row["status"] for row in found.values()} == {"ok"}, [row["reason"] for row in found.values()]
    assert len(found) == 4
    assert found["new-probe", "rivers"]["n_parameters"] > 1
    assert not [note for note in told["notes"] if "put back" in note], "importing scikit-learn is no offence"
    assert any("questions are asked with fewer than 5 exemplars" in note for note in told["notes"])
    short = "rivers/test: questions with fewer than 5 exemplars in their subject"
    assert found["new-probe", "rivers"]["counts"][short] == 40
    assert not [what for what in found["new-probe", "new-quiz"]["counts"] if what.startswith("new-quiz")]


@pytest.mark.slow
def test_the_tests_that_come_with_them_pass(folder: Path) -> None:
    new.write("method", "new-entropy", "untrained")
    new.write("method", "new-probe", "trained")
    new.write("task", "new-quiz", "choice")
    new.write("task", "new-open", "open")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", "."]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout
