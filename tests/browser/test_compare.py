"""The comparison and the diagrams in a real browser: figures, two methods beside each other, disagreements."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from urllib.parse import parse_qs

import numpy as np
import pytest

from bench import metrics
from bench.metrics import METRICS
from bench.report import page as report
from bench.report.selection import Selection
from bench.report.standings.compute import LineStanding, Standings
from bench.report.tables.request import tables_of
from bench.report.text import interval_text, precise
from bench.results import files, question_texts
from tests.browser.conftest import records_of
from tests.browser.conftest import tables as built
from tests.fixtures import compared

pytestmark = pytest.mark.browser

PLAIN = set(compared.SKILLS)
BLOCK = "beta · atlas-choice"
DIAGRAMS = "#reliability [data-block]:not([hidden]) figure:not([hidden])"


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
        lambda row: files.read_records(files.stored_path(row, folder)),
        lambda task, version: question_texts.read(folder, task, version),
    )


@pytest.fixture(scope="module")
def pictures(tables, folder):
    return report.pictures(tables, lambda row: files.read_records(files.stored_path(row, folder)))


def pair_of(tables, metric, first, second, block=0):
    """First minus second, from the standings."""
    for pair in tables[block].standings.pairs:
        ends = pair.first.method, pair.second.method
        if pair.metric == metric and set(ends) == {first, second}:
            return pair if ends == (first, second) else pair.reversed()
    raise AssertionError(f"no pair {first}, {second}")


def chosen(page, first, second):
    """The pair as it is shown: who minus whom, and the rows by their headings."""
    page.locator("#pair-first").select_option(first)
    page.locator("#pair-second").select_option(second)
    names = page.locator("#pair-table caption bdi").all_inner_texts()
    rows = page.locator("#pair-table tbody tr")
    return names, {row.locator("th").inner_text(): row.locator("td").all_inner_texts() for row in rows.all()}


# --- two methods ------------------------------------------------------------------------------------------------------


def test_every_pair_has_the_tests_of_the_standings(visit, tables):
    page = visit()
    verdicts = set()
    for first, second in combinations(sorted(PLAIN), 2):
        (one, other), rows = chosen(page, first, second)
        assert {one, other} == {first, second}
        assert len(rows) == 6
        for name in ("brier", "auroc", "nll"):
            pair, metric = pair_of(tables, name, one, other), METRICS[name]
            heading = next(label for label in rows if label.startswith(metric.label))
            difference, ends, p, verdict = rows[heading]
            assert difference == "+" * (pair.difference > 0) + precise(metric, pair.difference)
            assert ends == interval_text(metric, pair.fixed.low, pair.fixed.high)
            assert p in {f"{pair.p_corrected:.3f}", "<0.001"}
            winner = pair.winner(0.05)
            decided = "better" if winner == pair.first else "worse"
            assert verdict == ("can't be distinguished" if winner is None else decided)
            verdicts.add(verdict)
    assert verdicts == {"better", "worse", "can't be distinguished"}


def test_choices_stand_in_the_address_and_come_back(visit, file, payload):
    page = visit()
    page.locator("#compare-block").select_option(BLOCK)
    assert page.locator("#reliability-block").input_value() == BLOCK
    chosen(page, "ptrue", "ccps")
    again = visit(page.url)
    assert again.locator("#compare-block").input_value() == BLOCK
    assert [again.locator(f"#pair-{end}").input_value() for end in ("first", "second")] == ["ptrue", "ccps"]
    odd = visit(file.as_uri() + "#block=nowhere&first=nobody&second=nobody")
    assert odd.locator("#compare-block").input_value() != BLOCK
    first, second = (odd.locator(f"#pair-{end}").input_value() for end in ("first", "second"))
    assert first != second


def test_disagreements_are_the_largest_differences_of_the_records(visit):
    page = visit()
    page.locator("#compare-block").select_option(BLOCK)
    chosen(page, "ccps", "ptrue")
    runs = {name: compared.records(name, "beta", "atlas-choice", 0) for name in ("ccps", "ptrue")}
    difference = runs["ccps"].confidence - runs["ptrue"].confidence
    for number, sign in ((0, 1), (1, -1)):
        rows = page.locator("ol.disputes").nth(number).locator(":scope > li")
        found = [runs["ccps"].id.index(row.get_attribute("data-question")) for row in rows.all()]
        assert 0 < len(found) <= 10
        least = min(sign * difference[i] for i in found)
        assert all(i in found for i in np.flatnonzero(sign * difference > least + 1e-4))
    first = page.locator("ol.disputes > li").first
    first.locator("summary").first.click()
    assert first.locator(".question .bars li").count() >= len(PLAIN)


# --- figures ----------------------------------------------------------------------------------------------------------


def test_the_figures_of_one_table_are_shown_and_are_text(visit, payload):
    page = visit()
    for block in payload["blocks"]:
        name = f"{block['model']} · {block['task']}"
        page.locator("#compare-block").select_option(name)
        charts = page.locator("#compare [data-block]:not([hidden]) .chart")
        assert charts.count() == 5  # differences and wins by Brier and AUROC, and costs
        labels = charts.evaluate_all("all => all.map(chart => chart.getAttribute('aria-label'))")
        assert all(label.startswith(f"{block['model']} on {block['task']}: ") for label in labels)
        texts = charts.first.locator("text").all_text_contents()
        assert {text.removeprefix("▸ ") for text in texts} >= PLAIN
    assert page.locator("[style]:not([style*='--'])").count() == 0  # the policy would block it
    ids = page.locator("[id]").evaluate_all("all => all.map(n => n.id)")
    assert len(ids) == len(set(ids))


INKS = """all => all.map(text => getComputedStyle(text).fill.match(/[0-9.]+/g).slice(0, 3).map(Number))"""


@pytest.mark.parametrize(("scheme", "is_light"), [("light", False), ("dark", True)])
def test_figures_follow_the_theme(visit, scheme, is_light):
    page = visit(scheme=scheme)
    found = page.locator("#compare .chart text").evaluate_all(INKS)
    assert found
    assert all((sum(ink) > 384) == is_light for ink in found)


@pytest.mark.parametrize("width", [400, 900, 1280])
def test_nothing_is_cut_off(visit, width):
    page = visit(width=width)
    for part in ("#compare", "#reliability"):
        cut = page.locator(f"{part} .chart, {part} table").evaluate_all(
            "(all, width) => all.filter(n => n.checkVisibility() && n.getBoundingClientRect().right > width)"
            ".map(n => n.outerHTML.slice(0, 80))",
            width,
        )
        assert cut == []
    assert page.evaluate("document.documentElement.scrollWidth") == width
    outside = page.locator("#compare .chart").evaluate_all(
        """all => all.flatMap(chart => [...chart.querySelectorAll("text")].filter(text => {
          const [a, b] = [text.getBoundingClientRect(), chart.getBoundingClientRect()];
          return chart.checkVisibility() && (a.left < b.left - 1 || a.right > b.right + 1 || a.top < b.top - 1);
        }).map(text => text.textContent))"""
    )
    assert outside == []


def test_without_a_script_all_figures_and_differences_are_there(chromium, file, tables, payload):
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(file.as_uri())
    blocks = page.locator("#compare [data-block]")
    assert blocks.count() == len(tables)
    for block, table, told in zip(blocks.all(), tables, payload["blocks"], strict=True):
        assert block.is_visible()
        assert block.locator("h3").inner_text() == f"{table.model} · {table.task}"
        assert block.locator(".chart").count() == 5
        block.locator("summary").click()
        assert block.locator("tbody tr").count() == len(told["pairs"]["columns"]) - 1
    assert page.locator("#reliability figure").count() == sum(len(t.lines) for t in tables) - skipped(tables)
    assert not page.locator("#pair").is_visible()
    context.close()


def skipped(tables):
    return sum(not line.ok_rows for table in tables for line in table.lines)


# --- diagrams ---------------------------------------------------------------------------------------------------------


def ranked(lines):
    """Standings by which ptrue alone leads, though its style and its name put it after the others."""
    told = {key: LineStanding(0, {}, 0.5, {"brier": 1 if key.method == "ptrue" else 2}) for key in lines}
    return Standings(0.95, told, (), {})


def odd(row):
    """lts has scores without a scale."""
    records = records_of(row)
    if row.method == "lts":
        return replace(records, confidence=np.full(len(records.id), np.nan), score=np.arange(len(records.id)) * 1.0)
    return records


@pytest.fixture(scope="module")
def address(results, tmp_path_factory):
    """A page where one method has scores without a scale, and the last of all leads."""
    alpha = [row for row in results if row.model == "org/alpha"]
    rows = [
        replace(row, metrics={name: each for name, each in row.metrics.items() if metrics.METRICS[name].is_rank_based})
        if row.method == "lts" else row
        for row in alpha
    ]  # fmt: skip
    found = built(rows, standings_of=ranked)
    payload = report.payload(found, odd, lambda task, version: {})
    path = tmp_path_factory.mktemp("reliability") / "page.html"
    return report.write(path, payload, report.pictures(found, odd)).as_uri()


def shown(page):
    return page.locator(DIAGRAMS).evaluate_all("all => all.map(f => f.dataset.method)")


def test_the_leading_method_comes_first_and_scores_without_a_scale_say_so(visit, address):
    page = visit(address)
    page.locator("#reliability-block").select_option("org/alpha · rivers")
    assert shown(page)[0] == "ptrue"
    chips = page.locator("#reliability-methods button").all_inner_texts()
    assert " ".join(chips[0].split()) == "ptrue leading"
    assert sum("leading" in text for text in chips) == 1
    assert "only an order" in page.locator(f"{DIAGRAMS}[data-method=lts] text").all_text_contents()
    texts = page.locator(f"{DIAGRAMS}[data-method=ccps] text").all_text_contents()
    assert any(re.match(r"ECE [\d.]+, MCB [\d.]+", text) for text in texts)


def test_a_link_keeps_block_and_methods(visit, address):
    page = visit(address)
    page.locator("#reliability-block").select_option("org/alpha · rivers")
    page.locator("#reliability-methods button", has_text="ccps").click()
    assert "ccps" not in shown(page)
    assert "ptrue" in parse_qs(page.url.partition("#")[2])["reliability"][0]
    again = visit(page.url)
    assert again.locator("#reliability-block").input_value() == "org/alpha · rivers"
    assert shown(again) == shown(page)
    bad = visit(f"{address}#reliability=%25E0%25A4%25A,ptrue&block=nowhere")
    assert shown(bad) == ["ptrue"]
