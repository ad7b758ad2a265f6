"""Grids as a fragment of HTML for a notebook: no script, no style sheet, colours of the page around it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING

from bench.progress import visible
from bench.report.tables.formats import legend_of

if TYPE_CHECKING:
    from bench.report.tables.grid import Cell, Grid, GridRow

_NOTE = "font-size:smaller;opacity:.75;max-width:60em"
_APART = "border-top:1px solid;"
_UNDER = "font-size:smaller;opacity:.75"


def fragment(grids: Sequence[Grid]) -> str:
    """The grids below one another, and their legend once; all text is escaped."""
    lines = [line for grid in grids for line in _lines(grid)]
    return "\n".join(["<div>", *lines, _paragraph(" ".join(legend_of(grids)), _NOTE), "</div>"])


def paragraphs(texts: Iterable[str]) -> str:
    """Texts, each a paragraph."""
    return "\n".join(_paragraph(text) for text in texts)


def _lines(grid: Grid) -> Iterator[str]:
    yield _paragraph(grid.facts[0], "font-weight:bold")
    for lead, rest in grid.verdicts:
        yield f"<p><b>{_text(lead)}</b> {_text(rest)}</p>"
    if grid.facts[1:]:
        yield _paragraph(" ".join(grid.facts[1:]), _NOTE)
    if grid.rows:
        labels = (f"{column.span} {column.label}".strip() for column in grid.columns)
        heads = (f'<th style="{_side(grid, i)}">{_text(label)}</th>' for i, label in enumerate(labels))
        yield f'<table style="border-collapse:collapse"><thead><tr>{"".join(heads)}</tr></thead><tbody>'
        yield from (_row(grid, row, is_first=not number) for number, row in enumerate(grid.rows))
        yield "</tbody></table>"
    if grid.footnotes:
        notes = "".join(f"<li>{_text(note)}</li>" for note in grid.footnotes)
        yield f'<ol style="{_NOTE}">{notes}</ol>'
    yield from (_paragraph(remark, _NOTE) for remark in grid.remarks)


def _row(grid: Grid, row: GridRow, *, is_first: bool) -> str:
    line = _APART if row.is_apart and not is_first else ""
    cells = "".join(f'<td style="{line}{_side(grid, i)}">{_cell(grid, cell)}</td>' for i, cell in enumerate(row.cells))
    return f'<tr style="{_UNDER}">{cells}</tr>' if row.is_under else f"<tr>{cells}</tr>"


def _cell(grid: Grid, cell: Cell) -> str:
    text = _text(cell.text)
    shown = (f"<b>{text}</b>" if cell.bold else text) + _text(cell.mark)
    return f"{shown}<sup>{grid.numbers(cell)}</sup>" if cell.notes else shown


def _side(grid: Grid, number: int) -> str:
    return f"text-align:{'left' if grid.columns[number].is_left else 'right'};white-space:nowrap;padding:1px .6em"


def _paragraph(text: str, style: str = "") -> str:
    return f'<p style="{style}">{_text(text)}</p>' if style else f"<p>{_text(text)}</p>"


def _text(text: str) -> str:
    """Text that is no markup; dollars are no formulas, which notebooks would make of them."""
    return escape(visible(text)).replace("$", "<span>$</span>")
