"""The benchmarks' own parts: what a line says, and that those for a GPU run, and say so where there is none."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.performance import gpu, measure, other_tools
from tests.performance.definitions import features_by_definition

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("value", "target", "met"),
    [(12.0, ">= 12", True), (11.9, ">= 12", False), (1.2, "<= 1.25", True), (1.3, "<= 1.25", False), (3.0, "", None)],
)
def test_a_line_says_whether_its_target_is_met(value: float, target: str, *, met: bool | None) -> None:
    line = measure.Line("name", value, target)
    assert line.met is met
    assert ("MISSED" in str(line)) is (met is False)
    assert json.loads(json.dumps(line.record()))["met"] is met


def test_what_is_not_measured_meets_nothing() -> None:
    line = measure.Line("name", None, ">= 12", "no data")
    assert line.met is None
    assert "not measured" in str(line)
    assert "no data" in str(line)


def test_sides_alternate_after_one_warm_up_each() -> None:
    calls: list[str] = []
    times = measure.interleaved([lambda: calls.append("a"), lambda: calls.append("b")], 3)
    assert "".join(calls) == "abababab"
    assert len(times) == 2


def test_medians_are_of_each_side(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = iter([1.0, 10.0, 2.0, 30.0, 9.0, 20.0])
    monkeypatch.setattr(measure, "seconds_of", lambda side: next(seconds))
    assert measure.interleaved([dict, list], 3) == [2.0, 20.0]


def test_without_a_gpu_the_gpu_benchmark_says_so_and_ends_well(tmp_path: Path) -> None:
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [sys.executable, "-m", "tests.performance.gpu", "--json", str(tmp_path / "gpu.json")],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "no CUDA device" in done.stdout
    assert not (tmp_path / "gpu.json").exists()


def test_the_gpu_benchmark_runs_through_on_a_small_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    small = {
        "DEVICE": "cpu", "WIDTH": 64, "INNER": 96, "LAYERS": 2, "HEADS": 4, "KEY_HEADS": 2, "VOCABULARY": 300,
        "SQUARE": 64, "BUDGET": 64, "LITCAB_TOKENS": 8,
    }  # fmt: skip
    for name, value in small.items():
        monkeypatch.setattr(gpu, name, value)
    monkeypatch.setattr(gpu, "_prompts", lambda: ([torch.arange(n, dtype=torch.int32).numpy() for n in (40, 50)], ""))
    lines = {line.name: line.value for line in gpu._lines()}
    assert len(lines) == 5
    assert all(value is not None and math.isfinite(value) and value > 0 for value in lines.values())
    assert lines["prompt tokens ÷ tokens read"] == pytest.approx(90 / 50)


def test_definitions_and_quick_features_hold_the_same_numbers() -> None:
    """The slow side of the ratio must compute what the quick side computes, in whatever order."""
    from bench.api import OutputHead
    from methods.ccps.features import perturbation_features

    generator = torch.Generator().manual_seed(0)
    head = OutputHead(torch.randn(200, 16, generator=generator) * 0.4)
    hidden, ids = torch.randn(5, 16, generator=generator), torch.arange(5)
    slow, quick = features_by_definition(hidden, ids, head), perturbation_features(hidden, ids, head)
    assert slow.shape == (5, 75)
    torch.testing.assert_close(slow.sort(dim=1)[0], quick.sort(dim=1)[0], rtol=1e-3, atol=1e-3)


def test_an_environment_that_cannot_be_made_is_a_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(other_tools.platformdirs, "user_cache_dir", lambda _name: str(tmp_path))
    failed = subprocess.CompletedProcess([], 1, "", "ERROR: no matching distribution")
    monkeypatch.setattr(other_tools.subprocess, "run", lambda *_args, **_kwargs: failed)
    with pytest.raises(measure.NotMeasured, match=r"lm-eval.* can't be installed: ERROR: no matching distribution"):
        other_tools.environment(other_tools.LM_EVAL)
