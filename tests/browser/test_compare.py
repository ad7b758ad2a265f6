"""The section that compares methods, in a real browser: reference, address, wins, cost, disagreements, no script."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from bench.metrics import METRICS
from bench.report import page as report
from bench.report.page.pairs import MILLION, millionths
from bench.report.selection import Selection
from bench.report.tables.request import tables_of
from bench.report.text import MINUS, interval_text, precise
from bench.results import files, questions
from tests.fixtures import compared

pytestmark = pytest.mark.browser

NAMES = list(METRICS)
ROWS = "#compare-forest-place tbody tr"
RANKED = [name for name in compared.SKILLS if name != compared.CUT_SHORT]
PLAIN = set(compared.SKILLS)
ADDRESS = "#compare-block=beta+·+atlas-choice&compare-metric=auroc&compare-reference=lts"


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("results")
    compared.write_all(out)
    return out


@pytest.fixture(scope="module")
def tables(folder):
    return tables_of(Selection(folder), None)


@pytest.fixture(scope="module")
def payload(tables, folder):
    return report.payload(
        tables,
        lambda row: files.read_records(files.place_of(row, folder)),
        lambda task, version: questions.read(folder, task, version),
    )


def line(payload, method, block=0):
    found = payload["blocks"][block]["lines"]
    return next(one for one in found if payload["methods"][one["method"]]["name"] == method)


def pair_of(tables, metric, first, second, block=0):
    """First minus second, from the standings."""
    for pair in tables[block].standings.pairs:
        ends = pair.first.method, pair.second.method
        if pair.metric == metric and set(ends) == {first, second}:
            return pair if ends == (first, second) else pair.reversed()
    raise AssertionError(f"no pair {first}, {second}")


def choices(page):
    return page.locator(f"{ROWS} button.choice")


def shown(page):
    """Method -> texts of its row: difference, interval, p, verdict as seen."""
    rows = {}
    for row in page.locator(ROWS).all():
        name = row.locator("button.choice").get_attribute("data-line")
        cells = [cell.inner_text() for cell in row.locator("td:not(.drawing)").all()]
        rows[name] = cells
    return rows


def pressed(page):
    return page.locator(f"{ROWS} button[aria-pressed=true]").get_attribute("data-line")


def best(payload, block=0):
    column = payload["blocks"][block]["pairs"]["columns"][payload["blocks"][block]["pairs"]["best"][""]]
    found = next(one for one in payload["blocks"][block]["lines"] if one["column"] == column)
    return payload["methods"][found["method"]]["name"]


# --- differences ------------------------------------------------------------------------------------------------------


def test_differences_to_the_best_are_those_of_the_standings(visit, payload, tables):
    page = visit()
    reference = best(payload)
    assert pressed(page) == reference
    rows = shown(page)
    assert set(rows) == PLAIN
    brier, differences = METRICS["brier"], []
    for method, (difference, interval, p, verdict) in rows.items():
        if method == reference:
            assert (difference, interval, p, verdict) == ("", "", "", "reference")
            differences.append(0.0)
            continue
        pair = pair_of(tables, "brier", method, reference)
        differences.append(pair.difference)
        assert difference == "+" * (pair.difference > 0) + precise(brier, pair.difference)
        assert interval == interval_text(brier, pair.fixed.low, pair.fixed.high)
        winner = pair.winner(0.05)
        words = "can\u2019t be distinguished" if winner is None else "better" if winner.method == method else "worse"
        assert re.split(r"\s+(?:than|from) ", verdict)[0] == words
        kind = page.locator(ROWS).filter(has=page.locator(f"[data-line='{method}']")).locator("circle")
        assert kind.get_attribute("class") == ("unsure" if winner is None else "sure")
    assert differences == sorted(differences)
    caption = page.locator("#compare-forest-place caption").inner_text()
    assert caption.startswith(f"Brier of each method minus that of {reference}, in percentage points: below 0")
    assert page.locator("#compare-left-place").inner_text() == (
        f"Not compared: {compared.SKIPPED} (skipped: no train split);"
        f" {compared.SCORES} (its scores are no probabilities: no interval, no rank, never best)."
    )


def test_points_and_whiskers_stand_at_their_numbers(visit, payload, tables):
    page = visit()
    reference = best(payload)
    zero = at(page.locator(f"{ROWS} .zero").first, "x1")
    tick = page.locator("#compare-forest-place .names text:not(.side)").last
    unit = (at(tick, "x") - zero) / float(tick.text_content().replace(MINUS, "-"))
    for row in page.locator(ROWS).all():
        name = row.locator("button.choice").get_attribute("data-line")
        if name == reference:
            assert row.locator("circle").count() == 0
            continue
        pair = pair_of(tables, "brier", name, reference)
        for node, attribute, value in (
            (row.locator("circle"), "cx", pair.difference),
            (row.locator(".whisker"), "x1", pair.fixed.low),
            (row.locator(".whisker"), "x2", pair.fixed.high),
        ):
            assert at(node, attribute) == pytest.approx(zero + 100 * value * unit, abs=0.01)


def at(node, attribute):
    return float(node.get_attribute(attribute).rstrip("%"))


def test_a_click_or_a_key_makes_a_method_the_reference(visit, tables):
    page = visit()
    page.locator(ROWS).filter(has_text="ptrue").locator("td.drawing").click()
    assert pressed(page) == "ptrue"
    assert page.locator("#compare-reference").input_value() == "ptrue"
    own = pair_of(tables, "brier", "litcab", "ptrue")
    assert shown(page)["litcab"][0] == precise(METRICS["brier"], own.difference)
    page.locator(f"{ROWS} [data-line=ptrue]").focus()
    page.keyboard.press("ArrowUp")
    above = page.evaluate("document.activeElement.dataset.line")
    assert above != "ptrue"
    page.keyboard.press("Enter")
    assert pressed(page) == above
    assert page.evaluate("document.activeElement.dataset.line") == above  # focus goes with it
    assert page.locator(f"{ROWS} [tabindex='0']").count() == 1
    page.locator("#compare-reference").select_option("pik")
    assert pressed(page) == "pik"


def test_words_say_on_which_side_is_better(visit):
    page = visit()
    assert page.locator("#compare .side").all_text_contents() == ["← better", "worse →"]
    page.locator("#compare-metric").select_option("auroc")
    assert page.locator("#compare .side").all_text_contents() == ["← worse", "better →"]
    assert "above 0 the method is better" in page.locator("#compare-forest-place caption").inner_text()


def test_choices_stand_in_the_address_and_come_back(visit, file, payload):
    page = visit()
    page.locator("#compare-block").select_option("beta · atlas-choice")
    page.locator("#compare-metric").select_option("auroc")
    page.locator(f"{ROWS} [data-line=pik]").click()
    page.locator("#compare-over").select_option("all")
    page.locator("#compare-cost").select_option("generated")
    page.locator("#compare-other").select_option("ptrue")
    before = {name: page.locator(f"#compare-{name}-place").inner_html() for name in ("forest", "counts")}
    address = page.url
    assert address.startswith(file.as_uri() + "#")
    again = visit(address)
    assert pressed(again) == "pik"
    for name, markup in before.items():
        assert again.locator(f"#compare-{name}-place").inner_html() == markup
    values = {key: again.locator(f"#compare-{key}").input_value() for key in ("metric", "over", "cost", "other")}
    assert values == {"metric": "auroc", "over": "all", "cost": "generated", "other": "ptrue"}
    odd = visit(file.as_uri() + "#compare-block=none&compare-metric=%3Cb%3E&compare-reference=__proto__")
    assert pressed(odd) == best(payload)


def test_recalibrated_lines_are_compared_among_themselves_and_with_all(visit, tables):
    page = visit()
    assert compared.RECALIBRATED not in shown(page)
    page.locator("#compare-methods").select_option("isotonic")
    rows = shown(page)
    assert set(rows) == {compared.RECALIBRATED, "pik+isotonic"}
    page.locator("#compare-methods").select_option("all")
    page.locator("#compare-reference").select_option("ccps")
    own = pair_of(tables, "brier", compared.RECALIBRATED, "ccps")
    text = precise(METRICS["brier"], own.difference)
    assert shown(page)[compared.RECALIBRATED][0].lstrip("+") == text
    page.locator("#compare-block").select_option("beta · atlas-oe")  # has none of them, nor the choice
    assert set(shown(page)) == PLAIN
    assert page.locator("label:has(#compare-methods)").is_hidden()


def test_text_of_numbers_is_that_of_all_other_formats(visit, chromium, file):
    """The script's own formatting, tried on many differences, ties and tiny ones among them."""
    told = np.random.default_rng(0)
    values = [*told.normal(0, 0.05, 400), *told.normal(0, 1e-4, 100), *(k / 800 for k in range(-40, 40)), 1e-5, 1e-4]
    source = (Path(report.__file__).parent / "assets" / "forest.js").read_text(encoding="utf-8")
    page = visit()
    for name in ("brier", "nll"):
        metric = METRICS[name]
        wholes = [millionths(metric, float(value)) for value in values]
        script = (
            "(given) => { const DASH = '\u2013'; const isPercent = given.percent;" + source.replace("</", "")
            + "; return given.wholes.map((whole) => preciseText({ percent: isPercent }, whole)); }"
        )  # fmt: skip
        texts = page.evaluate(script, {"wholes": wholes, "percent": metric.is_fraction})
        assert texts == [precise(metric, whole / MILLION) for whole in wholes]


