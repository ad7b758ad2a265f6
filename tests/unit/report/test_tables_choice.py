"""Choice of methods, metrics, models, tasks and order: the same in every format, with the ranks of all methods."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from bench.api import UserError
from bench.cli import app
from bench.metrics import METRICS
from bench.report.grouping import Key
from bench.report.selection import Layout, ReportRequest, Selection, View
from bench.report.tables import build, comparison, formats
from bench.report.tables.choice import apply_selection
from bench.report.tables.model import COLUMNS, MetricValue, Table
from bench.report.tables.request import build_views, tables_of
from bench.report.text import MINUS
from bench.report.write import write
from bench.results.question_records import QuestionRecords
from bench.results.row import ResultRow
from bench.results.submissions import recomputation
from bench.stats import TESTED, Interval
from tests.unit.report.test_tables import brier, cell, judged, with_rmsce
from tests.unit.report.test_tables_on_disk import put

KINDS = ("terminal", "md", "tex", "csv", "json")
METHODS = ("sequence-probability", "ptrue", "litcab", "ccps", "mine", "ccps+platt")
SKILLS = dict(zip(METHODS, (0.93, 0.1, 0.5, 0.95, 0.2, 0.4), strict=True))


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Methods of all groups, one recalibrated and one not built in; a second model has three of them, and two tasks."""
    folder = tmp_path_factory.mktemp("results")
    for method, skill in SKILLS.items():
        put(folder, method, skill=skill)
    for method in ("ptrue", "ccps", "litcab"):
        put(folder, method, model="qwen14b")
        put(folder, method, model="qwen14b", task="medmcqa-choice")
    return folder


@pytest.fixture(scope="module")
def llama(out: Path, cache: Path) -> list[Table]:
    """The tables of the first model, which is one."""
    return tables_of(View(out, models=("llama8b",)), cache)


def text(tables: Sequence[Table], kind: str, *, stats: bool = False, **choices: object) -> str:
    found = apply_selection(tables, Selection(**choices))  # type: ignore[arg-type]
    return formats.render(build.table_views(found, stats=stats), kind, width=160)


def names(drawn: str, kind: str) -> list[str]:
    """Methods in the order in which a format shows them."""
    if kind == "csv":
        return [record["method"] for record in csv.DictReader(io.StringIO(drawn))]
    if kind == "json":
        return [line["method"] for table in json.loads(drawn) for line in table["lines"]]
    drawn = re.sub(r"\\rowcolor\{black!8\}|\\textsuperscript\{.*?\}|\\textbf\{|<sup>.*?</sup>|[*¹²³⁴⁵˒}]", "", drawn)
    drawn = drawn.replace(r"\+", "+")
    start = {"terminal": "method ", "md": "| method ", "tex": "method &"}[kind]
    lines = drawn.splitlines()
    rows = lines[next(i for i, line in enumerate(lines) if line.startswith(start)) + 1 :]
    rows = rows[: rows.index("")] if "" in rows[:20] and kind == "md" else rows
    first = [line.lstrip("| ").partition(" ")[0] for line in rows]
    return [word for word in first if word in METHODS][: len(METHODS)]


@pytest.mark.parametrize("headline", ["brier", "auroc", "ece", "aurc", None])
def test_rows_are_in_the_order_of_the_headline_in_every_format(llama: list[Table], headline: str | None) -> None:
    orders = {kind: names(text(llama, kind, headline=headline), kind) for kind in KINDS}
    assert len({tuple(order) for order in orders.values()}) == 1
    records = list(csv.DictReader(io.StringIO(text(llama, "csv", headline=headline, stats=True))))
    judge = "rmsce" if headline == "ece" else headline or "brier"
    sign = -1 if METRICS[judge].higher_is_better else 1
    value = {record["method"]: sign * float(record[f"{judge}_mean"]) for record in records}
    for block in (("ptrue", "litcab", "ccps"), ("sequence-probability", "mine")):
        order = [name for name in orders["csv"] if name in block]
        assert order == sorted(block, key=lambda method: value[method])
    assert {record["sorted_by"] for record in records} == {headline or "brier"}


