"""The page's answer: verdict first, static as drawn, marks as in the terminal, address, saving, print, speed."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from statistics import median

import pytest

from bench.metrics import METRICS
from bench.report import page as report
from bench.report.selection import View
from bench.report.tables import layout
from bench.report.tables.build import build
from bench.report.tables.formats import render
from bench.report.tables.request import build_views
from tests.fixtures import large_page

pytestmark = pytest.mark.browser

BOARD = "#leaderboard-table"
BODY = f"{BOARD} tbody tr:not(.group, .part)"
TEXTS = """table => [...table.rows].map((row) => [...row.cells].map((cell) => {
  const copy = cell.cloneNode(true);
  for (const order of copy.querySelectorAll(".order")) order.remove();
  return copy.textContent;
}))"""


@pytest.fixture
def address(request, file, big) -> str:
    """Of the page that the test names."""
    return {"file": file.as_uri(), "big": big}[request.param]


both = pytest.mark.parametrize("address", ["file", "big"], indirect=True)


# --- the answer first -------------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("size", [(1280, 800), (400, 800)])
def test_first_screen_answers_for_each_benchmark(visit, address, size):
    page = visit(address, *size)
    rows = page.locator("#verdicts tbody tr").all()
    assert len(rows) in {2, len(large_page.BENCHMARKS)}
    for row in rows:
        box = row.bounding_box()
        assert 0 < box["y"] < box["y"] + box["height"] <= size[1]
        assert all(cell.strip() not in {"", "\u2013"} for cell in row.locator("td, th").all_inner_texts())
    assert page.locator(".explained").all_inner_texts()[0].startswith("The Brier score is the mean squared distance")
    first = page.evaluate("[...document.querySelectorAll('main h2, main table, main form')].map(n => n.id)")
    assert first[:2] == ["verdict-title", "verdicts"]


def test_sentences_are_folded_where_there_is_no_room(visit, big):
    assert visit().locator("#sentences p").first.is_visible()
    assert visit(width=400).locator("#sentences p").first.is_hidden()
    page = visit(big)
    assert page.locator("#sentences p").first.is_hidden()
    page.locator("#sentences summary").click()
    assert page.locator("#sentences p").count() == len(large_page.BENCHMARKS) * len(large_page.MODELS)


# --- static, drawn and the terminal -----------------------------------------------------------------------------------


@both
def test_static_table_is_the_one_that_is_drawn(visit, plain, address):
    plain.goto(address)
    cells = plain.locator(f"{BOARD} table").evaluate(TEXTS)
    classes = plain.locator(f"{BOARD} tr").evaluate_all("rows => rows.map((row) => row.className)")
    legend = plain.locator("#legend").inner_text()
    page = visit(f"{address}#model=*")
    assert page.locator(f"{BOARD} table").evaluate(TEXTS) == cells
    assert page.locator(f"{BOARD} tr").evaluate_all("rows => rows.map((row) => row.className)") == classes
    assert page.locator("#legend").inner_text() == legend
    assert len(cells) > 20


def test_page_without_scripts_tells_all(plain, file, tables, payload):
    plain.goto(file.as_uri())
    assert plain.locator("#verdicts tbody tr").count() == 2
    assert plain.locator("#sentences p").first.is_visible()
    assert plain.locator("#metric-list dt").count() == len(METRICS)
    assert plain.locator("#provenance-list dt").count() > 0
    assert [control for control in plain.locator("select, input, button").all() if control.is_visible()] == []
    colours = "all => [...new Set(all.map(s => getComputedStyle(s).backgroundColor))]"
    assert len(plain.locator(f"{BOARD} .swatch").evaluate_all(colours)) > 5
    number = plain.locator(f"{BOARD} sup a").first
    assert plain.locator(number.get_attribute("href")).count() == 1
    for block, table, told in zip(plain.locator("#compare [data-block]").all(), tables, payload["blocks"], strict=True):
        assert block.locator("h3").inner_text() == f"{table.model} · {table.task}"
        assert block.locator(".chart").count() == 5  # differences and wins by Brier and AUROC, and costs
        block.locator("summary").click()
        assert block.locator("tbody tr").count() == len(told["pairs"]["columns"]) - 1
    done = sum(bool(line.ok_rows) for table in tables for line in table.lines)
    assert plain.locator("#reliability figure").count() == done


def squeezed(text):
    return re.sub(r"[\s\u2007]|floor|,(best|can't|no)[^,]*", "", text)


def heads(page):
    """Headings of the columns shown, without their notes."""
    return page.locator(f"{BOARD} thead th:not([hidden])").evaluate_all(
        """all => all.map((head) => {
          const copy = head.cloneNode(true);
          for (const note of copy.querySelectorAll("small, .order")) note.remove();
          return copy.textContent;
        })"""
    )


def check_same_as_terminal(page, tables, payload):
    shown = page.locator(BODY).evaluate_all(
        """rows => rows.map((row) => {
          const copy = row.cloneNode(true);
          for (const hidden of copy.querySelectorAll("sup, .hidden, .void, .tag")) hidden.remove();
          for (const signs of copy.querySelectorAll(".signs")) signs.parentNode.append(signs);
          const own = [...copy.cells].filter((cell) => !cell.hidden).map((cell) => cell.textContent);
          const bold = [...copy.cells].filter((cell) => !cell.hidden).map((cell) => !!cell.querySelector(".best"));
          return [row.parentNode.dataset.block, row.dataset.line, row.className, own, bold];
        })"""
    )
    was_run = (row for b, i, *row in shown if payload["blocks"][int(b)]["lines"][int(i)]["status"] != "missing")
    labels, rows = heads(page), iter(was_run)
    for table, grid in zip(tables, layout.method_grids(tables), strict=True):
        columns = [column.label for column in grid.columns]
        leaders = {line.key for line in table.leaders()}
        for line, row in zip(table.lines, grid.rows, strict=True):
            kind, cells, bold = next(rows)
            found = dict(zip(labels, map(squeezed, cells), strict=False))
            is_bold = dict(zip(labels, bold, strict=False))
            for label, cell in zip(columns[1:8], row.cells[1:8], strict=True) if line.ok_rows else ():
                text = squeezed(cell.text + cell.mark).replace("undefined", "\u2013")
                assert found["Rank" if label == "rank" else label] == text, (line.method, label)
                assert is_bold["Rank" if label == "rank" else label] == ("*" in cell.mark), (line.method, label)
            assert found["Method"] == line.method
            assert (kind == "leads") == (line.key in leaders) == row.is_shaded
            assert found["Rank"].lstrip("▸") == str(line.rank(table.headline) or "\u2013")
    assert next(rows, None) is None


def test_numbers_marks_ranks_and_shading_are_the_terminals(visit, plain, file, tables, payload):
    plain.goto(file.as_uri())
    check_same_as_terminal(plain, tables, payload)
    page = visit(f"{file.as_uri()}#headline=nll&model=*")
    check_same_as_terminal(page, [table.ordered_by("nll") for table in tables], payload)
    for headline in ("brier", "auroc", "rmsce"):
        page.locator("#headline").select_option(headline)
        check_same_as_terminal(page, [table.ordered_by(headline) for table in tables], payload)


def test_headline_is_a_metric_with_ranks_and_undoes_sorting(visit, tables):
    page = visit()
    options = page.locator("#headline option").evaluate_all("all => all.map(o => o.value)")
    ranked = {name for line in tables[0].lines if line.standing for name in line.standing.ranks}
    assert options[0] == "brier"
    assert set(options) == ranked
    page.locator(f"{BOARD} [data-key=method] button").click()
    page.locator("#headline").select_option("nll")
    assert page.locator(f"{BOARD} [aria-sort]").count() == 0
    assert "NLL ↓" in heads(page)  # the metric that ranks is shown
    assert "significantly better NLL" in page.locator("#legend").inner_text()


def test_method_with_one_benchmark_is_not_first_over_all(visit, tmp_path):
    """Though there it has the best mean."""
    rows = [row for row in large_page.rows() if row.model == "llama8b" and row.method in {"ccps", "pik", "lts"}]
    built = build([row for row in rows if row.method != "ccps" or row.task == "mmlu-pro"])
    payload = report.payload(built, large_page.records_of, lambda task, version: {})
    page = visit(report.write(tmp_path / "report.html", payload).as_uri())
    rows = page.locator("#overview table:not([hidden]) tbody tr:not(.group)")
    assert [row.locator("th").inner_text() for row in rows.all()] == ["pik", "lts", "ccps"]


# --- address ----------------------------------------------------------------------------------------------------------

STATE = """() => [
  ...["model", "task", "query", "headline", "columns", "overview-metric", "compare-block", "pair-first", "pair-second",
      "reliability-block"].map((id) => document.getElementById(id).value),
  document.getElementById("cost").checked,
  document.querySelector("#details h3")?.textContent ?? null,
  document.querySelector("#details-metric")?.value ?? null,
  document.querySelector("[data-group][aria-pressed=true]")?.dataset.group ?? null,
  document.querySelector("#question-subject")?.value ?? null,
  document.querySelector("#leaderboard-table [aria-sort]")?.getAttribute("aria-sort") ?? null,
  document.querySelector(".question[data-at] code")?.textContent ?? null,
  document.querySelector("#leaderboard-table").innerText,
  document.querySelector("#reliability-methods").innerHTML,
]"""


def test_link_shows_the_same_view(visit):
    page = visit()
    start = page.evaluate(STATE)
    page.locator("#model").select_option("beta")
    page.locator("#task").select_option("=atlas-choice")
    page.locator("#query").fill("cc, p")
    page.locator("#headline").select_option("auroc")
    page.locator("#columns").select_option("Discrimination")
    page.locator("#cost").uncheck()
    page.locator("#overview-metric").select_option("auroc")
    page.locator("#compare-block").select_option(index=2)
    page.locator("#pair-first").select_option("ptrue")
    page.locator("#pair-second").select_option("ccps")
    page.locator("#reliability-methods button", has_text="ccps").click()
    page.locator(f"{BOARD} [data-key=aurc] button").click()
    page.locator(f"{BOARD} tbody:not([hidden]) tr:not([hidden]) [data-cell]").first.click()
    page.locator("[data-group=hits]").click()
    page.locator("#question-subject").select_option(index=2)
    page.locator(".question code").first.click()
    before = page.evaluate(STATE)
    assert all(a != b for a, b in zip(start, before, strict=True))
    again = visit(page.url)
    assert again.evaluate(STATE) == before
    again.reload()
    assert again.evaluate(STATE) == before
    again.keyboard.press("Escape")
    assert "open=" not in again.url
    assert "question=" not in again.url


def test_methods_are_shown_by_what_they_need(visit, payload):
    """Without labels and hidden states there remain those that need neither; the address keeps the choice."""
    page = visit()
    every = page.locator(BODY).count()
    for name in ("labels", "states"):
        page.locator(f"#{name}").uncheck()
    needs = {each["name"]: each["needs"] for each in payload["methods"]}
    lines = [line for block in payload["blocks"] for line in block["lines"]]
    free = [
        line for line in lines
        if not any(line.get("labels", ())) and "states" not in needs[payload["methods"][line["method"]]["name"]]
    ]  # fmt: skip
    page.reload()
    assert page.locator(f"{BODY}:visible").count() == len(free) < every


def test_back_and_forth_move_between_panels_and_places(visit):
    page = visit()
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
    "model=%E0%A4%A&task=%ZZ&block=__proto__&first=x&second=x",
    "columns=constructor&headline=toString&sort=--x&open=a/b",
    "open=%2F%2F&question=x&group=y&subject=z&at=<img src=x>&overview=ece_none&cost=maybe",
    "&&&===!?&open=no/such/cell",
)
ELSEWHERE = "headline=auroc&columns=Discrimination&cost=false&overview=auroc&sort=-auroc&first=ptrue"
GO = """hash => new Promise((seen) => {
  addEventListener("hashchange", () => setTimeout(seen), { once: true });
  location.hash = hash;
})"""


def test_malformed_address_gives_the_default_view(visit, file):
    """Opened, all of them in one; and typed in, each in place of an address that shows something else."""
    page = visit()
    usual = page.evaluate(STATE)
    for text in MALFORMED:
        page.evaluate(GO, ELSEWHERE)
        assert page.evaluate(STATE) != usual
        page.evaluate(GO, text)
        assert page.evaluate(STATE) == usual, text
    for text in (MALFORMED[0], "&".join(MALFORMED)):
        assert visit(f"{file.as_uri()}#{text}").evaluate(STATE) == usual, text


# --- saving -----------------------------------------------------------------------------------------------------------


def saved(page, button):
    with page.expect_download() as waiting:
        page.locator(button).click()
    return waiting.value.suggested_filename, Path(waiting.value.path()).read_text(encoding="utf-8")


def test_saved_table_has_the_numbers_of_bench_table(visit, file, folder):
    page = visit(f"{file.as_uri()}#model=*")
    name, text = saved(page, "#save-csv")
    assert name == "leaderboard.csv"
    mine = [row for row in csv.DictReader(io.StringIO(text)) if row["status"] != "missing"]
    theirs = list(csv.DictReader(io.StringIO(render(build_views(View(folder), None), "csv"))))
    assert len(mine) == len(theirs) > 20
    assert {f"{name}_{key}" for name in ("ece", "auroc") for key in ("mean", "low", "high")} <= set(mine[0])
    for own, other in zip(mine, theirs, strict=True):
        for key, value in own.items():
            if re.fullmatch(r"-?[\d.]+(e-\d+)?", other[key]):
                close = 1 if key.endswith("tokens_alone") else 1e-6
                assert float(value) == pytest.approx(float(other[key]), abs=close), key
            elif key not in {"notes", "reason"}:
                assert value == other[key], key
    page.locator("#query").fill("ct")
    assert {row["method"] for row in csv.DictReader(io.StringIO(saved(page, "#save-csv")[1]))} == {"ct"}


def test_saved_data_are_the_payload(visit, payload):
    name, text = saved(visit(), "#save-json")
    assert (name, json.loads(text)["verdict"]) == ("report.json", payload["verdict"])


# --- print and forced colours -----------------------------------------------------------------------------------------


def test_print_has_all_and_no_controls(visit):
    page = visit(width=400)
    page.emulate_media(media="print")
    page.set_viewport_size({"width": 1040, "height": 720})  # A4, landscape
    assert all(not node.is_visible() for node in page.locator("select, input, #theme, nav, #save-csv").all())
    assert page.locator("#verdicts").is_visible()
    assert page.locator("#sentences p").first.bounding_box()["height"] > 10  # folded on the screen
    assert page.locator("#footnotes").is_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 1040
    assert page.locator(f"{BOARD} td.tokens").last.is_visible()


def test_forced_colours_keep_leaders_swatches_and_signs(visit):
    page = visit()
    page.emulate_media(forced_colors="active")
    lead = page.locator(f"{BOARD} tr.leads td").first
    assert lead.evaluate("node => getComputedStyle(node).borderTopStyle") == "solid"
    assert "▸" in lead.text_content()
    swatches = page.locator(".swatch").all()[:8]
    assert len({s.evaluate("s => getComputedStyle(s).backgroundColor") for s in swatches}) > 5
    page.emulate_media(forced_colors="active", media="print")
    marked = [sign for sign in page.locator(f"{BOARD} td:not([hidden]) .signs").all() if sign.text_content()]
    assert marked
    assert all(sign.is_visible() for sign in marked)


# --- large pages ------------------------------------------------------------------------------------------------------


def test_questions_out_of_view_are_not_drawn(visit, big):
    page = visit(big)
    page.locator(f"{BOARD} [data-cell]").first.click()
    questions = page.locator(".question")
    assert questions.count() == 25
    drawn = "all => all.map((node) => node.querySelector('.head').checkVisibility({ contentVisibilityAuto: true }))"
    assert not all(questions.evaluate_all(drawn))
    questions.last.scroll_into_view_if_needed()
    page.wait_for_function(f"() => ({drawn})([...document.querySelectorAll('.question')]).at(-1)")


@pytest.mark.slow
def test_keystroke_in_the_filter_takes_little_of_the_processor(visit, big):
    page = visit(f"{big}#model=*")
    client = page.context.new_cdp_session(page)
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
