"""The sheet a figure is drawn on: placed in inches from the top left, with a title, a key below, and a note.

Nothing is left to automatic layout: every margin follows from measured text, so that nothing overlaps and the same
numbers give the same bytes. Example: `sheet(TEXT_WIDTH, 3.0, title="tiny", note="n 400")` leaves 3 inches to draw on.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from bench.report.style import FAINT, FONT, MUTED, RC, SMALL, Style
from bench.report.text import plain
from bench.store.files import write_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure

POINT = 1 / 72
"""Inches."""
LINE = 1.3 * SMALL * POINT
"""Inches from one line of small type to the next."""
EDGE = 0.03
"""Inches that stay free at the edges."""
TITLE = 8.0
"""Points."""
TITLE_LINE = 1.25 * TITLE * POINT
KEY_LINE = 0.22
"""Inches of line beside a name in the key."""
KEY_GAP = 0.1
KEY_NAME = 1.6
"""Inches of a name in the key at most."""
NO_GLYPH = r"Glyph .* missing from font"
MARKER_SIZE = 3.2
"""Points."""
REFERENCE: Mapping[str, Any] = MappingProxyType({"color": FAINT, "linewidth": 0.6, "zorder": 0.5})
"""Lines to compare with."""


@contextmanager
def styled() -> Iterator[None]:
    """Matplotlib with the settings of `style.RC` on top of its own defaults, whatever the user's are."""
    import matplotlib

    with matplotlib.rc_context(), warnings.catch_warnings():
        # A script that the font lacks is drawn as boxes in PNG and PDF; in SVG it is text that browsers can show.
        warnings.filterwarnings("ignore", message=NO_GLYPH)
        warnings.filterwarnings("ignore", message=r"Matplotlib currently does not support .* natively")
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(dict[Any, Any](RC))
        yield


@dataclass(frozen=True, eq=False)
class Sheet:
    """A figure with a ruler; positions are inches from the left and from the top of the part to draw on."""

    figure: Figure
    width: float
    height: float
    top: float
    """Inches above the part to draw on."""

    def text(self, x: float, y: float, words: str, **settings: Any) -> None:
        """Words at a place."""
        place = (x / self.width, 1 - (self.top + y) / self.height)
        self.figure.text(*place, words, **{"fontsize": SMALL, "va": "top", **settings})

    def name(self, left: float, y: float, words: str) -> None:
        """Name of a row whose middle is at y, beside panels that begin at `left`."""
        self.text(left - 0.06, y, fitted(words, left - EDGE - 0.05), ha="right", va="center_baseline")


def sheet(
    width: float, body: float, *, title: str, note: str, key: Sequence[tuple[str, Style]] = (), lines: bool = True
) -> Sheet:
    """An empty sheet.

    Args:
        width: inches.
        body: inches of height to draw on.
        title: broken into lines where it is long.
        note: what a reader must know; broken into lines.
        key: names and how they are drawn, below the drawing.
        lines: whether the key shows lines with their markers, or markers alone.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    note_lines = wrapped(note, width - 2 * EDGE)
    names = [fitted(plain(name), KEY_NAME) for name, _ in key]
    reach = KEY_LINE if lines else KEY_LINE / 2
    places = _key_places(names, width, reach)
    key_height = (1 + max((row for row, _ in places), default=-1)) * LINE * 1.1 + (0.1 if key else 0.04)
    title_lines = wrapped(title, width - 2 * EDGE, TITLE)
    top = EDGE + len(title_lines) * TITLE_LINE + 0.06
    height = top + body + key_height + len(note_lines) * LINE + EDGE
    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)
    page = Sheet(figure, width, height, top)
    for i, line in enumerate(title_lines):
        page.text(EDGE, EDGE - top + i * TITLE_LINE, line, fontsize=TITLE)
    for name, (_, style), (row, x) in zip(names, key, places, strict=True):
        y = body + 0.06 + (row + 0.5) * LINE * 1.1
        _draw_key(page, (x, y, reach), style, lines=lines)
        page.text(x + reach + 0.04, y, name, va="center_baseline")
    for i, line in enumerate(note_lines):
        page.text(EDGE, body + key_height + (i + 0.1) * LINE, line, color=MUTED)
    return page


def _key_places(names: Sequence[str], width: float, reach: float) -> list[tuple[int, float]]:
    """Row and left end in inches of each entry, filled like lines of text."""
    places: list[tuple[int, float]] = []
    row, x = 0, EDGE
    for name in names:
        needed = reach + 0.04 + text_width(name)
        if x + needed > width - EDGE and x > EDGE:
            row, x = row + 1, EDGE
        places.append((row, x))
        x += needed + KEY_GAP
    return places


def _draw_key(page: Sheet, place: tuple[float, float, float], style: Style, *, lines: bool) -> None:
    from matplotlib.lines import Line2D

    x, y, reach = place
    height = 1 - (page.top + y) / page.height
    ends = [x / page.width, (x + reach / 2) / page.width, (x + reach) / page.width]
    settings = line_settings(style) if lines else {**marker_settings(style), "linestyle": "none"}
    page.figure.add_artist(Line2D(ends, [height] * 3, transform=page.figure.transFigure, markevery=[1], **settings))


# --- how series and axes are drawn ------------------------------------------------------------------------------------


def line_settings(style: Style, size: float = MARKER_SIZE) -> dict[str, Any]:
    """Arguments of matplotlib's `Line2D` for a style, line included."""
    dashes: dict[str, Any] = {"dashes": style.dash} if style.dash else {"linestyle": "solid"}
    return {"color": style.colour, **dashes, **marker_settings(style, size)}