def test_the_leading_group_is_marked_in_every_format(llama: list[Table]) -> None:
    (table,) = llama
    leaders = {line.method for line in table.leaders()}
    assert 0 < len(leaders) < len(METHODS)
    drawn = {kind: text(llama, kind) for kind in KINDS}
    assert set(re.findall(r"^(\S+?)¹? +▸1 ", drawn["terminal"], re.MULTILINE)) == leaders
    assert set(re.findall(r"^\| \*\*(\S+?)\*\*\S* \| \*\*▸1\*\*", drawn["md"], re.MULTILINE)) == leaders
    shaded = re.findall(r"^\\rowcolor\{black!8\}\\textbf\{(.*?)\}", drawn["tex"], re.MULTILINE)
    assert set(shaded) == leaders
    records = csv.DictReader(io.StringIO(drawn["csv"]))
    assert {record["method"] for record in records if record["leading"] == "1"} == leaders
    (found,) = json.loads(drawn["json"])
    assert {line["method"] for line in found["lines"] if line["leading"]} == leaders
    for kind in ("terminal", "md", "tex"):
        said = " ".join(drawn[kind].split())
        assert re.search(
            r"(▸|\$\\triangleright\$) \\?\(bold\\?\) marks the leading group: no ranked method has a", said
        )


def test_ranks_marks_and_verdict_are_those_among_all_methods(llama: list[Table]) -> None:
    whole = {r["method"]: r for r in csv.DictReader(io.StringIO(text(llama, "csv")))}
    (all_of_them,) = json.loads(text(llama, "json"))
    choice = {"methods": ("mine", "ptrue")}  # the worst
    for record in csv.DictReader(io.StringIO(text(llama, "csv", **choice))):
        same = {**whole[record["method"]], "caption": record["caption"]}
        assert record == same
        assert "Shown are 2 of 6 methods; ranks, marks and the verdict are of all 6." in record["caption"]
    (found,) = json.loads(text(llama, "json", **choice))
    assert found["verdict"]["sentences"] == all_of_them["verdict"]["sentences"]
    assert found["verdict"]["leaders"] == []  # none is shown
    compared = {pair[end]["method"] for pair in found["comparisons"] for end in ("first", "second")}
    assert compared == {"mine", "ptrue"}
    for kind in ("terminal", "md", "tex"):
        drawn = text(llama, kind, **choice)
        assert names(drawn, kind) == ["ptrue", "mine"]
        assert "Shown are 2 of 6 methods; ranks, marks and the verdict are of all 6." in " ".join(drawn.split())
        assert not re.search("▸|triangleright|rowcolor", drawn.split("xcolor}.")[-1])


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
    assert set(names(text(llama, "csv", methods=methods), "csv")) == found


def test_a_method_that_one_table_lacks_is_named_there(out: Path, cache: Path) -> None:
    sheet = build_views(View(out, methods=("mine",)), cache)
    grids = {grid.facts[0]: grid for grid in sheet.grids if " on " in grid.facts[0]}
    assert len(grids["llama8b on mmlu-choice"].rows) == 1
    lacking = grids["qwen14b on mmlu-choice"]
    assert (lacking.rows, lacking.remarks) == ((), ("mine was not run with qwen14b on mmlu-choice",))
    for kind in KINDS:
        assert "mine" in formats.render(sheet, kind, width=80)


def test_metrics_stand_in_the_order_in_which_they_were_asked_for(llama: list[Table], out: Path, cache: Path) -> None:
    choice = {"metrics": ("auroc", "ece", "nll")}
    wanted = ["AUROC ↑", "ECE/floor ↓", "NLL ↓"]
    head = next(line for line in text(llama, "md", **choice).splitlines() if line.startswith("| method"))
    assert head.split(" | ")[2:-1] == wanted
    assert re.search(r"^method +rank +AUROC ↑ +ECE/floor ↓ +NLL ↓", text(llama, "terminal", **choice), re.MULTILINE)
    assert r"method & rank & AUROC $\uparrow$ & ECE/floor $\downarrow$ & NLL $\downarrow$ \\" in text(
        llama, "tex", **choice
    )
    (record, *_) = csv.DictReader(io.StringIO(text(llama, "csv", **choice)))
    assert [key for key in record if key.endswith("_mean")] == ["auroc_mean", "ece_mean", "nll_mean"]
    (table,) = json.loads(text(llama, "json", **choice))
    assert {name for line in table["lines"] for name in line["metrics"]} == {"auroc", "ece", "nll"}
    assert {pair["metric"] for pair in table["comparisons"]} == {"auroc", "rmsce", "nll"}
    (grid,) = build_views(
        View(out, layout=Layout.MODELS, tasks=("medmcqa-choice",), metrics=("nll", "ece")), cache
    ).grids
    assert [column.label for column in grid.columns] == ["method", "rank", "NLL ↓", "ECE ↓"]
    every = build.table_views(apply_selection(llama, Selection(metrics=("all",)))).grids[0]
    assert {METRICS[name].label for name in METRICS} <= {re.sub("/floor| [↑↓]", "", c.label) for c in every.columns}


