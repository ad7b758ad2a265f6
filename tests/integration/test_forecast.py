"""What a plan says of times: three times too much or too little at most, and words where nothing can be said."""

from __future__ import annotations

import re
import resource
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.backbone import extract, session, speed
from bench.backbone.devices import ALONE, Together
from bench.backbone.speed import Speed
from bench.progress import Silent
from bench.run import fit_times
from bench.run.config import RunConfig
from bench.run.forecast import Forecast
from bench.run.pipeline import run
from bench.run.plan import Adapt, Fit, Read, Step
from bench.run.preparation import open_resources, prepare
from bench.run.resolve import resolve
from bench.signals import reader
from tests.fixtures import models

FACTOR = 3.0
LEAST = 0.15
"""Seconds below which a step is too short to be judged."""
FEW = ("ccps.contrastive_steps=150", "ccps.classifier_steps=150", "saplma-f.steps=500", "litcab.steps=40")
SMALL = {
    "hidden_size": 64,
    "intermediate_size": 172,
    "num_hidden_layers": 5,
    "num_attention_heads": 8,
    "vocab_size": 8192,
}
LARGE = {"hidden_size": 384, "intermediate_size": 1024, "num_hidden_layers": 10, "num_attention_heads": 6}


@pytest.fixture(autouse=True)
def processor_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time of this process and of its children: what others do meanwhile differs from moment to moment."""

    def used() -> float:
        found = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return sum(one.ru_utime + one.ru_stime for one in found)

    monkeypatch.setattr(time, "perf_counter", used)
    for module in (speed, fit_times):  # what other tests have measured is the clock's time
        monkeypatch.setattr(module, "_KNOWN", {})


class Clock(Silent):
    """Seconds of each stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str, total: int, unit: str = "questions") -> Iterator[Any]:
        start = time.perf_counter()
        yield lambda _: None
        self.seconds[name] = time.perf_counter() - start


def named(step: Step) -> str:
    """The stage of a step."""
    match step:
        case Read(where):
            return f"read {where}"
        case Fit(method):
            return f"fit {method}"
        case Adapt(_, where):
            return f"read {where} adapted"
    return ""


def compared(config: RunConfig) -> Mapping[str, tuple[float, float]]:
    """Stage -> what was expected, and what came."""
    resolved = resolve(config)
    resources = open_resources(config, resolved, Silent())
    forecast = Forecast(prepare(resolved, resources, {}, config.limit), resolved, resources.grader)
    expected = {named(step): forecast.seconds(step) for step in forecast.prepared.steps}
    clock = Clock()
    report = run(config, clock)
    assert {row.status for row in report.rows} <= {"ok", "skipped"}, [row.reason for row in report.rows]
    judged = {name: seconds for name, seconds in expected.items() if isinstance(seconds, float)}
    assert {name for name in expected if name.startswith(("read", "fit"))} <= set(judged)
    found = {name: (judged[name], seconds) for name, seconds in clock.seconds.items() if name in judged}
    print(*(f"\n{name}: expected {a:.2f} s, took {b:.2f} s" for name, (a, b) in found.items()))  # noqa: T201 - a table
    return found


def config(folder: Path, model: str, task: str, methods: tuple[str, ...], **more: Any) -> RunConfig:
    chosen = tuple(text for text in (*FEW, *more.pop("set", ())) if text.partition(".")[0] in (*methods, "protocol"))
    return RunConfig(
        methods, model, tasks=(task,), preset="paper", device="cpu", overrides=chosen,
        out=folder / "out", cache=folder / "cache", **more,
    )  # fmt: skip


def check(found: Mapping[str, tuple[float, float]], stages: int) -> None:
    judged = {name: (a, b) for name, (a, b) in found.items() if max(a, b) > LEAST}
    assert len(judged) >= stages
    wrong = {name: pair for name, pair in judged.items() if not pair[1] / FACTOR < pair[0] < pair[1] * FACTOR}
    assert not wrong


def test_reading_letters_and_a_fit_take_about_as_long_as_the_plan_says(tmp_path: Path) -> None:
    shorter = ("protocol.shots=1",)
    check(compared(config(tmp_path, "tiny", "atlas-choice", ("ptrue", "saplma-f"), limit=60, set=shorter)), 2)


