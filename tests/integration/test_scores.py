"""Methods that give scores: scaled on validation in whole runs, or with metrics of order alone; in every format."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from bench.metrics import METRICS
from bench.report import figures
from bench.results.files import read_records
from bench.results.question_records import QuestionRecords
from tests.faults.workload import questions_file

Command = Callable[..., "subprocess.CompletedProcess[str]"]
Rows = dict[str, tuple[dict[str, Any], QuestionRecords | None]]

SURPRISE = Path(__file__).parents[1] / "fixtures" / "surprise.py"
TESTED, VALIDATED = 80, 120
FORMATS = ("terminal", "md", "tex", "csv", "json")


def found(out: Path) -> Rows:
    rows = {path: json.loads(path.read_text(encoding="utf-8")) for path in out.rglob("*.json")}
    return {row["method"]: (row, read_records(path) if row["status"] == "ok" else None) for path, row in rows.items()}


@pytest.fixture(scope="module")
def scaled(bench: Command, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Rows]:
    folder = tmp_path_factory.mktemp("scaled")
    file = questions_file(folder, "few.jsonl", sizes={"test": TESTED, "validation": VALIDATED})
    result = bench(
        "run", "--plugin", SURPRISE,
        "--method", "mean-log-probability,scaled-log-probability,contrary,overflowing,ptrue", "--model", "tiny",
        "--task-file", file, "--recalibrate", "isotonic", "--out", folder / "out", env=cache(folder),
    )  # fmt: skip
    assert result.returncode == 1, result.stderr
    return folder, found(folder / "out")


def test_the_unit_of_a_score_changes_nothing_about_its_row(scaled: tuple[Path, Rows]) -> None:
    _, rows = scaled
    (row, records), (other, others) = rows["mean-log-probability"], rows["scaled-log-probability"]
    assert records is not None
    assert others is not None
    assert others.score.tobytes() == (1024 * records.score).tobytes()
    assert others.confidence.tobytes() == records.confidence.tobytes()
    for field in ("metrics", "per_subject", "labels_seen", "notes", "forward_tokens_alone", "n_clipped"):
        assert row[field] == other[field], field


def test_metrics_of_order_are_those_of_the_scores(scaled: tuple[Path, Rows]) -> None:
    _, rows = scaled
    for name in ("mean-log-probability", "contrary"):
        row, records = rows[name]
        assert records is not None
        assert row["metrics"]["auroc"]["pooled"] == pytest.approx(roc_auc_score(records.correct, records.score))
        assert (records.score <= 0).all() is np.bool_(name != "contrary")
    assert rows["mean-log-probability"][0]["metrics"]["auroc"]["pooled"] > 0.7
    assert rows["contrary"][0]["metrics"]["auroc"]["pooled"] < 0.3


def test_a_score_that_says_the_contrary_is_not_turned_round(scaled: tuple[Path, Rows]) -> None:
    row, records = scaled[1]["contrary"]
    assert records is not None
    assert np.unique(records.confidence).size == 1
    assert "no higher scores there than wrong ones" in row["notes"][-1]


def test_labels_and_cost_are_those_of_validation(scaled: tuple[Path, Rows]) -> None:
    _, rows = scaled
    row = rows["mean-log-probability"][0]
    assert row["labels_seen"] == {"train": 0, "validation": VALIDATED, "gold": 0}
    assert row["train_on"] is None
    assert row["notes"][-1] == (
        f"scaled on validation: {VALIDATED} labelled answers of {row['task']}/validation made its scores probabilities"
    )
    assert rows["ptrue"][0]["labels_seen"]["validation"] == 0
    alone = {name: rows[name][0]["forward_tokens_alone"] for name in ("ptrue", "mean-log-probability")}
    assert alone["mean-log-probability"] == rows["mean-log-probability+isotonic"][0]["forward_tokens_alone"]
    assert alone["mean-log-probability"] > alone["ptrue"]
    assert row["forward_tokens_alone"] <= sum(cost["forward_tokens"] for cost in row["cost"].values())


def test_a_score_that_is_not_finite_fails_its_cell_alone(scaled: tuple[Path, Rows]) -> None:
    row, _ = scaled[1]["overflowing"]
    assert row["status"] == "failed"
    assert row["reason"].startswith(
        "overflowing.predict: expected a finite score for every answer, got inf for question atlas/test/"
    )


def test_a_scaled_score_is_recalibrated_out_of_fold(scaled: tuple[Path, Rows]) -> None:
    _, rows = scaled
    row, records = rows["mean-log-probability+isotonic"]
    before = rows["mean-log-probability"][1]
    assert records is not None
    assert before is not None
    assert records.score is None
    order = np.argsort(before.confidence, kind="stable")
    assert (np.diff(records.confidence[order]) >= 0).all()
    assert row["labels_seen"] == {"train": 0, "validation": VALIDATED, "gold": 0}


@pytest.mark.parametrize("kind", FORMATS)
def test_every_table_says_that_scores_were_scaled(bench: Command, scaled: tuple[Path, Rows], kind: str) -> None:
    folder, _ = scaled
    result = bench("table", "--results", folder / "out", "--format", kind, env=cache(folder))
    assert result.returncode == 0, result.stderr
    assert "scaled on validation" in " ".join(result.stdout.split())
    assert f"0/{VALIDATED}" in result.stdout or kind in {"csv", "json", "tex"}  # LaTeX shows labels with --stats only


def cache(folder: Path) -> dict[str, str]:
    return {"CONFBENCH_CACHE": str(folder / "cache")}


# --- without validation labels ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def alone(bench: Command, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Rows]:
    """A file of questions that has none to scale scores on."""
    folder = tmp_path_factory.mktemp("alone")
    lines = [
        {"question": f"Which is {i % 7}?", "choices": [str(j + i % 5) for j in range(4)], "answer": "abcd"[i % 4],
         "subject": f"s{i % 2}"}
        for i in range(60)
    ]  # fmt: skip
    questions = folder / "sums.jsonl"
    questions.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    result = bench(
        "run", "--plugin", SURPRISE, "--method", "mean-log-probability,sequence-probability", "--model", "tiny",
        "--task-file", questions, "--out", folder / "out", env=cache(folder),
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    return folder, found(folder / "out")


def test_without_validation_labels_there_are_metrics_of_order_alone(alone: tuple[Path, Rows]) -> None:
    _, rows = alone
    row, records = rows["mean-log-probability"]
    assert records is not None
    assert set(row["metrics"]) == {name for name, metric in METRICS.items() if metric.is_rank_based}
    assert np.isnan(records.confidence).all()
    assert row["labels_seen"]["validation"] == 0
    assert (row["n_clipped"], row["n_excluded"]) == (None, None)
    other = rows["sequence-probability"][0]  # which orders answers of one token alike
    assert row["metrics"]["auroc"] == other["metrics"]["auroc"]
    assert row["notes"][-1] == (
        "there are no labelled validation answers, by which its scores could become probabilities: metrics of order"
        " alone"
    )


@pytest.mark.parametrize("kind", FORMATS)
def test_tables_say_why_the_other_metrics_are_absent(bench: Command, alone: tuple[Path, Rows], kind: str) -> None:
    folder, _ = alone
    result = bench("table", "--results", folder / "out", "--format", kind, "--stats", env=cache(folder))
    assert result.returncode == 0, result.stderr
    said = " ".join(result.stdout.split())
    assert "no labelled validation answers" in said
    assert "ECE needs probabilities, not scores" in said
    assert "undefined" in said or kind in {"csv", "json"}


@pytest.mark.parametrize("others", [True, False])
def test_page_and_figures_leave_out_what_there_is_not(
    bench: Command, alone: tuple[Path, Rows], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, others: bool
) -> None:
    folder, _ = alone
    one_format = partial(figures.write_figures, formats=("svg",))  # the others have the same in them
    monkeypatch.setattr(figures, "write_figures", one_format)
    left_out = shutil.ignore_patterns("sequence-probability*") if not others else None
    results = shutil.copytree(folder / "out", tmp_path / "out", ignore=left_out)
    page, pictures = tmp_path / "page.html", tmp_path / "figures"
    result = bench("report", "--results", results, "--out", page, "--figures", pictures, env=cache(folder))
    assert result.returncode == 0, result.stderr
    assert "no labelled validation answers" in page.read_text(encoding="utf-8")
    drawn = {path.name for path in pictures.rglob("*.svg")}
    for kind in ("reliability", "confidence", "risk"):
        assert any(kind in name for name in drawn), drawn


def test_the_check_of_results_recomputes_every_metric_from_the_scores(bench: Command, alone: tuple[Path, Rows]) -> None:
    folder, _ = alone
    told = json.loads(bench("check", "--results", folder / "out", "--json", env=cache(folder)).stdout)
    (problems,) = (each["problems"] for each in told if "mean-log-probability" in each["file"])
    assert [problem for problem in problems if "uncommitted" not in problem] == []


def test_what_trains_may_not_give_scores(bench: Command, tmp_path: Path) -> None:
    path = tmp_path / "learns.py"
    text = SURPRISE.read_text(encoding="utf-8").partition('@method("scaled')[0]
    path.write_text(text + "    def fit(self, train, ctx):\n        return self\n", encoding="utf-8")
    for command in (("run", "--plugin", path, "--method", "mean-log-probability", "--model", "tiny"), ("check", path)):
        result = bench(*command)
        assert result.returncode == 2
        assert "output is 'score', but it learns (it has a fit); a method that learns gives probabilities" in (
            " ".join(result.stderr.split())
        )


def test_methods_that_give_scores_keep_the_rules(bench: Command, tmp_path: Path) -> None:
    path = tmp_path / "scores.py"
    path.write_text(SURPRISE.read_text(encoding="utf-8").partition('@method("contrary")')[0], encoding="utf-8")
    result = bench("check", path, env={"CONFBENCH_CACHE": str(tmp_path / "cache")})
    assert result.returncode == 0, result.stdout + result.stderr
