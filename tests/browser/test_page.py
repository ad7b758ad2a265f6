"""The page in a real browser: sorting, filtering, drill-down, themes, keyboard, widths, hostile text, no requests."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.metrics import METRICS
from bench.report import page as report
from bench.report import write
from bench.report.selection import ReportRequest
from tests.browser.conftest import MARKUP, SCRIPT, TEXTS

pytestmark = pytest.mark.browser

NAMES = list(METRICS)
LINES = "#leaderboard-table tbody:not([hidden]) tr:not(.group, .part, [hidden])"
BETA = 1
"""Number of the block in which a method failed."""


def lines_of(payload, block=BETA):
    """Method -> line of a block."""
    return {payload["methods"][line["method"]]["name"]: line for line in payload["blocks"][block]["lines"]}


def done_in(payload, block=BETA):
    return {method: line for method, line in lines_of(payload, block).items() if line["status"] == "ok"}


def methods_shown(page, rows=LINES):
    return page.locator(f"{rows} th").evaluate_all("cells => cells.map(c => c.querySelector('bdi').textContent)")


def heading(page, label):
    return page.locator("#leaderboard-table thead th", has=page.get_by_role("button", name=label))


def headings(page, table="#leaderboard-table table"):
    """Headings of the columns shown, without their notes."""
    return page.locator(f"{table} thead th:not([hidden]) button").all_inner_texts()


def cell(page, payload, method, name, block=BETA):
    """The cell of one number."""
    line = list(lines_of(payload, block)).index(method)
    row = f"#leaderboard-table tbody[data-block='{block}'] tr[data-line='{line}']"
    return page.locator(f"{row} td[data-m='{NAMES.index(name)}']")


def open_panel(page, payload, method, name, block=BETA):
    """Press a number; gives the panel that it opens."""
    cell(page, payload, method, name, block).click()
    page.locator("#details h3").wait_for()
    return page.locator("#details")


def in_view(item):
    """Scroll to something, and wait until what is only drawn in view is drawn."""
    item.scroll_into_view_if_needed()
    item.evaluate("node => new Promise((seen) => requestAnimationFrame(() => requestAnimationFrame(seen)))")
    return item


def mistake(page, payload, block, number):
    """The panel's list item of one of the mistakes, and its row of the payload."""
    questions = payload["blocks"][block]["questions"]
    row = questions["groups"]["mistakes"][number]
    page.locator("[data-group=mistakes]").click()
    item = page.locator(".question", has=page.get_by_text(questions["id"][row], exact=True))
    while not item.count():
        page.locator("#details .more").last.click()
    return in_view(item), row


@pytest.mark.parametrize(("name", "label", "falls"), [("auroc", "AUROC", True), ("ece", "ECE/floor", False)])
def test_heading_sorts_best_first_then_the_other_way(visit, file, payload, name, label, falls):
    page = visit(f"{file.as_uri()}#model=%3Dbeta&task=%3Datlas-choice")
    lines, done = lines_of(payload), done_in(payload)
    rising = sorted(done, key=lambda method: lines[method]["mean"][NAMES.index(name)])
    absent = [method for method in lines if method not in done]
    head = heading(page, label)
    assert head.get_attribute("aria-sort") is None
    head.get_by_role("button").click()
    assert methods_shown(page) == (rising[::-1] if falls else rising) + absent
    assert head.get_attribute("aria-sort") == ("descending" if falls else "ascending")
    head.get_by_role("button").click()
    assert methods_shown(page) == (rising if falls else rising[::-1]) + absent  # what has no value stays last
    page.locator("#query").fill("c, p")
    kept = [method for method in (rising if falls else rising[::-1]) if "c" in method or method.startswith("p")]
    assert methods_shown(page) == kept
    page.locator("#query").fill("")
    heading(page, "Method").get_by_role("button").click()
    assert methods_shown(page) == sorted(lines)
    page.locator("#columns").select_option("All")
    heading(page, "NLL").get_by_role("button").click()
    assert page.locator("#leaderboard-table [aria-sort]").count() == 1
    page.locator("#columns").select_option("Main")
    assert page.locator("#leaderboard-table [aria-sort]").count() == 0


