"""`bench analyze transfer` as a whole, on planted methods."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from bench.results.files import read
from bench.results.transfer import AT_RANDOM, SUBJECT
from tests.integration.conftest import FIXTURES
from tests.kit.place import Place

SHORES = FIXTURES / "shores.py"
TASKS = ("shores-choice", "shores-oe")
METHODS = "rote,placid,hungry,ptrue"
LEFT_OUT = ("--leave-subject-out", "--size-matched")
NONE_RIGHT = "5 right answers are needed to tell how far Brier varies, there are 0"
"""Of the answers of a random model."""


@dataclass(frozen=True)
class Shores(Place):
    """Where an ordinary run has read both tasks."""

    model: Path = Path()

    def words(self, methods: str) -> tuple[object, ...]:
        return ("--model", self.model, "--plugin", SHORES, "--method", methods)

    def analysed(
        self, methods: str, *more: object, on: tuple[str, ...] = TASKS, out: str, code: int = 0
    ) -> CompletedProcess[str]:
        asked = ("analyze", "transfer", *self.words(methods), "--on", ",".join(on), *more, "--json")
        return self.done(*asked, out=out, code=code)


@pytest.fixture(scope="module")
def place(small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Shores:
    place = Shores(tmp_path_factory.mktemp("shores"), here=True, model=small_model)
    place.run(*place.words(METHODS), "--task", ",".join(TASKS))
    return place


@pytest.fixture(scope="module")
def made(place: Shores) -> CompletedProcess[str]:
    """The matrix of both tasks, beside the results."""
    return place.analysed(METHODS, *LEFT_OUT, out="out/transfer")


@pytest.fixture(scope="module")
def matrix(made: CompletedProcess[str]) -> dict[str, Any]:
    return dict(json.loads(made.stdout))


def value(matrix: Any, method: str, learned: str | None, test: str, *, out: str = "") -> float:
    """Brier score of a cell; `out` is what was left out."""
    corpus = None if learned is None else {"task": learned, "leaves_out": out}
    (found,) = (
        each["value"]
        for each in matrix["entries"]
        if (each["method"], each["corpus"], each["test"], each["metric"]) == (method, corpus, test, "brier")
    )
    return float(found)


def test_transfer_of_stored_readings_feeds_nothing(made: CompletedProcess[str], matrix: dict[str, Any]) -> None:
    assert matrix["about"]["forward_tokens"] == 0
    assert "read shores" not in made.stderr


def test_transfer_of_rote_learning_falls_on_new_subjects(matrix: dict[str, Any]) -> None:
    """`rote` counts a subject of validation as seen, so that a subject left in there would keep its number."""
    for test in TASKS:
        for learned in TASKS:
            assert value(matrix, "rote", learned, test) == pytest.approx(0.0)
            assert value(matrix, "rote", learned, test, out=SUBJECT) == pytest.approx(1.0)
    prices = [price for price in matrix["prices"] if (price["method"], price["metric"]) == ("rote", "brier")]
    assert {(price["corpus"]["leaves_out"], round(price["points"], 9)) for price in prices} == {
        ("", 0.0), (AT_RANDOM, 0.0), (SUBJECT, 1.0),
    }  # fmt: skip
    assert {price["p_holm"] for price in prices} == {None}


def test_transfer_tells_new_subjects_from_fewer_answers(matrix: dict[str, Any]) -> None:
    """What knows subjects loses to a new one alone; what lacks answers loses as much to as many others, to the last."""
    found = {(p["method"], p["test"]): p["points"] for p in matrix["novelty"] if p["metric"] == "brier"}
    fewer = {
        (p["method"], p["test"]): p["points"]
        for p in matrix["prices"]
        if p["metric"] == "brier" and p["corpus"] == {"task": p["home"]["task"], "leaves_out": AT_RANDOM}
    }
    for test in TASKS:
        assert found["rote", test] == pytest.approx(1.0)
        assert fewer["rote", test] == pytest.approx(0.0)
        assert found["hungry", test] == pytest.approx(0.0, abs=1e-12)
        assert fewer["hungry", test] == pytest.approx((1 / 3) ** 2)
    assert not [w for w in matrix["worst"] if w["corpus"] and w["corpus"]["leaves_out"] == AT_RANDOM]


def test_transfer_shares_are_those_of_the_fits(matrix: dict[str, Any]) -> None:
    """Thirty answers, ten of each subject; of the random model none is right."""
    shares = matrix["about"]["shares"]
    assert {(each["n"], bool(each["subject"])) for each in shares} == {(30, False), (20, True)}
    assert len(shares) == 2 * (1 + 3 + 3)
    assert {each["share"] for each in shares} == {0.0}


def test_transfer_without_a_corpus_is_constant(matrix: dict[str, Any]) -> None:
    for test in TASKS:
        assert len({value(matrix, "placid", each, test) for each in TASKS}) == 1
    untold = [each for each in matrix["entries"] if each["method"] == "ptrue" and each["metric"] == "brier"]
    assert [each["corpus"] for each in untold] == [None, None]
    assert not [price for price in matrix["prices"] if price["method"] == "ptrue"]


def test_transfer_fits_are_told_and_made_once(
    place: Shores, made: CompletedProcess[str], matrix: dict[str, Any]
) -> None:
    assert "of 42 fits are not stored" in made.stderr
    again = place.analysed(METHODS, *LEFT_OUT, out="again")
    assert "all 42 fits are stored" in again.stderr
    for part in ("entries", "prices", "novelty", "worst"):
        assert json.loads(again.stdout)[part] == matrix[part]


@pytest.mark.usefixtures("made")
def test_transfer_is_on_the_page_of_results(place: Shores, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the methods that are chosen, and not at all where a result of it is gone; the page has no pictures here."""
    monkeypatch.setattr("bench.report.page.pictures", lambda _tables, _records_of: [])
    results, page = place / "out", place / "page.html"

    def shown(*chosen: str) -> str:
        place.done("report", "--results", results, "--out", page, *chosen)
        return page.read_text(encoding="utf-8")

    text = shown()
    assert '<h2 id="transfer-title">Train here, test there</h2>' in text
    assert "without as many at random" in text
    some = re.compile(r"(Shown are \d+ of \d+ methods); ranks, prices")
    assert (some.findall(text), some.findall(shown("--method", "rote,ptrue"))) == ([], ["Shown are 2 of 4 methods"])
    cell = next((results / "transfer").glob("*/shores-oe/rote*.json"))
    whole = cell.read_bytes()
    cell.unlink()
    text = shown()
    cell.write_bytes(whole)
    assert "which is not shown: " in text
    assert "bench analyze transfer" in text
    assert "Methods by their worst number" not in text


