"""What a plan says of times: three times too much or too little at most, and words where nothing can be said."""

from __future__ import annotations

import os
import re
import resource
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from bench import registry
from bench.api import Batch, ConfidenceMethod, Context, FloatArray, Format, Needs, QueryLogits
from bench.api.early_stopping import EarlyStopping
from bench.api.protocol import Protocol
from bench.model import extractor, session, speed
from bench.model.devices import ALONE, BatchLimits
from bench.model.speed import Speed
from bench.progress import Silent
from bench.run import fit_times
from bench.run.config import RunConfig
from bench.run.forecast import Forecast
from bench.run.pipeline import run
from bench.run.plan import Adapt, Fit, Read, Step
from bench.run.preparation import PreparedRun, Resources, open_resources, prepare
from bench.run.resolve import resolve
from bench.signals import reader
from bench.store.disk_cache import Store
from tests.fixtures import models

FACTOR = 3.0
LEAST = 0.15
"""Seconds below which a step is too short to be judged."""
FEW = ("ccps.contrastive_steps=150", "ccps.classifier_steps=150", "saplma-f.steps=500", "litcab.steps=40")
SIZES = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
SMALL = {**dict(zip(SIZES, (64, 172, 5, 8), strict=True)), "vocab_size": 8192}
LARGE = dict(zip(SIZES, (384, 1024, 10, 6), strict=True))
SPEED = "bench.model.language_model.cached_speed"


