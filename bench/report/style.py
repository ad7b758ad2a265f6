"""How figures and the page look: sizes, type, and one colour, marker and dash per method, as data without matplotlib.

A method looks the same everywhere. Colours alone tell the built-in methods apart, also for red-green blind readers, and
have a contrast of 3:1 at least on white and on a near-black page; markers and dashes do it again, for print in grey.
Example: `colour_of("ccps")` is `#b53a08`, and `ccps+isotonic` has it too, with a hollow marker.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

COLUMN_WIDTH = 3.33
"""Inches: one column of a two-column paper."""
TEXT_WIDTH = 6.9
"""Inches: both columns."""
MAX_HEIGHT = 9.2
"""Inches that a page leaves above its caption."""
SMALL = 6.0
"""Points at final size: the smallest type in any figure."""
NORMAL = 7.0
"""Points: axis labels and headings."""
FONT = "DejaVu Sans"
"""Comes with matplotlib, so that a figure is the same on every machine."""

INK = "#222222"
"""Text and axes."""
MUTED = "#6b6b6b"
"""What stands back: notes, words in place of missing panels."""
FAINT = "#c8c8c8"
"""Grid and reference lines."""
WRONG = "#8c8c8c"
"""Wrong answers, where right ones have the method's colour."""

RC: Mapping[str, Any] = MappingProxyType(
    {
        "font.family": [FONT, "sans-serif"],  # the second is for browsers without the first, which show SVG
        "font.sans-serif": [FONT],
        "font.size": SMALL,
        "text.color": INK,
        "text.parse_math": False,  # a dollar sign in somebody's model name is a dollar sign
        "lines.linewidth": 0.9,
        "lines.solid_capstyle": "butt",
        "savefig.dpi": 300,
        "savefig.facecolor": "white",
        "svg.fonttype": "none",  # text stays text: it can be searched and read aloud
        "svg.hashsalt": "confbench",
        "pdf.fonttype": 42,  # TrueType, which publishers ask for
        "path.simplify": False,
    }
)
"""matplotlib's settings, on top of its own defaults and never of the user's."""

Dash = tuple[float, ...]
SOLID: Dash = ()
DASHED: Dash = (4.0, 1.5)
DOTTED: Dash = (1.2, 1.2)
DASH_DOT: Dash = (4.0, 1.3, 1.2, 1.3)


class Style(NamedTuple):
    """How a method is drawn."""

    colour: str
    """Hex value."""
    marker: str
    """matplotlib's name of the marker."""
    dash: Dash
    """Points on and off; empty for a solid line."""
    fill: str = "full"
    """matplotlib's fill style: `none` or a half for recalibrated methods."""


STYLES: Mapping[str, Style] = MappingProxyType(
    {
        "ptrue": Style("#847b73", "X", DOTTED),
        "lts": Style("#7b5a6b", "P", DOTTED),
        "pik": Style("#ce7300", "D", DASH_DOT),
        "saplma-f": Style("#08734a", "^", DASHED),
        "saplma-m": Style("#849c63", "v", DASHED),
        "saplma-um": Style("#00a5ad", "<", DASHED),
        "self-consistency": Style("#9282ff", "*", DOTTED),
        "it": Style("#ff4aa5", ">", DASH_DOT),
        "ct": Style("#ad2994", "p", DASH_DOT),
        "litcab": Style("#1963de", "s", SOLID),
        "ccps": Style("#b53a08", "o", SOLID),
    }
)
"""Of the built-in methods, in the order in which figures and legends list them."""

OTHER_COLOURS = ("#4d7f9c", "#a07c00", "#a8576b", "#5f8a3c", "#7a6fb0", "#b0673f", "#3f8f7f", "#a35fa0")
OTHER_MARKERS = ("d", "h", "x", "+", "1", "2")
OTHER_DASHES = (SOLID, DASHED, DOTTED, DASH_DOT)
RECALIBRATED_FILLS = MappingProxyType({"isotonic": "none", "platt": "left", "beta": "top", "temperature": "bottom"})


def style_of(method: str) -> Style:
    """How a method is drawn; a plugin's by the hash of its name, `<method>+<recalibration>` like the method but hollow.

    >>> style_of("litcab+isotonic")
    Style(colour='#1963de', marker='s', dash=(), fill='none')
    """
    base, _, recalibration = method.partition("+")
    style = STYLES.get(base) or _style_by_hash(base)
    return style._replace(fill=RECALIBRATED_FILLS.get(recalibration, "none")) if recalibration else style


def colour_of(method: str) -> str:
    """Hex value of a method's colour.

    >>> colour_of("ccps"), colour_of("somebody-elses") == colour_of("somebody-elses")
    ('#b53a08', True)
    """
    return style_of(method).colour


def place_of(method: str) -> tuple[str, int, str]:
    """Sorts methods: as they are before recalibrated ones, built-in before others, these by name.

    >>> sorted(["zeta", "ccps+platt", "ccps", "alpha", "ptrue"], key=place_of)
    ['ptrue', 'ccps', 'alpha', 'zeta', 'ccps+platt']
    """
    base, _, recalibration = method.partition("+")
    order = list(STYLES)
    return recalibration, order.index(base) if base in STYLES else len(order), base


def _style_by_hash(name: str) -> Style:
    digest = hashlib.sha256(name.encode()).digest()
    colours, markers, dashes = OTHER_COLOURS, OTHER_MARKERS, OTHER_DASHES
    return Style(colours[digest[0] % len(colours)], markers[digest[1] % len(markers)], dashes[digest[2] % len(dashes)])
