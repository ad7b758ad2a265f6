"""Results in Python: numbers against the files and against `bench table`, types, empty cells, figures, page."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from rich.console import Console

from bench import Results, load_results, report
from bench.api import UserError
from bench.report.selection import Against, AverageOver, View
from bench.report.tables import formats
from bench.report.tables.request import build_views
from bench.results import files, question_texts
from bench.results.question_texts import QuestionText
from bench.results.row import Tuning
from tests.fixtures.readable import words
from tests.kit.world import Answers, write_failure, write_result

N = 90
ANSWERS = Answers.drawn(N, seed=1, noise=1.0)
SKILLS = {"ptrue": 0.1, "pik": 0.5, "ccps": 0.95}
TASKS = ("mmlu-choice", "medmcqa-choice")
WHERE: dict[str, Any] = {"model": "llama8b", "preset": "fixed"}


def put(out: Path, method: str, task: str, seed: int = 0, **changes: Any) -> None:
    p = ANSWERS.confidences(SKILLS[method], seed + 10 * len(method) + 100 * len(task), slope=2)
    keys = [f"q{i}" for i in range(N)]
    write_result(out, method, p.round(2), ANSWERS.correct, id=keys, task=task, seed=seed, **WHERE, **changes)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of three methods on two tasks, with a seed that failed, a cell that was skipped, and a partial one."""
    out = tmp_path_factory.mktemp("results")
    for task in TASKS:
        for method in ("ptrue", "ccps"):
            for seed in (0, 1):
                put(out, method, task, seed)
    put(out, "pik", TASKS[0], 0)
    write_failure(out, "pik", "ValueError: no <b>room</b>", task=TASKS[0], seed=1, **WHERE)
    write_failure(out, "pik", "all training answers are right", task=TASKS[1], status="skipped", **WHERE)
    put(out, "ptrue", TASKS[0], 0, limit=40)
    texts = [QuestionText(f"q{i}", "", f"Question {i}?", (), "x") for i in range(N - 1)]
    question_texts.write(TASKS[0], 1, texts, out)
    return out


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def results(folder: Path, cache: Path) -> Results:
    return load_results(folder, cache=cache, quiet=True)


def csv_lines(view: View) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(formats.render(build_views(view, None), "csv"))))


def check_same(frame: pd.Series, texts: list[str]) -> None:
    """Numbers of a frame are those of a CSV file, where an empty field is a missing one."""
    expected = np.array([float(text) if text else np.nan for text in texts])
    np.testing.assert_array_equal(frame.to_numpy(dtype="float64", na_value=np.nan), expected)


def test_frame_numbers_are_those_of_the_csv_file(results: Results, folder: Path) -> None:
    lines = csv_lines(View(folder))
    wide, long = results.wide(), results.frame()
    assert [list(place) for place in wide.index] == [[line["model"], line["task"], line["method"]] for line in lines]
    for name in ("ece", "rmsce", "brier", "acc", "aucpr", "auroc"):
        check_same(wide[name], [line[f"{name}_mean"] for line in lines])
        for line in lines:
            part = long[(long.task == line["task"]) & (long.method == line["method"]) & (long.metric == name)]
            done = part[part.status == "ok"]
            for column in ("mean", "low", "high"):
                check_same(done[column], [line[f"{name}_{column}"]] * len(done))
    check_same(wide["rank"], [line["rank"] for line in lines])
    check_same(wide["seeds"], [line["seeds"] for line in lines])
    assert list(wide.status) == [line["status"] for line in lines]
    assert [int(leads) for leads in wide.leading] == [int(line["leading"]) for line in lines]


def test_frames_name_the_source_of_answers(tmp_path: Path) -> None:
    """Without it, a join by model, task and method puts numbers of different answers into one row."""
    for source, settings in (("generate", {}), ("released", {"answers": "released"})):
        for method in ("ptrue", "ccps"):
            put(tmp_path, method, TASKS[0], answers_source=source, config=settings)
    found, sources = load_results(tmp_path, quiet=True), ["generate"] * 2 + ["released"] * 2
    for frame in (found.wide(), found.frame(), found.questions(), found.compare("ptrue", "ccps")):
        assert list(dict.fromkeys(frame.answers_source)) == ["generate", "released"]
    assert list(found.wide().answers_source) == sources
    assert list(load_results(tmp_path, quiet=True, methods="ptrue").wide().answers_source) == ["generate", "released"]