# --- wins, ties, losses -----------------------------------------------------------------------------------------------


def matrix(page):
    """Row and column heads -> spoken verdicts, and row -> wins, ties, losses."""
    heads = page.locator("#compare-counts-place thead .upright bdi").all_inner_texts()[3:]
    cells, totals = {}, {}
    for row in page.locator("#compare-counts-place tbody tr").all():
        name = row.locator("th bdi").inner_text()
        totals[name] = tuple(map(int, row.locator("td.num").all_inner_texts()))
        said = row.locator("td.count .hidden").all_text_contents()
        cells |= {(name, head): text for head, text in zip(heads, said, strict=True)}
    return cells, totals


def test_the_matrix_of_one_table_is_that_of_the_standings(visit, payload, tables):
    page = visit()
    cells, totals = matrix(page)
    assert set(totals) == set(RANKED)
    for first, second in combinations(RANKED, 2):
        winner = pair_of(tables, "brier", first, second).winner(0.05)
        verdicts = ("can\u2019t be distinguished",) * 2
        if winner is not None:
            verdicts = ("better", "worse") if winner.method == first else ("worse", "better")
        assert (cells[first, second], cells[second, first]) == verdicts
    for method, (wins, ties, losses) in totals.items():
        assert wins + ties + losses == len(RANKED) - 1
        assert losses == line(payload, method)["rank"]["brier"] - 1
    assert page.locator("#compare-counts-place .legend").inner_text() == "Not counted, without a rank: ct."
    roles = page.locator("#compare-counts-place table").get_by_role("rowheader")
    assert roles.count() == len(RANKED)