@pytest.mark.usefixtures("made")
def test_transfer_cells_are_results_that_tables_leave_out(place: Shores) -> None:
    folder = place / "out" / "transfer"
    rows = [read(path) for path in sorted(folder.glob("*/*/*.json"))]
    assert len(rows) == 2 * (3 * 6 + 1)
    configs = {json.dumps(dict(row.config), sort_keys=True) for row in rows if row.method == "rote"}
    assert configs >= {'{"leave_out": "subject", "train_on": "shores-oe:train"}', "{}"}
    assert "shores-oe:train" not in place.done("table", "--results", place / "out", "--format", "csv").stdout
    assert "shores-oe:train" in place.done("table", "--results", folder).stdout
    checked = json.loads(place.bench("check", "--results", folder, "--json").stdout)
    assert sum(each["file"].endswith(".json") for each in checked) == len(rows)
    problems = [problem for each in checked for problem in each["problems"]]
    words = ("leave_out", "settings", "labels_seen", "no result", "do not rise", "deviates", "don't rename")
    assert not [text for text in problems if any(word in text for word in words)]
    whole = json.loads(place.bench("check", "--results", place / "out", "--json").stdout)
    assert not [each["file"] for each in whole if each["file"].startswith("transfer")]
    written = {path.suffix for path in folder.glob("*--transfer*")}
    assert {".md", ".csv", ".json", ".svg", ".png"} <= written
    cell = next(path for path in sorted(folder.glob("*/*/rote*.json")) if "leave_out" in read(path).config)
    assert "bench analyze transfer" in place.done("check", "--results", folder, "--rerun", cell, code=2).stderr