def test_frames_tell_tables_of_one_task_apart(tmp_path: Path) -> None:
    """By corpus and tuning; a method that reads no label stands in the tables of both corpora."""
    put(tmp_path, "ptrue", TASKS[0])
    put(tmp_path, "ccps", TASKS[0], train_on="own/train")
    put(tmp_path, "ccps", TASKS[0], train_on="there/train", config={"train_on": "there"})
    put(tmp_path, "ccps", TASKS[0], train_on="own/train", config={"tune": 4}, tuning=Tuning(4))
    found = load_results(tmp_path, quiet=True)
    place = ["model", "task", "preset", "limit", "answers_source", "learned_on", "tuned", "method", "variant", "seed"]
    for frame, further in ((found.frame(), ["metric"]), (found.questions(), ["id"])):
        assert not frame.duplicated([*place, *further]).any()
    for frame in (found.frame(), found.questions(), found.wide()):
        assert [*dict.fromkeys(zip(frame.learned_on, frame.tuned, strict=True))] == [("", 0), ("there", 0), ("", 4)]
    assert [*dict.fromkeys(found.compare("ptrue", "ccps").learned_on)] == ["", "there"]
    assert [*dict.fromkeys(line["learned_on"] for line in csv_lines(View(tmp_path)))] == ["", "there"]


def test_frame_seeds_are_those_of_the_result_files(results: Results, folder: Path) -> None:
    frames = {"questions": results.frame(), "subjects": load_results(folder, average="subjects", quiet=True).frame()}
    for average, frame in frames.items():
        assert set(frame.average) == {average}
        for row in (files.read(path) for path in folder.glob("*/*/ccps--*.json")):
            cell = frame[(frame.task == row.task) & (frame.method == "ccps") & (frame.seed == row.seed)]
            values = {name: summary.of(average) for name, summary in row.metrics.items()}
            assert dict(zip(cell.metric, cell.value, strict=True)) == values


def test_frame_differences_are_those_of_the_csv_file(results: Results, folder: Path) -> None:
    lines = csv_lines(View(folder, compare=("ccps", "ptrue")))
    for frame in (results.compare("ccps", "ptrue"), results.compare("ccps, ptrue")):
        assert list(frame.columns) == list(lines[0])
        for name in ("difference", "low", "high", "p", "p_corrected"):
            check_same(frame[name], [line[name] for line in lines])
        assert list(frame.verdict) == [line["verdict"] for line in lines]


def test_comparison_says_why_a_pair_is_not_there(results: Results) -> None:
    frame = results.compare("ccps", "pik")
    assert set(frame.task) == {TASKS[0]}
    assert any("all training answers are right" in reason for reason in frame.attrs["missing"])


def test_frames_have_cells_without_numbers(results: Results) -> None:
    long, wide, asked = results.frame(), results.wide(), results.questions()
    failed = long[long.status == "failed"]
    assert set(failed.reason) == {"ValueError: no <b>room</b>"}
    assert set(failed.metric) == set(long.metric)
    assert failed.value.isna().all()
    assert failed[["mean", "low", "high"]].isna().all().all()
    assert set(long[long.status == "skipped"].reason) == {"all training answers are right"}
    skipped = wide.loc[("llama8b", TASKS[1], "pik")]
    assert (skipped.status, skipped.seeds, skipped.runs, np.isnan(skipped.brier)) == ("skipped", 0, 1, True)
    assert skipped.reason == "skipped: all training answers are right"
    assert wide.loc[("llama8b", TASKS[0], "pik")].reason == "failed (seed 1): ValueError: no <b>room</b>"
    empty = asked[asked.status != "ok"]
    assert list(zip(empty.task, empty.status, strict=True)) == [(TASKS[1], "skipped"), (TASKS[0], "failed")]
    assert empty.id.isna().all()
    assert "pik on medmcqa-choice skipped: all training answers are right" in repr(results)
    assert repr(results.verdict()) == "\n".join(results.verdict())


def test_results_that_are_partial_are_said(results: Results, folder: Path, tmp_path: Path) -> None:
    assert any("partial results (--limit) are not shown: 1" in note for note in results.notes)
    both = load_results(folder, partial=True, cache=tmp_path, quiet=True)
    assert set(both.frame().limit.dropna()) == {40}
    assert both.frame().limit.isna().any()


def test_frame_types_are_those_of_full_frames(results: Results, folder: Path, tmp_path: Path) -> None:
    """A frame of cells without any number has the same types, so frames can be joined."""
    skipped = load_results(folder, methods="pik", tasks=TASKS[1], cache=tmp_path, quiet=True)
    for one, other in ((results.frame(), skipped.frame()), (results.questions(), skipped.questions())):
        kinds = [str(kind) for kind in one.dtypes]
        assert kinds == [str(kind) for kind in other.dtypes]
    types = results.frame().dtypes.astype(str)
    assert {types[name] for name in ("value", "std", "mean", "low", "high")} == {"float64"}
    assert {types[name] for name in ("seed", "n", "n_undefined", "limit")} == {"Int64"}
    assert {types[name] for name in ("model", "task", "method", "metric", "status")} == {"category"}
    assert results.questions().correct.dtype == "boolean"


def test_frame_questions_are_those_of_the_files(results: Results) -> None:
    asked = results.questions()
    part = asked[(asked.task == TASKS[0]) & (asked.method == "ccps") & (asked.seed == 0)]
    assert list(part.id) == [f"q{i}" for i in range(N)]
    assert list(part.correct) == list(ANSWERS.correct)
    assert list(part.text[:-1]) == [f"Question {i}?" for i in range(N - 1)]
    assert part.text.isna().tolist() == [False] * (N - 1) + [True]  # the run kept no text of the last one
    assert asked[asked.task == TASKS[1]].text.isna().all()
    assert part.confidence.between(0, 1).all()
    assert "text" not in results.questions(text=False)


