"""`bench analyze`: it learns from what runs have read and feeds the model nothing."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.api import (
    AnalysisInput,
    Batch,
    ConfidenceMethod,
    Context,
    ContractError,
    Findings,
    MeasureColumn,
    Measures,
    Needs,
    Of,
    Step,
    TokenIds,
    UserError,
)
from bench.model.session import Session
from bench.progress import Silent
from bench.run.analyses import method_analyses
from bench.run.analyses.request import AnalysisRequest
from bench.run.config import RunConfig
from bench.run.pipeline import run
from methods.ccps import explained, perturbation_ablation
from methods.ccps.columns import FEATURES
from methods.ccps.importance import GROUPS, NOISE_MEAN, NOISE_MOST
from tests.kit.place import Place

SHORT = ("--set", "contrastive_steps=16", "--set", "classifier_steps=16")
NAMES = ("Tove", "Kiru", "Bamo")
SEEDS = (0, 1, 2, 3, 4)


def isles(place: Place, train: int = 40, validation: int = 20, test: int = 30) -> Path:
    """A task with questions to learn from, to choose by and to test."""
    sizes = {"train": train, "validation": validation, "test": test}
    return place.write("isles.jsonl", [
        {"question": f"Who rules isle {split} {i}?", "choices": NAMES, "answer": i % 3, "split": split}
        for split, n in sizes.items() for i in range(n)
    ])  # fmt: skip


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Place, list[object]]:
    """A place where CCPS was run, and the options of the run."""
    place = Place(tmp_path_factory.mktemp("ran"))
    asked = ["--model", "tiny", "--task-file", isles(place, train=24, validation=12, test=90), *SHORT]
    place.run("--method", "ccps", *asked)
    return place, asked


@pytest.fixture
def unfed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Session, "forward", lambda *_, **__: pytest.fail("the model was run"))


@pytest.mark.usefixtures("unfed")
def test_analysis_of_unread_signals_names_the_run(place: Place) -> None:
    said = place.refused("analyze", "ccps", "features", "--model", "tiny", "--task-file", isles(place), *SHORT)
    assert "an analysis runs no model. Run this first: bench run --method ccps --model tiny --task-file" in said


@pytest.mark.usefixtures("unfed")
def test_features_are_compared_on_stored_signals(ran: tuple[Place, list[object]]) -> None:
    place, asked = ran
    ended = place.done("analyze", "ccps", "features", *asked, "--format", "csv", out="a")
    lines = list(csv.DictReader(io.StringIO(ended.stdout)))
    assert [(line["variant"], line["columns"]) for line in lines if line["metric"] == "auroc"] == [
        ("full", "75"), ("original", "12"), ("perturbation", "63"),
    ]  # fmt: skip
    assert {line["metric"] for line in lines} == {"ece", "rmsce", "brier", "auroc"}
    numbers, drawn = sorted((place / "a").iterdir())
    assert numbers.match("tiny--isles-*--ccps-features.json")
    assert drawn.name == f"{numbers.stem}.svg"
    (record,) = json.loads(numbers.read_text(encoding="utf-8"))
    assert record["seeds"] == [*SEEDS]
    assert "full" in record["verdict"]
    assert record["average"] == "subjects", "as the paper's numbers beside it"


@pytest.mark.usefixtures("unfed")
def test_gain_of_ccps_is_taken_apart(ran: tuple[Place, list[object]], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RADII", "STEPS"):  # variants which take time
        monkeypatch.setattr(perturbation_ablation, name, ())
    place, asked = ran
    (record,) = json.loads(place.bench("analyze", "ccps", "trajectory", *asked, "--format", "json").stdout)
    assert [(step["start"], step["end"]) for step in record["steps"] if step["metric"] == "auroc"] == [
        ("original columns only", "random direction"), ("random direction", "full"),
    ]  # fmt: skip
    assert "AUROC of full minus original columns only is " in record["verdict"]
    assert record["average"] == "questions"


@pytest.mark.usefixtures("unfed")
def test_shapley_values_are_ranked_written_and_drawn(
    ran: tuple[Place, list[object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    place, asked = ran
    small = explained.Sizes(background=10, answers=12, kernel_answers=2, coalitions=200, points=8)
    monkeypatch.setattr(explained, "SIZES", dict.fromkeys(explained.SIZES, small))
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "shap", None)
        ended = place.done("analyze", "ccps", "shap", *asked, out="none", code=2)
    assert "pip install 'confbench[analysis]'" in ended.stderr
    assert not list((place / "none").glob("*"))
    ended = place.done("analyze", "ccps", "shap", *asked, "--format", "csv", out="shap")
    lines = list(csv.DictReader(io.StringIO(ended.stdout)))
    names = [line["feature"] for line in lines]
    assert names[:5] == [*GROUPS, NOISE_MEAN, NOISE_MOST]
    assert sorted(names[5:]) == sorted(FEATURES)
    sizes = [float(line["importance"]) for line in lines[5:]]
    assert sizes == sorted(sizes, reverse=True)
    assert all(float(line["low"]) <= float(line["importance"]) <= float(line["high"]) for line in lines[3:])
    numbers, drawn = sorted((place / "shap").iterdir())
    assert drawn.name == f"{numbers.stem}.svg"
    (record,) = json.loads(numbers.read_text(encoding="utf-8"))
    assert "12 test answers and 5 trainings" in " ".join(record["notes"])


@pytest.mark.slow
def test_tokens_of_open_answers_alone_are_masked(place: Place, ran: tuple[Place, list[object]]) -> None:
    other, lettered = ran
    assert "bench: token masking needs open answers" in other.bench("analyze", "ccps", "tokens", *lettered).stderr
    lines = [
        {"id": f"{split}-{i}", "question": f"Who rules isle {split} {i}?", "answer": ["Tove", "Kiru of Bamo"][i % 2],
         "split": split} for split, n in {"train": 24, "validation": 12, "test": 16}.items() for i in range(n)
    ]  # fmt: skip
    said = place.write("said.jsonl", [{"id": line["id"], "text": "Kiru of Bamo"} for line in lines])  # half are right
    asked = ["--model", "tiny", "--task-file", place.write("isles.jsonl", lines), "--answers", said, *SHORT]
    place.run("--method", "ccps", *asked)
    ended = place.done("analyze", "ccps", "tokens", *asked, "--format", "json", out="a")
    (record,) = json.loads(ended.stdout)
    assert record["question"].startswith("Do content words move the confidence of CCPS more")
    assert {path.suffix for path in (place / "a").iterdir()} == {".json", ".html", ".svg"}


def test_ccps_lists_its_analyses(place: Place) -> None:
    assert [line.split("\t")[0] for line in place.done("analyze", "ccps").stdout.splitlines()] == [
        "features", "leave-one-out", "shap", "trajectory", "tokens", "tokens-raw",
    ]  # fmt: skip


# --- of a method of one's own -----------------------------------------------------------------------------------------


class Halves(ConfidenceMethod):
    """Learns the share of right answers."""

    name = "halves"
    reference = "arXiv:1610.02136"
    needs = Needs(predict=frozenset({TokenIds(Of.ANSWER)}))
    analyses = {  # noqa: RUF012
        "sure": ":sure", "wrong": ":wrong", "gone": "methods.nowhere:gone", "texts": ":texts", "strange": ":strange",
        "neither": ":neither", "lost": ":lost",
    }  # fmt: skip

    def fit(self, train: Batch, ctx: Context) -> Halves:
        self.rate_ = float(train.correct.mean())
        return self

    def predict(self, batch: Batch) -> Any:
        return np.full(len(batch), self.rate_)


SEEN: list[AnalysisInput] = []


def sure(given: AnalysisInput) -> Findings:
    """Half against the share of right answers."""
    SEEN.append(given)
    fitted = [given.method.fit(given.train, ctx).predict(given.test) for ctx in given.contexts.values()]
    half = np.full((5, len(given.test)), 0.5)
    return Findings("Is one half enough?", "rate", {"rate": np.stack(fitted), "half": half})


def lost(given: AnalysisInput) -> Findings:
    """A path that doesn't end with the reference."""
    half = np.full((5, len(given.test)), 0.5)
    return Findings("?", "rate", {"rate": half, "half": half}, path=(Step("rate"), Step("half", "more")))


