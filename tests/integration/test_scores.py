"""Methods that give scores: scaled on validation in whole runs, or with metrics of order alone; in every format."""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from bench.api import FloatArray
from bench.metrics import METRICS
from bench.report.figures import write
from tests.faults.workload import questions_file
from tests.integration.conftest import FIXTURES
from tests.kit.place import Place, Rows

SURPRISE = FIXTURES / "surprise.py"
TESTED, VALIDATED = 80, 120
LABELS = {"train": 0, "validation": VALIDATED, "gold": 0}


@pytest.fixture(scope="module")
def scaled(tmp_path_factory: pytest.TempPathFactory) -> Place:
    place = Place(tmp_path_factory.mktemp("scaled"), here=True)
    file = questions_file(place.folder, "few.jsonl", sizes={"test": TESTED, "validation": VALIDATED})
    methods = "mean-log-probability,contrary,overflowing,ptrue"
    asked = ("--plugin", SURPRISE, "--method", methods, "--model", "tiny", "--task-file", file)
    place.run(*asked, "--recalibrate", "isotonic", code=1)
    return place


@pytest.fixture(scope="module")
def rows(scaled: Place) -> Rows:
    return scaled.rows()


def score_of(place: Place, method: str) -> FloatArray:
    score = place.records(method).score
    assert score is not None
    return score


def test_auroc_is_that_of_the_scores(scaled: Place, rows: Rows) -> None:
    auroc = {name: rows[name]["metrics"]["auroc"]["pooled"] for name in ("mean-log-probability", "contrary")}
    for name, found in auroc.items():
        assert found == pytest.approx(roc_auc_score(scaled.records(name).correct, score_of(scaled, name)))
    assert auroc["mean-log-probability"] > 0.7
    assert auroc["contrary"] < 0.3


def test_scaling_costs_labels_and_tokens_of_validation(rows: Rows) -> None:
    assert (rows["overflowing"]["status"], rows["mean-log-probability+isotonic"]["labels_seen"]) == ("failed", LABELS)
    row = rows["mean-log-probability"]
    assert (row["labels_seen"], row["train_on"]) == (LABELS, None)
    assert row["notes"][-1] == (
        f"scaled on validation: {VALIDATED} labelled answers of {row['task']}/validation made its scores probabilities"
    )
    assert rows["ptrue"]["labels_seen"]["validation"] == 0
    alone = row["forward_tokens_alone"]
    assert alone == rows["mean-log-probability+isotonic"]["forward_tokens_alone"]
    assert rows["ptrue"]["forward_tokens_alone"] < alone <= sum(cost["forward_tokens"] for cost in row["cost"].values())


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A file of questions that has none to scale scores on."""
    place = Place(tmp_path_factory.mktemp("alone"), here=True)
    lines: list[dict[str, Any]] = [
        {"question": f"Which is {i % 7}?", "choices": [str(j + i % 5) for j in range(4)], "answer": "abcd"[i % 4],
         "subject": f"s{i % 2}"} for i in range(60)
    ]  # fmt: skip
    asked = ("--plugin", SURPRISE, "--method", "mean-log-probability,sequence-probability", "--model", "tiny")
    place.run(*asked, "--task-file", place.write("sums.jsonl", lines))
    return place


def test_unscaled_scores_have_metrics_of_order_alone(alone: Place) -> None:
    rows = alone.rows()
    row = rows["mean-log-probability"]
    assert set(row["metrics"]) == {name for name, metric in METRICS.items() if metric.is_rank_based}
    assert np.isnan(alone.records("mean-log-probability").confidence).all()
    assert row["labels_seen"]["validation"] == 0
    assert (row["n_clipped"], row["n_excluded"]) == (None, None)
    # which orders answers of one token alike
    assert row["metrics"]["auroc"] == rows["sequence-probability"]["metrics"]["auroc"]
    assert row["notes"][-1] == (
        "there are no labelled validation answers, by which its scores could become probabilities: metrics of order"
        " alone"
    )


def test_tables_say_why_metrics_are_absent(alone: Place) -> None:
    said = " ".join(alone.done("table", "--results", alone / "out", "--format", "md", "--stats").stdout.split())
    assert "no labelled validation answers" in said
    assert said.count("it takes probabilities, and these are scores") == 1
    assert "undefined" in said


@pytest.mark.parametrize("others", [pytest.param(True, marks=pytest.mark.slow), False])
def test_page_and_figures_leave_out_absent_metrics(
    alone: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, others: bool
) -> None:
    one_format = partial(write.write_figures, formats=("svg",))  # the others have the same in them
    monkeypatch.setattr(write, "write_figures", one_format)
    left_out = shutil.ignore_patterns("sequence-probability*") if not others else None
    results = shutil.copytree(alone / "out", tmp_path / "out", ignore=left_out)
    page, pictures = tmp_path / "page.html", tmp_path / "figures"
    alone.done("report", "--results", results, "--out", page, "--figures", pictures)
    assert "no labelled validation answers" in page.read_text(encoding="utf-8")
    drawn = " ".join(path.name for path in pictures.rglob("*.svg"))
    assert all(kind in drawn for kind in ("reliability", "confidence", "risk")), drawn


def test_check_recomputes_metrics_from_the_scores(alone: Place) -> None:
    told = json.loads(alone.bench("check", "--results", alone / "out", "--json").stdout)
    (problems,) = (each["problems"] for each in told if "mean-log-probability" in each["file"])
    assert [problem for problem in problems if "uncommitted" not in problem] == []


def test_learning_methods_may_not_give_scores(place: Place) -> None:
    text = SURPRISE.read_text(encoding="utf-8").partition('@method("scaled')[0]
    path = place.write("learns.py", text + "    def fit(self, train, ctx):\n        return self\n")
    sentence = "output is 'score', but it learns (it has a fit); a method that learns gives probabilities"
    run = ("run", "--plugin", path, "--method", "mean-log-probability", "--model", "tiny")
    assert all(sentence in place.refused(*command) for command in (run, ("check", path)))