def test_filters_narrow_models_benchmarks_methods_and_columns(visit):
    page = visit()
    groups = page.locator("#leaderboard-table tbody:not([hidden]) .group .where")
    page.locator("#model").select_option("*")
    assert groups.all_inner_texts() == ["alpha · atlas-choice", "beta · atlas-choice", "beta · atlas-oe"]
    labels = ["Method", "Rank", "ECE/floor ↓", "RMSCE ↓", "Brier ↓", "ACC ↑", "AUCPR ↑", "AUROC ↑"]
    assert headings(page)[: len(labels)] == labels
    page.locator("#model").select_option("beta")
    page.locator("#task").select_option("=atlas-choice")
    assert groups.all_inner_texts() == ["beta · atlas-choice"]
    page.locator("#query").fill("PTR, cc")
    assert sorted(methods_shown(page)) == ["ccps", "ptrue"]
    assert page.locator("#shown").inner_text().startswith("2 of 29 lines. A method or a number opens")
    page.locator("#query").fill("nobody")
    assert page.locator("#shown").inner_text() == "No method, model and benchmark match these filters."
    page.locator("#query").fill("")
    page.locator("#columns").select_option("All")
    page.locator("#cost").uncheck()
    assert {label.split()[0] for label in headings(page)} >= {"Method", "AUROC", "NLL"}
    assert not {"Seeds", "Tokens read"} & set(headings(page))


def test_missing_number_is_a_dash_that_leads_to_its_reason(visit, file):
    page = visit(f"{file.as_uri()}#model=%3Dbeta&task=%3Datlas-choice")
    failed = page.locator(LINES).filter(has_text="lts")
    assert [text[0] for text in failed.locator("td.metric:not([hidden])").all_inner_texts()] == ["\u2013"] * 6
    assert failed.locator("th .tag").inner_text() == "failed"
    failed.locator("td.metric a").first.click()
    assert page.locator("#footnotes li[data-at]").inner_text() == f"failed: {SCRIPT} was NaN"
    number = page.locator(LINES).filter(has_text="margin").locator("td.metric a").first.inner_text()
    assert page.locator(f"#fn-{number}").inner_text() == "no result in this table"
    assert page.locator("#details").is_hidden()


def test_overview_shows_one_metric_everywhere_and_sorts(visit, payload):
    page = visit()
    page.locator("#overview-metric").select_option("AUROC ↑")
    table, i = "#overview table:not([hidden])", NAMES.index("auroc")
    assert page.locator(f"{table} .group").all_inner_texts() == ["alpha", "beta"]
    assert headings(page, table) == ["Method", "atlas-choice", "atlas-oe"]
    rows = page.locator(f"{table} tbody").nth(1).locator("tr:not(.group)")
    for block, column in ((1, 2), (2, 3)):
        for method, line in done_in(payload, block).items():
            row = rows.filter(has=page.get_by_text(method, exact=True))
            assert row.locator(f"td:nth-child({column})").inner_text().strip("*~?") == line["text"][i]
    page.locator(f"{table} thead").get_by_role("button", name="atlas-oe").click()
    order = sorted(done_in(payload, 2), key=lambda method: -lines_of(payload, 2)[method]["mean"][i])
    assert methods_shown(page, f"{table} tbody:last-of-type tr:not(.group)")[: len(order)] == order


