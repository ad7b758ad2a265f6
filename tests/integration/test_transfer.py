"""`bench analyze transfer` as a whole, on planted methods."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.results.files import read

SHORES = Path(__file__).parents[1] / "fixtures" / "shores.py"
TASKS = "shores-choice,shores-oe"


@pytest.fixture(scope="module")
def cached(bench: Any, small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A folder in which an ordinary run has read both tasks, and the matrix made after it."""
    folder = tmp_path_factory.mktemp("shores")
    env = {"CONFBENCH_CACHE": str(folder / "cache")}
    common = ["--model", small_model, "--plugin", SHORES, "--method", "rote,placid,ptrue,perplexity"]
    ran = bench("run", *common, "--task", "shores-choice", "--task", "shores-oe", "--out", folder / "results", env=env)
    assert ran.returncode == 0, ran.stderr
    made = bench(
        "analyze", "transfer", *common, "--on", TASKS, "--leave-subject-out", "--out", folder / "results/transfer",
        "--json", env=env,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    return {"folder": folder, "env": env, "common": common, "matrix": json.loads(made.stdout), "stderr": made.stderr}


def value(matrix: Any, method: str, learned: str | None, test: str, *, out: bool = False) -> float:
    """Brier score of a cell."""
    corpus = None if learned is None else {"task": learned, "leaves_out": out}
    (found,) = (
        each["value"]
        for each in matrix["entries"]
        if (each["method"], each["corpus"], each["test"], each["metric"]) == (method, corpus, test, "brier")
    )
    return float(found)


def test_an_ordinary_run_leaves_nothing_to_read(cached: dict[str, Any]) -> None:
    assert cached["matrix"]["about"]["forward_tokens"] == 0
    assert "read shores" not in cached["stderr"]


def test_a_method_that_knows_subjects_by_rote_falls_where_they_are_left_out(cached: dict[str, Any]) -> None:
    for test in TASKS.split(","):
        for learned in TASKS.split(","):
            assert value(cached["matrix"], "rote", learned, test) == pytest.approx(0.0)
            assert value(cached["matrix"], "rote", learned, test, out=True) == pytest.approx(1.0)
    prices = [p for p in cached["matrix"]["prices"] if p["method"] == "rote" and p["metric"] == "brier"]
    assert {(p["corpus"]["leaves_out"], round(p["points"], 9)) for p in prices} == {(False, 0.0), (True, 1.0)}
    assert all(p["p_holm"] < 0.05 for p in prices if p["corpus"]["leaves_out"])


def test_validation_leaves_the_subject_out_as_well(cached: dict[str, Any]) -> None:
    """`rote` counts a subject of validation as seen, so that a subject left in there would keep its number."""
    assert value(cached["matrix"], "rote", "shores-choice", "shores-choice", out=True) == pytest.approx(1.0)


def test_what_depends_on_no_corpus_keeps_its_number(cached: dict[str, Any]) -> None:
    matrix = cached["matrix"]
    for test in TASKS.split(","):
        everywhere = {value(matrix, "placid", each, test) for each in TASKS.split(",")}
        assert len(everywhere) == 1
    untold = [each for each in matrix["entries"] if each["method"] == "ptrue" and each["metric"] == "brier"]
    assert [each["corpus"] for each in untold] == [None, None]
    assert not [price for price in matrix["prices"] if price["method"] == "ptrue"]
    assert any("0 by construction" in sentence for sentence in matrix["verdict"])


def test_cells_are_ordinary_results_in_a_folder_that_tables_leave_out(bench: Any, cached: dict[str, Any]) -> None:
    results = cached["folder"] / "results"
    rows = [read(path) for path in sorted((results / "transfer").glob("*/*/*.json"))]
    assert len(rows) == 2 * (3 * 4 + 1)
    configs = {json.dumps(dict(row.config), sort_keys=True) for row in rows if row.method == "rote"}
    assert '{"leave_out": "subject", "train_on": "shores-oe:train"}' in configs
    assert "{}" in configs
    ordinary = bench("table", "--results", results, "--format", "csv")
    assert "shores-oe:train" not in ordinary.stdout
    of_matrix = bench("table", "--results", results / "transfer")
    assert of_matrix.returncode == 0
    assert "shores-oe:train" in of_matrix.stdout
    checked = json.loads(bench("check", "--results", results / "transfer", "--json").stdout)
    assert sum(each["file"].endswith(".json") for each in checked) == len(rows)
    problems = [problem for each in checked for problem in each["problems"]]
    words = ("leave_out", "settings", "labels_seen", "no result", "do not rise", "deviates", "don't rename")
    assert not [text for text in problems if any(word in text for word in words)]
    whole = json.loads(bench("check", "--results", results, "--json").stdout)
    assert not [each["file"] for each in whole if each["file"].startswith("transfer")]


def test_files_are_written(cached: dict[str, Any]) -> None:
    written = {path.suffix for path in (cached["folder"] / "results/transfer").glob("*--transfer*")}
    assert {".md", ".csv", ".json", ".svg", ".png"} <= written


def test_leaving_a_subject_out_can_t_be_run_again_as_an_ordinary_cell(bench: Any, cached: dict[str, Any]) -> None:
    folder = cached["folder"] / "results/transfer"
    cell = next(path for path in sorted(folder.glob("*/*/rote*.json")) if "leave_out" in read(path).config)
    answered = bench("check", "--results", folder, "--rerun", cell, env=cached["env"])
    assert answered.returncode == 2
    assert "bench analyze transfer" in answered.stderr


def test_adapters_are_not_trained_again_unless_asked_for(
    bench: Any, cached: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("methods.it.IT.takes_one_class", True)  # a random model has no right answer
    common = [*cached["common"][:-1], "rote,it"]
    made = bench("analyze", "transfer", *common, "--on", TASKS, "--out", tmp_path / "t", "--json", env=cached["env"])
    assert made.returncode == 0, made.stderr
    matrix = json.loads(made.stdout)
    assert {each["method"] for each in matrix["missing"]} == {"it"}
    assert all("not trained again" in each["reason"] for each in matrix["missing"])
    assert len(matrix["missing"]) == 4
    assert matrix["about"]["forward_tokens"] == 0


@pytest.mark.slow
def test_stored_adapters_take_part(
    bench: Any, cached: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each was read on its own task alone, so the other cells are told; asked for, they are read."""
    monkeypatch.setattr("methods.it.IT.takes_one_class", True)
    common = [*cached["common"][:-1], "rote,it", "--set", "it.steps=2"]
    tasks = ["--task", "shores-choice", "--task", "shores-oe"]
    ran = bench("run", *common, *tasks, "--out", tmp_path / "r", env=cached["env"])
    assert ran.returncode == 0, ran.stderr
    words = ["analyze", "transfer", *common, "--on", TASKS, "--out", tmp_path / "t", "--json"]
    made = json.loads(bench(*words, env=cached["env"]).stdout)
    assert made["about"]["forward_tokens"] == 0
    there = {(e["corpus"]["task"], e["test"]) for e in made["entries"] if e["method"] == "it"}
    assert there == {(task, task) for task in TASKS.split(",")}
    assert all("not read again" in each["reason"] for each in made["missing"])
    asked = bench(*words, "--with-adapters", env=cached["env"])
    assert "--with-adapters: it" in asked.stderr
    whole = json.loads(asked.stdout)
    assert whole["about"]["forward_tokens"] > 0
    assert not whole["missing"]


def test_a_task_without_training_rows_is_only_tested(bench: Any, cached: dict[str, Any], tmp_path: Path) -> None:
    """It is no corpus, has no price, since nobody learns on it, and has no subject that could be left out."""
    made = bench(
        "analyze", "transfer", *cached["common"], "--on", f"{TASKS},lagoons", "--leave-subject-out", "--read",
        "--out", tmp_path / "t", "--json", env=cached["env"],
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    matrix = json.loads(made.stdout)
    assert {each["task"] for each in matrix["about"]["corpora"]} == set(TASKS.split(","))
    assert value(matrix, "placid", "shores-oe", "lagoons") > 0
    assert not [price for price in matrix["prices"] if price["test"] == "lagoons"]
    assert {(each["test"], each["corpus"]["leaves_out"]) for each in matrix["missing"]} == {("lagoons", True)}
    assert all("no subject in common" in each["reason"] for each in matrix["missing"])


def test_what_is_not_stored_is_named_with_its_command_and_read_when_asked_for(
    bench: Any, small_model: Path, tmp_path: Path
) -> None:
    env = {"CONFBENCH_CACHE": str(tmp_path / "cache")}
    words = ["analyze", "transfer", "--model", small_model, "--plugin", SHORES, "--method", "placid", "--on", TASKS]
    refused = bench(*words, "--out", tmp_path / "t", env=env)
    assert refused.returncode == 2
    assert f"bench run --model {small_model} --method placid --task shores-choice --task shores-oe" in refused.stderr
    assert "--read" in refused.stderr
    assert not (tmp_path / "t").exists()
    read_first = bench(*words, "--out", tmp_path / "t", "--read", "--json", env=env)
    assert read_first.returncode == 0, read_first.stderr
    assert "--read:" in read_first.stderr
    assert json.loads(read_first.stdout)["about"]["forward_tokens"] > 0


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--method", "rote", "--on", "shores-choice"], "at least two tasks with a train split"),
        (["--method", "rote", "--on", "lagoons"], "no train rows"),
        (["--method", "ptrue", "--on", TASKS], "at least one method that learns"),
        (["--method", "rote", "--on", "shores-chioce,shores-oe"], "shores-chioce"),
        (["--method", "rote", "--on", TASKS, "--seed", "x"], "whole numbers"),
    ],
)
def test_bad_requests_are_told(
    bench: Callable[..., Any], small_model: Path, tmp_path: Path, words: list[str], sentence: str
) -> None:
    env = {"CONFBENCH_CACHE": str(tmp_path / "cache")}
    refused = bench(
        "analyze", "transfer", "--model", small_model, "--plugin", SHORES, *words, "--out", tmp_path / "t", env=env
    )
    assert refused.returncode == 2, refused.stderr
    assert sentence in " ".join(refused.stderr.split())
    assert "Traceback" not in refused.stderr
    assert not (tmp_path / "t").exists()