class Stages(Silent):
    """Seconds of each stage, by a clock."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.seconds: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str, total: int, unit: str = "questions") -> Iterator[Any]:
        start = self.clock()
        yield lambda _: None
        self.seconds[name] = self.clock() - start


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Callable[[], float]:
    """A clock on which nothing takes time but passes, by their tokens, and the steps of a fit."""
    forward, steps, seconds = session.run_blocks, EarlyStopping.__iter__, [0.0]

    def timed_forward(*args: Any, **inputs: Any) -> Any:
        tokens, mask = inputs["input_ids"].numel(), inputs.get("attention_mask")
        seconds[0] += 0.01 + 0.002 * tokens + 1e-6 * tokens * (tokens if mask is None else mask.shape[-1])
        return forward(*args, **inputs)

    def timed_steps(stopping: EarlyStopping) -> Iterator[int]:
        for step in steps(stopping):
            seconds[0] += 0.02
            yield step

    monkeypatch.setattr(session, "run_blocks", timed_forward)
    monkeypatch.setattr(EarlyStopping, "__iter__", timed_steps)
    return put_in(monkeypatch, lambda: seconds[0])


@pytest.fixture
def processor(monkeypatch: pytest.MonkeyPatch) -> Callable[[], float]:
    """Time of this process and of its children: what others do meanwhile differs from moment to moment."""

    def clock() -> float:
        found = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return sum(one.ru_utime + one.ru_stime for one in found)

    return put_in(monkeypatch, clock)


def put_in(monkeypatch: pytest.MonkeyPatch, clock: Callable[[], float]) -> Callable[[], float]:
    """Have speeds and fits measured by a clock, and anew."""
    for module in (speed, fit_times):
        monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=clock))
        monkeypatch.setattr(module, "_KNOWN", {})
    return clock


def planned(config: RunConfig) -> tuple[PreparedRun, Resources, Forecast]:
    """What a run prepares, with its forecast."""
    resolved = resolve(config)
    resources = open_resources(config, resolved, Silent())
    prepared = prepare(resolved, resources, {}, config.limit)
    return prepared, resources, Forecast(prepared, resolved, resources.grader)


def only_fit(prepared: PreparedRun) -> Fit:
    (fit,) = (step for step in prepared.steps if isinstance(step, Fit))
    return fit


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


def compared(config: RunConfig, clock: Callable[[], float]) -> Mapping[str, tuple[float, float]]:
    """Stage -> what was expected, and what came."""
    prepared, _, forecast = planned(config)
    expected = {named(step): forecast.seconds(step) for step in prepared.steps}
    stages = Stages(clock)
    report = run(config, stages)
    assert {row.status for row in report.rows} <= {"ok", "skipped"}, [row.reason for row in report.rows]
    judged = {name: seconds for name, seconds in expected.items() if isinstance(seconds, float)}
    assert {name for name in expected if name.startswith(("read", "fit"))} <= set(judged)
    found = {name: (judged[name], seconds) for name, seconds in stages.seconds.items() if name in judged}
    print(*(f"\n{name}: expected {a:.2f} s, took {b:.2f} s" for name, (a, b) in found.items()))  # noqa: T201 - a table
    return found


def config(folder: Path, model: str, task: str, methods: tuple[str, ...], **more: Any) -> RunConfig:
    chosen = tuple(text for text in (*FEW, *more.pop("set", ())) if text.partition(".")[0] in (*methods, "protocol"))
    return RunConfig(
        methods, model, tasks=(task,), preset="paper", device="cpu", overrides=chosen,
        out=folder / "out", cache=folder / "cache", **more,
    )  # fmt: skip


def test_reading_and_fits_take_the_forecast(tmp_path: Path, counted: Callable[[], float]) -> None:
    shorter = ("protocol.shots=1", "pik.steps=60")
    asked = config(tmp_path, "tiny", "atlas-choice", ("ptrue", "pik"), limit=40, train_limit="43+32", set=shorter)
    found = compared(asked, counted)
    assert set(found) == {"read atlas-choice/test", "read atlas-choice/train", "fit pik"}
    for expected, took in found.values():
        assert expected == pytest.approx(took, rel=0.1)
    assert found["fit pik"][1] == pytest.approx(60 * 0.02)


class Stepwise(ConfidenceMethod):
    """Its time is known by heart."""

    name = "stepwise"
    needs = Needs(fit=frozenset({QueryLogits()}), predict=frozenset({QueryLogits()}))
    seconds = 0.0

    def fit(self, train: Batch, ctx: Context) -> Stepwise:
        Stepwise.seconds += 3 + 0.02 * len(train)
        warnings.warn("its signals are random", stacklevel=1)  # which a plan doesn't show
        for _ in ctx.early_stopping(50):
            Stepwise.seconds += 0.5
        return self

    def predict(self, batch: Batch) -> FloatArray:
        Stepwise.seconds += 0.001 * len(batch)
        return np.full(len(batch), 0.5)


def test_fit_times_are_told_by_rows_and_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    put_in(monkeypatch, lambda: Stepwise.seconds)
    known = SimpleNamespace(find={"stepwise": Stepwise}.get)
    monkeypatch.setattr(registry, "built_in", lambda: (known, None))
    widths = fit_times.Widths(16, 64, "cpu", torch.float32)
    found = fit_times.measure_fit(Stepwise(), Format.CHOICE, (1.0, 1.0), widths, Protocol())
    assert isinstance(found, fit_times.FitTime)
    assert found.seconds(1200, 300) == pytest.approx(3 + 1200 * 0.02 + 8 * 300 * 0.001 + 50 * 0.5)


def test_fit_times_forget_one_slow_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would count for each row: a fit of seconds was planned with an hour, as other work had slowed its sample."""
    sizes: list[int] = []

    class Disturbed(Stepwise):
        def fit(self, train: Batch, ctx: Context) -> Stepwise:
            sizes.append(len(train))
            Stepwise.seconds += 60 * (sizes[-1] == max(sizes) > sizes[0] and sizes.count(sizes[-1]) == 1)
            return super().fit(train, ctx)

    put_in(monkeypatch, lambda: Stepwise.seconds)
    known = SimpleNamespace(find={"stepwise": Disturbed}.get)
    monkeypatch.setattr(registry, "built_in", lambda: (known, None))
    widths = fit_times.Widths(16, 64, "cpu", torch.float32)
    found = fit_times.measure_fit(Disturbed(), Format.CHOICE, (1.0, 1.0), widths, Protocol())
    assert isinstance(found, fit_times.FitTime)
    assert found.seconds(1200, 0) == pytest.approx(3 + 1200 * 0.02 + 50 * 0.5)


