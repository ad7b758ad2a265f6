"""Choice of methods, metrics, models, tasks and order: the same in every format, with the ranks of all methods."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bench import load_results
from bench.api import UserError
from bench.metrics import METRICS
from bench.report.figures import differences_to_best
from bench.report.figures import write as figure_files
from bench.report.guard.compute import compute_guards
from bench.report.page import payload
from bench.report.selection import GuardRequest, ReportRequest, Selection, View
from bench.report.tables import build, comparison, formats
from bench.report.tables.choice import apply_selection
from bench.report.tables.grid import TableViews
from bench.report.tables.model import COLUMNS, MetricValue, Table
from bench.report.tables.request import build_views, tables_of
from bench.report.text import MINUS
from bench.report.write import write
from bench.results import files
from bench.results.question_records import QuestionRecords
from bench.results.row import ResultRow
from bench.results.submissions import recomputation
from bench.stats import TESTED, Interval
from tests.fixtures.readable import words
from tests.kit.tables import planted, scored
from tests.kit.world import Answers, write_result

KINDS = ("terminal", "md", "tex", "csv", "json")
METHODS = ("sequence-probability", "ptrue", "litcab", "ccps", "mine", "ccps+platt")
SKILLS = dict(zip(METHODS, (0.93, 0.1, 0.5, 0.95, 0.2, 0.4), strict=True))
ANSWERS = Answers.drawn(120, seed=1, noise=1.0)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Methods of all groups, one recalibrated and one not built in; a second model has three of them, and two tasks."""
    folder = tmp_path_factory.mktemp("results")
    places: list[tuple[str, str, tuple[str, ...]]] = [("llama8b", "mmlu-choice", METHODS)]
    places += [("qwen14b", task, ("ptrue", "ccps", "litcab")) for task in ("mmlu-choice", "medmcqa-choice")]
    for model, task, methods in places:
        for method in methods:
            confidence = ANSWERS.confidences(SKILLS[method], len(method), slope=2.0)
            fields = {"model": model, "task": task, "preset": "fixed"}
            write_result(folder, method, confidence, ANSWERS.correct, subjects=4, **fields)
    return folder


@pytest.fixture(scope="module")
def llama(out: Path, cache: Path) -> list[Table]:
    """The tables of the first model, which is one."""
    return tables_of(View(out, models=("llama8b",)), cache)


def chosen(tables: Sequence[Table], *, stats: bool = False, **choices: Any) -> TableViews:
    return build.table_views(apply_selection(tables, Selection(**choices)), stats=stats)


def records_of(views: TableViews) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(formats.render(views, "csv"))))


def text(views: TableViews, kind: str = "md") -> str:
    return " ".join(formats.render(views, kind, width=160).split())


@pytest.mark.parametrize("headline", ["brier", "auroc", "ece", "aurc", None])
def test_rows_have_the_order_of_the_headline_everywhere(llama: list[Table], headline: str | None) -> None:
    views = chosen(llama, headline=headline, stats=True)
    records, judge = records_of(views), "rmsce" if headline == "ece" else headline or "brier"
    order = [record["method"] for record in records]
    assert [line["method"] for line in views.data()[0]["lines"]] == order
    assert [row.cells[0].text for row in views.grids[0].rows if not row.is_subrow] == order
    sign = -1 if METRICS[judge].higher_is_better else 1
    value = {record["method"]: sign * float(record[f"{judge}_mean"]) for record in records}
    for block in (("ptrue", "litcab", "ccps"), ("sequence-probability", "mine")):
        assert [name for name in order if name in block] == sorted(block, key=value.__getitem__)
    assert {record["sorted_by"] for record in records} == {headline or "brier"}


