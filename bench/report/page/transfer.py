"""Render the page's section on distribution shift: how much worse methods are if they learned on another task.

Each model has its own tables. The section is plain HTML, without a script. Example: `section(Shift(matrices))`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from bench.metrics import METRICS
from bench.report.page.elements import Element, el, html, table
from bench.report.tables.grid import Grid
from bench.report.text import plain, seeds_text
from bench.report.transfer.model import METRICS_SHOWN, Matrix
from bench.report.transfer.stored import UnreadableMatrix
from bench.report.transfer.verdict import verdict
from bench.report.transfer.views import views

TITLE = "Train here, test there"
_ABOUT = (
    "Each method learned on one set of answers and was tested on another. The price of learning elsewhere is the"
    " difference to learning where methods do by default (or on what --home named), on the same questions; positive is"
    " worse."
)


class Shift(NamedTuple):
    """Transfer matrices that a page shows: metrics of methods by the task they learned on and the task of the test."""

    matrices: Sequence[Matrix | UnreadableMatrix]
    """The transfer matrix of each model, or the reason why it can't be shown."""
    methods: Collection[str] | None = None
    """Names of the methods to show; None shows all. Ranks, Holm's correction and the verdict also include hidden
    methods."""


def section(shift: Shift) -> str:
    """Return the markup of the section on distribution shift; empty if no model has a transfer matrix."""
    if not shift.matrices:
        return ""
    children = []
    for matrix in shift.matrices:
        if isinstance(matrix, UnreadableMatrix):
            model = plain(matrix.model)
            reason = f"There is a matrix of {model}, which is not shown: {plain(matrix.reason)}."
            children += [el("h3", model), el("p", reason)]
        else:
            children += _matrix_elements(matrix, shift)
    title = el("h2", {"id": "transfer-title"}, TITLE)
    about = el("p", {"class": "muted legend"}, _ABOUT)
    attributes = {"id": "transfer", "aria-labelledby": "transfer-title", "tabindex": "-1"}
    return html(el("section", attributes, title, about, *children))


def _matrix_elements(matrix: Matrix, shift: Shift) -> Iterator[Element]:
    about, all_methods = matrix.about, matrix.methods
    names = [name for name in all_methods if shift.methods is None or name in shift.methods]
    if len(shift.matrices) > 1:
        yield el("h3", plain(about.model))
    seeds, tests = seeds_text(about.seeds), ", ".join(about.tests)
    facts = " ".join((f"{plain(about.model)}. Preset {about.preset}, {seeds}; tested on {tests}.", *matrix.remarks))
    hidden_note = f" Shown are {len(names)} of {len(all_methods)} methods; ranks, prices and sentences are of all."
    yield el("p", {"class": "muted legend"}, facts + hidden_note * (len(all_methods) > len(names)))
    first, *others = verdict(matrix)
    yield el("p", {"class": "said"}, el("b", first))
    yield el("ul", {"class": "said"}, *(el("li", sentence) for sentence in others))
    hidden_names = {plain(name) for name in all_methods} - set(map(plain, names))
    grids = views(matrix).grids
    label = METRICS[METRICS_SHOWN[0]].label
    unfolded = [grid for grid in grids if grid is grids[0] or label in grid.facts[0]]
    yield from (_table(grid, hidden_names) for grid in unfolded)
    folded = [_table(grid, hidden_names) for grid in grids if grid not in unfolded]
    if folded:
        yield el("details", el("summary", "The same in other metrics"), *folded)
    legend = dict.fromkeys(sentence for grid in grids for sentence in grid.legend)
    yield el("ul", {"class": "muted words"}, *(el("li", sentence) for sentence in legend))


def _table(grid: Grid, hidden: Collection[str]) -> Element:
    """Return an HTML table from a grid of texts, without the rows of hidden methods.

    The table stands in an element that scrolls sideways if the table is too wide.
    """
    labels = [plain(f"{column.span} {column.label}").strip() for column in grid.columns]
    headings = (el("th", {"scope": "col", "class": "num" if i else "name"}, label) for i, label in enumerate(labels))
    rows = []
    for row in grid.rows:
        first, *others = row.cells
        if first.text not in hidden:
            cells = [el("th", {"scope": "row", "class": "name"}, el("bdi", first.text))]
            for cell, label in zip(others, labels[1:], strict=True):
                notes = el("small", {"class": "muted"}, f" {'; '.join(map(plain, cell.notes))}") if cell.notes else None
                cells.append(el("td", {"class": "num", "data-label": label}, el("bdi", cell.text + cell.mark), notes))
            rows.append(el("tr", {"class": "apart" if row.begins_block else None}, *cells))
    markup = table({"class": "cards"}, el("caption", grid.facts[0]), headings, el("tbody", *rows))
    return el("div", {"class": "wide", "tabindex": "0", "role": "region", "aria-label": grid.facts[0]}, markup)