@pytest.mark.slow
@pytest.mark.parametrize("task", ["atlas-choice", "atlas-oe"])
def test_everything_on_tiny_takes_about_as_long_as_the_plan_says(tmp_path: Path, task: str) -> None:
    methods = ("ccps", "saplma-f", "litcab", "it", "ptrue", "self-consistency")
    check(compared(config(tmp_path, "tiny", task, methods, limit=200, set=("it.steps=6",))), 6)


@pytest.mark.slow
@pytest.mark.parametrize(("task", "limit"), [("atlas-choice", 60), ("atlas-oe", 30)])
@pytest.mark.parametrize("shape", [SMALL, LARGE], ids=["0.7M", "20M"])
def test_random_models_take_about_as_long_as_the_plan_says(
    tmp_path: Path, shape: dict[str, int], task: str, limit: int
) -> None:
    """They never end an answer, and their samples have nothing in common."""
    model = str(models.save(tmp_path / "model", models.llama(**shape)))
    check(compared(config(tmp_path, model, task, ("litcab", "ptrue", "self-consistency"), limit=limit)), 2)


@pytest.mark.parametrize("together", [ALONE, Together(128, 1 << 30)], ids=["alone", "side by side"])
def test_passes_are_as_many_as_the_plan_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, together: Together
) -> None:
    for user in (extract, reader):
        monkeypatch.setattr(user, "followed_together", lambda *_: together)
    asked = config(tmp_path, "tiny", "atlas-oe", ("self-consistency",), limit=120)
    resolved = resolve(asked)
    resources = open_resources(asked, resolved, Silent())
    steps = prepare(resolved, resources, {}, asked.limit)
    (read,) = (step for step in steps.steps if isinstance(step, Read))
    reading = steps.readings[read.where]
    plan = resources.reader.forecast(reading, read.signals)
    expected = plan.seconds(reading.shards, reading.questions, Speed(1.0, 0.0, 0.0, 0.0, 0.0, held=1024))
    forward, passes = session.run_blocks, list[None]()

    def counted(*args: Any, **more: Any) -> Any:
        passes.append(None)
        return forward(*args, **more)

    monkeypatch.setattr(session, "run_blocks", counted)
    resources.reader.read(reading, read.signals)
    assert len(passes) / 2 < expected < len(passes) * 2  # among more questions is one with a longer answer


def test_a_large_model_is_not_loaded_for_a_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.signals.forecast._SMALL", 1000)
    monkeypatch.setattr("bench.backbone.model.Backbone._load", lambda *_: pytest.fail("weights were loaded"))
    asked = config(tmp_path, "tiny", "atlas-oe", ("self-consistency",), limit=20, dry_run=True)
    (read, _) = run(asked).plan
    assert re.search(r" s if answers take about \d tokens$", read)  # between options of two and the limit of thirty


def test_what_can_not_be_said_is_said_in_words(
    small_model: Path, rivers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = RunConfig(
        ("echo", "pik"), str(small_model), tasks=("rivers",), plugins=(rivers,), dry_run=True,
        out=tmp_path / "out", cache=tmp_path / "cache",
    )  # fmt: skip
    plan = "\n".join(run(asked).plan)
    assert "echo (not known: its own code decides it)" in plan
    assert "pik (at most " in plan
    assert "worker" not in plan
    assert " s by one worker alone" in "\n".join(run(replace(asked, workers=2)).plan)

    def refused(*_: object, **__: object) -> None:
        raise KeyError("layer_types")

    monkeypatch.setattr("bench.backbone.model.known", refused)
    plan = "\n".join(run(asked).plan)
    assert plan.count("can't be said before it is read: a few of its blocks can't be timed alone (KeyError: ") == 3
    monkeypatch.setattr("bench.backbone.model.known", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):  # a mistake of ours is no property of an architecture
        run(asked)


def test_calls_of_a_judge_are_announced(small_model: Path, tmp_path: Path) -> None:
    asked = RunConfig(
        ("ptrue",), "tiny", tasks=("atlas-oe",), dry_run=True, limit=20, judge="hf", judge_model=str(small_model),
        out=tmp_path / "out", cache=tmp_path / "cache",
    )  # fmt: skip
    assert any("about up to 20 answers of atlas-oe/test" in line for line in run(asked).plan)
