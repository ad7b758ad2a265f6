"""Style of figures and page: sizes, fonts, and a colour, marker and dash per method; needs no matplotlib.

Styles of built-in methods are in `methods/style.toml`; `style.toml` in a results folder adds to or overrides them. Any
other method gets a style by a hash of its name. Example:
`read(Path("results")).of("ccps+isotonic")` has the colour of `ccps`, and a hollow marker.
"""

from __future__ import annotations

import functools
import hashlib
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from bench import registry
from bench.api import UserError
from bench.report.text import join
from bench.results.files import base_of, recalibration_of

TEXT_WIDTH = 6.9
"""Width of both columns of a two-column paper, in inches."""
PANEL_WIDTH = 3.7
"""Width in inches of a figure of one panel with its legend; it fits on a narrow screen, too."""
MAX_HEIGHT = 9.2
"""Maximum height of a figure in inches, which leaves room for a caption on a printed page."""
SMALL = 6.0
"""Smallest font size in any figure, in points at printed size."""
NORMAL = 7.0
"""Font size of the headings of axes, in points at printed size."""
FONT = "DejaVu Sans"
"""Font that comes with matplotlib, so that a figure is the same on every machine."""

INK = "#222222"
"""Colour of text and axes."""
MUTED = "#6b6b6b"
"""Colour of notes and of words in place of missing data."""
FAINT = "#c8c8c8"
"""Colour of grid and reference lines."""
BAND = "#f3f3f3"
"""Background colour of cells without a value, in figures that consist of cells."""
BAND_COLOUR = "#dcdcdc"
"""Colour of the band around a curve."""
WIN, TIE, LOSS = "#9ec5e8", "#f0f0f0", "#f3c79b"
"""Colours of wins, ties and losses in a win matrix; blue and orange are distinguishable with any colour vision."""
WRONG = "#8c8c8c"
"""Colour of wrong answers; right answers have the method's colour."""


