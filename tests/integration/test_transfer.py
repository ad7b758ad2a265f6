"""`bench analyze transfer` as a whole, on planted methods."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.results.files import read
from bench.results.transfer import AT_RANDOM, SUBJECT

SHORES = Path(__file__).parents[1] / "fixtures" / "shores.py"
TASKS = "shores-choice,shores-oe"
NONE_RIGHT = "5 right answers are needed to tell how far Brier varies, there are 0"
"""Of the answers of a random model."""


@pytest.fixture(scope="module")
def cached(bench_here: Any, small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A folder in which an ordinary run has read both tasks, and the matrix made after it."""
    folder = tmp_path_factory.mktemp("shores")
    env = {"CONFBENCH_CACHE": str(folder / "cache")}
    common = ["--model", small_model, "--plugin", SHORES, "--method", "rote,placid,hungry,ptrue"]
    ran = bench_here(
        "run", *common, "--task", "shores-choice", "--task", "shores-oe", "--out", folder / "results", env=env
    )
    assert ran.returncode == 0, ran.stderr
    made = bench_here(
        "analyze", "transfer", *common, "--on", TASKS, "--leave-subject-out", "--size-matched",
        "--out", folder / "results/transfer", "--json", env=env,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    return {"folder": folder, "env": env, "common": common, "matrix": json.loads(made.stdout), "stderr": made.stderr}


def value(matrix: Any, method: str, learned: str | None, test: str, *, out: str = "") -> float:
    """Brier score of a cell; `out` is what was left out."""
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
    """`rote` counts a subject of validation as seen, so that a subject left in there would keep its number."""
    for test in TASKS.split(","):
        for learned in TASKS.split(","):
            assert value(cached["matrix"], "rote", learned, test) == pytest.approx(0.0)
            assert value(cached["matrix"], "rote", learned, test, out=SUBJECT) == pytest.approx(1.0)
    prices = [p for p in cached["matrix"]["prices"] if p["method"] == "rote" and p["metric"] == "brier"]
    assert {(p["corpus"]["leaves_out"], round(p["points"], 9)) for p in prices} == {
        ("", 0.0),
        (AT_RANDOM, 0.0),
        (SUBJECT, 1.0),
    }
    assert {p["p_holm"] for p in prices} == {None}


def test_a_new_subject_is_told_from_fewer_answers(cached: dict[str, Any]) -> None:
    """What knows subjects loses to a new one alone; what lacks answers loses as much to as many others, to the last."""
    found = {(p["method"], p["test"]): p for p in cached["matrix"]["novelty"] if p["metric"] == "brier"}
    fewer = {
        (p["method"], p["test"]): p["points"]
        for p in cached["matrix"]["prices"]
        if p["metric"] == "brier" and p["corpus"] == {"task": p["home"]["task"], "leaves_out": AT_RANDOM}
    }
    for test in TASKS.split(","):
        assert found["rote", test]["points"] == pytest.approx(1.0)
        assert fewer["rote", test] == pytest.approx(0.0)
        assert found["hungry", test]["points"] == pytest.approx(0.0, abs=1e-12)
        assert fewer["hungry", test] == pytest.approx((1 / 3) ** 2)
    assert not [w for w in cached["matrix"]["worst"] if w["corpus"] and w["corpus"]["leaves_out"] == AT_RANDOM]


def test_shares_of_right_answers_are_those_of_the_fits(cached: dict[str, Any]) -> None:
    """Thirty answers, ten of each subject; of the random model none is right."""
    shares = cached["matrix"]["about"]["shares"]
    assert {(each["n"], bool(each["subject"])) for each in shares} == {(30, False), (20, True)}
    assert len(shares) == 2 * (1 + 3 + 3)
    assert {each["share"] for each in shares} == {0.0}


def test_fits_are_told_before_they_are_made_and_stored_ones_are_not_made_again(
    bench_here: Any, cached: dict[str, Any], tmp_path: Path
) -> None:
    assert "of 42 fits are not stored" in cached["stderr"]
    again = bench_here(
        "analyze", "transfer", *cached["common"], "--on", TASKS, "--leave-subject-out", "--size-matched",
        "--out", tmp_path / "t", "--json", env=cached["env"],
    )  # fmt: skip
    assert "all 42 fits are stored" in again.stderr
    parts = ("entries", "prices", "novelty", "worst")
    made = json.loads(again.stdout)
    assert all(made[part] == cached["matrix"][part] for part in parts)


def test_the_page_shows_the_matrix_that_lies_beside_its_results_and_no_other(
    bench: Any, cached: dict[str, Any]
) -> None:
    results, page = cached["folder"] / "results", cached["folder"] / "page.html"
    words = ["report", "--results", results, "--out", page]
    assert bench(*words, env=cached["env"]).returncode == 0
    text = page.read_text(encoding="utf-8")
    assert '<h2 id="transfer-title">Train here, test there</h2>' in text
    assert "without as many at random" in text
    cell = next((results / "transfer").glob("*/shores-oe/rote*.json"))
    whole = cell.read_bytes()
    cell.unlink()
    try:
        assert bench(*words, env=cached["env"]).returncode == 0
        text = page.read_text(encoding="utf-8")
        assert "which is not shown: " in text
        assert "bench analyze transfer" in text
        assert "Methods by their worst number" not in text
    finally:
        cell.write_bytes(whole)


def test_page_shows_transfer_of_chosen_methods_alone(bench: Any, cached: dict[str, Any]) -> None:
    """The matrix has four methods; `--method` hides those that it does not name, and the page says so."""
    results, page = cached["folder"] / "results", cached["folder"] / "chosen.html"
    said = []
    for chosen in ([], ["--method", "rote,ptrue"]):
        assert bench("report", "--results", results, "--out", page, *chosen, env=cached["env"]).returncode == 0
        text = page.read_text(encoding="utf-8")
        said.append(re.findall(r"(Shown are \d+ of \d+ methods); ranks, prices", text))
    assert said == [[], ["Shown are 2 of 4 methods"]]


def test_what_depends_on_no_corpus_keeps_its_number(cached: dict[str, Any]) -> None:
    matrix = cached["matrix"]
    for test in TASKS.split(","):
        everywhere = {value(matrix, "placid", each, test) for each in TASKS.split(",")}
        assert len(everywhere) == 1
    untold = [each for each in matrix["entries"] if each["method"] == "ptrue" and each["metric"] == "brier"]
    assert [each["corpus"] for each in untold] == [None, None]
    assert not [price for price in matrix["prices"] if price["method"] == "ptrue"]


def test_cells_are_ordinary_results_in_a_folder_that_tables_leave_out(bench: Any, cached: dict[str, Any]) -> None:
    results = cached["folder"] / "results"
    rows = [read(path) for path in sorted((results / "transfer").glob("*/*/*.json"))]
    assert len(rows) == 2 * (3 * 6 + 1)
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
    bench_here: Any, cached: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("methods.it.IT.takes_one_class", True)  # a random model has no right answer
    common = [*cached["common"][:-1], "rote,it"]
    made = bench_here(
        "analyze", "transfer", *common, "--on", TASKS, "--out", tmp_path / "t", "--json", env=cached["env"]
    )
    assert made.returncode == 0, made.stderr
    matrix = json.loads(made.stdout)
    assert {each["method"] for each in matrix["missing"]} == {"it"}
    assert all("not trained again" in each["reason"] for each in matrix["missing"])
    assert len(matrix["missing"]) == 4
    assert matrix["about"]["forward_tokens"] == 0


@pytest.mark.slow
def test_stored_adapters_take_part(
    bench_here: Any, cached: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each was read on its own task alone, so the other cells are told; asked for, they are read."""
    monkeypatch.setattr("methods.it.IT.takes_one_class", True)
    common = [*cached["common"][:-1], "rote,it", "--set", "it.steps=2"]
    tasks = ["--task", "shores-choice", "--task", "shores-oe"]
    ran = bench_here("run", *common, *tasks, "--out", tmp_path / "r", env=cached["env"])
    assert ran.returncode == 0, ran.stderr
    words = ["analyze", "transfer", *common, "--on", TASKS, "--out", tmp_path / "t", "--json"]
    made = json.loads(bench_here(*words, env=cached["env"]).stdout)
    assert made["about"]["forward_tokens"] == 0
    there = {(e["corpus"]["task"], e["test"]) for e in made["entries"] if e["method"] == "it"}
    assert there == {(task, task) for task in TASKS.split(",")}
    assert all("not read again" in each["reason"] for each in made["missing"])
    asked = bench_here(*words, "--with-adapters", env=cached["env"])
    assert "--with-adapters: it" in asked.stderr
    whole = json.loads(asked.stdout)
    assert whole["about"]["forward_tokens"] > 0
    assert not whole["missing"]


def test_a_task_without_training_rows_is_only_tested(bench_here: Any, cached: dict[str, Any], tmp_path: Path) -> None:
    """It is no corpus, has prices against what is named, and no subject that could be left out."""
    words = [
        "analyze", "transfer", *cached["common"][:-1], "rote,placid", "--on", f"{TASKS},lagoons", "--leave-subject-out",
        "--home", "lagoons=shores-choice", "--out", tmp_path / "t", "--json",
    ]  # fmt: skip
    refused = bench_here(*words, env=cached["env"])
    assert refused.returncode == 2
    told = re.search(r"bench (run [^;]*--task lagoons [^;]*--train-on shores-choice)", refused.stderr)
    assert told is not None, refused.stderr
    run = ["--plugin", SHORES, "--out", tmp_path / "r"]
    ran = bench_here(*shlex.split(told[1]), *(run if "--plugin" not in told[1] else run[2:]), env=cached["env"])
    assert ran.returncode == 0, ran.stderr
    made = bench_here(*words, env=cached["env"])
    assert made.returncode == 0, made.stderr
    matrix = json.loads(made.stdout)
    assert matrix["about"]["forward_tokens"] == 0
    assert {each["task"] for each in matrix["about"]["corpora"]} == set(TASKS.split(","))
    assert value(matrix, "placid", "shores-oe", "lagoons") > 0
    prices = [price for price in matrix["prices"] if price["test"] == "lagoons"]
    assert {(price["home"]["task"], price["corpus"]["task"]) for price in prices} == {("shores-choice", "shores-oe")}
    assert not matrix["missing"]
    assert {each["reason"] for each in matrix["worst"] if each["metric"] == "brier"} == {NONE_RIGHT}


def test_what_is_not_stored_is_named_with_its_command_and_read_when_asked_for(
    bench: Any, small_model: Path, tmp_path: Path
) -> None:
    env = {"CONFBENCH_CACHE": str(tmp_path / "cache")}
    words = ["analyze", "transfer", "--model", small_model, "--plugin", SHORES, "--method", "placid", "--on", TASKS]
    refused = bench(*words, "--out", tmp_path / "t", env=env)
    assert refused.returncode == 2
    assert f"bench run --method placid --model {small_model} --task shores-choice,shores-oe" in refused.stderr
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
        (["--method", "rote", "--on", TASKS, "--size-matched"], "expected --leave-subject-out as well"),
        (["--method", "rote", "--on", TASKS, "--home", "lagoons=shores-oe"], "'lagoons' is no test"),
        (["--method", "rote", "--on", TASKS, "--home", "shores-oe=shores-e"], "'shores-e' is no corpus"),
        (
            ["--method", "rote", "--on", TASKS, *["--home", "shores-oe=shores-choice"] * 2],
            "expected each test once, got shores-oe again",
        ),
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


DATA = Path(__file__).parents[3] / "shared/data"


@pytest.mark.slow
@pytest.mark.skipif(not DATA.is_dir(), reason="../shared/data is not there")
def test_a_test_of_the_hub_is_priced_against_a_part_of_its_corpus(
    bench: Any, small_model: Path, tmp_path: Path
) -> None:
    """`mmlu-choice` has no train split and `ct-local-choice` no test; neither shares a subject with the other."""
    made = bench(
        "analyze", "transfer", "--model", small_model, "--plugin", SHORES, "--method", "placid,ptrue",
        "--on", "shores-choice,ct-local-choice,mmlu-choice", "--home", "mmlu-choice=ct-local-choice",
        "--leave-subject-out", "--limit", "57", "--data-dir", DATA, "--read", "--out", tmp_path / "t", "--json",
        env={"CONFBENCH_CACHE": str(tmp_path / "cache")},
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    matrix = json.loads(made.stdout)
    prices = {(p["test"], p["home"]["task"], p["corpus"]["task"], p["corpus"]["leaves_out"]) for p in matrix["prices"]}
    assert prices == {
        ("mmlu-choice", "ct-local-choice", "shores-choice", ""),
        ("shores-choice", "shores-choice", "ct-local-choice", ""),
        ("shores-choice", "shores-choice", "shores-choice", SUBJECT),
    }
    assert not matrix["missing"]
    assert "there are no cells of ct-local-choice without the subject" in made.stderr
    assert all(cell["file"].startswith("partial/") for cell in matrix["cells"])
