"""The page's section on shift: the tables of the matrix, in plain HTML, wide and narrow and printed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench.report import page as report
from bench.report.page.transfer import Shift, section
from bench.report.transfer.compute import compute_matrix
from bench.report.transfer.model import Matrix
from bench.report.transfer.stored import UnreadableMatrix
from bench.report.transfer.verdict import verdict
from bench.report.transfer.views import views
from bench.results.transfer import TransferCell
from tests.browser.conftest import SCRIPT
from tests.fixtures.shifted import A_FEWER, A_OUT, SHARES, A, B, about, cells

pytestmark = pytest.mark.browser


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


def squeezed(text: str) -> str:
    return " ".join(text.split())


def test_shift_tables_are_those_of_the_terminal(plain: Any, shifted: str, matrix: Matrix) -> None:
    plain.goto(shifted)
    found = plain.locator("#transfer table").evaluate_all(
        "tables => tables.map(table => [table.caption.textContent,"
        " [...table.rows].map(row => [...row.cells].map(cell => cell.textContent))])"
    )
    grids = {grid.facts[0]: grid for grid in views(matrix).grids}
    assert {caption for caption, _ in found} == set(grids)
    for caption, (head, *rows) in found:
        assert len(head) == len(grids[caption].columns)
        for row, told in zip(rows, grids[caption].rows, strict=True):
            for text, cell in zip(map(squeezed, row), told.cells, strict=True):
                assert text.startswith(cell.text + cell.mark)
                assert all(note in text for note in cell.notes)


def test_shift_words_are_those_of_the_terminal_and_no_markup(visit: Any, shifted: str, matrix: Matrix) -> None:
    page = visit(shifted)
    said = page.locator("#transfer .said b, #transfer .said li").all_text_contents()
    assert [*map(squeezed, said)] == list(verdict(matrix))
    text = squeezed(page.locator("#transfer").inner_text())
    assert f"There is a matrix of beta, which is not shown: its results are not there {SCRIPT}." in text
    assert page.locator("#transfer script").count() == 0
    assert page.locator('nav a[href="#transfer"]').inner_text() == "Shift"
    assert visit().locator('#transfer, nav a[href="#transfer"]').count() == 0


@pytest.mark.parametrize(("width", "media"), [(1280, "screen"), (400, "screen"), (1040, "print")])
def test_shift_fits_any_width_and_print(visit: Any, shifted: str, width: int, media: str) -> None:
    page = visit(shifted, width=width)
    page.emulate_media(media=media)
    page.locator("#transfer details").first.evaluate("node => { node.open = true }")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    clipped = page.locator("#transfer td, #transfer th").evaluate_all(
        "cells => cells.filter(cell => cell.checkVisibility() && cell.scrollWidth > cell.clientWidth + 1).length"
    )
    assert clipped == 0
    if media == "print":
        assert all(table.bounding_box()["height"] > 30 for table in page.locator("#transfer table").all())
    label = page.locator("#transfer td[data-label]").first.evaluate("e => getComputedStyle(e, '::before').content")
    assert (label != "none") == (width == 400)  # narrow, each number says what was learned on


def test_shift_of_chosen_methods_counts_the_others(visit: Any, payload: Any, matrix: Matrix, tmp_path: Path) -> None:
    path = report.write(tmp_path / "page.html", {**payload, "transfer": section(Shift([matrix], {"good", "plain"}))})
    page = visit(path.as_uri())
    names = set(page.locator("#transfer tbody th.name").all_text_contents())
    assert names == {"good", "plain", "mean of those that learn", "share of right answers"}
    text = page.locator("#transfer").inner_text()
    assert "Shown are 2 of 4 methods" in text
    assert "rote" in text  # in the sentences, which are of all
