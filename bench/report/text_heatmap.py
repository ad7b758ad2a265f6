"""Render texts coloured by numbers as one HTML page, which needs no scripts, fonts or requests.

Colours encode numbers on a scale from 0. The number is also printed above each piece of text, and marked pieces are
underlined. So the page is readable in print and with any colour vision.
"""

from __future__ import annotations

from importlib import resources

from bench.api import Piece, Strips
from bench.progress import visible
from bench.report.page.elements import Element, el, hash_of, html
from bench.report.style import tint
from bench.report.text import plain

STEPS = 10
"""Number of colours of the scale, besides white for 0."""
_FULL = "#f09a4a"
"""Colour of the piece with the largest number: an orange on which dark text has a contrast of 7 to 1."""
_LINES = ("solid", "dotted")
"""Underline styles of pieces of text with the first and with the second mark."""
_NUMBER, _EXACT = ".2g", ".3g"
"""Number formats: above a piece of text, and in the tooltip of the piece, which is more exact."""
_STYLE = "\n" + (resources.files("bench.report.page") / "assets" / "heatmap.css").read_text(encoding="utf-8")


def page(title: str, strips: Strips) -> str:
    """Return the HTML page as text.

    Args:
        title: heading of the page, e.g. method, analysis, model and task.
        strips: texts in pieces, with the number of each piece.
    """
    values = [piece.value for strip in strips.strips for piece in strip.pieces if piece.value is not None]
    max_value, style = max(values, default=0.0), _STYLE
    for step in range(STEPS + 1):
        style += f".c{step} {{ background: {tint(_FULL, step / STEPS)}; }}\n"
    for number, line in zip(range(len(strips.marks)), _LINES, strict=False):
        style += f".m{number} {{ text-decoration: underline {line} 2px; text-underline-offset: 4px; }}\n"
    policy = f"default-src 'none'; style-src '{hash_of(style)}'; base-uri 'none'; form-action 'none'"
    head = el(
        "head",
        el("meta", {"charset": "utf-8"}),
        el("meta", {"http-equiv": "Content-Security-Policy", "content": policy}),
        el("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}),
        el("title", plain(title)), el("style", style),
    )  # fmt: skip
    steps = [el("span", {"class": f"c{k}"}, format(max_value * k / STEPS, _NUMBER)) for k in range(0, STEPS + 1, 2)]
    value = el("p", f"Colour and small number: {visible(strips.value)} ", el("span", {"class": "scale"}, *steps))
    body = el("body", el("h1", plain(title)), el("p", {"class": "about"}, visible(strips.about)), value)
    mark_legend: list[Element | str] = []
    for number, meaning in enumerate(strips.marks.values()):
        mark_legend += ["; " if mark_legend else "Line below: ", el("span", {"class": f"m{number}"}, visible(meaning))]
    if mark_legend:
        body.append(el("p", {"class": "marks"}, *mark_legend))
    marks = {mark: f"m{number}" for number, mark in enumerate(strips.marks)}
    for strip in strips.strips:
        body.append(el("h2", plain(strip.title)))
        if strip.caption:
            body.append(el("p", {"class": "caption"}, visible(strip.caption)))
        pieces = (_piece(piece, marks.get(piece.mark, ""), max_value) for piece in strip.pieces)
        body.append(el("p", {"class": "text"}, *pieces))
    return f"<!doctype html>\n{html(el('html', {'lang': 'en'}, head, body))}\n"


def _piece(piece: Piece, mark: str, max_value: float) -> Element | str:
    """Render a piece of text on the colour of its number; only 0 is white. A piece without a number has no colour."""
    text = visible(piece.text)
    if piece.value is None:
        return el("span", {"class": mark, "title": piece.told or None}, text) if mark else text
    step = max(1, min(STEPS, round(STEPS * piece.value / max_value))) if piece.value > 0 else 0
    exact = format(piece.value, _EXACT) + (f": {piece.told}" if piece.told else "")
    inner = el("span", {"class": f"c{step} {mark}".rstrip()}, text)
    return el("ruby", {"title": visible(exact)}, inner, el("rt", format(piece.value, _NUMBER)))