def test_ranks_and_verdict_are_among_all_methods(llama: list[Table]) -> None:
    whole, some = chosen(llama), chosen(llama, methods=("mine", "ptrue"))  # the worst
    said = "Shown are 2 of 6 methods; ranks, marks and the verdict are of all 6."
    of_all = {record["method"]: record for record in records_of(whole)}
    for record in records_of(some):
        assert record == {**of_all[record["method"]], "caption": record["caption"]}
        assert said in record["caption"]
    (found,), (all_of_them,) = some.data(), whole.data()
    assert found["verdict"] == {**all_of_them["verdict"], "leaders": []}  # none is shown
    compared = {pair[end]["method"] for pair in found["comparisons"] for end in ("first", "second")}
    assert compared == {"mine", "ptrue"}
    (grid,) = some.grids
    assert [row.cells[0].text for row in grid.rows] == ["ptrue", "mine"]
    assert not any(row.is_shaded or "▸" in cell.text for row in grid.rows for cell in row.cells)
    assert "▸" in text(whole)
    for kind in ("terminal", "md", "tex"):
        assert said in text(some, kind)
        assert not re.search("▸|triangleright|rowcolor", text(some, kind).split("xcolor}.")[-1])


@pytest.mark.parametrize(
    ("methods", "found"),
    [
        (("paper",), {"ptrue", "litcab", "ccps", "ccps+platt"}),
        (("untrained",), {"ptrue", "sequence-probability", "mine"}),
        (("all",), set(METHODS)),
        (("ccps",), {"ccps"}),
        (("ccps", "untrained"), {"ccps", "ptrue", "sequence-probability", "mine"}),
        (("ccps+platt",), {"ccps+platt"}),
    ],
)
def test_groups_stand_for_their_methods(llama: list[Table], methods: tuple[str, ...], found: set[str]) -> None:
    assert {record["method"] for record in records_of(chosen(llama, methods=methods))} == found


def test_methods_that_one_table_lacks_are_named_there(out: Path, cache: Path) -> None:
    sheet = build_views(View(out, methods=("mine",)), cache)
    grids = {grid.facts[0]: grid for grid in sheet.grids if " on " in grid.facts[0]}
    assert len(grids["llama8b on mmlu-choice"].rows) == 1
    lacking = grids["qwen14b on mmlu-choice"]
    said = ("mine has no result in the table of qwen14b on mmlu-choice",)
    assert (lacking.rows, lacking.remarks) == ((), said)
    for methods, remarks in ((("ccps", "litcab", "ptrue", "mine"), said), (("all",), ())):  # which hide nothing
        _, table = tables_of(View(out, methods=methods, tasks=("mmlu-choice",)), cache)
        assert (len(table.lines), table.remarks) == (3, remarks)
    assert all("mine" in formats.render(sheet, kind, width=80) for kind in KINDS)


def labels_of(views: TableViews) -> list[str]:
    return [column.label for column in views.grids[0].columns]


def test_metrics_stand_in_the_order_asked_for(llama: list[Table]) -> None:
    views = chosen(llama, metrics=("auroc", "ece", "nll"))
    assert labels_of(views) == ["method", "rank", "AUROC ↑", "ECE/floor ↓", "NLL ↓", "labels", "group"]
    assert [key for key in records_of(views)[0] if key.endswith("_mean")] == ["auroc_mean", "ece_mean", "nll_mean"]
    (table,) = json.loads(formats.render(views, "json"))
    assert {name for line in table["lines"] for name in line["metrics"]} == {"auroc", "ece", "nll"}
    assert {pair["metric"] for pair in table["comparisons"]} == {"auroc", "rmsce", "nll"}
    every = {re.sub("/floor| [↑↓]", "", label) for label in labels_of(chosen(llama, metrics=("all",)))}
    assert {METRICS[name].label for name in METRICS} <= every


@pytest.mark.parametrize(
    ("headline", "judge", "name"), [("auroc", "auroc", "AUROC"), ("ece", "rmsce", "RMS calibration error")]
)
def test_headline_that_is_not_shown_is_said(llama: list[Table], headline: str, judge: str, name: str) -> None:
    said = f"Rows are in the order of the mean {name}, which is not shown."
    choice: dict[str, Any] = {"methods": ("ptrue", "ccps"), "headline": headline}
    assert said in text(chosen(llama, metrics=("ece",), **choice))
    assert said not in text(chosen(llama, metrics=("ece", judge), **choice))