def wrong(given: AnalysisInput) -> Findings:
    """Two numbers for each answer."""
    both = {"rate": np.zeros((5, len(given.test))), "more": np.zeros((5, 2 * len(given.test)))}
    return Findings("?", "rate", both)


def texts(given: AnalysisInput) -> Measures:
    """Lengths of answers."""
    pieces = given.pieces(given.test)
    assert [len(row) for row in pieces] == given.test[TokenIds(Of.ANSWER)].lengths.tolist()
    length = float(np.mean([len("".join(row)) for row in pieces]))
    columns = [MeasureColumn("what", "what", "text"), MeasureColumn("length", "length")]
    return Measures("How long?", f"{length:g} characters.", columns, [{"what": "answers", "length": length}], "length")


def strange(given: AnalysisInput) -> Measures:
    """A key that no column has."""
    return Measures("?", "!", [MeasureColumn("what", "what", "text")], [{"what": "answers", "size": 1}])


def neither(given: AnalysisInput) -> Any:
    """A number."""
    return 3


def of_halves(place: Place, file: Path) -> Callable[[str], Any]:
    """Runs a method on a file; returns what makes an analysis of it."""
    config = RunConfig(("halves",), "tiny", task_files=(file,), cache=place / "cache", out=place / "r")
    assert not run(config, classes=(Halves,)).any_failed
    request = AnalysisRequest("tiny", task_files=(file,))

    def analysed(name: str) -> Any:
        return method_analyses.run_analysis("halves", name, request, Silent(), cache=place / "cache", classes=(Halves,))

    return analysed