def test_a_headline_that_is_not_shown_is_said(llama: list[Table]) -> None:
    said = "Rows are in the order of the mean AUROC, which is not shown."
    choice = {"methods": ("ptrue", "ccps"), "headline": "auroc"}
    assert said in " ".join(text(llama, "md", metrics=("ece",), **choice).split())
    assert said not in " ".join(text(llama, "md", metrics=("ece", "auroc"), **choice).split())
    said = "Rows are in the order of the mean RMS calibration error, which is not shown."
    choice["headline"] = "ece"  # by RMSCE
    assert said in " ".join(text(llama, "md", metrics=("ece",), **choice).split())
    assert said not in " ".join(text(llama, "md", metrics=("ece", "rmsce"), **choice).split())


def test_numbers_of_what_is_not_shown_are_not_computed(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[str] = []

    def seen(row: ResultRow, _: QuestionRecords) -> ResultRow:
        computed.append(row.task)
        return row

    monkeypatch.setattr(recomputation, "recompute_row", seen)
    tables_of(View(out, tasks=("medmcqa-choice",)), None)
    assert set(computed) == {"medmcqa-choice"}


def test_models_and_tasks_can_be_chosen(out: Path, cache: Path) -> None:
    tables = tables_of(View(out, models=("qwen14b",)), cache)
    assert [(table.model, table.task) for table in tables] == [
        ("qwen14b", "medmcqa-choice"),
        ("qwen14b", "mmlu-choice"),
    ]
    tables = tables_of(View(out, models=("qwen14b", "llama8b"), tasks=("mmlu-choice",)), cache)
    assert [table.model for table in tables] == ["llama8b", "qwen14b"]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--method", "ccsp"), r"--method: no result of method 'ccsp'; there are ccps, .*Did you mean 'ccps'\?"),
        (("--method", "papre"), r"and the groups paper, untrained, trained, all\. Did you mean 'paper'\?"),
        (("--metrics", "aurok"), r"--metrics: no metric 'aurok'; there are ece, .*, all\. Did you mean 'auroc'\?"),
        (("--metrics", "ECE"), r"--metrics: no metric 'ECE'"),
        (("--sort", "brir"), r"--sort: no metric 'brir'; there are ece, .*Did you mean 'brier'\?"),
        (("--sort", "ece_floor"), "--sort: neither more nor less of ece_floor is better; sort by one of acc, "),
        (("--models", "lama8b"), r"--models: no result of model 'lama8b'; .*llama8b, qwen14b\. Did you mean 'llama8b'"),
        (("--tasks", "mmlu"), "--tasks: no result of task 'mmlu'; there are medmcqa-choice, mmlu-choice"),
        (("--models", "llama8b", "--tasks", "medmcqa-choice"), "no result of llama8b on medmcqa-choice; leave out one"),
    ],
)
def test_unknown_names_are_one_sentence(
    out: Path, cache: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    options: Sequence[str], complaint: str,
) -> None:  # fmt: skip
    monkeypatch.setenv("CONFBENCH_CACHE", str(cache))
    monkeypatch.setattr("sys.argv", ["bench", "table", "--results", str(out), *options])
    with pytest.raises(SystemExit) as stop:
        app.main()
    assert stop.value.code == 2
    assert re.search(complaint, " ".join(capsys.readouterr().err.split()))