def test_numbers_that_are_not_shown_are_not_computed(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[str] = []

    def seen(row: ResultRow, _: QuestionRecords) -> ResultRow:
        computed.append(row.task)
        return row

    monkeypatch.setattr(recomputation, "recompute_row", seen)
    tables_of(View(out, tasks=("medmcqa-choice",)), None)
    assert set(computed) == {"medmcqa-choice"}


def test_models_and_tasks_can_be_chosen(out: Path, cache: Path) -> None:
    def found(**choice: tuple[str, ...]) -> list[tuple[str, str]]:
        return [(table.model, table.task) for table in tables_of(View(out, **choice), cache)]  # type: ignore[arg-type]

    assert found(models=("qwen14b",)) == [("qwen14b", "medmcqa-choice"), ("qwen14b", "mmlu-choice")]
    assert found(models=("qwen14b", "llama8b"), tasks=("mmlu-choice",)) == [
        ("llama8b", "mmlu-choice"), ("qwen14b", "mmlu-choice")
    ]  # fmt: skip


THERE: dict[str, Any] = {"train_on": "there/train", "config": {"train_on": "there"}}


def write_corpora(folder: Path) -> None:
    """A method that reads no label, and one that learned on the task's own corpus and on another."""
    for method, fields in (("sequence-probability", {}), ("ccps", {"train_on": "here/train"}), ("ccps", THERE)):
        write_result(folder, method, ANSWERS.confidences(SKILLS[method], 1), ANSWERS.correct, **fields)


def test_tables_of_other_corpora_stand_apart(tmp_path: Path) -> None:
    """Methods that read no label stand in both, so that each is compared with all that a user could take."""
    write_corpora(tmp_path)

    def found(corpus: str | None) -> list[tuple[str, list[str]]]:
        tables = tables_of(View(tmp_path, train_on=corpus), None)
        return [(table.facts[0], sorted(line.key.label for line in table.lines)) for table in tables]

    here = ("tiny on atlas-choice", ["ccps", "sequence-probability"])
    there = ("tiny on atlas-choice, learned on there", here[1])
    assert found(None) == [here, there]
    assert found("own") == [here]
    assert found("there") == [there]
    with pytest.raises(UserError, match="--train-on: no method that learned on 'the'; there are own, there"):
        found("the")


def test_own_corpus_is_that_of_methods_without_labels(tmp_path: Path) -> None:
    write_result(tmp_path, "ptrue", ANSWERS.confidences(0.5, 1), ANSWERS.correct)
    assert len(tables_of(View(tmp_path, train_on="own"), None)) == 1
    with pytest.raises(UserError, match="--train-on: no method that learned on 'there'; there are own"):
        tables_of(View(tmp_path, train_on="there"), None)


def test_failed_rows_stand_in_the_corpus_of_others() -> None:
    """A failed row doesn't say whether its method reads labels, unless the method learned elsewhere, too."""
    failed: dict[str, Any] = {"train_on": None, "status": "failed", "reason": "too few samples"}

    def found(*rows: ResultRow) -> list[tuple[str, list[str]]]:
        return [(t.facts[0], sorted(line.key.label for line in t.lines)) for t in build.build(rows)]

    there = "tiny on atlas-choice, learned on there"
    rows = [scored("self-consistency", **failed), scored(**THERE)]
    assert found(*rows) == [(there, ["ccps", "self-consistency"])]
    rows = [scored(**failed), scored(**THERE), scored("ptrue", train_on=None)]
    assert found(*rows) == [("tiny on atlas-choice", ["ccps", "ptrue"]), (there, ["ccps", "ptrue"])]


def test_results_that_another_table_has_are_not_denied(tmp_path: Path) -> None:
    write_corpora(tmp_path)
    write_result(tmp_path, "litcab", ANSWERS.confidences(0.5, 2), ANSWERS.correct, train_on="here/train")
    here, there = build_views(View(tmp_path, compare=("litcab", "ccps")), None).grids
    assert here.remarks == ()
    assert there.remarks == ("litcab has no result in the table of tiny on atlas-choice, learned on there",)


def test_corpora_of_hidden_methods_tell_tables_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The method that is shown reads no label, so it stands in both tables."""
    write_corpora(tmp_path)
    only: dict[str, Any] = {"methods": ("sequence-probability",)}
    tables, records_of = tables_of(View(tmp_path, **only), None), partial(files.records_of, results=tmp_path)
    assert [grid.label for grid in build.table_views(tables).grids] == ["tiny-atlas-choice", "tiny-atlas-choice-there"]
    guards = compute_guards(GuardRequest(tmp_path, risk=0.5, **only), None, print)
    assert [guard.aside for guard in guards] == ["", "learned on there"]
    blocks = payload(tables, records_of, lambda *_: {})["blocks"]
    assert [block["label"] for block in blocks] == ["", "learned on there"]
    assert not any("learned on there" in fact for fact in blocks[1]["facts"])
    endings: list[str] = []

    def noted(_: Sequence[Table], __: object, ending: str) -> tuple[()]:
        endings.append(ending)
        return ()

    monkeypatch.setattr(figure_files, "_figures", noted)
    figure_files.write_figures(tables, records_of, tmp_path / "figures")
    assert endings == ["", "--on-there"]


@pytest.mark.parametrize(
    ("view", "complaint"),
    [
        ({"methods": ("ccsp",)}, r"--method: no result of method 'ccsp'; there are ccps, .*Did you mean 'ccps'\?"),
        ({"methods": ("papre",)}, r"and the groups paper, untrained, trained, all\. Did you mean 'paper'\?"),
        ({"metrics": ("aurok",)}, r"--metrics: no metric 'aurok'; there are ece, .*, all\. Did you mean 'auroc'\?"),
        ({"metrics": ("ECE",)}, r"--metrics: no metric 'ECE'"),
        ({"headline": "brir"}, r"--sort: no metric 'brir'; there are ece, .*Did you mean 'brier'\?"),
        ({"headline": "ece_floor"}, "--sort: neither more nor less of ece_floor is better; sort by one of acc, "),
        ({"models": ("lama8b",)}, r"--models: no result of model 'lama8b'; .*llama8b, qwen14b\. Did you mean 'llama8b"),
        ({"tasks": ("mmlu",)}, "--tasks: no result of task 'mmlu'; there are medmcqa-choice, mmlu-choice"),
        ({"models": ("llama8b",), "tasks": ("medmcqa-choice",)}, "no result of llama8b on medmcqa-choice; leave out"),
    ],
)
def test_names_that_are_unknown_are_one_sentence(
    out: Path, cache: Path, tmp_path: Path, view: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(UserError, match=complaint):
        build_views(View(out, **view), cache)
    if "methods" in view:
        with pytest.raises(UserError, match=complaint):
            write(ReportRequest(results=out, out=tmp_path / "r.html", **view), cache)
        assert not list(tmp_path.glob("*.html"))


def test_groups_without_a_method_are_refused() -> None:
    tables = build.build([scored("ptrue"), scored("sequence-probability")])
    with pytest.raises(UserError, match=r"no result of a method of group 'trained'; there are ptrue, sequence-prob"):
        apply_selection(tables, Selection(methods=("trained",)))


def test_statistics_follow_the_metrics(llama: list[Table]) -> None:
    (main,) = chosen(llama, metrics=("nll", "aurc"), stats=True).grids
    assert "these subjects" in [row.cells[0].text for row in main.rows]
    assert any(column.label == "labels" and column.is_in_latex for column in main.columns)
    (_, calibration) = chosen(llama, metrics=("ece", "nll"), stats=True).grids
    assert [column.label for column in calibration.columns] == ["method", "p calibrated"]


@pytest.mark.parametrize("width", [60, 80, 160])
def test_statistics_have_no_row_without_a_number(llama: list[Table], width: int) -> None:
    drawn = formats.render(build.table_views(llama, stats=True), "terminal", width=width)
    assert max(map(len, drawn.splitlines())) <= width
    under = re.findall(r"^  (?:these subjects|std over subjects|std between seeds)(.*)$", drawn, re.MULTILINE)
    assert under
    assert all(re.search(r"\d", row) for row in under)
    reason = "no interval (other subjects): 20 subjects are needed to speak of others, there are 4"
    assert " ".join(drawn.split()).count(reason) == 1


@pytest.mark.parametrize(
    ("metrics", "found"), [(("auroc", "ece"), ["auroc", "rmsce"]), (("all",), list(TESTED))], ids=["two", "all"]
)
def test_comparison_follows_the_metrics(llama: list[Table], metrics: tuple[str, ...], found: list[str]) -> None:
    records = comparison.build(apply_selection(llama, Selection(metrics=metrics)), ["ccps", "ptrue"]).records()
    assert [record["metric"] for record in records] == found


def test_rounding_hides_no_sign_of_an_end() -> None:
    table, near = planted({"ptrue": 0.1, "ccps": 0.2}), Interval("fixed-subjects", -0.0102, -0.0002, 0.95, "t")
    assert table.standings
    pairs = tuple(replace(pair, fixed=near, difference=-0.00031) for pair in table.standings.pairs)
    table = replace(table, standings=replace(table.standings, pairs=pairs))
    (grid,) = comparison.build([table], ["ptrue", "ccps"]).grids
    assert {tuple(cell.text for cell in row.cells[3:5]) for row in grid.rows if "Brier" in row.cells[2].text} == {
        (f"{MINUS}0.03", f"{MINUS}1.0 to {MINUS}0.02")
    }
    forest = words(differences_to_best([planted({"ptrue": 0.1, "ccps": 0.1001})]))
    assert any(text.removeprefix("\u2248 ").startswith("+0.010") for text in forest)


def test_page_and_its_figures_follow_the_choice(out: Path, cache: Path, tmp_path: Path) -> None:
    wanted = ReportRequest(
        results=out, methods=("ccps", "ptrue"), metrics=("auroc", "nll"), headline="auroc", models=("llama8b",),
        out=tmp_path / "r.html",
    )  # fmt: skip
    (page,) = write(wanted, cache)
    html = page.read_text(encoding="utf-8")
    (first, *_) = re.findall(r'"sets": ?(\[.*?\]\}\])', html)
    assert json.loads(first)[0] == {"label": "Chosen", "metrics": [list(METRICS).index(m) for m in ("auroc", "nll")]}
    assert "Shown are 2 of 6 methods" in html
    assert '"litcab"' not in html
    assert "qwen14b" not in html


@pytest.mark.slow
def test_tables_without_requested_methods_are_left_out(out: Path, cache: Path, tmp_path: Path) -> None:
    wanted = ReportRequest(results=out, methods=("mine",), out=tmp_path / "r.html", figures=tmp_path / "figures")
    page, *figures = write(wanted, cache)
    assert figures
    lacking = "; ".join(
        f"mine has no result in the table of qwen14b on {task}" for task in ("medmcqa-choice", "mmlu-choice")
    )
    assert f"Tables left out: {lacking}." in page.read_text(encoding="utf-8")
    found = load_results(out, methods="mine", cache=cache, quiet=True)
    assert found.figures.reliability()
    assert len(found.verdict()) == 3


def test_equal_means_keep_the_order_of_figures() -> None:
    rows = [scored(method) for method in ("ccps", "lts", "ptrue", "litcab")]
    for given in (rows, rows[::-1]):
        (table,) = build.build(given)
        for headline in COLUMNS[1:]:
            lines = table.ordered_by(headline).lines
            assert [line.method for line in lines] == [line.method for line in table.ordered_lines]


def test_spread_that_is_rounding_is_0() -> None:
    assert MetricValue(by_seed=(0.1, 0.1 + 3e-17, 0.1)).spread == 0.0
    assert MetricValue(by_seed=(0.1, 0.2)).spread == pytest.approx(0.0707, abs=1e-4)
    assert MetricValue(by_seed=(0.1,)).spread is None


def test_labels_of_latex_are_safe_and_differ() -> None:
    rows = [scored(model="org/x_1%", task="a&b"), scored(model="org/x_1%", task="a&b", limit=3)]
    drawn = formats.render(build.table_views(build.build(rows, partial=True)), "tex")
    assert re.findall(r"\\label\{(.*?)\}", drawn) == ["tab:org-x-1-a-b-1", "tab:org-x-1-a-b-2"]
    assert drawn.startswith(r"% Needs \usepackage{booktabs,graphicx} and \usepackage[table]{xcolor}.")
    assert "& labels" not in drawn