def test_wins_over_all_tables_are_counted(visit, tables):
    page = visit(width=1280)
    page.locator("#compare-over").select_option("all")
    page.locator("#compare-metric").select_option("auroc")
    cells, totals = matrix(page)
    wins = dict.fromkeys(RANKED, 0)
    for first, second in combinations(RANKED, 2):
        winners = [pair_of(tables, "auroc", first, second, block).winner(0.05) for block in range(3)]
        won = [sum(w is not None and w.method == method for w in winners) for method in (first, second)]
        tied = winners.count(None)
        assert cells[first, second] == f"better {won[0]}, not distinguished {tied}, worse {won[1]}"
        assert cells[second, first] == f"better {won[1]}, not distinguished {tied}, worse {won[0]}"
        wins[first] += won[0]
        wins[second] += won[1]
    assert {method: won for method, (won, _, _) in totals.items()} == wins
    assert any(wins.values())


# --- cost -------------------------------------------------------------------------------------------------------------


def front_of(points, better):
    """Definition: no other costs at most as much and is at least as good, one of both strictly."""
    return {
        name
        for name, (cost, quality) in points.items()
        if not any(
            c <= cost and better * (q - quality) >= 0 and (c < cost or q != quality)
            for other, (c, q) in points.items()
            if other != name
        )
    }


@pytest.mark.parametrize(("metric", "better"), [("brier", -1), ("auroc", 1)])
def test_the_front_is_that_of_the_ranked_methods(visit, payload, metric, better):
    page = visit()
    page.locator("#compare-metric").select_option(metric)
    for cost, costs in (("tokens", compared.TOKENS), ("generated", compared.GENERATED)):
        page.locator("#compare-cost").select_option(cost)
        known = {m: (costs[m], line(payload, m)["mean"][NAMES.index(metric)]) for m in PLAIN & set(costs)}
        points = page.locator("#compare-pareto-place circle").evaluate_all(POINTS)
        places = {method: float(x.rstrip("%")) for method, _, x in points}
        assert set(places) == set(known)
        drawn = {method for method, kinds, _ in points if {"point", "on-front"} <= set(kinds)}
        assert drawn == front_of({m: at for m, at in known.items() if m in RANKED}, better)
        assert [method for method, kinds, _ in points if "hollow" in kinds] == [compared.CUT_SHORT]
        assert compared.CUT_SHORT in front_of(known, better)  # it would be on the front, had it a rank
        for first, second in combinations(known, 2):
            assert (known[first][0] < known[second][0]) == (places[first] < places[second])
            assert (known[first][0] == known[second][0]) == (places[first] == places[second])


POINTS = "all => all.map((point) => [point.dataset.line, [...point.classList], point.getAttribute('cx')])"


