"""Whole runs with several seeds, --verbose, --quiet and --scale-training."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.fixtures.whole_run import WholeRun

Command = Callable[..., "subprocess.CompletedProcess[str]"]


def told(folder: Path, pattern: str) -> list[dict[str, Any]]:
    """The results of a folder that match."""
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.rglob(pattern))]


def test_several_seeds_share_what_is_read(bench: Command, whole_run: WholeRun) -> None:
    found = told(whole_run.out / "partial", "*--s*.json")
    assert sorted((row["method"], row["seed"]) for row in found) == [
        ("pik", 1), ("pik", 2), ("ptrue", 1), ("ptrue", 2),
    ]  # fmt: skip
    assert whole_run.stderr.startswith("Seeds 2, 1, one after the other")
    first, second = whole_run.stderr.split("Plan: ")[1:]
    assert "seed 2\n" in first
    assert "seed 1\n" in second
    assert "shards to compute" in first
    assert "shards to compute" not in second
    assert whole_run.loads == 1
    again = json.loads(bench(*whole_run.words_of_seeds, "--json", "--dry-run", env=whole_run.env).stdout)
    assert {line.partition(":")[0] for line in again["plan"]} == {"seed 2", "seed 1"}
    assert again["stopped"] == []


def test_a_seed_that_can_not_be_is_said_and_the_others_are_stored(
    bench: Command, small_model: Path, rivers: Path, tmp_path: Path
) -> None:
    result = bench(
        "run", "--method", "ptrue", "--model", small_model, "--task", "rivers", "--plugin", rivers, "--limit", 20,
        "--out", tmp_path / "out", "--seed", "0,-1", env={"CONFBENCH_CACHE": str(tmp_path / "cache")},
    )  # fmt: skip
    assert result.returncode == 2
    assert "bench: seed -1: --seed: expected at least 0, got -1" in result.stderr
    assert "What the other seeds gave is stored." in result.stderr
    assert [row["seed"] for row in told(tmp_path / "out", "ptrue*.json")] == [0]
    assert "ptrue" in result.stdout


def test_quiet_prints_results_alone_and_verbose_what_is_decided(
    bench: Command, small_model: Path, rivers: Path, tmp_path: Path
) -> None:
    words = ["run", "--method", "ptrue,echo", "--model", small_model, "--task", "rivers", "--plugin", rivers, "--limit",
             20, "--scale-training", "--out", tmp_path / "out"]  # fmt: skip
    env = {"CONFBENCH_CACHE": str(tmp_path / "cache")}
    verbose, quiet = bench(*words, "-v", env=env), bench("-q", *words, env=env)
    assert quiet.stderr == ""
    assert quiet.stdout == verbose.stdout
    decided = [line for line in verbose.stderr.splitlines() if line.startswith("decided: ")]
    for part in ("device cpu, dtype float32", "token budget 1,024", "rivers/test: 0 of 1 shards", "weights ",
                 "echo on rivers/train: to be fitted"):  # fmt: skip
        assert any(part in line for line in decided), part
    plan = bench("-q", *words, "--dry-run", env=env)
    assert plan.stderr == ""
    assert "then 1 fits and 2 predictions" in plan.stdout


def test_training_is_scaled_down_with_the_tests(
    bench: Command, small_model: Path, rivers: Path, tmp_path: Path
) -> None:
    words = ["run", "--method", "ptrue,echo", "--model", small_model, "--task", "rivers", "--plugin", rivers, "--out",
             tmp_path / "out", "--recalibrate", "platt", "--scale-training"]  # fmt: skip
    env = {"CONFBENCH_CACHE": str(tmp_path / "cache")}
    refused = bench(*words, env=env)
    assert refused.returncode == 2
    assert "--scale-training: expected --limit N as well" in refused.stderr
    result = bench(*words, "--limit", 155, env=env)  # half of 310
    assert result.returncode == 0, result.stderr
    assert "rivers/train: 140 of 279 questions are kept (--scale-training)" in result.stderr
    assert "rivers/validation: 31 of 31 questions are kept" in result.stderr  # never below 32
    rows = {row["method"]: row for row in told(tmp_path / "out", "*.json") if "method" in row}
    assert 0 < rows["echo"]["labels_seen"]["train"] <= 140
    assert rows["echo"]["labels_seen"]["validation"] == 0  # it looks at none
    deviating = {name for name, row in rows.items() if row["deviations"] == {"scale_training": True}}
    assert deviating == {"echo", "echo+platt", "ptrue+platt"}
    assert "scale_training" in result.stdout