def test_number_opens_its_subjects(visit, payload):
    page = visit()
    panel = open_panel(page, payload, "ccps", "auroc")
    assert panel.locator("h3").text_content() == "ccps on beta · atlas-choice"
    assert page.evaluate("document.activeElement.id") == "details-title"
    done, block, i = done_in(payload), payload["blocks"][BETA], NAMES.index("auroc")
    values = dict(zip(block["subjects"], done["ccps"]["subjects"][i], strict=True))
    rows = panel.locator(".subjects tbody tr")
    assert rows.locator("th").all_inner_texts() == block["subjects"]
    assert rows.locator("td:nth-child(4)").all_inner_texts() == list(values.values())
    others = headings(page, ".subjects")[4:]
    for k, other in enumerate(others, start=5):
        assert rows.locator(f"td:nth-child({k})").all_inner_texts() == done[other]["subjects"][i]
    assert {*others, "ccps"} == set(done)
    panel.locator(".subjects thead button", has_text="AUROC").click()
    assert rows.locator("th").all_inner_texts() == sorted(values, key=lambda s: float(values[s]), reverse=True)
    panel.locator("#details-metric").select_option("NLL ↓")
    assert rows.locator("td:nth-child(4)").all_inner_texts() == done["ccps"]["subjects"][NAMES.index("nll")]


def test_questions_show_text_answer_gold_and_every_confidence(visit, payload):
    page = visit()
    open_panel(page, payload, "ptrue", "ece")
    questions = payload["blocks"][BETA]["questions"]
    item, row = mistake(page, payload, BETA, 3)
    number = int(questions["id"][row].rpartition("/")[2])
    assert item.locator(".text").inner_text() == f"Which bell rings {number} times?"
    assert item.locator(".verdict").inner_text() == "wrong"
    assert item.locator(".options b").all_inner_texts() == ["a", "b"]
    options = item.locator(".options li")
    assert "gold" in options.nth(0).get_attribute("class")
    assert "answer" in options.nth(number % 2).get_attribute("class")
    assert item.locator("dl.answer dd").all_inner_texts() == ["ab"[number % 2], "a"]
    bars = dict(zip(item.locator(".who").all_inner_texts(), item.locator(".num").all_inner_texts(), strict=True))
    told = {m: questions["confidence"][line["column"]][row] for m, line in done_in(payload).items()}
    assert bars == {method: f"{p / 10_000:.3f}" for method, p in told.items()}
    assert item.locator(".own .who").inner_text() == "ptrue"


def test_groups_are_ordered_by_the_method_and_narrowed_to_a_subject(visit, payload):
    page = visit()
    panel = open_panel(page, payload, "ptrue", "ece", 0)
    questions = payload["blocks"][0]["questions"]
    own = questions["confidence"][lines_of(payload, 0)["ptrue"]["column"]]
    for group, sign in (("mistakes", -1), ("hits", 1), ("random", 0)):
        panel.locator(f"[data-group={group}]").click()
        ordered = [questions["id"][i] for i in sorted(questions["groups"][group], key=lambda i: sign * own[i])]
        shown = panel.locator(".question code").all_text_contents()
        assert shown == ordered[: len(shown)]
        assert panel.locator("[data-group][aria-pressed=true]").get_attribute("data-group") == group
    here = panel.locator(".subjects tbody tr", has_text=MARKUP).get_by_role("button")
    subject = payload["blocks"][0]["subjects"].index(MARKUP)
    grouped = {i for rows in questions["groups"].values() for i in rows}
    assert here.inner_text() == str(sum(questions["subject"][i] == subject for i in grouped))
    here.click()
    kept = [i for i in questions["groups"]["random"] if questions["subject"][i] == subject]
    assert panel.locator(".question code").all_text_contents() == [questions["id"][i] for i in kept]
    assert page.evaluate("document.activeElement.id") == "asked-title"


def test_page_without_texts_says_so_and_shows_the_rest(visit, payload, tmp_path):
    blocks = [
        {**block, "textless": True, "questions": {**block["questions"], "asked": [-1] * len(block["questions"]["id"])}}
        for block in payload["blocks"]
    ]
    page = visit(report.write(tmp_path / "other.html", {**payload, "blocks": blocks, "asked": []}).as_uri())
    panel = open_panel(page, payload, "ccps", "ece")
    assert "Texts of questions are not at hand" in panel.locator(".asked > .legend").inner_text()
    assert in_view(panel.locator(".question").first).locator("dt").all_inner_texts() == ["Answer"]


def test_hostile_text_is_text(visit, payload):
    page = visit()
    panel = open_panel(page, payload, "ccps", "ece", 0)
    for number in (0, 1, 5):
        item, _ = mistake(page, payload, 0, number)
        shown = TEXTS[number].replace("\u202e", "\\u202e").replace("\u202c", "\\u202c")
        assert item.locator(".text").evaluate("node => node.textContent") == shown
        assert item.locator("dd .said").first.evaluate("node => node.textContent") == shown
    assert MARKUP in panel.locator(".subjects").inner_text()
    counts = "[document.images.length, document.scripts.length, document.querySelectorAll('h1').length]"
    assert page.evaluate(counts) == [0, 2, 1]


def test_right_to_left_text_reads_from_the_right_in_its_place(visit, payload):
    page = visit()
    open_panel(page, payload, "ccps", "ece", 0)
    item, _ = mistake(page, payload, 0, 2)
    direction = "node => getComputedStyle(node).direction"
    assert item.locator(".text").evaluate(direction) == item.locator(".said").first.evaluate(direction) == "rtl"
    assert item.evaluate(direction) == "ltr"


@pytest.mark.parametrize("number", [3, 4])
def test_ten_thousand_characters_are_folded_and_keep_the_layout(visit, payload, number):
    page = visit(width=400)
    open_panel(page, payload, "ccps", "ece", 0)
    item, _ = mistake(page, payload, 0, number)
    assert len(item.locator(".text").inner_text()) < 600
    item.get_by_role("button", name="Show all 10,000 characters").first.click()
    assert item.locator(".text").evaluate("node => node.textContent") == TEXTS[number]
    assert page.evaluate("document.documentElement.scrollWidth") == 400
    item.get_by_role("button", name="Show less").first.click()
    assert len(item.locator(".text").inner_text()) < 600


# --- themes -----------------------------------------------------------------------------------------------------------

LUMINANCE = "rgb => rgb.match(/[0-9.]+/g).slice(0, 3).reduce((a, b) => a + Number(b), 0)"
GROUND = f"({LUMINANCE})(getComputedStyle(document.body).backgroundColor)"
INKS = f"all => all.map(text => ({LUMINANCE})(getComputedStyle(text).fill))"


def test_theme_follows_the_system_until_it_is_chosen(visit):
    page = visit(scheme="dark")
    button = page.get_by_role("button", name="Dark mode")
    assert page.evaluate(GROUND) < 200
    assert min(page.locator("#compare .chart text").evaluate_all(INKS)) > 384
    assert button.get_attribute("aria-pressed") == "true"
    page.emulate_media(color_scheme="light")
    assert page.evaluate(GROUND) > 600
    assert max(page.locator("#compare .chart text").evaluate_all(INKS)) < 384
    button.click()
    assert page.evaluate(GROUND) < 200
    page.reload()
    assert page.evaluate(GROUND) < 200
    page.get_by_role("button", name="Dark mode").click()
    assert page.evaluate(GROUND) > 600


def test_theme_is_chosen_where_files_remember_nothing(visit):
    forbid = "{ get() { throw new DOMException('no', 'SecurityError') } }"
    page = visit(before=f"Object.defineProperty(window, 'localStorage', {forbid})")
    page.get_by_role("button", name="Dark mode").click()
    assert page.evaluate(GROUND) < 200


CONTRASTS = """() => {
  const pixel = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgb = (colour, under) => {
    for (const paint of [under, colour]) { pixel.fillStyle = paint; pixel.fillRect(0, 0, 1, 1); }
    return [...pixel.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const lightness = (colour) => colour.map((part) => part / 255)
    .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4))
    .reduce((total, part, i) => total + part * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = (node) => {
    const layers = [];
    for (let at = node; at; at = at.parentElement) layers.push(getComputedStyle(at).backgroundColor);
    return layers.reverse().reduce((under, layer) => `rgb(${rgb(layer, under)})`, "white");
  };
  const ratio = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  const found = {}, borders = {};
  for (const node of document.querySelectorAll("select, input[type=search], .chip, #theme, .shut, .controls button")) {
    if (!node.checkVisibility()) continue;
    const around = ground(node.parentElement);
    const own = [rgb(getComputedStyle(node).borderTopColor, around), rgb(around, around)].map(lightness);
    borders[node.id || node.className] = ratio(...own);
  }
  for (const node of document.querySelectorAll("body *")) {
    const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim());
    if (!own || !node.checkVisibility() || node.closest("svg, option, .hidden, script")) continue;
    const under = ground(node);
    const [a, b] = [rgb(getComputedStyle(node).color, under), rgb(under, under)].map(lightness);
    const name = `${node.tagName} ${node.className}`;
    found[name] = Math.min(found[name] ?? 99, ratio(a, b));
  }
  return [found, borders];
}"""


def test_text_and_borders_stand_out_from_their_ground(visit, payload):
    page = visit()
    open_panel(page, payload, "ccps", "ece")
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        texts, borders = page.evaluate(CONTRASTS)
        assert len(texts) > 20
        assert {"model", "query", "save-csv", "theme", "shut"} <= set(borders)
        assert {name: round(ratio, 2) for name, ratio in texts.items() if ratio < 4.5} == {}, scheme
        assert {name: round(ratio, 2) for name, ratio in borders.items() if ratio < 3} == {}, scheme


# --- keyboard ---------------------------------------------------------------------------------------------------------

OUTLINED = """() => {
  const style = getComputedStyle(document.activeElement);
  return style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0 || style.strokeWidth === "1.5px";
}"""


def tab_to(page, selector):
    """Press Tab until the focus is there; whatever gets it on the way must show it."""
    for _ in range(60):
        page.keyboard.press("Tab")
        focused = page.evaluate("document.activeElement.outerHTML.slice(0, 120)")
        if page.evaluate("selector => document.activeElement.matches(selector)", selector):
            assert page.evaluate(OUTLINED), focused
            return
        assert page.evaluate(OUTLINED), focused
    raise AssertionError(f"Tab does not lead to {selector}")


def test_everything_can_be_done_with_the_keyboard(visit, payload):
    page = visit()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "verdict"
    tab_to(page, "#query")
    page.keyboard.type("c, p")
    assert "lts" not in methods_shown(page)
    tab_to(page, "[data-key=auroc] button")
    page.keyboard.press("Enter")
    assert heading(page, "AUROC").get_attribute("aria-sort") == "descending"
    assert page.evaluate("document.activeElement.closest('th').dataset.key") == "auroc"
    tab_to(page, "#leaderboard-table tbody .open")
    tab_to(page, "#leaderboard-table tbody .open")
    chosen = page.evaluate("document.activeElement.dataset.cell")
    second = methods_shown(page)[1]
    assert chosen == f"0/{list(lines_of(payload)).index(second)}"
    page.keyboard.press("Enter")
    page.locator("#details h3").wait_for()
    assert page.evaluate("document.activeElement.id") == "details-title"
    tab_to(page, ".shut")
    tab_to(page, "#details-metric")
    tab_to(page, ".subjects tbody button")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "asked-title"
    tab_to(page, "[data-group=hits]")
    page.keyboard.press("Space")
    assert page.locator("[data-group=hits]").get_attribute("aria-pressed") == "true"
    page.keyboard.press("Escape")
    page.locator("#details").wait_for(state="hidden")
    assert page.evaluate("document.activeElement.dataset.cell") == chosen


def test_controls_have_names_and_ids_are_unique(visit, payload):
    page = visit()
    open_panel(page, payload, "ccps", "ece")
    nameless = page.locator("button, a, select, input").evaluate_all(
        "all => all.filter(n => !(n.ariaLabel || n.textContent.trim() || n.labels?.length)).map(n => n.outerHTML)"
    )
    assert nameless == []
    ids = page.locator("[id]").evaluate_all("all => all.map(n => n.id)")
    assert len(ids) == len(set(ids))


# --- widths -----------------------------------------------------------------------------------------------------------

SCROLLING = """all => all.filter(n => /auto|scroll/.test(getComputedStyle(n).overflow) && n.clientHeight
  && n.scrollWidth > n.clientWidth).map(n => n.outerHTML.slice(0, 80))"""