@pytest.fixture(scope="module")
def analysed(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Any]:
    place = Place(tmp_path_factory.mktemp("halves"))
    return of_halves(place, isles(place))


def test_analysis_may_give_measures_of_texts(analysed: Callable[[str], Any]) -> None:
    (found,) = analysed("texts")
    assert (found.method, found.analysis, found.model, found.n, found.seeds) == ("halves", "texts", "tiny", 30, SEEDS)
    assert found.measures.rows == ({"what": "answers", "length": 1.0},)  # the letter of an option


def test_analysis_never_sees_labels_of_the_test(analysed: Callable[[str], Any]) -> None:
    (found,) = analysed("sure")
    assert (found.n, found.reference, found.seeds) == (30, "rate", SEEDS)
    with pytest.raises(ContractError):
        _ = SEEN[0].test.correct
    assert len({ctx.seed for ctx in SEEN[0].contexts.values()}) == 5


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("strange", "halves, analysis 'strange': a row has 'size', which is no column's"),
        ("neither", "halves, analysis 'neither': expected Findings or Measures, got int"),
        ("wrong", r"halves, variant 'more': expected shape \(5, 30\), got \(5, 60\)"),
        ("lost", r"a path from a variant to the reference 'rate', got rate -> half"),
        ("gone", r"analysis 'gone' can't be imported from 'methods\.nowhere:gone'"),
    ],
)
def test_dishonest_analyses_are_refused(analysed: Callable[[str], Any], name: str, said: str) -> None:
    with pytest.raises(ContractError, match=said):
        analysed(name)


def test_answers_of_one_class_have_no_analysis(place: Place) -> None:
    lines = [{"question": f"Riddle {split} {i}?", "answer": "Yes, 12.", "split": split}
             for split in ("train", "validation", "test") for i in range(4)]  # fmt: skip
    with pytest.raises(UserError, match="all 4 training answers are wrong: there is nothing to learn"):
        of_halves(place, place.write("riddles.jsonl", lines))("sure")
