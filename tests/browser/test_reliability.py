"""The reliability section: what comes first, what is joined, what the number below is, and what a link keeps."""

from __future__ import annotations

import re
from dataclasses import replace
from urllib.parse import parse_qs

import numpy as np
import pytest

from bench import metrics
from bench.report import page as report
from bench.report.standings.compute import LineStanding, Standings
from tests.browser.conftest import records_of, tables

BLOCK = "org/alpha · rivers"
ALPHA_RIVERS = ("org/alpha", "rivers")


def ranked(lines):
    """Standings by which ptrue alone leads, though its style and its name put it after the others."""
    told = {key: LineStanding(0, {}, 0.5, {"brier": 1 if key.method == "ptrue" else 2}) for key in lines}
    return Standings(0.95, told, (), {})


def odd(row):
    """Two answers in the lowest bin of ccps; lts has scores without a scale."""
    records = records_of(row)
    if row.method == "ccps":
        confidence = np.clip(records.confidence, 0.25, 1.0)
        confidence[:2] = 0.05
        return replace(records, confidence=confidence)
    if row.method == "lts":
        return replace(records, confidence=np.full(len(records.id), np.nan), score=np.arange(len(records.id)) * 1.0)
    return records


def of_order(row):
    return {name: value for name, value in row.metrics.items() if metrics.METRICS[name].of_order}


@pytest.fixture(scope="module")
def address(results, tmp_path_factory):
    """The page of these results."""
    rows = [replace(row, metrics=of_order(row)) if row.method == "lts" else row for row in results]
    built = report.payload(tables(rows, standings_of=ranked), odd, lambda task, version: {})
    return report.write(tmp_path_factory.mktemp("reliability") / "page.html", built).as_uri()


def shown(page):
    return page.locator("#reliability-figures figure").evaluate_all("all => all.map(f => f.dataset.method)")


def pressed(page):
    chips = page.locator("#reliability-methods button[aria-pressed=true] bdi")
    return chips.evaluate_all("all => all.map(c => c.textContent)")


def test_the_leading_method_comes_first(visit, address):
    page = visit(address)
    page.locator("#reliability-block").select_option(BLOCK)
    assert shown(page)[0] == "ptrue"
    chips = page.locator("#reliability-methods button").all_inner_texts()
    assert " ".join(chips[0].split()) == "ptrue leading"
    assert sum("leading" in text for text in chips) == 1
    assert "leading" in page.locator("figure[data-method=ptrue] figcaption").inner_text()


def test_bins_with_few_answers_are_dimmed_and_not_joined(visit, address):
    page = visit(address)
    page.locator("#reliability-block").select_option(BLOCK)
    figure = page.locator("figure[data-method=ccps]")
    few = figure.locator(".point.few").evaluate_all("all => all.map(p => Number(p.dataset.bin))")
    confidence = [odd(row).confidence for row in report_rows() if row.method == "ccps"]
    bins = [np.bincount(np.minimum((p * 10 + 1e-9).astype(int), 9), minlength=10) for p in confidence]
    size = np.mean(bins, axis=0)
    assert few == [j for j in range(10) if 0 < size[j] < 5]
    assert 0 in few
    joined = figure.locator(".path").evaluate_all("all => all.map(p => p.dataset.bins.split(' ').map(Number))")
    filled = [j for j in range(10) if size[j]]
    runs = "".join("-" if j in few else str(j) for j in filled)
    assert ["".join(map(str, run)) for run in joined] == re.findall(r"\d{2,}", runs)
    opacity = "node => getComputedStyle(node).opacity"
    assert float(figure.locator(".point.few").first.evaluate(opacity)) < 0.5
    assert "fewer than five answers" in figure.locator(".target").first.get_attribute("aria-label")


def report_rows():
    """Results of one block."""
    from tests.browser.conftest import rows

    return [row for row in rows() if (row.model, row.task) == ALPHA_RIVERS and row.status == "ok"]


def test_the_number_below_is_the_pooled_one(visit, address):
    page = visit(address)
    page.locator("#reliability-block").select_option(BLOCK)
    for method in ("ccps", "ptrue"):
        runs = [odd(row) for row in report_rows() if row.method == method]
        p, o = (np.concatenate([getattr(run, name) for run in runs]) for name in ("confidence", "correct"))
        bins = np.minimum((p * 10 + 1e-9).astype(int), 9)
        ece = sum(abs((p - o)[bins == j].sum()) for j in range(10)) / len(p)
        said = page.locator(f"figure[data-method={method}] .readout").inner_text()
        assert said.startswith(f"ECE {100 * ece:.1f} % and Brier’s miscalibration part")  # noqa: RUF001 - as on the page
        assert f"part {100 * metrics.brier_mcb(p, o):.1f} %, of the answers of all subjects" in said
    assert "of all subjects and seeds together" in page.locator("figure[data-method=ccps] .readout").inner_text()


def test_the_curve_and_its_band_are_drawn(visit, address):
    page = visit(address)
    page.locator("#reliability-block").select_option(BLOCK)
    points = "node => node.getAttribute('points').split(' ').map(p => p.split(',').map(Number))"
    curve = np.array(page.locator("figure[data-method=ptrue] .curve").evaluate(points))
    band = np.array(page.locator("figure[data-method=ptrue] .band").evaluate(points))
    assert len(band) == 2 * len(curve)
    assert (np.diff(curve[:, 0]) > 0).all()
    assert (np.diff(curve[:, 1]) <= 0).all()  # upwards on the screen
    upper, lower = band[: len(curve)], band[len(curve) :][::-1]
    np.testing.assert_allclose(upper[:, 0], curve[:, 0])
    assert (upper[:, 1] <= lower[:, 1]).all()


def test_scores_without_a_scale_say_so_instead_of_a_diagram(visit, address):
    page = visit(address)
    page.locator("#reliability-block").select_option(BLOCK)
    figure = page.locator("figure[data-method=lts]")
    assert "these scores have no scale" in figure.inner_text()
    assert figure.locator("svg").count() == 0


def test_a_link_keeps_block_and_methods(visit, address):
    page = visit(address)
    page.locator("#reliability-block").select_option(BLOCK)
    for name in pressed(page):
        if name != "ptrue":
            page.locator("#reliability-methods button").filter(has_text=name).click()
    link = page.url
    assert parse_qs(link.partition("#")[2])["reliability"] == ["ptrue"]
    again = visit(link)
    assert again.locator("#reliability-block option:checked").inner_text() == BLOCK
    assert shown(again) == pressed(again) == ["ptrue"]
    again.locator("#reliability-methods button").filter(has_text="ptrue").click()
    assert shown(visit(again.url)) == []
    assert shown(visit(address + "#reliability=%2525E0,nobody&reliability-of=nothing")) == []
