"""The benchmarks' own parts: what a line says, and that those for a GPU run, and say so where there is none."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from bench.signals.worker import TaskResult
from tests.performance import engines, gpu, measure, other_tools
from tests.performance.cost_model import workload
from tests.performance.definitions import features_by_definition


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


def test_sides_alternate_after_one_warm_up_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gc.collect", lambda: 0)  # takes long where many tests ran before
    calls: list[str] = []
    times = measure.interleaved([lambda: calls.append("a"), lambda: calls.append("b")], 3)
    assert "".join(calls) == "abababab"
    assert len(times) == 2


def test_medians_are_of_each_side(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = iter([1.0, 10.0, 2.0, 30.0, 9.0, 20.0])
    monkeypatch.setattr(measure, "seconds_of", lambda side: next(seconds))
    assert measure.interleaved([dict, list], 3) == [2.0, 20.0]


def test_without_a_gpu_the_gpu_benchmark_says_so_and_ends_well(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(sys, "argv", ["gpu", "--json", str(tmp_path / "gpu.json")])
    gpu.main()
    assert "no CUDA device" in capsys.readouterr().out
    assert not (tmp_path / "gpu.json").exists()


def small_works() -> dict[str, workload.Workload]:
    """The committed workloads with a few short questions in a pack."""
    packs = workload.Packs(questions=3, tokens=36, before=12, pieces=4)
    return {
        name: replace(
            work, prompts=[20, 24], answers=[min(n, 4) for n in work.answers], query=4,
            packs=dict.fromkeys(work.packs, packs),
        )
        for name, work in workload.workloads().items()
    }  # fmt: skip


@pytest.mark.slow
def test_the_gpu_benchmark_runs_through_on_a_small_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    small = {
        "DEVICE": "cpu", "WIDTH": 64, "INNER": 96, "LAYERS": 4, "HEADS": 4, "KEY_HEADS": 2, "VOCABULARY": 1500,
        "SQUARE": 64, "BUDGET": 64, "LITCAB_TOKENS": 8,
    }  # fmt: skip
    for name, value in small.items():
        monkeypatch.setattr(gpu, name, value)
    torch.manual_seed(0)  # with other weights a model may end every answer at once, and then nothing is decoded
    monkeypatch.setattr(gpu, "_prompts", lambda: ([torch.arange(n, dtype=torch.int32).numpy() for n in (40, 50)], ""))
    monkeypatch.setattr(gpu, "_works", small_works)
    lines = {line.name: line.value or 0.0 for line in gpu._lines()}
    assert len(lines) == 5 + 3 + 7 + 4  # decoding of three open tasks, seven readings, four trainings
    assert lines["decoding, tokens a second, read mmlu-oe"] > 0
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


def test_how_busy_workers_are_follows_from_when_their_shards_began_and_ended() -> None:
    found = engines.Observed()
    for worker, started, ended in ((1, 10.0, 12.0), (2, 11.0, 13.0), (1, 12.0, 15.0), (2, 14.0, 17.0), (1, 15.5, 18.0)):
        found.note(worker, TaskResult(started=started, ended=ended))
    assert found.count == 5
    assert found.seconds == 8.0
    assert found.busy == [7.5 / 8, 5 / 7]  # the second began later, and idles at the end
    assert 0 <= found.driver < 1


@pytest.mark.slow
def test_the_driver_is_this_process_and_none_of_its_children() -> None:
    before = engines.own_cpu()
    subprocess.run([sys.executable, "-c", "sum(range(20_000_000))"], check=True)
    assert engines.own_cpu() - before < 0.1
    sum(range(20_000_000))
    assert engines.own_cpu() - before > 0.1


@pytest.mark.slow
def test_the_engines_are_observed_on_a_few_questions() -> None:
    lines = {line.name: line.value or 0.0 for line in engines.lines(measure.Options(), "atlas-choice", 160)}
    assert {name.partition(":")[0] for name in lines} <= {"local", "ray", "two actors of Ray"}
    assert 0 < lines["local: busy, the less busy of two"] <= 1
    assert lines["local: driver, share of a core"] > 0
    assert lines["local: one process ÷ two workers"] > 0
