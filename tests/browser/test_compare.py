"""The comparison and the diagrams in a real browser: figures, two methods beside each other, disagreements."""

from __future__ import annotations

import re
from itertools import combinations

import numpy as np
import pytest

from bench.metrics import METRICS
from bench.report.text import interval_text, precise
from tests.fixtures import compared

pytestmark = pytest.mark.browser

PLAIN = set(compared.SKILLS)
BLOCK = "beta · atlas-choice"


def pair_of(table, metric, first, second):
    """First minus second, from the standings."""
    for pair in table.standings.pairs:
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


def test_pairs_have_the_tests_of_the_standings(visit, tables):
    page, verdicts = visit(), set()
    for first, second in combinations(sorted(PLAIN), 2):
        (one, other), rows = chosen(page, first, second)
        assert {one, other} == {first, second}
        assert len(rows) == 6
        for name in ("brier", "auroc", "nll"):
            pair, metric = pair_of(tables[0], name, one, other), METRICS[name]
            heading = next(label for label in rows if label.startswith(metric.label))
            winner = pair.winner(0.05)
            verdict = "can't be distinguished" if winner is None else "better" if winner == pair.first else "worse"
            *told, p, said = rows[heading]
            difference = "+" * (pair.difference > 0) + precise(metric, pair.difference)
            assert told == [difference, interval_text(metric, pair.fixed.low, pair.fixed.high)]
            assert p in {f"{pair.p_corrected:.3f}", "<0.001"}
            assert said == verdict
            verdicts.add(verdict)
    assert verdicts == {"better", "worse", "can't be distinguished"}


def test_disagreements_are_the_largest_differences_of_the_records(visit):
    page = visit()
    page.locator("#compare-block").select_option(BLOCK)
    assert page.locator("#reliability-block").input_value() == BLOCK
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
    first.locator(".question .bars li").first.wait_for()  # drawn once the summary's toggle event has come
    assert first.locator(".question .bars li").count() >= len(PLAIN)


def test_figures_of_one_table_are_shown_and_are_text(visit, payload):
    page = visit()
    for block in payload["blocks"]:
        page.locator("#compare-block").select_option(f"{block['model']} · {block['task']}")
        charts = page.locator("#compare [data-block]:not([hidden]) .chart")
        assert charts.count() == 5
        labels = charts.evaluate_all("all => all.map(chart => chart.getAttribute('aria-label'))")
        assert all(label.startswith(f"{block['model']} on {block['task']}: ") for label in labels)
        texts = charts.first.locator("text").all_text_contents()
        assert {text.removeprefix("▸ ") for text in texts} >= PLAIN
    assert page.locator("[style]:not([style*='--'])").count() == 0  # the policy would block it


def test_methods_are_chosen_for_the_diagrams(visit, file):
    page = visit()
    figures = page.locator("#reliability [data-block]:not([hidden]) figure:not([hidden])")
    shown = "all => all.map(f => f.dataset.method)"
    page.locator("#reliability-block").select_option("alpha · atlas-choice")
    names = figures.evaluate_all(shown)
    assert names[0] == "ccps"  # it leads, though ct stands first in the table
    assert "only an order" in page.locator("#reliability figure[data-method=margin] text").all_text_contents()
    texts = page.locator("#reliability figure[data-method=ccps] text").all_text_contents()
    assert any(re.match(r"ECE [\d.]+, MCB [\d.]+", text) for text in texts)
    chips = page.locator("#reliability-methods button")
    assert [" ".join(text.split()) for text in chips.all_inner_texts() if "leading" in text] == [
        "ccps leading", "litcab leading",
    ]  # fmt: skip
    chip = chips.filter(has_text="litcab")
    assert chip.get_attribute("aria-pressed") == "true"
    chip.click()
    assert chip.get_attribute("aria-pressed") == "false"
    assert figures.evaluate_all(shown) == [name for name in names if name != "litcab"]
    page.locator("#reliability-block").select_option(BLOCK)
    assert "litcab" not in figures.evaluate_all(shown)
    odd = visit(f"{file.as_uri()}#reliability=%25E0%25A4%25A,ptrue&block=nowhere")
    diagrams = odd.locator("#reliability [data-block]:not([hidden]) figure:not([hidden])")
    assert diagrams.evaluate_all(shown) == ["ptrue"]
