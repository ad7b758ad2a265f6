"""`bench analyze ccps shap`: from answers that a run has read to a table, a file and a figure."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path

import pytest

from methods.ccps import explained
from methods.ccps.columns import FEATURES
from methods.ccps.importance import GROUPS, NOISE_MEAN, NOISE_MOST
from tests.integration.conftest import Command
from tests.integration.test_analyze import SHORT, isles


def test_values_of_what_a_run_has_read(bench: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = explained.Sizes(background=10, answers=12, kernel_answers=2, coalitions=200, points=8)
    monkeypatch.setattr(explained, "SIZES", dict.fromkeys(explained.SIZES, small))
    file, env = isles(tmp_path / "isles.jsonl"), {"CONFBENCH_CACHE": str(tmp_path / "cache")}
    asked = ["--model", "tiny", "--task-file", file, *SHORT]
    assert bench("run", "--method", "ccps", *asked, "--out", tmp_path / "r", env=env).returncode == 0
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "shap", None)
        ended = bench("analyze", "ccps", "shap", *asked, "--out", tmp_path / "b", env=env)
    assert ended.returncode == 2
    assert "pip install 'confbench[analysis]'" in ended.stderr
    assert not list((tmp_path / "b").glob("*"))

    ended = bench("analyze", "ccps", "shap", *asked, "--format", "csv", "--out", tmp_path / "a", env=env)
    assert ended.returncode == 0, ended.stderr
    lines = list(csv.DictReader(io.StringIO(ended.stdout)))
    names = [line["feature"] for line in lines]
    assert names[:5] == [*GROUPS, NOISE_MEAN, NOISE_MOST]
    assert sorted(names[5:]) == sorted(FEATURES)
    sizes = [float(line["importance"]) for line in lines[5:]]
    assert sizes == sorted(sizes, reverse=True)
    assert all(float(line["low"]) <= float(line["importance"]) <= float(line["high"]) for line in lines[3:])
    numbers, drawn = sorted((tmp_path / "a").iterdir())
    assert numbers.match("tiny--isles-*--ccps-shap.json")
    assert drawn.name == f"{numbers.stem}.svg"
    (record,) = json.loads(numbers.read_text(encoding="utf-8"))
    assert "12 test answers and 5 trainings" in " ".join(record["notes"])
