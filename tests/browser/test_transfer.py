"""The page's section on shift: the tables of the matrix, in plain HTML, wide and narrow and printed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.metrics import METRICS
from bench.report import page as report
from bench.report.page.transfer import Shift, section
from bench.report.transfer import Matrix, compute_matrix, verdict
from bench.report.transfer.stored import UnreadableMatrix
from bench.report.transfer.views import format_price, views
from bench.results.transfer import TransferCell
from tests.browser.conftest import SCRIPT
from tests.fixtures.shifted import A_FEWER, A_OUT, SHARES, A, B, about, cells

pytestmark = pytest.mark.browser

LIMIT = 5_000_000


@pytest.fixture(scope="module")
def matrix(tmp_path_factory: pytest.TempPathFactory) -> Matrix:
    """One with both prices of a subject, and a cell that is missing for an odd reason."""
    told = about(corpora=(A, B, A_OUT, A_FEWER), shares=SHARES)
    made = cells(tmp_path_factory.mktemp("cells"), told)
    return compute_matrix([*made, TransferCell("gone", "a", A, missing=SCRIPT)], told)


@pytest.fixture(scope="module")
def shifted(payload: dict[str, Any], matrix: Matrix, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Address of a page with that matrix, and one of another model that can't be shown."""
    shift = Shift([matrix, UnreadableMatrix("beta", f"its results are not there {SCRIPT}")])
    path = tmp_path_factory.mktemp("shifted") / "page.html"
    return report.write(path, {**payload, "transfer": section(shift)}).as_uri()


@pytest.fixture(scope="module")
def plain(chromium: Any) -> Iterator[Any]:
    """A page of a browser that runs no scripts."""
    context = chromium.new_context(java_script_enabled=False)
    yield context.new_page()
    context.close()


def written(page: Any) -> dict[str, list[list[str]]]:
    """Texts of all cells of the section's tables by their captions, without white space at their ends."""
    found = page.locator("#transfer table").evaluate_all(
        "tables => tables.map(table => [table.caption.textContent,"
        " [...table.rows].map(row => [...row.cells].map(cell => cell.textContent))])"
    )
    return {caption: [[" ".join(text.split()) for text in row] for row in rows] for caption, rows in found}


def test_every_number_of_the_matrix_stands_on_the_page_with_its_price(plain: Any, shifted: str, matrix: Matrix) -> None:
    """The tables are those that the terminal prints."""
    plain.goto(shifted)
    tables = written(plain)
    grids = views(matrix).grids
    assert set(tables) == {grid.facts[0] for grid in grids}
    for grid in grids:
        head, *rows = tables[grid.facts[0]]
        assert len(head) == len(grid.columns)
        for row, told in zip(rows, grid.rows, strict=True):
            assert all(text.startswith(cell.text + cell.mark) for text, cell in zip(row, told.cells, strict=True))
            assert all(note in row[i] for i, cell in enumerate(told.cells) for note in cell.notes)
    prices = {(p.method, p.corpus, p.test, p.metric): p for p in matrix.prices}
    for (method, corpus, test, metric), price in prices.items():
        [table] = [rows for caption, rows in tables.items()
                   if f"tested on {test}: the price of learning elsewhere" in caption
                   and METRICS[metric].label in caption]  # fmt: skip
        [row] = [row for row in table if row[0] == method]
        assert row[table[0].index(corpus.label)].startswith(
            format_price(metric, price.points, price.interval) + "*" * price.is_shown
        )


def test_the_words_are_those_of_the_terminal_and_nothing_is_markup(visit: Any, shifted: str, matrix: Matrix) -> None:
    page = visit(shifted)
    said = [
        " ".join(text.split()) for text in page.locator("#transfer .said b, #transfer .said li").all_text_contents()
    ]
    assert said == list(verdict(matrix))
    assert f"There is a matrix of beta, which is not shown: its results are not there {SCRIPT}." in page.locator(
        "#transfer"
    ).inner_text().replace("\n", " ")
    assert page.locator("#transfer script").count() == 0
    assert page.locator('nav a[href="#transfer"]').inner_text() == "Shift"


def test_a_page_without_a_matrix_has_no_such_section(visit: Any) -> None:
    page = visit()
    assert page.locator("#transfer").count() == 0
    assert page.locator('nav a[href="#transfer"]').count() == 0


@pytest.mark.parametrize("width", [1280, 400])
def test_it_fits_any_width(visit: Any, shifted: str, width: int) -> None:
    page = visit(shifted, width=width)
    page.locator("#transfer details").first.evaluate("node => { node.open = true }")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    clipped = page.locator("#transfer td, #transfer th").evaluate_all(
        "cells => cells.filter(cell => cell.checkVisibility() && cell.scrollWidth > cell.clientWidth + 1).length"
    )
    assert clipped == 0
    label = page.locator("#transfer td[data-label]").first.evaluate(
        "cell => getComputedStyle(cell, '::before').content"
    )
    assert (label != "none") == (width == 400)  # narrow, each number says what was learned on


def test_print_shows_every_table(visit: Any, shifted: str) -> None:
    page = visit(shifted)
    page.emulate_media(media="print")
    page.set_viewport_size({"width": 1040, "height": 720})
    assert page.evaluate("document.documentElement.scrollWidth") <= 1040
    assert all(table.bounding_box()["height"] > 30 for table in page.locator("#transfer table").all())
    page.emulate_media(media="screen")


def test_chosen_methods_are_shown_and_the_others_counted(
    visit: Any, payload: Any, matrix: Matrix, tmp_path: Path
) -> None:
    path = report.write(tmp_path / "page.html", {**payload, "transfer": section(Shift([matrix], {"good", "plain"}))})
    page = visit(path.as_uri())
    names = set(page.locator("#transfer tbody th.name").all_text_contents())
    assert names == {"good", "plain", "mean of those that learn", "share of right answers"}
    text = page.locator("#transfer").inner_text()
    assert "Shown are 2 of 4 methods" in text
    assert re.search(r"rote", text)  # in the sentences, which are of all
    assert path.stat().st_size < LIMIT