def marker_settings(style: Style, size: float = MARKER_SIZE) -> dict[str, Any]:
    """Arguments of matplotlib's `Line2D` for a style's marker."""
    of_strokes = style.marker in "x+12"
    return {
        "marker": style.marker, "markersize": size * (1.3 if style.marker in "*XPx+12" else 1.0), "color": style.colour,
        "markerfacecolor": style.colour, "markeredgecolor": style.colour, "markeredgewidth": 0.9 if of_strokes else 0.5,
        "fillstyle": style.fill, "markerfacecoloralt": "white",
    }  # fmt: skip


def short(value: float) -> str:
    """A number on a logarithmic axis.

    >>> [short(value) for value in (0, 0.001, 1, 10_000, 1e9)]
    ['0', '0.001', '1', '10k', '1G']
    """
    for unit, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= unit:
            return f"{value / unit:g}{letter}"
    return f"{value:g}"


# --- text -------------------------------------------------------------------------------------------------------------


def text_width(words: str, size: float = SMALL) -> float:
    """Inches that a line of text takes."""
    return sum(map(_advance, words)) * size * POINT


@lru_cache(maxsize=4096)
def _advance(letter: str) -> float:
    """Width of a letter of type of size 1."""
    from matplotlib.font_manager import FontProperties, findfont, get_font
    from matplotlib.ft2font import LoadFlags

    font = get_font(findfont(FontProperties(family=FONT)))
    if not font.get_char_index(ord(letter)):
        return 1.0  # drawn in another font, or as a box; no letter is wider
    font.set_size(100, 72)
    return font.load_char(ord(letter), flags=LoadFlags.NO_HINTING).linearHoriAdvance / 65536 / 100


def room_of(names: Iterable[str], most: float) -> float:
    """Left end of panels beside the names of their rows, which take `most` inches at most."""
    return min(max(map(text_width, names), default=0.0), most) + EDGE + 0.07


def fitted(words: str, inches: float, size: float = SMALL) -> str:
    """The text, or as much of it as fits, with dots."""
    if text_width(words, size) <= inches:
        return words
    shown = words
    while shown and text_width(f"{shown}...", size) > inches:
        shown = shown[:-1]
    return f"{shown.rstrip()}..."


def wrapped(words: str, inches: float, size: float = SMALL) -> list[str]:
    """The text in lines; words that are too long for a line are cut."""
    lines: list[str] = []
    for word in _plain_words(words):
        shown = fitted(word, inches, size)
        if lines and text_width(f"{lines[-1]} {shown}", size) <= inches:
            lines[-1] += f" {shown}"
        else:
            lines.append(shown)
    return lines


def _plain_words(words: str) -> Iterator[str]:
    """Words of a note, whose length has no limit, unlike what `plain` gives; a percent sign stays with its number."""
    yield from (shown for word in words.replace(" %", "\u00a0%").split(" ") if (shown := plain(word)))


# --- files ------------------------------------------------------------------------------------------------------------


def save(figure: Figure, path: Path) -> Path:
    """Write a figure in the format of the path's suffix: whole or not at all, the same bytes for the same figure."""
    kind = path.suffix.removeprefix(".")
    dates = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}
    drawn = io.BytesIO()
    with styled():
        figure.savefig(drawn, format=kind, metadata=dates[kind])
    write_whole(path, drawn.getvalue())
    return path
