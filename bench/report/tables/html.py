"""Render grids (tables of cells) as HTML for notebooks, without script or style sheet, in the notebook's colours."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

from bench.progress import visible
from bench.report.tables.formats import merge_legends

if TYPE_CHECKING:
    from bench.report.tables.grid import Grid

_NOTE = "font-size:smaller;opacity:.75;max-width:60em"
_APART = "border-top:1px solid;"
_UNDER = "font-size:smaller;opacity:.75"


def fragment(grids: Sequence[Grid]) -> str:
    """Render grids (tables of cells) as HTML, one below the other, with one legend; all text is escaped."""
    lines = ["<div>"]
    for grid in grids:
        lines.append(_paragraph(grid.facts[0], "font-weight:bold"))
        lines += [f"<p><b>{_text(lead)}</b> {_text(rest)}</p>" for lead, rest in grid.verdicts]
        if grid.facts[1:]:
            lines.append(_paragraph(" ".join(grid.facts[1:]), _NOTE))
        sides = [
            f"text-align:{'left' if c.is_left else 'right'};white-space:nowrap;padding:1px .6em" for c in grid.columns
        ]
        heads = (f'<th style="{side}">{_text(c.heading)}</th>' for side, c in zip(sides, grid.columns, strict=True))
        table = [f'<table style="border-collapse:collapse"><thead><tr>{"".join(heads)}</tr></thead><tbody>']
        for number, row in enumerate(grid.rows):
            cells = ""
            for side, cell in zip(sides, row.cells, strict=True):
                text = f"<b>{_text(cell.text)}</b>" if cell.bold else _text(cell.text)
                notes = f"<sup>{grid.numbers(cell)}</sup>" if cell.notes else ""
                above = _APART * (row.begins_block and number > 0)
                cells += f'<td style="{above}{side}">{text}{_text(cell.mark)}{notes}</td>'
            table.append(f'<tr style="{_UNDER}">{cells}</tr>' if row.is_subrow else f"<tr>{cells}</tr>")
        lines += [*table, "</tbody></table>"] if grid.rows else []
        if grid.footnotes:
            notes = "".join(f"<li>{_text(note)}</li>" for note in grid.footnotes)
            lines.append(f'<ol style="{_NOTE}">{notes}</ol>')
        lines += [_paragraph(remark, _NOTE) for remark in grid.remarks]
    return "\n".join([*lines, _paragraph(" ".join(merge_legends(grids)), _NOTE), "</div>"])


def paragraphs(texts: Iterable[str]) -> str:
    """Render each text as an HTML paragraph."""
    return "\n".join(_paragraph(text) for text in texts)


def _paragraph(text: str, style: str = "") -> str:
    return f'<p style="{style}">{_text(text)}</p>' if style else f"<p>{_text(text)}</p>"


def _text(text: str) -> str:
    """Escape text for HTML.

    Dollar signs are put in tags, since notebooks render text between two dollar signs as a formula.
    """
    return escape(visible(text)).replace("$", "<span>$</span>")
