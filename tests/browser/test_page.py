"""The page in a real browser: sorting, filtering, drill-down, themes, keyboard, widths, hostile text, no requests."""

from __future__ import annotations

import re
import threading
from dataclasses import replace

import pytest

from bench.metrics import METRICS
from bench.report.grouping import Key
from bench.report.page.serving import server
from bench.report.standings.compute import LineStanding, Pair, Standings
from bench.stats import Estimate, Interval

pytestmark = pytest.mark.browser

NAMES = list(METRICS)
SCRIPT = "<script>alert(1)</script>"
LINES = "#leaderboard-table tbody:not([hidden]) tr:not(.group, .part, [hidden])"
FIRST = "#leaderboard-table tbody:nth-child(1 of tbody:not([hidden])) tr:not(.group, .part, [hidden])"
ALPHA_RIVERS = 3
"""Number of the block in which a method failed."""


def lines_of(payload, block=0):
    """Method -> line of a block."""
    return {payload["methods"][line["method"]]["name"]: line for line in payload["blocks"][block]["lines"]}


def metric(name):
    return NAMES.index(name)


def methods_shown(page, rows=FIRST):
    return page.locator(f"{rows} th").evaluate_all("cells => cells.map(c => c.querySelector('bdi').textContent)")


def heading(page, label):
    return page.locator("#leaderboard-table thead th", has=page.get_by_role("button", name=label))


def cell(page, payload, method, name, block=0):
    """The cell of one number."""
    line = list(lines_of(payload, block)).index(method)
    row = f"#leaderboard-table tbody[data-block='{block}'] tr[data-line='{line}']"
    return page.locator(f"{row} td[data-m='{metric(name)}']")


def headings(page, table="#leaderboard-table table"):
    """Headings of the columns shown, without their notes."""
    return page.locator(f"{table} thead th:not([hidden]) button").all_inner_texts()


def go_to(page, payload, method, name, block=0):
    """Press a number; gives the panel that it opens."""
    cell(page, payload, method, name, block).click()
    page.locator("#details h3").wait_for()
    return page.locator("#details")


def in_view(item):
    """Scroll to something, and wait until what is only drawn in view is drawn."""
    item.scroll_into_view_if_needed()
    item.evaluate("node => new Promise((seen) => requestAnimationFrame(() => requestAnimationFrame(seen)))")
    return item


def question_on(page, payload, block, number):
    """The panel's list item of one question, looked for in all three groups."""
    task = payload["blocks"][block]["task"]
    for group in ("mistakes", "hits", "random"):
        page.locator(f"[data-group={group}]").click()
        found = page.locator(".question", has=page.get_by_text(f"{task}/test/{number}", exact=True))
        if found.count():
            in_view(found)
            return found
    raise AssertionError(f"question {number} is in no group")


# --- the leaderboard --------------------------------------------------------------------------------------------------


def test_numbers_and_marks_are_those_of_the_payload(visit, payload):
    page = visit()
    done = {method: line for method, line in lines_of(payload).items() if line["status"] == "ok"}
    for method, line in done.items():
        for i, name in ((metric(name), name) for name in ("ece", "rmsce", "brier", "acc", "aucpr", "auroc")):
            number = cell(page, payload, method, name)
            assert re.match(r"[\d.]+", number.inner_text())[0] == line["text"][i]
            assert number.locator(".beside").count() == 0  # without intervals there is nothing beside
            assert number.locator(".signs").inner_text() == ("?" if line["best"][i] else "")
    labels = headings(page)
    assert labels[:7] == ["Method", "ECE/floor ↓", "RMSCE ↓", "Brier ↓", "ACC ↑", "AUCPR ↑", "AUROC ↑"]
    assert labels[7:] == ["Seeds", "Labels", "Tokens read", "Parameters", "Seconds"]  # n is the same everywhere
    row = page.locator(FIRST).filter(has_text="ccps").locator("td.cost").all_inner_texts()
    assert row == ["2", "360", "27 k", "9,542", "2.0"]