def test_reports_of_wrong_names_are_not_written(out: Path, cache: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no result of method 'ccsp'"):
        write(ReportRequest(results=out, methods=("ccsp",), out=tmp_path / "r.html"), cache)
    assert not list(tmp_path.glob("*.html"))


def test_a_group_without_a_method_says_so() -> None:
    tables = build.build([cell("ptrue"), cell("sequence-probability")])
    with pytest.raises(UserError, match=r"no result of a method of group 'trained'; there are ptrue, sequence-prob"):
        apply_selection(tables, Selection(methods=("trained",)))


def test_statistics_follow_the_metrics(llama: list[Table]) -> None:
    (main,) = build.table_views(apply_selection(llama, Selection(metrics=("nll", "aurc"))), stats=True).grids
    assert "these subjects" in [row.cells[0].text for row in main.rows]
    assert any(column.label == "labels" and column.is_in_latex for column in main.columns)
    (_, calibration) = build.table_views(apply_selection(llama, Selection(metrics=("ece", "nll"))), stats=True).grids
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


def test_a_comparison_follows_the_metrics(llama: list[Table]) -> None:
    for metrics, found in ((("auroc", "ece"), ["auroc", "rmsce"]), (("all",), [*TESTED])):
        tables = apply_selection(llama, Selection(metrics=metrics))
        records = comparison.build(tables, ["ccps", "ptrue"]).records()
        assert sorted(str(record["metric"]) for record in records) == sorted(found)
        assert metrics == ("all",) or [record["metric"] for record in records] == found


def test_rounding_hides_no_sign_of_an_end() -> None:
    def near_zero(lines: dict[Key, Sequence[object]]) -> object:
        found = judged(lines)
        near = Interval("fixed-subjects", -0.0102, -0.0002, 0.95, "t")
        return replace(found, pairs=tuple(replace(pair, fixed=near, difference=-0.00031) for pair in found.pairs))

    tables = build.build([cell(), cell("ptrue")], standings_of=near_zero)  # type: ignore[arg-type]
    (grid,) = comparison.build(tables, ["ptrue", "ccps"]).grids
    assert {tuple(cell.text for cell in row.cells[3:5]) for row in grid.rows if "Brier" in row.cells[2].text} == {
        (f"{MINUS}0.03", f"{MINUS}1.0 to {MINUS}0.02")
    }


def test_the_page_and_its_figures_follow_the_choice(out: Path, cache: Path, tmp_path: Path) -> None:
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


# --- leaders ----------------------------------------------------------------------------------------------------------


def leaders(table: Table, metric: str | None = None) -> list[str]:
    return [line.method for line in table.leaders(metric)]


def test_leaders_are_of_the_block_without_recalibration_and_are_not_chosen_anew() -> None:
    rows = [brier("ccps", 0.1), brier("ptrue", 0.2), brier("ccps+platt", 0.05), brier("lts", 0.3)]
    (table,) = build.build(rows, standings_of=lambda lines: ranked(lines, {"ccps": 1, "ptrue": 1, "lts": 3}))
    assert leaders(table) == ["ccps", "ptrue"]
    assert leaders(table.with_lines({Key("lts", ""), Key("ccps+platt", "")})) == ["ccps", "ptrue"]
    assert leaders(table.with_lines({Key("lts", "")}).with_hidden_lines()) == ["ccps", "ptrue"]
    (alone,) = build.build(rows[2:3], standings_of=lambda lines: ranked(lines, {}))
    assert leaders(alone) == []  # it was tested against nobody
    assert leaders(build.build(rows)[0]) == []  # nothing was ranked


def ranked(lines: dict[Key, Sequence[object]], ranks: dict[str, int]) -> object:
    found = judged(lines)
    told = {key: replace(line, ranks={"brier": ranks.get(key.method, 1)}) for key, line in found.lines.items()}
    return replace(found, lines=told)


def test_by_ece_nothing_leads_that_does_not_order_answers() -> None:
    rows = [
        cell("pik", metrics=with_rmsce(-0.02)),
        cell(metrics=with_rmsce(0.01)),
        cell("lts", metrics=with_rmsce(0.01)),
    ]
    (table,) = build.build(
        rows,
        standings_of=lambda lines: judged(lines, better=(), unordered=("pik",)),  # type: ignore[arg-type,return-value]
    )
    assert {*leaders(table, "ece")} == {*leaders(table, "rmsce")} == {"ccps", "lts"}
    assert "pik" in leaders(table, "brier")


def test_equal_means_keep_the_order_of_figures() -> None:
    rows = [brier(method, 0.2) for method in ("ccps", "lts", "ptrue", "litcab")]
    for given in (rows, rows[::-1]):
        (table,) = build.build(given)
        for headline in COLUMNS[1:]:
            lines = table.ordered_by(headline).lines
            assert [line.method for line in lines] == [line.method for line in table.ordered_lines]


def test_a_spread_that_is_rounding_is_0() -> None:
    assert MetricValue(by_seed=(0.1, 0.1 + 3e-17, 0.1)).spread == 0.0
    assert MetricValue(by_seed=(0.1, 0.2)).spread == pytest.approx(0.0707, abs=1e-4)
    assert MetricValue(by_seed=(0.1,)).spread is None


# --- LaTeX ------------------------------------------------------------------------------------------------------------


def test_labels_of_latex_are_safe_and_differ() -> None:
    rows = [brier("ccps", 0.1, model="org/x_1%", task="a&b"), brier("ccps", 0.1, model="org/x_1%", task="a&b", limit=3)]
    drawn = build.render(build.build(rows, partial=True), "tex")
    assert re.findall(r"\\label\{(.*?)\}", drawn) == ["tab:org-x-1-a-b-1", "tab:org-x-1-a-b-2"]
    assert drawn.startswith(r"% Needs \usepackage{booktabs,graphicx} and \usepackage[table]{xcolor}.")
    assert "& labels" not in drawn