def test_fit_times_are_those_of_the_nearest_stored() -> None:
    fields = {"method": "ccps", "params": {"steps": "10"}}

    def fit(rows: int, seconds: float, **more: Any) -> dict[str, Any]:
        return {"rows": rows, "seconds": seconds, "model": "tiny", "fields": fields, **more}

    stored = [fit(100, 2.0), fit(100, 3.0), fit(1000, 8.0), fit(200, 99.0, model="other"), {"fields": fields}]
    wanted = {**fields, "model": "tiny"}
    # the shorter of two fits may have had its adapter from the store; more rows take longer; fewer have the same steps
    assert [fit_times.recorded_seconds(stored, wanted, rows) for rows in (100, 200, 900)] == [3.0, 6.0, 8.0]
    assert fit_times.recorded_seconds(stored, {**wanted, "params": {"steps": "20"}}, 100) is None
    assert fit_times.recorded_seconds([], wanted, 100) is None


def test_plan_says_how_long_stored_fits_took(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fits of another seed are not stored, and nothing stands in for them."""
    fewer = ("protocol.shots=1", "pik.steps=5")
    asked = config(tmp_path, "tiny", "atlas-choice", ("pik",), limit=20, train_limit="32+32", set=fewer)
    run(asked)
    (stored,) = Store(tmp_path / "cache").manifests("fits")
    monkeypatch.setattr(fit_times, "measure_fit", lambda *_: pytest.fail("a stored fit has the time"))
    for seed in (0, 1):
        prepared, _, forecast = planned(replace(asked, seed=seed))
        seconds = forecast.seconds(only_fit(prepared))
        assert isinstance(seconds, float)
        assert stored["seconds"] <= seconds <= 2 * stored["seconds"]  # answers without text are not learned from


@pytest.mark.parametrize(
    ("method", "sequences", "preset"), [("it", 1, "paper"), ("it", 1, "fixed"), ("ct", 2, "paper")]
)
def test_adapter_steps_are_passes_forth_and_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, sequences: int, preset: str
) -> None:
    """With the loss of CT each example is read twice, and the frozen model reads it before.

    The preset `fixed` looks at validation, and at as many of the examples, at each of 8 points.
    """
    monkeypatch.setattr(SPEED, lambda *_, **__: Speed(0.0, 1.0, 0.0, 0.0, 0.0, kv_bytes=1024))
    seconds = []
    for steps in (6, 7):
        own = (f"{method}.steps={steps}", f"{method}.batch_size=32", "protocol.shots=1")
        asked = config(tmp_path, "tiny", "atlas-choice", (method,), limit=20, train_limit="32+32", set=own)
        prepared, resources, forecast = planned(replace(asked, preset=preset))
        fit = only_fit(prepared)
        seconds.append(forecast.seconds(fit))
    (again,) = (line for line in forecast.lines() if line.startswith("read the query of "))
    assert again.startswith(f"read the query of atlas-choice/test again through the adapters of {method}: about ")
    split_data = prepared.data_by_split[fit.where]
    prompts = [tuple(ids) for shard in split_data.shards for ids in shard.prompts]
    assert len(prompts) == 32  # each step reads them all
    beginnings = {prompt[:n] for prompt in prompts for n in range(1, len(prompt) + 1)}
    turn = len(resources.reader.prompt_settings(split_data).suffix)
    tokens = len(beginnings) + 32 * (turn + 1) * sequences
    # as much backwards as forwards; with gradients of the frozen weights it would be as much again
    assert 2 * tokens <= seconds[1] - seconds[0] <= 3 * tokens
    validation = [len(part.questions) for where, part in prepared.data_by_split.items() if where.split == "validation"]
    assert len(validation) == (preset == "fixed")
    without_steps = seconds[0] - 6 * (seconds[1] - seconds[0])
    expected = 10 + tokens * (sequences - 1) + 8 * 2 * sum(validation) * tokens / 32
    assert without_steps == pytest.approx(expected)


# --- real seconds -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("task", "limit"), [("atlas-choice", 60), ("atlas-oe", 30)])
@pytest.mark.parametrize("shape", [{}, SMALL, LARGE], ids=["tiny", "0.7M", "20M"])
def test_steps_take_as_long_as_planned(
    tmp_path: Path, processor: Callable[[], float], shape: dict[str, int], task: str, limit: int
) -> None:
    """All kinds of methods on `tiny`, and few on random models, which never end an answer and vary their samples."""
    model, methods, more = "tiny", ("litcab", "ptrue", "self-consistency"), {"limit": limit}
    if shape:
        model = str(models.save(tmp_path / "model", models.llama(**shape)))
    else:
        methods, more = (*methods, "ccps", "saplma-f", "it"), {"limit": 200, "set": ("it.steps=6",)}
    found = compared(config(tmp_path, model, task, methods, **more), processor)
    judged = {name: (a, b) for name, (a, b) in found.items() if max(a, b) > LEAST}
    assert len(judged) >= (2 if shape else 6)
    assert not {name: (a, b) for name, (a, b) in judged.items() if not b / FACTOR < a < b * FACTOR}


# --- counts and words -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "together", [pytest.param(ALONE, marks=pytest.mark.slow), BatchLimits(128, 1 << 30)], ids=["alone", "side by side"]
)
def test_passes_are_as_many_as_the_plan_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, together: BatchLimits
) -> None:
    for user in (extractor, reader):
        monkeypatch.setattr(user, "default_batch_limits", lambda *_, **__: together)
    asked = config(tmp_path, "tiny", "atlas-oe", ("self-consistency",), limit=120)
    prepared, resources, _ = planned(asked)
    (read,) = (step for step in prepared.steps if isinstance(step, Read))
    split_data = prepared.data_by_split[read.where]
    plan = resources.reader.forecast(split_data, read.signals)
    expected = plan.seconds(Speed(1.0, 0.0, 0.0, 0.0, 0.0, kv_bytes=1024))
    forward, passes = session.run_blocks, list[None]()

    def noted(*args: Any, **more: Any) -> Any:
        passes.append(None)
        return forward(*args, **more)

    monkeypatch.setattr(session, "run_blocks", noted)
    resources.reader.read(split_data, read.signals)
    assert len(passes) / 2 < expected < len(passes) * 2  # among more questions is one with a longer answer


def test_large_model_is_not_loaded_for_a_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.signals.forecast._SMALL_MODEL_BYTES", 1000)
    monkeypatch.setattr("bench.model.language_model.LanguageModel._load", lambda *_: pytest.fail("weights were loaded"))
    asked = config(tmp_path, "tiny", "atlas-oe", ("self-consistency",), limit=20, dry_run=True)
    read = run(asked).plan[0]
    assert re.search(r" s if answers take about \d tokens$", read)  # between options of two and the limit of thirty


def test_unknown_times_are_told_in_words(
    small_model: Path, rivers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = RunConfig(
        ("echo", "pik"), str(small_model), tasks=("rivers",), plugins=(rivers,), limit=20, train_limit="36+31",
        dry_run=True,
        out=tmp_path / "out", cache=tmp_path / "cache",
    )  # fmt: skip
    monkeypatch.setattr(SPEED, lambda *_, **__: Speed(1.0, 0.0, 0.0, 0.0, 0.0, kv_bytes=1024))
    monkeypatch.setattr(fit_times, "_KNOWN", {})
    monkeypatch.setattr(fit_times, "_time_fit", lambda *_: fit_times.FitTime(5.0, 0.0, 0.0, 0.0, 0.0))
    plan = "\n".join(run(asked).plan)
    assert "echo (not known: its own code decides it)" in plan
    assert "pik (at most 5 s)" in plan
    assert "worker" not in plan
    assert " s by one worker alone" in "\n".join(run(replace(asked, workers=2)).plan)

    def refused(*_: object, **__: object) -> None:
        raise KeyError("layer_types")

    monkeypatch.setattr(SPEED, refused)
    plan = "\n".join(run(asked).plan)
    assert plan.count("can't be said before it is read: a few of its blocks can't be timed alone (KeyError: ") == 3
    assert "in all what is not known, and at most 5 s: fits at most 5 s, less what is stored" in plan
    monkeypatch.setattr(SPEED, lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):  # a mistake of ours is no property of an architecture
        run(asked)


def test_plan_has_a_total_and_advice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Per token 0.4 s, per fit 2 h."""
    monkeypatch.setattr(SPEED, lambda *_, **__: Speed(0.0, 0.4, 0.0, 0.0, 0.0, kv_bytes=1024))
    monkeypatch.setattr(fit_times, "measure_fit", lambda *_: fit_times.FitTime(7200.0, 0.0, 0.0, 0.0, 0.0))
    monkeypatch.setattr(os, "getloadavg", lambda: (0.1, 0.1, 0.1))
    asked = config(tmp_path, "tiny", "atlas-choice", ("ptrue", "pik"), dry_run=True, set=("protocol.shots=0",))
    prepared, _, forecast = planned(asked)
    reads = [forecast.times[step] for step in prepared.steps if isinstance(step, Read)]
    plan = run(asked).plan
    total, fits, *others = plan[plan.index(next(line for line in plan if line.startswith("then "))) + 1 :]
    hours = sum(reads) / 3600
    assert total.startswith(
        f"in all about {hours + 2:.1f} h: reading about {hours:.1f} h, fits about 2.0 h, less what is"
    )
    assert re.search(r"stored; at least 1\.\d GB of memory$", total)
    assert fits == "over an hour: pik on atlas-choice/train (about 2.0 h); --max-time 1h leaves out such methods"
    assert "over an hour: reading atlas-choice/test; --limit N reads N of its questions" in others
    assert "over an hour: reading atlas-choice/train; --train-limit N reads N of its questions" in others
    assert "(" not in "".join(line for line in plan if line.startswith("read"))  # signals are told with --verbose alone
    monkeypatch.setattr(os, "getloadavg", lambda: (99.0, 0.1, 0.1))
    assert any("as busy as now (load 99.0, " in line for line in run(asked).plan)


@pytest.mark.slow
def test_fits_that_are_long_stay_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that goes on keeps what it decided, also where a fit is timed again and takes another time."""
    asked = config(
        tmp_path, "tiny", "atlas-choice", ("ptrue", "pik", "logistic-probe"), limit=20, train_limit="32+32",
        max_time="1m", set=("protocol.shots=1", "pik.steps=5"),
    )  # fmt: skip
    seconds = {"pik": 61.0, "logistic-probe": 59.0}
    monkeypatch.setattr(fit_times, "recorded_seconds", lambda *_: None)
    monkeypatch.setattr(
        fit_times, "measure_fit", lambda method, *_: fit_times.FitTime(seconds[method.name], 0, 0, 0, 0)
    )
    reason = "its fit takes about 61 s by the plan, more than --max-time 1m"
    for _ in range(2):
        report = run(asked)
        assert {row.method: row.status for row in report.rows} == {
            "ptrue": "ok", "pik": "skipped", "logistic-probe": "ok",
        }  # fmt: skip
        assert [row.reason for row in report.rows if row.method == "pik"] == [reason]
        assert f"pik on atlas-choice/test is skipped: {reason}" in report.notes
        seconds = {"pik": 1.0, "logistic-probe": 99.0}
    assert {row.status for row in run(replace(asked, max_time="2m")).rows} == {"ok"}
    seconds = {"pik": 1.0, "logistic-probe": 1.0}  # what another dtype takes was not decided yet
    assert {row.status for row in run(replace(asked, dtype="bfloat16")).rows} == {"ok"}


def test_decision_on_a_fit_is_of_its_questions(tmp_path: Path) -> None:
    """A trial on few of them decides nothing about the run on all."""
    asked = config(tmp_path, "tiny", "atlas-choice", ("it",), limit=20, train_limit="32+32")
    prepared, _, forecast = planned(replace(asked, preset="fixed"))

    def left_out(seconds: float, fewer: str = "", **more: Any) -> bool:
        splits = {
            where: replace(split_data, questions=split_data.questions[int(where.split == fewer) :])
            for where, split_data in prepared.data_by_split.items()
        }
        other = Forecast(replace(prepared, data_by_split=splits), replace(forecast.resolved, **more), forecast.grader)
        other.__dict__["times"] = {only_fit(prepared): seconds}
        return bool(other.too_long(60.0, "1m", dry_run=False))

    assert left_out(61.0)
    assert left_out(59.0)  # as the same run decided
    assert [left_out(59.0, split) for split in ("test", "train", "validation")] == [False] * 3
    assert not left_out(59.0, training_budget=512)


def test_judge_calls_are_announced(small_model: Path, tmp_path: Path) -> None:
    asked = RunConfig(
        ("ptrue",), "tiny", tasks=("atlas-oe",), dry_run=True, limit=20, judge="hf", judge_model=str(small_model),
        out=tmp_path / "out", cache=tmp_path / "cache",
    )  # fmt: skip
    plan = "\n".join(run(asked).plan)
    assert "about up to 20 answers of atlas-oe/test" in plan
    assert "in all what is not known, and " in plan  # the judge takes time, too