@pytest.mark.parametrize(("name", "label", "falls"), [("auroc", "AUROC", True), ("ece", "ECE/floor", False)])
def test_a_heading_sorts_best_first_then_the_other_way(visit, payload, name, label, falls):
    page = visit()
    lines = lines_of(payload)
    done = [method for method, line in lines.items() if line["status"] == "ok"]
    rising = sorted(done, key=lambda method: lines[method]["mean"][metric(name)])
    absent = [method for method in lines if method not in done]
    head = heading(page, label)
    assert head.get_attribute("aria-sort") is None
    head.get_by_role("button").click()
    assert methods_shown(page) == (rising[::-1] if falls else rising) + absent
    assert head.get_attribute("aria-sort") == ("descending" if falls else "ascending")
    head.get_by_role("button").click()
    assert methods_shown(page) == (rising if falls else rising[::-1]) + absent  # what has no value stays last
    heading(page, "Method").get_by_role("button").click()
    assert methods_shown(page) == sorted(lines)
    assert page.locator("#leaderboard-table [aria-sort]").count() == 1


def test_filters_narrow_models_benchmarks_methods_and_columns(visit, payload):
    page = visit()
    groups = page.locator("#leaderboard-table tbody:not([hidden]) .group .where")
    assert groups.all_inner_texts() == [
        "beta · hills-oe", "beta · rivers", "org/alpha · hills-oe", "org/alpha · rivers",
    ]  # fmt: skip
    page.locator("#model").select_option("org/alpha")
    page.locator("#task").select_option("rivers")
    assert groups.all_inner_texts() == ["org/alpha · rivers"]
    page.locator("#query").fill("PTR, cc")
    assert sorted(methods_shown(page)) == ["ccps", "ptrue"]
    assert page.locator("#shown").inner_text().startswith("2 of 16 lines. A method or a number opens")
    page.locator("#query").fill("nobody")
    assert page.locator("#shown").inner_text() == "No method, model and benchmark match these filters."
    page.locator("#query").fill("")
    page.locator("#columns").select_option("All")
    page.locator("#cost").uncheck()
    assert len(headings(page)) == 1 + len(NAMES)


def test_sorting_survives_a_filter_and_ends_with_its_column(visit, payload):
    page = visit()
    heading(page, "AUROC").get_by_role("button").click()
    sorted_ = methods_shown(page)
    page.locator("#query").fill("c, p")
    assert methods_shown(page) == [method for method in sorted_ if method != "lts"]
    page.locator("#columns").select_option("Calibration")
    assert page.locator("#leaderboard-table [aria-sort]").count() == 0


def test_what_is_not_ok_is_a_dash_that_leads_to_its_reason(visit):
    page = visit()
    page.locator("#model").select_option("org/alpha")
    page.locator("#task").select_option("rivers")
    failed = page.locator(FIRST).filter(has_text="pik")
    assert [text[0] for text in failed.locator("td.metric:not([hidden])").all_inner_texts()] == ["\u2013"] * 6
    assert failed.locator("th .tag").inner_text() == "failed"
    failed.locator("td.metric a").first.click()
    assert page.locator("#footnotes li[data-at]").inner_text() == f"failed: {SCRIPT} was NaN"
    page.locator("#model").select_option("beta")
    missing = page.locator(FIRST).filter(has_text="lts")
    number = missing.locator("td.metric a").first.inner_text()
    assert page.locator(f"#fn-{number}").inner_text() == "not run on this model and benchmark"
    assert page.locator("#details").is_hidden()


