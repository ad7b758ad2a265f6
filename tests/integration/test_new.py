"""What `bench new` writes runs as it is, and its tests pass."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from bench.cli import new
from tests.kit.place import Place


@pytest.fixture
def written(place: Place, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A folder with new methods and tasks, in which commands are run."""
    monkeypatch.chdir(place.folder)
    kinds = {"new-entropy": "untrained", "new-probe": "trained", "new-quiz": "choice", "new-open": "open"}
    for name, kind in kinds.items():
        new.write("method" if kind.endswith("trained") else "task", name, kind)
    return place


def test_new_methods_and_tasks_run(written: Place, rivers: object) -> None:
    plugins = [
        part for name in ("new_entropy.py", "new_probe.py", "new_quiz.py", rivers) for part in ("--plugin", name)
    ]
    asked = ("--method", "new-entropy,new-probe", "--task", "rivers,new-quiz", "--train-on", "rivers", "--limit", 40)
    told = json.loads(written.run(*plugins, *asked, "--train-limit", 80, "--model", "tiny", "--json").stdout)
    found = {(row["method"], row["task"]): row for row in told["rows"]}
    assert {row["status"] for row in found.values()} == {"ok"}, [row["reason"] for row in found.values()]
    assert len(found) == 4
    assert found["new-probe", "rivers"]["n_parameters"] > 1
    assert not [note for note in told["notes"] if "put back" in note], "importing scikit-learn is no offence"
    assert any("questions asked with fewer than 5 exemplars" in note for note in told["notes"])
    short = "rivers/test: questions with fewer than 5 exemplars in their subject"
    assert found["new-probe", "rivers"]["counts"][short] == 40
    assert not [what for what in found["new-probe", "new-quiz"]["counts"] if what.startswith("new-quiz")]


@pytest.mark.slow
def test_new_tests_pass(written: Place) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", "."]
    done = subprocess.run(command, cwd=written.folder, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout
