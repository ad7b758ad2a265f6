"""The page's answer: verdict first, static as drawn, marks as in the terminal, address, saving, print, speed."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from bench.metrics import METRICS
from bench.report import page as report
from bench.report.selection import ReportRequest, View
from bench.report.tables import layout
from bench.report.tables.build import build
from bench.report.tables.formats import render
from bench.report.tables.model import COLUMNS, Table
from bench.report.tables.request import build_views, tables_of
from bench.report.verdict import verdict_of
from bench.report.write import write
from bench.stats import Interval
from tests.browser.conftest import Tab, asked, records_of, tables
from tests.fixtures import large_page as large

pytestmark = pytest.mark.browser

RESULTS = Path(__file__).parents[2] / "results"
BOARD = "#leaderboard-table"
TEXTS = """table => [...table.rows].map((row) => [...row.cells].map((cell) => {
  const copy = cell.cloneNode(true);
  for (const order of copy.querySelectorAll(".order")) order.remove();
  return copy.textContent;
}))"""


@pytest.fixture(scope="module")
def committed(tmp_path_factory) -> tuple[str, list[Table], Path]:
    """The page of two seeds of eight methods of this repository's results, their tables, and the folder of both."""
    folder = tmp_path_factory.mktemp("committed")
    left_out = ("*--s2.*", "analyses", *(f"{method}--*" for method in ("it", "lts", "saplma-m", "saplma-um")))
    shutil.copytree(RESULTS, folder / "results", ignore=shutil.ignore_patterns(*left_out))
    wanted = ReportRequest(folder / "results", out=folder / "report.html")
    [path] = write(wanted, folder / "cache")
    return path.as_uri(), tables_of(wanted, folder / "cache"), folder


@pytest.fixture(scope="module")
def big(tmp_path_factory) -> tuple[str]:
    """The large page."""
    path = report.write(tmp_path_factory.mktemp("big") / "report.html", large.payload())
    return (path.as_uri(),)


@pytest.fixture(scope="module")
def plain(chromium) -> Iterator[Any]:
    """A page of a browser that runs no scripts."""
    context = chromium.new_context(java_script_enabled=False)
    yield context.new_page()
    context.close()


@pytest.fixture(scope="module")
def tab(chromium) -> Iterator[Tab]:
    """A tab that all tests of this file use."""
    tab = Tab(chromium)
    yield tab
    tab.context.close()


@pytest.fixture
def visit(tab):
    """`visit(address, width=, height=)` shows a page; afterwards it must have been silent."""
    shown: list[str] = []

    def show(address: str, width: int = 1280, height: int = 800) -> Any:
        shown.append(address)
        tab.page.set_viewport_size({"width": width, "height": height})
        tab.page.emulate_media(media="screen", forced_colors="none", color_scheme="light")
        tab.page.goto("about:blank")
        tab.page.goto(address)
        return tab.page

    yield show
    tab.leave(*shown)


# --- the answer first -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [(1280, 800), (400, 800)])
@pytest.mark.parametrize("which", ["committed", "big"])
def test_the_first_screen_answers_for_each_benchmark(visit, request, which, size):
    address, *_ = request.getfixturevalue(which)
    page = visit(address, *size)
    rows = page.locator("#verdicts tbody tr")
    tasks = 2 if which == "committed" else len(large.BENCHMARKS)
    assert rows.count() == tasks
    for row in rows.all():
        box = row.bounding_box()
        assert 0 < box["y"] < box["y"] + box["height"] <= size[1]
        assert all(cell.strip() not in {"", "\u2013"} for cell in row.locator("td, th").all_inner_texts())
    assert page.locator(".explained").all_inner_texts()[0].startswith("The Brier score is the mean squared distance")
    first = page.evaluate("[...document.querySelectorAll('main h2, main table, main form')].map(n => n.id)")
    assert first[:2] == ["verdict-title", "verdicts"]


def test_the_verdict_says_what_the_tests_say(visit, committed):
    address, tables, _ = committed
    page = visit(address)
    for row, table in zip(page.locator("#verdicts tbody tr").all(), tables, strict=True):
        verdict = verdict_of(table)
        task, leads, sure, by, _, cost = row.locator("th, td").all_inner_texts()
        assert task == table.task
        assert re.split(r", | and ", leads.removesuffix(" (tied)")) == [line.method for line in verdict.leaders]
        assert [line.key for line in verdict.leaders] == [line.key for line in table.leaders()]
        assert sure.startswith(verdict.state)
        assert (by, cost) == (verdict.brief.by, verdict.brief.cost)
    said = page.locator("#sentences p").all_inner_texts()
    for text, table in zip(said, tables, strict=True):
        assert all(sentence in text for sentence in verdict_of(table).sentences)


def test_sentences_are_folded_on_narrow_screens_and_below_many_benchmarks(visit, committed, big):
    assert visit(committed[0]).locator("#sentences p").first.is_visible()
    assert visit(committed[0], 400).locator("#sentences p").first.is_hidden()
    page = visit(big[0])
    assert page.locator("#sentences p").first.is_hidden()
    page.locator("#sentences summary").click()
    assert page.locator("#sentences p").count() == len(large.BENCHMARKS) * len(large.MODELS)


def test_several_models_of_a_benchmark_share_a_row(visit, big):
    page = visit(big[0])
    for row in page.locator("#verdicts tbody tr").all():
        _, leads, sure, *_ = row.locator("th, td").all_inner_texts()
        assert re.match(r"\S+ [1-4] of 4 \((sure [1-4]|tied)\)", leads)
        assert re.fullmatch(r"[0-4] of 4", sure)


# --- static, drawn and the terminal -----------------------------------------------------------------------------------


@pytest.mark.parametrize("which", ["committed", "big"])
def test_the_static_table_is_the_one_that_is_drawn(visit, plain, request, which):
    address, *_ = request.getfixturevalue(which)
    plain.goto(address)
    cells = plain.locator(f"{BOARD} tr").evaluate_all(
        "rows => rows.map((row) => [...row.cells].map((cell) => cell.textContent))"
    )
    classes = plain.locator(f"{BOARD} tr").evaluate_all("rows => rows.map((row) => row.className)")
    legend = plain.locator("#legend").inner_text()
    page = visit(f"{address}#model=*")
    assert page.locator(f"{BOARD} table").evaluate(TEXTS) == cells
    assert page.locator(f"{BOARD} tr").evaluate_all("rows => rows.map((row) => row.className)") == classes
    assert page.locator("#legend").inner_text() == legend
    assert len(cells) > 20


def test_without_scripts_the_page_still_tells_all_of_it(plain, committed):
    plain.set_viewport_size({"width": 1280, "height": 800})
    plain.goto(committed[0])
    assert plain.locator("#verdicts tbody tr").count() == 2
    assert plain.locator("#sentences p").first.is_visible()
    assert plain.locator("#footnotes li").count() > 0
    assert plain.locator("#metric-list dt").count() == len(METRICS)
    assert plain.locator("#provenance-list dt").count() > 0
    assert [control for control in plain.locator("select, input, button").all() if control.is_visible()] == []
    swatches = plain.locator(f"{BOARD} .swatch").evaluate_all(
        "all => [...new Set(all.map(s => getComputedStyle(s).backgroundColor))]"
    )
    assert len(swatches) > 5
    number = plain.locator(f"{BOARD} sup a").first
    assert plain.locator(number.get_attribute("href")).count() == 1


def squeezed(text):
    return re.sub(r"[\s\u2007]|floor|,(best|can't|no)[^,]*", "", text)


def test_numbers_marks_ranks_and_shading_are_the_terminals(visit, plain, committed):
    address, tables, _ = committed
    plain.goto(address)
    same_as_terminal(plain, tables)
    page = visit(f"{address}#headline=nll")
    same_as_terminal(page, [table.ordered_by("nll") for table in tables])
    for headline in ("brier", "auroc", "rmsce"):
        page.locator("#headline").select_option(headline)
        same_as_terminal(page, [table.ordered_by(headline) for table in tables])


def heads(page):
    """Headings of the columns shown, without their notes."""
    return page.locator(f"{BOARD} thead th:not([hidden])").evaluate_all(
        """all => all.map((head) => {
          const copy = head.cloneNode(true);
          for (const note of copy.querySelectorAll("small, .order")) note.remove();
          return copy.textContent;
        })"""
    )


def same_as_terminal(page, tables):
    shown = page.locator(f"{BOARD} tbody tr:not(.group, .part)").evaluate_all(
        """rows => rows.map((row) => {
          const copy = row.cloneNode(true);
          for (const hidden of copy.querySelectorAll("sup, .hidden, .void")) hidden.remove();
          for (const signs of copy.querySelectorAll(".signs")) signs.parentNode.append(signs);
          const own = [...copy.cells].filter((cell) => !cell.hidden).map((cell) => cell.textContent);
          return [row.className, own];
        })"""
    )
    labels = heads(page)
    rows = iter(shown)
    for table, grid in zip(tables, layout.method_grids(tables), strict=True):
        columns = [column.label for column in grid.columns]
        leaders = {line.key for line in table.leaders()}
        for line, row in zip(table.lines, grid.rows, strict=True):
            kind, cells = next(rows)
            found = dict(zip(labels, map(squeezed, cells), strict=False))
            for label, cell in zip(columns[1:8], row.cells[1:8], strict=True):
                assert found["Rank" if label == "rank" else label] == squeezed(cell.text + cell.mark), (
                    line.method,
                    label,
                )
            assert found["Method"] == line.method
            assert (kind == "leads") == (line.key in leaders) == row.cells[0].shaded
            assert found["Rank"].lstrip("▸") == str(line.rank(table.headline) or "\u2013")
    assert next(rows, None) is None


def test_marks_on_the_page_follow_from_the_estimates(visit, committed):
    address, tables, _ = committed
    page = visit(address)
    signs = {"beyond chance": "*", "not beyond chance": "~", "not tested": "?"}
    found = page.locator(f"{BOARD} tbody tr:not(.group, .part)").evaluate_all(
        """rows => rows.map((row) => [...row.querySelectorAll("td.metric:not([hidden])")].map((cell) =>
          [cell.querySelector(".signs").textContent, cell.querySelector(".best") !== null]))"""
    )
    lines = [line for table in tables for line in table.lines]
    for cells, line in zip(found, lines, strict=True):
        for name, (text, is_bold) in zip(COLUMNS, cells, strict=True):
            best = line.estimate(name).best
            assert [sign in text for sign in signs.values()] == [best == state for state in signs]
            assert is_bold == (best == "beyond chance")


def test_the_headline_is_chosen_among_metrics_with_ranks_and_undoes_a_sort(visit, committed):
    address, tables, _ = committed
    page = visit(address)
    options = page.locator("#headline option").evaluate_all("all => all.map(o => o.value)")
    ranked = {name for line in tables[0].lines if line.standing for name in line.standing.ranks}
    assert options[0] == "brier"
    assert set(options) == ranked
    page.locator(f"{BOARD} [data-key=method] button").click()
    page.locator("#headline").select_option("nll")
    assert page.locator(f"{BOARD} [aria-sort]").count() == 0
    assert "NLL ↓" in heads(page)  # the metric that ranks is shown
    assert "significantly better NLL" in page.locator("#legend").inner_text()


# --- address ----------------------------------------------------------------------------------------------------------

STATE = """() => [
  ...["model", "task", "query", "headline", "columns", "overview-metric", "compare-block", "pair-first"].map((id) =>
    document.getElementById(id).value),
  document.getElementById("cost").checked,
  document.querySelector("#details h3")?.textContent ?? null,
  document.querySelector("#details-metric")?.value ?? null,
  document.querySelector("[data-group][aria-pressed=true]")?.dataset.group ?? null,
  document.querySelector("#question-subject")?.value ?? null,
  document.querySelector("#leaderboard-table [aria-sort]")?.getAttribute("aria-sort") ?? null,
  document.querySelector(".question[data-at] code")?.textContent ?? null,
  document.querySelector("#leaderboard-table").innerText,
]"""


def test_a_link_shows_the_same_view(visit, big):
    page = visit(big[0])
    start = page.evaluate(STATE)
    page.locator("#model").select_option("*")
    page.locator("#task").select_option("=medmcqa")
    page.locator("#query").fill("cc, sapl")
    page.locator("#headline").select_option("auroc")
    page.locator("#columns").select_option("Discrimination")
    page.locator("#cost").uncheck()
    page.locator("#overview-metric").select_option("auroc")
    page.locator("#compare-block").select_option(index=3)
    page.locator("#pair-first").select_option("lts")
    page.locator(f"{BOARD} [data-key=aurc] button").click()
    page.locator(f"{BOARD} tbody:not([hidden]) tr:not([hidden]) [data-cell]").first.click()
    page.locator("[data-group=hits]").click()
    page.locator("#question-subject").select_option(index=2)
    page.locator(".question code").first.click()
    before = page.evaluate(STATE)
    assert before != start
    again = visit(page.url)
    assert again.evaluate(STATE) == before
    again.reload()
    assert again.evaluate(STATE) == before
    again.keyboard.press("Escape")
    assert "open=" not in again.url
    assert "question=" not in again.url


def test_going_back_and_forth_moves_between_panels_and_places(visit, committed):
    page = visit(committed[0])
    page.locator(f"{BOARD} [data-cell]").first.click()
    opened = page.locator("#details h3").text_content()
    page.locator(f"{BOARD} .name sup a").first.click()
    assert page.locator("#footnotes li[data-at]").count() == 1
    page.go_back()
    assert page.locator("#details h3").text_content() == opened
    page.go_back()
    page.locator("#details").wait_for(state="hidden")
    page.go_forward()
    assert page.locator("#details h3").text_content() == opened


MALFORMED = (
    "model=%E0%A4%A&task=%ZZ&block=__proto__&first=x",
    "columns=constructor&headline=toString&sort=--x&open=a/b",
    "open=%2F%2F&question=x&group=y&subject=z&at=<img src=x>&overview=ece_none&cost=maybe",
    "&&&===!?",
)
ELSEWHERE = "headline=auroc&columns=Discrimination&cost=false&overview=auroc&sort=-auroc&first=lts"
GO = """hash => new Promise((seen) => {
  addEventListener("hashchange", () => setTimeout(seen), { once: true });
  location.hash = hash;
})"""


def test_a_malformed_address_gives_the_default_view(visit, committed):
    """Opened, all of them in one; and typed in, each in place of an address that shows something else."""
    page = visit(committed[0])
    usual = page.evaluate(STATE)
    for text in MALFORMED:
        page.evaluate(GO, ELSEWHERE)
        assert page.evaluate(STATE) != usual
        page.evaluate(GO, text)
        assert page.evaluate(STATE) == usual, text
    for text in (MALFORMED[0], "&".join(MALFORMED)):
        assert visit(f"{committed[0]}#{text}").evaluate(STATE) == usual, text


# --- saving -----------------------------------------------------------------------------------------------------------


def saved(page, button):
    with page.expect_download() as waiting:
        page.locator(button).click()
    return waiting.value.suggested_filename, Path(waiting.value.path()).read_text(encoding="utf-8")


def test_the_saved_table_has_the_numbers_of_bench_table(visit, committed):
    page = visit(committed[0])
    name, text = saved(page, "#save-csv")
    assert name == "leaderboard.csv"
    mine = list(csv.DictReader(io.StringIO(text)))
    theirs = list(
        csv.DictReader(io.StringIO(render(build_views(View(committed[2] / "results"), committed[2] / "cache"), "csv")))
    )
    assert len(mine) == len(theirs) == 16
    assert set(mine[0]) <= set(theirs[0])
    assert {f"{name}_{key}" for name in ("ece", "auroc") for key in ("mean", "low", "high")} <= set(mine[0])
    for own, other in zip(mine, theirs, strict=True):
        for key, value in own.items():
            if re.fullmatch(r"-?[\d.]+(e-\d+)?", other[key]):
                close = 1 if key.endswith("tokens_alone") else 1e-6
                assert float(value) == pytest.approx(float(other[key]), abs=close), key
            elif key != "notes":
                assert value == other[key], key
    page.locator("#query").fill("ccps")
    assert len(list(csv.DictReader(io.StringIO(saved(page, "#save-csv")[1])))) == 2


def test_saved_text_is_no_formula(visit, results, tmp_path):
    names = dict(zip(("ccps", "lts", "ptrue", "pik"), ("=1+1", 'a,"b"', "@x", "plain"), strict=True))
    odd = [replace(row, method=names[row.method]) for row in results]
    payload = report.payload(tables(odd), records_of, asked)
    page = visit(report.write(tmp_path / "odd.html", payload).as_uri())
    rows = list(csv.DictReader(io.StringIO(saved(page, "#save-csv")[1])))
    assert {row["method"] for row in rows} == {"'=1+1", 'a,"b"', "'@x", "plain"}


def test_all_data_are_saved(visit, committed):
    page = visit(committed[0])
    name, text = saved(page, "#save-json")
    assert name == "report.json"
    data = json.loads(text)
    assert len(data["blocks"]) == 2
    assert data["verdict"]["rows"][1]["state"] == "sure"


# --- print, forced colours, borders -----------------------------------------------------------------------------------


def test_print_has_verdict_sentences_and_table_and_no_controls(visit, committed):
    page = visit(committed[0], 400)
    page.emulate_media(media="print")
    page.set_viewport_size({"width": 1040, "height": 720})  # A4, landscape
    assert all(not node.is_visible() for node in page.locator("select, input, #theme, nav, #save-csv").all())
    assert page.locator("#verdicts").is_visible()
    assert page.locator("#sentences p").first.bounding_box()["height"] > 10  # folded on the screen
    assert page.locator("#footnotes").is_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 1040
    assert page.locator(f"{BOARD} td.seconds").last.is_visible()
    assert page.locator(f"{BOARD} td.tokens").last.is_visible()


def test_forced_colours_keep_leaders_swatches_and_signs(visit, committed):
    page = visit(committed[0])
    page.emulate_media(forced_colors="active")
    lead = page.locator(f"{BOARD} tr.leads td").first
    assert lead.evaluate("node => getComputedStyle(node).borderTopStyle") == "solid"
    assert "▸" in lead.text_content()
    assert len({s.evaluate("s => getComputedStyle(s).backgroundColor") for s in page.locator(".swatch").all()[:8]}) > 5


BORDERS = """() => {
  const pixel = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const light = (colour) => {
    pixel.fillStyle = colour;
    pixel.fillRect(0, 0, 1, 1);
    return [...pixel.getImageData(0, 0, 1, 1).data].slice(0, 3).map((part) => part / 255)
      .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4))
      .reduce((total, part, i) => total + part * [0.2126, 0.7152, 0.0722][i], 0);
  };
  const around = (node) => {
    for (let at = node.parentElement; at; at = at.parentElement) {
      const colour = getComputedStyle(at).backgroundColor;
      if (colour !== "rgba(0, 0, 0, 0)") return colour;
    }
    return "white";
  };
  const found = {};
  for (const node of document.querySelectorAll("select, input[type=search], .chip, #theme, .shut, .controls button")) {
    if (!node.checkVisibility()) continue;
    const [a, b] = [light(getComputedStyle(node).borderTopColor), light(around(node))];
    found[node.id || node.className] = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  }
  return found;
}"""


def test_borders_of_controls_stand_out(visit, committed):
    page = visit(committed[0])
    page.locator(f"{BOARD} [data-cell]").first.click()
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        ratios = page.evaluate(BORDERS)
        assert {"model", "query", "save-csv", "theme", "shut"} <= set(ratios)
        assert {name: round(ratio, 2) for name, ratio in ratios.items() if ratio < 3} == {}, scheme


# --- large pages ------------------------------------------------------------------------------------------------------


def test_questions_out_of_view_are_not_drawn(visit, big):
    page = visit(big[0])
    page.locator(f"{BOARD} [data-cell]").first.click()
    questions = page.locator(".question")
    assert questions.count() == 25
    drawn = "all => all.map((node) => node.querySelector('.head').checkVisibility({ contentVisibilityAuto: true }))"
    assert not all(questions.evaluate_all(drawn))
    questions.last.scroll_into_view_if_needed()
    page.wait_for_function("() => [...document.querySelectorAll('.question .head')].at(-1)"
                           ".checkVisibility({ contentVisibilityAuto: true })")  # fmt: skip


@pytest.mark.slow
def test_a_keystroke_in_the_filter_takes_little_of_the_processor(visit, tab, big):
    page = visit(f"{big[0]}#model=*")
    client = tab.context.new_cdp_session(page)
    client.send("Performance.enable")

    def spent():
        page.evaluate("() => new Promise((seen) => requestAnimationFrame(() => setTimeout(seen)))")
        return next(m["value"] for m in client.send("Performance.getMetrics")["metrics"] if m["name"] == "TaskDuration")

    page.locator("#query").focus()
    times = []
    for key in ("c", "c", "p", "Backspace", "Backspace"):
        before = spent()
        page.keyboard.press(key)
        times.append(spent() - before)
    client.detach()
    assert median(times) <= 0.15, times


# --- what a reader concludes ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def uneven(tmp_path_factory) -> str:
    """A page on which one method was run on one benchmark alone, where it has the best mean; and no order in another.

    In calibration, `lts` is the best by far, but does not order answers.
    """
    rows = [row for row in large.rows() if row.model == large.MODELS[0] and row.method in {"ccps", "pik", "lts"}]
    rows = [row for row in rows if row.method != "ccps" or row.task == "mmlu-pro"]
    lines = [replace(row, metrics=best_calibrated(row)) if row.method == "lts" else row for row in rows]

    def standings_of(table):
        found = large.standings_of(table)
        unordered = Interval("fixed-subjects", 0.4, 0.6, 0.95, "t")
        own = {
            key: replace(line, metrics={**line.metrics, "auroc": replace(line.metrics["auroc"], fixed=unordered)})
            if key.method == "lts" else line
            for key, line in found.lines.items()
        }  # fmt: skip
        return replace(found, lines=own)

    payload = report.payload(build(lines, standings_of=standings_of), large.records_of, large.asked)
    return report.write(tmp_path_factory.mktemp("uneven") / "report.html", payload).as_uri()


def best_calibrated(row):
    """Its metrics, best in calibration."""
    return {**row.metrics, "rmsce": replace(row.metrics["rmsce"], mean=0.0, pooled=0.0)}


def test_a_method_with_one_benchmark_is_not_first_over_all(visit, uneven):
    page = visit(uneven)
    rows = page.locator("#overview table:not([hidden]) tbody tr:not(.group)")
    assert [row.locator("th").inner_text() for row in rows.all()] == ["pik", "lts", "ccps"]