def test_the_overview_shows_one_metric_everywhere_and_sorts(visit, payload):
    page = visit()
    page.locator("#overview-metric").select_option("AUROC ↑")
    table = "#overview table:not([hidden])"
    assert page.locator(f"{table} .group").all_inner_texts() == ["beta", "org/alpha"]
    assert headings(page, table) == ["Method", "hills-oe", "rivers"]
    i, alpha = metric("auroc"), f"{table} tbody:last-of-type tr:not(.group)"
    for block in range(4):
        for method, line in lines_of(payload, block).items():
            row = page.locator(f"{table} tbody").nth(block // 2).locator("tr").filter(has_text=method)
            found = row.locator(f"td:nth-child({block % 2 + 2})").inner_text().strip("*~?")
            assert found == (line["text"][i] if line["status"] == "ok" else "\u2013")
    page.locator(f"{table} thead").get_by_role("button", name="rivers").click()
    done = {m: line for m, line in lines_of(payload, ALPHA_RIVERS).items() if line["status"] == "ok"}
    order = sorted(done, key=lambda method: -done[method]["mean"][i])
    assert methods_shown(page, alpha) == [*order, "pik"]


def test_signs_intervals_and_ranks_are_drawn_where_they_are_given(visit, other):
    keys = [Key(method, "") for method in ("ccps", "ptrue")]
    none = Interval("clustered", reason="few subjects")
    found = {name: Estimate(0.7, Interval("fixed-subjects", 0.7, 0.8), none, (), None, 0) for name in NAMES}
    line = LineStanding(0, found, 0.25, {"brier": 1, "auroc": 1}, 0.0)
    pairs = [
        Pair(name, *keys, difference, none, none, p, p)
        for name, difference, p in (("brier", -0.1, 0.01), ("auroc", -0.1, 0.3))
    ]
    told = Standings(
        0.95, dict(zip(keys, (line, replace(line, ranks={"brier": 2, "auroc": 1})), strict=True)), tuple(pairs), {}
    )
    page = visit(other(standings_of=lambda _: told))
    rows = {key.method: page.locator(FIRST).filter(has_text=key.method).first for key in keys}
    seen = {
        method: [row.locator(f"td:nth-child({column}) .signs").inner_text() for column in (3, 5, 8)]
        for method, row in rows.items()
    }
    assert {signs[0][:1] for signs in seen.values()} == {"†"}
    assert all("!" in signs[1] for signs in seen.values())  # worse than the constant's 0
    spoken = rows["ccps"].locator("td:nth-child(5)").evaluate("node => node.textContent")
    assert ("best, beyond chance" in spoken) == ("*" in seen["ccps"][1])
    assert "no better than a constant" in spoken
    ranks = page.locator(f"{FIRST} td.rank").all_inner_texts()
    assert {"▸1", "2"} <= set(ranks) <= {"▸1", "2", "\u2013"}
    assert rows["ccps"].locator("td:nth-child(8) .beside").inner_text().startswith("± ")
    rows["ccps"].locator("td:nth-child(8)").click()
    assert "70.0 to 80.0" in page.locator("#details .summary").inner_text()
    assert "! is a Brier score no better" in page.locator("#legend").inner_text()
    plain = visit()
    assert plain.locator("td.rank").count() == 0


def test_no_state_of_a_best_value_is_told_by_colour_alone(visit):
    """Forced colours and print keep the signs, which are text."""
    page = visit()
    page.emulate_media(forced_colors="active", media="print")
    signs = page.locator("#leaderboard-table td:not([hidden]) .signs").all()
    marked = [sign for sign in signs if sign.text_content()]
    assert marked
    assert all(sign.is_visible() for sign in marked)
    page.emulate_media(forced_colors="none", media="screen")
    backgrounds = {sign.evaluate("node => getComputedStyle(node.parentNode).backgroundColor") for sign in signs}
    assert backgrounds == {"rgba(0, 0, 0, 0)"}


# --- from a number to its questions -----------------------------------------------------------------------------------


def test_a_number_opens_its_subjects(visit, payload):
    page = visit()
    panel = go_to(page, payload, "ccps", "auroc")
    assert panel.locator("h3").text_content() == "ccps on beta · hills-oe"
    assert page.evaluate("document.activeElement.id") == "details-title"
    line, block = lines_of(payload)["ccps"], payload["blocks"][0]
    values = dict(zip(block["subjects"], line["subjects"][metric("auroc")], strict=True))
    rows = panel.locator(".subjects tbody tr")
    assert rows.locator("th").all_inner_texts() == block["subjects"]
    assert rows.locator("td:nth-child(4)").all_inner_texts() == [values[s] for s in block["subjects"]]
    others = headings(page, ".subjects")[4:]
    for k, other in enumerate(others, start=5):
        told = lines_of(payload)[other]["subjects"][metric("auroc")]
        assert rows.locator(f"td:nth-child({k})").all_inner_texts() == told
    assert {*others, "ccps"} == {m for m, each in lines_of(payload).items() if each["status"] == "ok"}
    panel.locator(".subjects thead button", has_text="AUROC").click()
    assert rows.locator("th").all_inner_texts() == sorted(values, key=lambda s: float(values[s]), reverse=True)
    panel.locator("#details-metric").select_option("NLL ↓")
    assert rows.locator("td:nth-child(4)").all_inner_texts() == line["subjects"][metric("nll")]


def test_questions_show_text_answer_gold_and_every_confidence(visit, payload):
    page = visit()
    go_to(page, payload, "ptrue", "ece", ALPHA_RIVERS)
    questions = payload["blocks"][ALPHA_RIVERS]["questions"]
    number = next(int(key.rpartition("/")[2]) for key in questions["id"] if int(key.rpartition("/")[2]) > 10)
    row = questions["id"].index(f"rivers/test/{number}")
    item = question_on(page, payload, ALPHA_RIVERS, number)
    assert item.locator(".text").inner_text() == f"Which bell rings {number} times?"
    assert item.locator(".verdict").inner_text() == ("right" if questions["correct"][row] else "wrong")
    assert item.locator(".options b").all_inner_texts() == ["a", "b"]
    options = item.locator(".options li")
    assert options.nth(1).locator("div").inner_text() == "bronze <i>alloy</i>"
    assert "gold" in options.nth(1 - number % 2).get_attribute("class")
    assert "answer" in options.nth(number % 2).get_attribute("class")
    assert item.locator("dl.answer dd").all_inner_texts() == ["ab"[number % 2], "ba"[number % 2]]
    done = {m: line for m, line in lines_of(payload, ALPHA_RIVERS).items() if line["status"] == "ok"}
    bars = dict(zip(item.locator(".who").all_inner_texts(), item.locator(".num").all_inner_texts(), strict=True))
    assert bars == {m: f"{questions['confidence'][line['column']][row] / 10_000:.3f}" for m, line in done.items()}
    assert item.locator(".own .who").inner_text() == "ptrue"


def test_groups_are_ordered_by_the_method_and_narrowed_to_a_subject(visit, payload):
    page = visit()
    panel = go_to(page, payload, "ptrue", "ece")
    questions = payload["blocks"][0]["questions"]
    own = questions["confidence"][lines_of(payload)["ptrue"]["column"]]
    for group, sign in (("mistakes", -1), ("hits", 1), ("random", 0)):
        panel.locator(f"[data-group={group}]").click()
        rows = questions["groups"][group]
        expected = sorted(rows, key=lambda i: sign * own[i])
        assert panel.locator(".question code").all_text_contents() == [questions["id"][i] for i in expected]
        assert panel.locator("[data-group][aria-pressed=true]").get_attribute("data-group") == group
    here = panel.locator(".subjects tbody tr", has_text="<b>moss</b>").get_by_role("button")
    subject = payload["blocks"][0]["subjects"].index("<b>moss</b>")
    assert here.inner_text() == str(questions["subject"].count(subject))
    here.click()
    kept = [i for i in questions["groups"]["random"] if questions["subject"][i] == subject]
    assert panel.locator(".question code").all_text_contents() == [questions["id"][i] for i in kept]
    assert page.evaluate("document.activeElement.id") == "asked-title"


def test_without_texts_the_page_says_so_and_shows_the_rest(visit, other, payload):
    page = visit(other())
    panel = go_to(page, payload, "ccps", "ece")
    assert "Texts of questions are not at hand" in panel.locator(".asked > .legend").inner_text()
    assert in_view(panel.locator(".question").first).locator("dt").all_inner_texts() == ["Answer"]


def test_an_address_opens_its_panel_and_going_back_closes_it(visit, file, payload):
    page = visit()
    go_to(page, payload, "ccps", "auroc", ALPHA_RIVERS)
    address = page.url
    again = visit(address)
    assert again.locator("#details h3").text_content() == "ccps on org/alpha · rivers"
    page.go_back()
    page.locator("#details").wait_for(state="hidden")
    assert visit(file.as_uri() + "#open=no/such/cell").locator("#details").is_hidden()


# --- reliability ------------------------------------------------------------------------------------------------------


def test_methods_are_chosen_for_the_diagrams(visit):
    page = visit()
    figures = page.locator("#reliability [data-block]:not([hidden]) figure:not([hidden])")
    chip = page.locator("#reliability-methods button").filter(has_text="ccps")
    assert chip.get_attribute("aria-pressed") == "true"
    names = figures.evaluate_all("all => all.map(f => f.dataset.method)")
    chip.click()
    assert chip.get_attribute("aria-pressed") == "false"
    assert figures.evaluate_all("all => all.map(f => f.dataset.method)") == [name for name in names if name != "ccps"]
    page.locator("#reliability-block").select_option("org/alpha · rivers")
    assert "ccps" not in figures.evaluate_all("all => all.map(f => f.dataset.method)")


# --- text that is not ours --------------------------------------------------------------------------------------------


def test_hostile_strings_are_text(visit, payload):
    page = visit()
    panel = go_to(page, payload, "ccps", "ece")
    for number, expected in ((0, SCRIPT), (1, "</style></script><h1>big</h1>"), (5, None)):
        item = question_on(page, payload, 0, number)
        text = item.locator(".text").evaluate("node => node.textContent")
        assert text == (expected or "\\u202etxet desrever\\u202c </style> <img src=x onerror=alert(2)>")
        assert item.locator("dd .said").first.evaluate("node => node.textContent") == text
    assert "<b>moss</b>" in panel.locator(".subjects").inner_text()
    assert page.evaluate(
        "[document.images.length, document.scripts.length, document.querySelectorAll('h1').length]"
    ) == [0, 2, 1]


def test_right_to_left_text_reads_from_the_right_and_stays_in_its_place(visit, payload):
    page = visit()
    go_to(page, payload, "ccps", "ece")
    item = question_on(page, payload, 0, 2)
    assert item.locator(".text").evaluate("node => getComputedStyle(node).direction") == "rtl"
    assert item.locator(".said").first.evaluate("node => getComputedStyle(node).direction") == "rtl"
    assert item.evaluate("node => getComputedStyle(node).direction") == "ltr"


@pytest.mark.parametrize("number", [3, 4])
def test_ten_thousand_characters_are_folded_and_keep_the_layout(visit, payload, number):
    page = visit(width=400)
    go_to(page, payload, "ccps", "ece")
    item = question_on(page, payload, 0, number)
    more = item.get_by_role("button", name="Show all 10,000 characters").first
    assert len(item.locator(".text").inner_text()) < 600
    more.click()
    whole = item.locator(".text").evaluate("node => node.textContent")
    assert whole == payload["asked"][payload["blocks"][0]["questions"]["asked"][index_of(payload, number)]][0]
    assert len(whole) == 10_000
    assert page.evaluate("document.documentElement.scrollWidth") == 400
    item.get_by_role("button", name="Show less").first.click()
    assert len(item.locator(".text").inner_text()) < 600


def index_of(payload, number):
    return payload["blocks"][0]["questions"]["id"].index(f"hills-oe/test/{number}")


# --- themes -----------------------------------------------------------------------------------------------------------

LUMINANCE = "rgb => rgb.match(/[0-9.]+/g).slice(0, 3).reduce((a, b) => a + Number(b), 0)"
GROUND = f"({LUMINANCE})(getComputedStyle(document.body).backgroundColor)"


def test_the_theme_follows_the_system_until_it_is_chosen_and_is_remembered(visit):
    page = visit(scheme="dark")
    button = page.get_by_role("button", name="Dark mode")
    assert page.evaluate(GROUND) < 200
    assert button.get_attribute("aria-pressed") == "true"
    page.emulate_media(color_scheme="light")
    assert page.evaluate(GROUND) > 600
    button.click()
    assert page.evaluate(GROUND) < 200
    page.reload()
    assert page.evaluate(GROUND) < 200
    page.get_by_role("button", name="Dark mode").click()
    assert page.evaluate(GROUND) > 600


def test_a_browser_that_lets_files_remember_nothing_still_shows_both_themes(visit):
    forbid = (
        "Object.defineProperty(window, 'localStorage', { get() { throw new DOMException('no', 'SecurityError') } })"
    )
    page = visit(before=forbid)
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
  const found = {};
  for (const node of document.querySelectorAll("body *")) {
    const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim());
    if (!own || !node.checkVisibility() || node.closest("svg, option, .hidden, script")) continue;
    const under = ground(node);
    const [a, b] = [rgb(getComputedStyle(node).color, under), rgb(under, under)].map(lightness);
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const name = `${node.tagName} ${node.className}`;
    found[name] = Math.min(found[name] ?? 99, ratio);
  }
  return found;
}"""


def test_all_text_stands_out_from_its_ground(visit, payload):
    page = visit()
    go_to(page, payload, "ccps", "ece", ALPHA_RIVERS)
    grounds = set()
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        grounds.add(page.evaluate(GROUND))
        ratios = page.evaluate(CONTRASTS)
        assert len(ratios) > 20
        assert {name: round(ratio, 2) for name, ratio in ratios.items() if ratio < 4.5} == {}, scheme
    assert len(grounds) == 2


# --- keyboard ---------------------------------------------------------------------------------------------------------

OUTLINED = """() => {
  const style = getComputedStyle(document.activeElement);
  return style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0 || style.strokeWidth === "1.5px";
}"""


def tab_to(page, selector, *, most=60, back=False):
    """Press Tab until the focus is there; whatever gets it on the way must show it."""
    for _ in range(most):
        page.keyboard.press("Shift+Tab" if back else "Tab")
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


def test_whatever_can_be_pressed_has_a_name_and_ids_are_unique(visit, payload):
    page = visit()
    go_to(page, payload, "ccps", "ece")
    nameless = page.locator("button, a, select, input").evaluate_all(
        "all => all.filter(n => !(n.ariaLabel || n.textContent.trim() || n.labels?.length)).map(n => n.outerHTML)"
    )
    assert nameless == []
    ids = page.locator("[id]").evaluate_all("all => all.map(n => n.id)")
    assert len(ids) == len(set(ids))


# --- widths -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [400, 900, 1280])
def test_the_page_fits_its_width_without_boxes_that_scroll(visit, payload, width):
    page = visit(width=width)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    page.locator("#columns").select_option("All")
    if width == 400:  # lines are cards; on wide screens the page itself scrolls
        assert page.evaluate("document.documentElement.scrollWidth") == width
    page.locator("#columns").select_option("Main")
    go_to(page, payload, "ccps", "ece")
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        assert page.evaluate("document.documentElement.scrollWidth") == width
        scrolling = page.locator("body *").evaluate_all(
            "all => all.filter(n => /auto|scroll/.test(getComputedStyle(n).overflow) && n.clientHeight"
            " && n.scrollWidth > n.clientWidth)"
            ".map(n => n.outerHTML.slice(0, 80))"
        )
        assert scrolling == []


def test_method_and_headings_stay_when_the_page_scrolls(visit):
    page = visit(width=1000)
    page.set_viewport_size({"width": 1000, "height": 420})
    page.locator("#columns").select_option("All")
    page.evaluate("() => scrollTo(200, document.querySelector('#leaderboard-table').offsetTop + 200)")
    box = heading(page, "Method").bounding_box()
    assert page.evaluate("scrollX") == 200
    assert abs(box["y"]) < 3
    name = page.locator(f"{LINES} th").last.bounding_box()
    assert abs(name["x"]) < 3
    assert abs(box["x"]) < 3


def test_decimals_of_a_column_stand_below_each_other(visit, payload):
    page = visit()
    cells = [cell(page, payload, method, "auroc", b) for b in range(4) for method in ("ccps", "ptrue")]
    right = """cell => {
      const range = document.createRange();
      range.selectNodeContents((cell.querySelector(".best") ?? cell).firstChild);
      return Math.round(range.getBoundingClientRect().right);
    }"""
    rights = {each.evaluate(right) for each in cells}
    assert len(rights) == 1


# --- without a network ------------------------------------------------------------------------------------------------


def test_the_served_page_is_the_same_and_asks_for_nothing_else(visit, file, payload):
    with server(file, 0) as listening:
        thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            page = visit(f"http://127.0.0.1:{listening.server_port}/")
            go_to(page, payload, "ccps", "ece")
            assert page.locator(".question").count() > 0
        finally:
            listening.shutdown()
            thread.join()


def test_the_policy_stops_what_is_not_the_page_itself(chromium, file):
    """The guard behind the others: markup and code that got in would do nothing."""
    context = chromium.new_context()
    page, failures = context.new_page(), []
    page.on("requestfailed", lambda request: failures.append((request.url, request.failure)))
    page.goto(file.as_uri())
    blocked = page.evaluate(
        """() => {
          const tries = [
            () => { document.body.innerHTML = "<p>"; },
            () => { document.createElement("script").textContent = "alert(1)"; },
            () => document.body.setAttribute("onclick", "alert(1)"),
            () => document.write("<p>"),
          ];
          const told = (attempt) => { try { attempt(); return "went through"; } catch (error) { return error.name; } };
          return tries.map(told);
        }"""
    )
    assert blocked == ["TypeError"] * 4
    page.evaluate(
        "() => { const image = new Image(); image.src = 'https://example.invalid/x.png'; document.body.append(image); }"
    )
    page.evaluate("() => fetch('https://example.invalid/').catch(() => null)")
    assert failures == [("https://example.invalid/x.png", "csp")]
    context.close()