_TICKS = {"color": INK, "labelsize": SMALL, "major.size": 2, "major.width": 0.5, "major.pad": 1.5}
RC: Mapping[str, Any] = MappingProxyType(
    {
        "font.family": [FONT, "sans-serif"],  # sans-serif is for browsers that show SVG and lack the font
        "font.sans-serif": [FONT],
        "font.size": SMALL,
        "text.color": INK,
        "text.hinting": "none",  # text is as wide in SVG as it was measured
        "axes.edgecolor": INK,
        "axes.labelcolor": INK,
        "axes.labelsize": SMALL,
        "axes.linewidth": 0.5,
        "axes.spines.right": False,
        "axes.spines.top": False,
        "axes.titlesize": NORMAL,
        "grid.color": FAINT,
        "grid.linewidth": 0.4,
        "legend.borderpad": 0,
        "legend.fontsize": SMALL,
        "legend.frameon": False,
        **{f"{axis}tick.{name}": value for axis in "xy" for name, value in _TICKS.items()},
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
"""matplotlib settings of all figures, applied on top of matplotlib's defaults, never of the user's settings."""

Dash = tuple[float, ...]


def tint(colour: str, share: float) -> str:
    """Mix a colour with white: a share of 0 gives white, a share of 1 or more the colour itself.

    >>> tint("#2b6cb0", 0.0), tint("#2b6cb0", 2.0)
    ('#ffffff', '#2b6cb0')
    """
    parts = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(255 + min(1.0, share) * (part - 255)):02x}" for part in parts)


class Style(NamedTuple):
    """Colour, marker and dash of a method."""

    colour: str
    """Hex code, e.g. `#1963de`."""
    marker: str
    """matplotlib marker of the method, e.g. `o`."""
    dash: Dash
    """Lengths of dashes and gaps in points; empty for a solid line."""
    fill: str = "full"
    """matplotlib fill style of the marker. Recalibrated methods have `none`, or half a fill such as `left`."""


DASHES: Mapping[str, Dash] = MappingProxyType(
    {"solid": (), "dashed": (4.0, 1.5), "dotted": (1.2, 1.2), "dash-dot": (4.0, 1.3, 1.2, 1.3)}
)
MARKERS = frozenset("oXPD^v<>*psH")
"""Markers that `style.toml` may name: filled ones, which can be drawn hollow for a recalibrated method."""
OTHER_COLOURS = ("#4d7f9c", "#a07c00", "#a8576b", "#5f8a3c", "#7a6fb0", "#b0673f", "#3f8f7f", "#a35fa0")
OTHER_MARKERS = ("d", "h", "x", "+", "1", "2")
"""Markers of methods without an entry in `style.toml`; no method with an entry can have one of these."""
RECALIBRATED_FILLS = MappingProxyType({"isotonic": "none", "platt": "left", "beta": "top", "temperature": "bottom"})

FILE = "style.toml"
BUILT_IN = "methods"
"""Package of the built-in methods; it contains their `style.toml`."""


@dataclass(frozen=True)
class Styles:
    """Styles of methods, and the order of methods in figures and legends."""

    named: Mapping[str, Style] = field(default_factory=dict)
    """Styles by method, in the order in which figures and legends list them."""

    def of(self, method: str) -> Style:
        """Return the style of a method; `<method>+<recalibration>` differs from `<method>` only in the marker's fill.

        >>> Styles({"a": Style("#1963de", "s", ())}).of("a+isotonic")
        Style(colour='#1963de', marker='s', dash=(), fill='none')
        """
        base, recalibration = base_of(method), recalibration_of(method)
        style = self.named.get(base)
        if style is None:
            a, b, c, *_ = hashlib.sha256(base.encode()).digest()
            colours, markers, dashes = OTHER_COLOURS, OTHER_MARKERS, tuple(DASHES.values())
            style = Style(colours[a % len(colours)], markers[b % len(markers)], dashes[c % len(dashes)])
        return style._replace(fill=RECALIBRATED_FILLS.get(recalibration, "none")) if recalibration else style

    def place(self, method: str) -> tuple[str, int, str]:
        """Return the sort key of a method in figures and legends; recalibrated methods come last.

        Among methods that are recalibrated alike, those in `named` come first, in its order. The others follow by name.

        >>> styles = Styles(dict.fromkeys(["ptrue", "ccps"]))
        >>> sorted(["zeta", "ccps+platt", "ccps", "alpha", "ptrue"], key=styles.place)
        ['ptrue', 'ccps', 'alpha', 'zeta', 'ccps+platt']
        """
        base, order = base_of(method), list(self.named)
        return recalibration_of(method), order.index(base) if base in self.named else len(order), base


@functools.cache
def built_in() -> Styles:
    """Return the styles of the built-in methods."""
    path = registry.home() / BUILT_IN / FILE  # no resource, for which a user's file methods.py would be imported
    return Styles(_parse(path.read_text(encoding="utf-8"), f"{BUILT_IN}/{FILE}"))


def read(results: Path) -> Styles:
    """Load the styles in `style.toml` of a results folder; built-in methods that the file lacks keep their styles.

    Raises:
        UserError: `style.toml` is malformed.
    """
    path = results / FILE
    try:
        folder_styles = _parse(path.read_text(encoding="utf-8"), str(path))
    except (FileNotFoundError, NotADirectoryError):
        return built_in()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: expected a TOML file in UTF-8, but {error}") from error
    others = {method: style for method, style in built_in().named.items() if method not in folder_styles}
    return Styles({**folder_styles, **others})


def _parse(text: str, where: str) -> dict[str, Style]:
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{where}: expected TOML, but {error}") from error
    styles = {}
    for method, values in tables.items():
        location = f"{where}, [{method}]"
        if not isinstance(values, dict) or set(values) != {"colour", "marker", "dash"}:
            got = join(values) if isinstance(values, dict) else repr(values)
            raise UserError(f"{location}: expected colour, marker and dash, got {got or 'nothing'}")
        if not re.fullmatch(r"#[0-9a-f]{6}", str(values["colour"])):
            raise UserError(f"{location}: expected a colour such as '#1963de', got {values['colour']!r}")
        for name, allowed in (("marker", MARKERS), ("dash", DASHES)):
            if str(values[name]) not in allowed:
                raise UserError(f"{location}: expected a {name} of {join(allowed)}, got {values[name]!r}")
        styles[method] = Style(values["colour"], values["marker"], DASHES[values["dash"]])
    return styles