def test_transfer_trains_no_adapter_unless_asked(place: Shores, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("methods.it.IT.takes_one_class", True)  # a random model has no right answer
    matrix = json.loads(place.analysed("rote,it", out="adapters").stdout)
    assert {each["method"] for each in matrix["missing"]} == {"it"}
    assert all("not trained again" in each["reason"] for each in matrix["missing"])
    assert len(matrix["missing"]) == 4
    assert matrix["about"]["forward_tokens"] == 0


@pytest.mark.slow
def test_transfer_of_stored_adapters(place: Shores, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each was read on its own task alone, so the other cells are told; asked for, they are read."""
    monkeypatch.setattr("methods.it.IT.takes_one_class", True)
    short = ("--set", "it.steps=2")
    place.run(*place.words("rote,it"), *short, "--task", ",".join(TASKS), out="r")
    made = json.loads(place.analysed("rote,it", *short, out="stored").stdout)
    assert made["about"]["forward_tokens"] == 0
    there = {(e["corpus"]["task"], e["test"]) for e in made["entries"] if e["method"] == "it"}
    assert there == {(task, task) for task in TASKS}
    assert all("not read again" in each["reason"] for each in made["missing"])
    asked = place.analysed("rote,it", *short, "--with-adapters", out="stored")
    assert "--with-adapters: it" in asked.stderr
    whole = json.loads(asked.stdout)
    assert whole["about"]["forward_tokens"] > 0
    assert not whole["missing"]


def test_transfer_to_a_task_without_training_rows(place: Shores) -> None:
    """It is no corpus, has prices against what is named, and no subject that could be left out."""
    asked = ("rote,placid", "--leave-subject-out", "--home", "lagoons=shores-choice")
    three = (*TASKS, "lagoons")
    refused = place.analysed(*asked, on=three, out="lagoons", code=2)
    told = re.search(r"bench (run [^;]*--task lagoons [^;]*--train-on shores-choice)", refused.stderr)
    assert told is not None, refused.stderr
    words = shlex.split(told[1])
    place.done(*words, *("--plugin", SHORES) * ("--plugin" not in words), out="r2")
    matrix = json.loads(place.analysed(*asked, on=three, out="lagoons").stdout)
    assert matrix["about"]["forward_tokens"] == 0
    assert {each["task"] for each in matrix["about"]["corpora"]} == {*TASKS}
    assert value(matrix, "placid", "shores-oe", "lagoons") > 0
    prices = [price for price in matrix["prices"] if price["test"] == "lagoons"]
    assert {(price["home"]["task"], price["corpus"]["task"]) for price in prices} == {TASKS}
    assert not matrix["missing"]
    assert {each["reason"] for each in matrix["worst"] if each["metric"] == "brier"} == {NONE_RIGHT}


def test_transfer_of_unread_answers_names_the_run(small_model: Path, tmp_path: Path) -> None:
    place = Shores(tmp_path, here=True, model=small_model)
    refused = place.analysed("placid", out="t", code=2)
    assert f"bench run --method placid --model {small_model} --task shores-choice,shores-oe" in refused.stderr
    assert "--read" in refused.stderr
    assert not (place / "t").exists()
    read_first = place.analysed("placid", "--read", out="t")
    assert "--read:" in read_first.stderr
    assert json.loads(read_first.stdout)["about"]["forward_tokens"] > 0
