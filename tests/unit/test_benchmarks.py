"""The benchmarks: growth as committed, a slow side that computes the same, and runs on small shapes."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch

from bench.api import OutputHead
from benchmarks.cost_model import workload
from benchmarks.growth import __main__ as growth
from benchmarks.performance import gpu
from benchmarks.performance.features import features_by_definition
from methods.ccps.features import perturbation_features

RUNS: list[dict[str, Any]] = json.loads(growth.NUMBERS.read_text(encoding="utf-8"))["runs"]


def test_growth_committed_is_linear_in_questions() -> None:
    """Time no faster than the questions; memory by a few kilobytes a question."""
    assert [run["questions"] for run in RUNS] == list(growth.COUNTS)
    for fewer, more in pairwise(RUNS):
        times = more["questions"] / fewer["questions"]
        assert more["seconds"] < 1.1 * times * fewer["seconds"]
        for name in growth.STAGES:
            before, after = fewer["stages"][name]["seconds"], more["stages"][name]["seconds"]
            assert after < 1.25 * times * before + 1, name  # what takes a second in all may be noise
    fewest, *_, most = RUNS
    assert (most["peak_mb"] - fewest["peak_mb"]) * 1024 / (most["questions"] - fewest["questions"]) < 8


def test_features_by_definition_are_the_quick_ones() -> None:
    generator = torch.Generator().manual_seed(0)
    head = OutputHead(torch.randn(200, 16, generator=generator) * 0.4)
    hidden, ids = torch.randn(5, 16, generator=generator), torch.arange(5)
    slow, quick = features_by_definition(hidden, ids, head), perturbation_features(hidden, ids, head)
    assert slow.shape == (5, 75)
    torch.testing.assert_close(slow.sort(dim=1)[0], quick.sort(dim=1)[0], rtol=1e-3, atol=1e-3)


@pytest.mark.slow
def test_gpu_benchmark_runs_on_a_small_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    small = {
        "DEVICE": "cpu", "WIDTH": 64, "INNER": 96, "LAYERS": 4, "HEADS": 4, "KEY_HEADS": 2, "VOCABULARY": 1500,
        "SQUARE": 64, "BUDGET": 64, "LITCAB_TOKENS": 8,
        "_prompts": lambda: ([torch.arange(n, dtype=torch.int32).numpy() for n in (40, 50)], ""),
    }  # fmt: skip
    for name, value in small.items():
        monkeypatch.setattr(gpu, name, value)
    torch.manual_seed(0)  # with other weights a model may end every answer at once, and then nothing is decoded
    packs = workload.Packs(questions=3, tokens=36, before=12, pieces=4)
    works = {
        name: replace(
            work, prompts=[20, 24], answers=[min(n, 4) for n in work.answers], query=4,
            packs=dict.fromkeys(work.packs, packs),
        )
        for name, work in workload.workloads().items()
    }  # fmt: skip
    lines = {line.name: line.value or 0.0 for line in gpu.lines(works)}
    assert len(lines) == 5 + 3 + 7 + 4  # decoding of three open tasks, seven readings, four trainings
    assert all(math.isfinite(value) and value > 0 for value in lines.values())
    assert lines["prompt tokens ÷ tokens read"] == pytest.approx(90 / 50)