@pytest.mark.parametrize("width", [1280, 400])
def test_labels_stand_on_no_other_label_or_point(visit, width):
    page = visit(width=width)
    for cost in ("tokens", "generated"):
        page.locator("#compare-cost").select_option(cost)
        boxes = page.locator("#compare-pareto-place .label").evaluate_all(BOXES)
        points = page.locator("#compare-pareto-place circle").evaluate_all(BOXES)
        assert len(boxes) == len(points) > 1
        (figure,) = page.locator("#compare-pareto-place svg").evaluate_all(BOXES)
        for a, b in combinations(boxes, 2):
            assert not overlap(a, b)
        for label in boxes:
            assert not any(overlap(label, point) for point in points)
            assert label["x"] >= figure["x"]
            assert label["x"] + label["width"] <= figure["x"] + figure["width"]
        assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


BOXES = "all => all.map((node) => node.getBoundingClientRect().toJSON())"


def overlap(a, b):
    return all(a[x] + 1 < b[x] + b[size] and b[x] + 1 < a[x] + a[size] for x, size in (("x", "width"), ("y", "height")))


def test_unknown_costs_are_said(visit):
    page = visit()
    page.locator("#compare-cost").select_option("generated")
    assert "Not known, and so not drawn: pik, margin." in page.locator("#compare-pareto-place").inner_text()
    page.locator("#compare-block").select_option("beta · atlas-oe")
    text = page.locator("#compare-pareto-place").inner_text()
    assert text == "How many tokens generated there were is not known of these results."


# --- disagreements ----------------------------------------------------------------------------------------------------


def test_disagreements_are_the_largest_differences_of_the_records(visit):
    page = visit()
    page.locator("#compare-reference").select_option("ccps")
    page.locator("#compare-other").select_option("ptrue")
    model, task = compared.TABLES[0]
    ccps = np.mean([compared.records("ccps", model, task, seed).confidence for seed in (0, 1)], axis=0)
    ptrue = compared.records("ptrue", model, task, 0)
    place = page.locator("#compare-disagreements-place")
    assert f"Of all {compared.N} questions" in place.inner_text()
    lists = place.locator("ol.disputes")
    for number, difference in enumerate((ccps - ptrue.confidence, ptrue.confidence - ccps)):
        rows = np.argsort(-difference, kind="stable")[:10]
        items = lists.nth(number).locator("> li")
        assert [item.get_attribute("data-question") for item in items.all()] == [ptrue.id[row] for row in rows]
        for item, row in zip(items.all(), rows, strict=True):
            assert item.locator("summary .verdict").inner_text() == ("right" if ptrue.correct[row] else "wrong")
            seen = [float(text) for text in item.locator("summary .num").all_inner_texts()]
            pair = [ccps[row], ptrue.confidence[row]]
            assert seen == pytest.approx(pair if number == 0 else pair[::-1], abs=0.0006)
            text = item.locator("summary .text").text_content()
            assert text == ("<b>Which bell rings?</b>" if row == 0 else f"Which bell rings {row} times?")
    item = lists.first.locator("> li").first
    item.locator("summary").click()
    detail = item.locator(".question")
    bars = detail.locator(".bars li")
    bars.first.wait_for()  # details are drawn when they are opened
    assert bars.count() == len(PLAIN) + 3  # recalibrated ones and that of scores, too
    assert detail.locator(".options li").count() in {0, 2}


# --- without the script, and looks ------------------------------------------------------------------------------------


def test_without_a_script_the_differences_to_the_best_are_there(chromium, file, tables, payload):
    context = chromium.new_context(java_script_enabled=False, viewport={"width": 400, "height": 800})
    page = context.new_page()
    page.goto(file.as_uri())
    found = page.locator("#compare table")
    assert found.count() == len(compared.TABLES)
    reference = best(payload)
    own = pair_of(tables, "brier", "ptrue", reference)
    row = found.first.locator("tbody tr").filter(has_text=re.compile("^ptrue"))
    assert row.locator("td").first.inner_text() == f"+{precise(METRICS['brier'], own.difference)}"
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    context.close()


@pytest.mark.parametrize("width", [400, 1280])
def test_no_row_is_hidden_in_an_inner_box_and_nothing_is_cut_off(visit, width):
    page = visit(width=width)
    for method in PLAIN:
        assert choices(page).locator(f"text='{method}'").is_visible()
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        hidden = page.locator("#compare *").evaluate_all(
            "nodes => nodes.filter((node) => node.scrollHeight > node.clientHeight + 1"
            " && ['auto', 'scroll'].includes(getComputedStyle(node).overflowY)).length"
        )
        assert hidden == 0
        assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


def test_in_print_and_forced_colours_verdicts_are_words(visit):
    page = visit()
    page.emulate_media(forced_colors="active", media="print")
    verdicts = page.locator(f"{ROWS} .said").all_inner_texts()
    assert {text.split()[0] for text in verdicts} <= {"better", "worse", "can\u2019t", "reference"}
    assert page.locator("#compare-counts-place").is_visible()
    page.emulate_media(forced_colors="none", media="screen")