CUT = """(all, width) => all.filter(n => n.checkVisibility() && n.getBoundingClientRect().right > width)
  .map(n => n.outerHTML.slice(0, 80))"""
OUTSIDE = """all => all.flatMap(chart => [...chart.querySelectorAll("text")].filter(text => {
  const [a, b] = [text.getBoundingClientRect(), chart.getBoundingClientRect()];
  return chart.checkVisibility() && (a.left < b.left - 1 || a.right > b.right + 1 || a.top < b.top - 1);
}).map(text => text.textContent))"""


@pytest.mark.parametrize("width", [400, 900, 1280])
def test_page_fits_its_width_without_boxes_that_scroll(visit, payload, width):
    page = visit(width=width)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert page.locator("#compare .chart, #reliability .chart, #compare table").evaluate_all(CUT, width) == []
    assert page.locator("#compare .chart").evaluate_all(OUTSIDE) == []
    page.locator("#columns").select_option("All")
    if width == 400:  # lines are cards; on wide screens the page itself scrolls
        assert page.evaluate("document.documentElement.scrollWidth") == width
        grounds = "all => [...new Set(all.map(cell => getComputedStyle(cell).backgroundColor))]"
        assert page.locator("#leaderboard-table tr > td").evaluate_all(grounds) == ["rgba(0, 0, 0, 0)"]
    page.locator("#columns").select_option("Main")
    open_panel(page, payload, "ccps", "ece")
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert page.locator("body *").evaluate_all(SCROLLING) == []


def test_method_and_headings_stay_when_the_page_scrolls(visit):
    page = visit(width=1000, height=420)
    page.locator("#columns").select_option("All")
    page.evaluate("() => scrollTo(200, document.querySelector('#leaderboard-table').offsetTop + 200)")
    box = heading(page, "Method").bounding_box()
    assert page.evaluate("scrollX") == 200
    name = page.locator(f"{LINES} th").last.bounding_box()
    assert max(abs(box["y"]), abs(name["x"]), abs(box["x"])) < 3


def test_decimals_of_a_column_stand_below_each_other(visit, payload):
    page = visit()
    right = """cell => {
      const range = document.createRange();
      range.selectNodeContents((cell.querySelector(".best") ?? cell).firstChild);
      return Math.round(range.getBoundingClientRect().right);
    }"""
    cells = (cell(page, payload, method, "auroc", b) for b in (1, 2) for method in ("pik", "ptrue"))
    assert len({each.evaluate(right) for each in cells}) == 1


def test_policy_stops_what_is_not_the_page(chromium, file):
    """The guard behind the others: markup and code that got in would do nothing."""
    context = chromium.new_context()
    page, failures = context.new_page(), []
    page.on("requestfailed", lambda request: failures.append((request.url, request.failure)))
    page.goto(file.as_uri())
    for attempt in (
        'document.body.innerHTML = "<p>"', 'document.createElement("script").textContent = "alert(1)"',
        'document.body.setAttribute("onclick", "alert(1)")', 'document.write("<p>")',
    ):  # fmt: skip
        told = f"() => {{ try {{ {attempt}; return 'went through' }} catch (error) {{ return error.name }} }}"
        assert page.evaluate(told) == "TypeError", attempt
    page.evaluate(
        "() => { const image = new Image(); image.src = 'https://example.invalid/x.png'; document.body.append(image); }"
    )
    page.evaluate("() => fetch('https://example.invalid/').catch(() => null)")
    assert failures == [("https://example.invalid/x.png", "csp")]
    context.close()


def test_page_of_real_questions_fits_its_width(visit, tmp_path):
    """Those of MMLU have long options, which stand in one line where two methods disagree."""
    committed = Path(__file__).parents[2] / "results"
    request = ReportRequest(
        committed, methods=("ccps", "sequence-probability"), preset="fixed", out=tmp_path / "r.html"
    )
    write.write(request, None)
    for width in (400, 1280):
        page = visit(request.out.as_uri(), width)
        assert page.evaluate("document.documentElement.scrollWidth") == width
