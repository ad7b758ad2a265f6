"""Growth: how the stages of a run are told apart, and that the committed numbers grow no faster than the questions."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.performance.growth import __main__ as growth
from tests.performance.growth.figure import FIGURE, drawn

RUNS: list[dict[str, Any]] = json.loads(growth.NUMBERS.read_text(encoding="utf-8"))["runs"]


def test_time_grows_no_faster_than_the_questions() -> None:
    assert [run["questions"] for run in RUNS] == list(growth.COUNTS)
    for fewer, more in pairwise(RUNS):
        times = more["questions"] / fewer["questions"]
        assert more["seconds"] < 1.1 * times * fewer["seconds"]
        for name in growth.STAGES:
            before, after = fewer["stages"][name]["seconds"], more["stages"][name]["seconds"]
            assert after < 1.25 * times * before + 1, name  # what takes a second in all may be noise


def test_memory_grows_by_a_few_kilobytes_a_question() -> None:
    fewest, *_, most = RUNS
    more = most["questions"] - fewest["questions"]
    assert (most["peak_mb"] - fewest["peak_mb"]) * 1024 / more < 8


def test_the_figure_and_the_table_show_every_stage_that_takes_time() -> None:
    svg = drawn(RUNS, growth.STAGES).decode()
    table = list(growth.table(RUNS))
    assert len(table) == 2 + len(growth.STAGES) + 1
    for name in ("read", "score", "the whole run", "100,000"):
        assert name in svg
        assert name in FIGURE.read_text(encoding="utf-8")


def test_time_and_memory_are_those_of_the_stage_or_of_what_comes_after_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    clock = iter([2.0, 5.0, 5.5, 7.0, 8.0])
    peaks = iter([100, 300, 200, 150, 120])
    monkeypatch.setattr("time.process_time", lambda: next(clock))
    monkeypatch.setattr(growth, "_kilobytes", lambda _name: next(peaks) * 1024)
    monkeypatch.setattr(growth, "_PROCESS", tmp_path)
    stages = growth.Stages()
    with stages.stage("read sums/test", 3):
        pass
    with stages.stage("predict pik", 3):
        pass
    stages.note()
    found = {name: (told["seconds"], told["peak_mb"]) for name, told in stages.found.items() if told["seconds"]}
    assert found == {"start": (2, 100), "read": (3, 300), "grade": (0.5, 200), "predict": (1.5, 150), "score": (1, 120)}
    assert stages.whole() == {"seconds": 8.0, "peak_mb": 300.0}
    assert (tmp_path / "clear_refs").read_text("ascii") == "5"


def test_no_sum_is_both_asked_and_learned_on() -> None:
    """It would not be learned on, and fewer would be the more are asked."""
    rows = list(growth.questions(1_000))
    asked = {row["question"] for row in rows if row["split"] == "test"}
    assert len(asked) == 1_000
    assert sum(row["question"] not in asked for row in rows) == 100
