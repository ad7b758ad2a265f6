"""Texts coloured by numbers, as one HTML page that needs nothing else: no script, no font, no request.

A colour stands for a number on a scale from 0; the same number stands above each piece, and marks are lines below it,
so that the page can be read on paper and with any kind of colour vision.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from bench.api import Piece, Strip, Strips
from bench.progress import visible
from bench.report.page.elements import Element, el, html
from bench.report.style import tint
from bench.report.text import plain

STEPS = 10
"""Colours of the scale."""
_FULL = "#f09a4a"
"""An orange on which dark text has a contrast of 7 to 1."""
_LINES = ("solid", "dotted")
"""Lines of marks, in their order."""
_NUMBER, _EXACT = ".2g", ".3g"
"""Formats of the number above a piece, and of the one that is shown when it is pointed at."""
_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #111; background: #fff; max-width: 60em; margin: 2em auto;
  padding: 0 1em; color-scheme: light; }
h1 { font-size: 1.25em; } h2 { font-size: 1em; margin: 1.6em 0 0; } p { margin: .3em 0; }
.about, .caption { color: #444; }
.text { line-height: 2.6; white-space: pre-wrap; overflow-wrap: anywhere; }
rt { font-size: .55em; color: #444; user-select: none; }
.scale { white-space: nowrap; }
.scale span { display: inline-block; min-width: 2.6em; padding: 0 .3em; text-align: center; font-size: .8em; }
"""


@dataclass(frozen=True)
class _Scale:
    """Colours of numbers from 0 to the largest one."""

    top: float

    def step(self, value: float) -> int:
        """Number of a colour, from 0; 0 and 0 alone may stay white."""
        if value <= 0 or self.top <= 0:
            return 0
        return max(1, min(STEPS, round(STEPS * value / self.top)))


def page(title: str, given: Strips) -> str:
    """The whole file as text.

    Args:
        title: what the page is about, e.g. method, analysis, model and task.
        given: the texts, checked.
    """
    values = [piece.value for strip in given.strips for piece in strip.pieces if piece.value is not None]
    scale, style = _Scale(max(values, default=0.0)), _STYLE + "".join(_rules(given))
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    head = el(
        "head", {},
        el("meta", {"charset": "utf-8"}),
        el("meta", {"http-equiv": "Content-Security-Policy", "content": policy}),
        el("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}),
        el("title", {}, plain(title)), el("style", {}, style),
    )  # fmt: skip
    body = el(
        "body", {}, el("h1", {}, plain(title)), el("p", {"class": "about"}, visible(given.about)),
        *_legend(given, scale), *(part for strip in given.strips for part in _strip(strip, given, scale)),
    )  # fmt: skip
    return f"<!doctype html>\n{html(el('html', {'lang': 'en'}, head, body))}\n"


def _rules(given: Strips) -> Iterator[str]:
    for step in range(STEPS + 1):
        yield f".c{step} {{ background: {tint(_FULL, step / STEPS)}; }}\n"
    for number, line in zip(range(len(given.marks)), _LINES, strict=False):
        yield f".m{number} {{ text-decoration: underline {line} 2px; text-underline-offset: 4px; }}\n"


def _legend(given: Strips, scale: _Scale) -> Iterator[Element]:
    steps = [el("span", {"class": f"c{k}"}, format(scale.top * k / STEPS, ".2g")) for k in range(0, STEPS + 1, 2)]
    swatches = el("span", {"class": "scale"}, *steps)
    yield el("p", {}, f"Colour and small number: {visible(given.value)} ", swatches)
    told: list[Element | str] = []
    for number, meaning in enumerate(given.marks.values()):
        told += ["; " if told else "Line below: ", el("span", {"class": f"m{number}"}, visible(meaning))]
    if told:
        yield el("p", {"class": "marks"}, *told)


def _strip(strip: Strip, given: Strips, scale: _Scale) -> Iterator[Element]:
    yield el("h2", {}, plain(strip.title))
    if strip.caption:
        yield el("p", {"class": "caption"}, visible(strip.caption))
    yield el("p", {"class": "text"}, *(_piece(piece, given, scale) for piece in strip.pieces))


def _piece(piece: Piece, given: Strips, scale: _Scale) -> Element | str:
    text = visible(piece.text)
    if piece.value is None and not piece.mark:
        return text
    marks = [f"m{list(given.marks).index(piece.mark)}"] if piece.mark else []
    if piece.value is None:
        return el("span", {"class": marks[0], "title": piece.told or None}, text)
    number = format(piece.value, _NUMBER)
    told = f"{piece.value:{_EXACT}}: {piece.told}" if piece.told else f"{piece.value:{_EXACT}}"
    inner = el("span", {"class": " ".join([f"c{scale.step(piece.value)}", *marks])}, text)
    return el("ruby", {"title": visible(told)}, inner, el("rt", {}, number))
