"""`bench analyze`: it learns from what runs have read and feeds the model nothing; what it can't do is one sentence."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
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
from tests.integration.conftest import Command

SHORT = ["--set", "contrastive_steps=16", "--set", "classifier_steps=16"]


def isles(path: Path, train: int = 40, validation: int = 20, test: int = 30) -> Path:
    """A task with questions to learn from, to choose by and to test."""
    sizes = {"train": train, "validation": validation, "test": test}
    lines = [
        {
            "question": f"Who rules isle {split} {i}?",
            "choices": ["Tove", "Kiru", "Bamo"],
            "answer": i % 3,
            "split": split,
        }
        for split, n in sizes.items()
        for i in range(n)
    ]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def ran(bench: Command, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[object], dict[str, str]]:
    """Options and environment of a run of CCPS."""
    folder = tmp_path_factory.mktemp("ran")
    asked = ["--model", "tiny", "--task-file", isles(folder / "isles.jsonl", train=24, validation=12, test=90), *SHORT]
    env = {"CONFBENCH_CACHE": str(folder / "cache")}
    assert bench("run", "--method", "ccps", *asked, "--out", folder / "r", env=env).returncode == 0
    return asked, env


@pytest.fixture
def unfed(monkeypatch: pytest.MonkeyPatch) -> None:
    def fed(*_: Any, **__: Any) -> None:
        raise AssertionError("the model was run")

    monkeypatch.setattr(Session, "forward", fed)


@pytest.mark.usefixtures("unfed")
def test_what_no_run_has_read_is_asked_for(bench: Command, tmp_path: Path) -> None:
    asked = ["--model", "tiny", "--task-file", isles(tmp_path / "isles.jsonl"), *SHORT]
    early = bench("analyze", "ccps", "features", *asked, env={"CONFBENCH_CACHE": str(tmp_path / "cache")})
    assert early.returncode == 2
    (said,) = [line for line in early.stderr.splitlines() if line.startswith("bench: ")]
    wanted = "an analysis runs no model. Run this first: bench run --method ccps --model tiny --task-file"
    assert wanted in said


@pytest.mark.usefixtures("unfed")
def test_features_are_compared_on_what_a_run_has_read(
    bench: Command, ran: tuple[list[object], dict[str, str]], tmp_path: Path
) -> None:
    asked, env = ran
    ended = bench("analyze", "ccps", "features", *asked, "--format", "csv", "--out", tmp_path / "a", env=env)
    assert ended.returncode == 0, ended.stderr
    lines = list(csv.DictReader(io.StringIO(ended.stdout)))
    assert [(line["variant"], line["columns"]) for line in lines if line["metric"] == "auroc"] == [
        ("full", "75"), ("original", "12"), ("perturbation", "63"),
    ]  # fmt: skip
    assert {line["metric"] for line in lines} == {"ece", "rmsce", "brier", "auroc"}
    numbers, drawn = sorted((tmp_path / "a").iterdir())
    assert numbers.match("tiny--isles-*--ccps-features.json")
    assert drawn.name == f"{numbers.stem}.svg"
    (record,) = json.loads(numbers.read_text(encoding="utf-8"))
    assert record["seeds"] == [0, 1, 2, 3, 4]
    assert "full" in record["verdict"]
    assert record["average"] == "subjects", "as the paper's numbers beside it"


@pytest.mark.usefixtures("unfed")
def test_the_gain_of_a_method_is_taken_apart(bench: Command, ran: tuple[list[object], dict[str, str]]) -> None:
    asked, env = ran
    ended = bench("analyze", "ccps", "trajectory", *asked, "--format", "json", env=env)
    assert ended.returncode == 0, ended.stderr
    (record,) = json.loads(ended.stdout)
    assert [(step["start"], step["end"]) for step in record["steps"] if step["metric"] == "auroc"] == [
        ("original columns only", "random direction"), ("random direction", "full"),
    ]  # fmt: skip
    assert "AUROC of full minus original columns only is " in record["verdict"]
    assert record["average"] == "questions"


@pytest.mark.usefixtures("unfed")
def test_tokens_of_letters_are_not_masked(bench: Command, ran: tuple[list[object], dict[str, str]]) -> None:
    asked, env = ran
    ended = bench("analyze", "ccps", "tokens", *asked, env=env)
    assert ended.returncode == 2
    assert "bench: token masking needs open answers" in ended.stderr


def test_tokens_of_open_answers_are_masked(bench: Command, tmp_path: Path) -> None:
    lines = [
        {
            "id": f"{split}-{i}",
            "question": f"Who rules isle {split} {i}?",
            "answer": ["Tove", "Kiru of Bamo"][i % 2],
            "split": split,
        }
        for split, n in {"train": 24, "validation": 12, "test": 16}.items()
        for i in range(n)
    ]
    file, said, env = tmp_path / "isles.jsonl", tmp_path / "said.jsonl", {"CONFBENCH_CACHE": str(tmp_path / "cache")}
    answers = [{"id": line["id"], "text": "Kiru of Bamo"} for line in lines]  # half of them are right
    for path, rows in ((file, lines), (said, answers)):
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    asked = ["--model", "tiny", "--task-file", file, "--answers", said, *SHORT]
    ended = bench("run", "--method", "ccps", *asked, "--out", tmp_path / "r", env=env)
    assert ended.returncode == 0, ended.stderr
    ended = bench("analyze", "ccps", "tokens", *asked, "--format", "json", "--out", tmp_path / "a", env=env)
    assert ended.returncode == 0, ended.stderr
    (record,) = json.loads(ended.stdout)
    assert record["question"].startswith("Do content words move the confidence of CCPS more")
    assert {path.suffix for path in (tmp_path / "a").iterdir()} == {".json", ".html", ".svg"}


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
    return Findings(
        "Is one half enough?", "rate", {"rate": np.stack(fitted), "half": np.full((5, len(given.test)), 0.5)}
    )


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


def test_a_method_may_give_measures_and_reads_the_text_of_tokens(tmp_path: Path) -> None:
    cache, file = tmp_path / "cache", isles(tmp_path / "isles.jsonl")
    config = RunConfig(("halves",), "tiny", task_files=(file,), cache=cache, out=tmp_path / "r")
    assert not run(config, classes=(Halves,)).any_failed

    def analysed(name: str) -> Any:
        request = AnalysisRequest("tiny", task_files=(file,))
        return method_analyses.run_analysis("halves", name, request, Silent(), cache=cache, classes=(Halves,))

    (found,) = analysed("texts")
    assert (found.method, found.analysis, found.model, found.n, found.seeds) == (
        "halves", "texts", "tiny", 30, (0, 1, 2, 3, 4),
    )  # fmt: skip
    assert found.measures.rows == ({"what": "answers", "length": 1.0},)  # the letter of an option
    with pytest.raises(ContractError, match="halves, analysis 'strange': a row has 'size', which is no column's"):
        analysed("strange")
    with pytest.raises(ContractError, match="halves, analysis 'neither': expected Findings or Measures, got int"):
        analysed("neither")


def test_a_method_of_ones_own_has_its_analyses_and_no_labels_of_the_test(tmp_path: Path) -> None:
    cache, file = tmp_path / "cache", isles(tmp_path / "isles.jsonl")
    config = RunConfig(("halves",), "tiny", task_files=(file,), cache=cache, out=tmp_path / "r")
    assert not run(config, classes=(Halves,)).any_failed
    request = AnalysisRequest("tiny", task_files=(file,))
    (found,) = method_analyses.run_analysis("halves", "sure", request, Silent(), cache=cache, classes=(Halves,))
    assert (found.n, found.reference, found.seeds) == (30, "rate", (0, 1, 2, 3, 4))
    with pytest.raises(ContractError):
        _ = SEEN[0].test.correct
    assert len({ctx.seed for ctx in SEEN[0].contexts.values()}) == 5
    with pytest.raises(ContractError, match=r"halves, variant 'more': expected shape \(5, 30\), got \(5, 60\)"):
        method_analyses.run_analysis("halves", "wrong", request, Silent(), cache=cache, classes=(Halves,))
    with pytest.raises(ContractError, match=r"a path from a variant to the reference 'rate', got rate -> half"):
        method_analyses.run_analysis("halves", "lost", request, Silent(), cache=cache, classes=(Halves,))
    riddles = tmp_path / "riddles.jsonl"
    lines = [{"question": f"Riddle {split} {i}?", "answer": "Yes, 12.", "split": split}
             for split in ("train", "validation", "test") for i in range(4)]  # fmt: skip
    riddles.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    run(replace(config, task_files=(riddles,)), classes=(Halves,))
    with pytest.raises(UserError, match="all 4 training answers are wrong: there is nothing to learn"):
        method_analyses.run_analysis(
            "halves", "sure", replace(request, task_files=(riddles,)), Silent(), cache=cache, classes=(Halves,)
        )
    with pytest.raises(ContractError, match=r"analysis 'gone' can't be imported from 'methods\.nowhere:gone'"):
        method_analyses.run_analysis("halves", "gone", request, Silent(), cache=cache, classes=(Halves,))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("ptrue",), "ptrue has no analyses; methods that have some: ccps"),
        (("cpps",), "Unknown method 'cpps'. Did you mean 'ccps'?"),
        (
            ("ccps", "feature"),
            "ccps has no analysis 'feature'. Did you mean 'features'? It has: features, leave-one-out, shap",
        ),
        (("ccps", "features"), "--model: expected the model of the run"),
        (("ccps", "features", "--model", "tiny", "--seed", "0,1"), "expected at least 5 different seeds, got 2"),
        (("ccps", "features", "--model", "tiny", "--seed", "1,1,1,1,1"), "at least 5 different seeds, got one"),
        (("ccps", "features", "--model", "tiny", "--seed", "a,b,c,d,e"), "expected whole numbers from 0, got a, b"),
        (("ccps", "features", "--model", "tiny", "--figure", "png"), "--figure: expected --out DIR as well"),
    ],
)
def test_what_it_can_not_do_is_one_sentence(bench: Command, words: tuple[str, ...], said: str) -> None:
    ended = bench("analyze", *words)
    assert ended.returncode == 2
    (line,) = ended.stderr.splitlines()
    assert said in line
    assert not ended.stdout


def test_a_method_lists_its_analyses(bench: Command) -> None:
    ended = bench("analyze", "ccps")
    assert ended.returncode == 0
    assert [line.split("\t")[0] for line in ended.stdout.splitlines()] == [
        "features", "leave-one-out", "shap", "trajectory", "tokens", "tokens-raw",
    ]  # fmt: skip


def test_leaves_room_for_commands_of_its_own() -> None:
    import typer
    from typer.testing import CliRunner

    from bench.cli.analyze import MethodGroup
    from bench.cli.commands import Commands

    app = Commands(cls=MethodGroup)
    heard: list[str] = []
    app.command("METHOD")(lambda method: heard.append(f"method {method}"))
    app.command("transfer")(lambda: heard.append("transfer"))
    root = typer.Typer()
    root.add_typer(app, name="analyze")
    for words in (["analyze", "transfer"], ["analyze", "ccps"]):
        CliRunner().invoke(root, words, catch_exceptions=False)
    assert heard == ["transfer", "method ccps"]