def test_table_is_that_of_the_command(results: Results, folder: Path, cache: Path) -> None:
    for options, view in (
        ({}, View(folder)),
        ({"methods": "ccps,pik", "sort": "auroc", "metrics": ("ece", "auroc")},
         View(folder, methods=("ccps", "pik"), headline="auroc", metrics=("ece", "auroc"))),
        ({"stats": True}, View(folder, stats=True)),
        ({"compare": "ccps,ptrue"}, View(folder, compare=("ccps", "ptrue"))),
    ):  # fmt: skip
        table, views = results.table(**options), build_views(view, cache)
        for kind in ("md", "csv", "json", "tex"):
            assert table.render(kind) == formats.render(views, kind)
    assert results.table()._repr_markdown_() == results.table().render("md")


def test_paper_is_compared_as_by_the_command(folder: Path, cache: Path) -> None:
    for average in AverageOver:
        view = View(folder, average=average, against=Against.PAPER)
        table = load_results(folder, average=average, cache=cache, quiet=True).table(against="paper")
        assert table.render("csv") == formats.render(build_views(view, cache), "csv")


def test_html_has_every_cell_and_no_markup(results: Results) -> None:
    html = results.table()._repr_html_()
    assert "&lt;b&gt;room&lt;/b&gt;" in html
    assert "<b>room" not in html
    assert "<script" not in html
    for method in ("ccps", "pik", "ptrue"):
        assert re.search(rf">(<b>)?{method}<", html)
    brier = 100 * results.wide().loc[("llama8b", TASKS[0], "ccps")].brier
    assert f"{brier:.1f} ±" in html


def test_table_is_printed_at_its_width(results: Results) -> None:
    console = Console(file=io.StringIO(), width=70)
    console.print(results.table(metrics="brier"))
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert max(map(len, lines)) <= 70
    assert any(line.startswith("ccps") for line in lines)


def test_figures_say_what_to_choose(results: Results) -> None:
    for kind in ("reliability", "overview", "risk_coverage", "confidence", "metrics"):
        figure = getattr(results.figures, kind)()
        assert isinstance(figure, Figure)
        data, size = figure._repr_png_()  # type: ignore[attr-defined]
        assert data.startswith(b"\x89PNG")
        assert size["width"] > 300
    for kind in ("subjects", "cost", "forest", "wins"):
        assert isinstance(getattr(results.figures, kind)(task=TASKS[0]), Figure)
        with pytest.raises(UserError, match=f"shows one task, and there are .*; choose one: task='{TASKS[1]}'"):
            getattr(results.figures, kind)()
    assert "pik" in words(results.figures.reliability(task=TASKS[0]))
    assert "pik" not in words(results.figures.reliability(task=TASKS[0], methods="ccps,ptrue"))


def test_page_is_written_and_shown(results: Results, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = report(results, out="a page.html", quiet=True)
    assert isinstance(page, Path)
    assert page.read_text(encoding="utf-8").lower().startswith("<!doctype html")
    shown_as = page._repr_html_()
    assert shown_as is not None
    assert 'src="a%20page.html"' in shown_as
    assert str(tmp_path) not in shown_as
    assert page.parent._repr_html_() is None  # type: ignore[attr-defined]


def test_results_refuse(results: Results, folder: Path, tmp_path: Path) -> None:
    for call, said in (
        (lambda: load_results(tmp_path / "none"), "does not exist"),
        (lambda: load_results(folder, methods="ccp", quiet=True, cache=tmp_path), "Did you mean 'ccps'"),
        (lambda: load_results(folder, modles="x"), "load_results() has no option 'modles'. Did you mean 'models'?"),
        (lambda: results.table(stat=True), "table() has no option 'stat'. Did you mean 'stats'?"),
        (lambda: results.table(partial=True), "table(): partial is chosen when results are loaded"),
        (lambda: results.table(average="subjects"), "table(): average is chosen when results are loaded"),
        (lambda: results.table(train_on="own"), "table(): train_on is chosen when results are loaded"),
        (lambda: results.table(against="paper"), "load results with average='subjects'"),
        (lambda: results.table(metrics="breir"), "Did you mean 'brier'"),
        (lambda: results.compare("ccps"), "at least two different methods"),
        (lambda: results.table(against="sideways"), "expected one of paper, got 'sideways'"),
        (lambda: report(results, out=tmp_path), "expected the name of a file, got a folder"),
        (lambda: results.figures.wins(task=TASKS[0], methods="ccps"), "no two of these methods were tested"),
        (lambda: results.figures.reliability(methods="ccpss"), "no result of method 'ccpss'; there are"),
    ):
        with pytest.raises(UserError) as told:
            call()
        assert said in str(told.value)
