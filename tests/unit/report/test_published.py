"""The published numbers are the paper's, under our names, and what can't be a target says why."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import pytest

from bench.api import UserError
from bench.report.tables.published import read

ROOT = Path(__file__).parents[3]
SOURCE = ROOT.parent / "shared" / "paper" / "results.csv"
CELLS = read(ROOT / "results")

NAMES = {
    "MMLU-CHOICE": "mmlu-choice", "MMLU-PRO-CHOICE": "mmlu-pro-choice", "MMLU-OE": "mmlu-oe",
    "MEDMCQA-CHOICE": "medmcqa-choice", "MEDMCQA-OE": "medmcqa-oe", "Meta-Llama-3.1-8B-Instruct": "llama8b",
    "Qwen2.5-14B-Instruct": "qwen14b", "Mistral-Small-24B-Instruct-2501": "mistral24b",
    "Qwen2.5-32B-Instruct": "qwen32b", "P(True)": "ptrue", "P(IK)": "pik", "SC": "self-consistency",
}  # fmt: skip


@pytest.mark.skipif(not SOURCE.is_file(), reason="../shared/paper is absent: the published numbers were not compared")
def test_published_cells_are_those_of_the_paper() -> None:
    with SOURCE.open(encoding="utf-8", newline="") as file:
        printed = list(csv.DictReader(file))
    assert len(printed) == len(CELLS) == 740
    for line in printed:
        key = tuple(NAMES.get(line[name], line[name].lower()) for name in ("model", "dataset", "method", "metric"))
        cell = CELLS[key]  # type: ignore[index]
        assert round(100 * cell.mean, 1) == float(line["mean_pct"])
        assert (None if cell.std is None else round(100 * cell.std, 1)) == (
            float(line["std_pct"]) if line["std_pct"] else None
        )


def test_published_numbers_have_no_impossible_target() -> None:
    for (model, task, method, metric), cell in CELLS.items():
        if metric == "ece" and cell.mean > math.sqrt(CELLS[model, task, method, "brier"].mean) + 5e-4:
            assert "square root" in cell.reason or "confidence 1" in cell.reason
        if method == "lts" and metric in {"acc", "aucpr", "auroc"}:
            same = cell.mean == CELLS[model, task, "ptrue", metric].mean
            assert ("one temperature" in cell.reason) == (not same)
    targets = [key for key, cell in CELLS.items() if not cell.reason and key[1] == "mmlu-choice" and key[2] == "ccps"]
    assert len(targets) == 20
    assert CELLS["qwen32b", "mmlu-choice", "ct", "auroc"].reason.startswith("no better than the untuned")


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("results.csv", "model,task\n", "expected the columns model, task, method, metric, mean, std, table"),
        ("results.csv", "model,task,method,metric,mean,std,table\na,b,c,d,much,,t\n", "expected numbers for a/b/c/d"),
        ("results.csv", "model,task,method,metric,mean,std,table\na,b,c,d,nan,,t\n", "expected numbers for a/b/c/d"),
        ("results.csv", "model,task,method,metric,mean,std,table\na,b,c\n", "line 2: expected 7 values"),
        ("not_targets.csv", "", "expected the columns"),
    ],
)
def test_published_file_that_is_broken_is_named(tmp_path: Path, name: str, text: str, complaint: str) -> None:
    assert read(tmp_path) == CELLS  # those that come with the program
    folder = tmp_path / "paper"
    folder.mkdir()
    for file in ("results.csv", "not_targets.csv"):
        content = text if file == name else (ROOT / "results" / "paper" / file).read_text(encoding="utf-8")
        (folder / file).write_text(content, encoding="utf-8")
    with pytest.raises(UserError, match=complaint):
        read(tmp_path)
