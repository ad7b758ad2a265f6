"""The look of methods: stable, told apart by colour also with red-green blindness, and seen on white and on black."""

from __future__ import annotations

from itertools import combinations

import matplotlib
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.markers import MarkerStyle

from bench import registry
from bench.api import UserError
from bench.report.style import MARKERS, OTHER_COLOURS, OTHER_MARKERS, RECALIBRATED_FILLS, Style, built_in, read

TELLABLE = 10.0
"""CIE76 difference in L*a*b* from which on two patches side by side are plainly different colours; 2.3 is just seen."""
CONTRAST = 3.0
"""Of graphics against what is behind them (WCAG 2.1, 1.4.11)."""
DARK_PAGE = "#15171a"
BUILT_IN = built_in()
SOMEBODY = Style("#7a6fb0", "d", ())
"""What the hash of `somebody-elses` gives."""

# Linear RGB as seen without long- or middle-wave cones (Machado, Oliveira and Fernandes, 2009; severity 1).
SEEN = {
    "all cones": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
}
XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)


def linear(colour):
    """sRGB hex -> linear RGB, (3,)."""
    values = np.array([int(colour[k : k + 2], 16) for k in (1, 3, 5)]) / 255
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def lab(rgb):
    """Linear RGB -> L*a*b* (D65), (3,)."""
    t = XYZ @ np.clip(rgb, 0, 1) / (XYZ @ np.ones(3))
    f = np.where(t > (6 / 29) ** 3, np.cbrt(t), t / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def difference(one, other, seen):
    return float(np.linalg.norm(lab(SEEN[seen] @ linear(one)) - lab(SEEN[seen] @ linear(other))))


def contrast(one, other):
    light, dark = sorted((float(XYZ[1] @ linear(colour)) for colour in (one, other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_colour_reference_computes_what_is_known():
    assert lab(linear("#ffffff")) == pytest.approx([100, 0, 0], abs=0.01)
    assert lab(linear("#ff0000")) == pytest.approx([53.24, 80.09, 67.20], abs=0.02)
    assert contrast("#ffffff", "#000000") == pytest.approx(21)


GROUPED = {
    group: [name for name in BUILT_IN.named if registry.groups_built_in()[name] == group]
    for group in ("paper", "untrained", "trained")
}
"""There are fewer plainly different colours and filled markers than methods, so each group of a table has its own."""


@pytest.mark.parametrize("group", GROUPED)
@pytest.mark.parametrize("seen", SEEN)
def test_colours_of_built_in_methods_are_told_apart(seen, group):
    for one, other in combinations(GROUPED[group], 2):
        assert difference(BUILT_IN.of(one).colour, BUILT_IN.of(other).colour, seen) >= TELLABLE, (one, other)


def test_style_tells_built_in_methods_apart_without_colour():
    looks = {(style.marker, style.dash) for style in BUILT_IN.named.values()}
    assert len(looks) == len(BUILT_IN.named)
    assert not MARKERS & set(OTHER_MARKERS)
    names = registry.built_in()[0].names()
    assert set(BUILT_IN.named) <= set(names)
    assert len({BUILT_IN.of(name) for name in names}) == len(names)


@pytest.mark.parametrize("colour", [*(style.colour for style in BUILT_IN.named.values()), *OTHER_COLOURS])
@pytest.mark.parametrize("page", ["#ffffff", DARK_PAGE])
def test_colours_stand_out_on_white_and_black(colour, page):
    assert contrast(colour, page) >= CONTRAST


def test_style_of_a_plugin_is_that_everywhere():
    """Python's own hash would give another one in each process."""
    assert BUILT_IN.of("somebody-elses") == SOMEBODY


@given(st.text(min_size=1))
def test_style_of_any_name_is_known_to_matplotlib(name):
    style = BUILT_IN.of(name)
    assert matplotlib.colors.is_color_like(style.colour)
    assert MarkerStyle(style.marker, fillstyle=style.fill).get_path() is not None


def test_styles_of_plugins_are_rarely_alike():
    looks = [BUILT_IN.of(f"plugin-{k}") for k in range(60)]
    assert len(set(looks)) > 45
    assert len({style.colour for style in looks}) == len(OTHER_COLOURS)


@pytest.mark.parametrize("method", ["ccps", "somebody-elses"])
def test_style_of_recalibrated_methods_differs_by_filling_alone(method):
    looks = [BUILT_IN.of(method), *(BUILT_IN.of(f"{method}+{name}") for name in RECALIBRATED_FILLS)]
    assert len({(style.colour, style.marker) for style in looks}) == 1
    assert len({style.fill for style in looks}) == 5


def test_style_orders_methods():
    names = ["zeta", "ccps+platt", "ccps", "alpha", "litcab+platt", "ptrue", "litcab+beta"]
    assert sorted(names, key=BUILT_IN.place) == [
        "ptrue", "ccps", "alpha", "zeta", "litcab+beta", "litcab+platt", "ccps+platt",
    ]  # fmt: skip


def test_style_may_be_in_a_folder_of_results(tmp_path):
    assert read(tmp_path) == BUILT_IN
    (tmp_path / "style.toml").write_text(
        '[mine]\ncolour = "#123456"\nmarker = "o"\ndash = "solid"\n'
        '[ptrue]\ncolour = "#654321"\nmarker = "s"\ndash = "dotted"\n'
    )
    styles = read(tmp_path)
    assert styles.of("mine+isotonic") == Style("#123456", "o", (), "none")
    assert styles.of("ptrue").colour == "#654321"
    assert styles.of("ccps") == BUILT_IN.of("ccps")
    assert sorted(["ccps", "zeta", "ptrue", "mine"], key=styles.place) == ["mine", "ptrue", "ccps", "zeta"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[mine", "expected TOML, but"),
        ("mine = 3", r"\[mine\]: expected colour, marker and dash, got 3"),
        ('[mine]\ncolour = "#123456"', r"\[mine\]: expected colour, marker and dash, got colour"),
        ('[mine]\ncolour = "red"\nmarker = "o"\ndash = "solid"', "expected a colour such as '#1963de', got 'red'"),
        ('[mine]\ncolour = "#123456"\nmarker = "?"\ndash = "solid"', r"expected a marker of .*, got '\?'"),
        ('[mine]\ncolour = "#123456"\nmarker = ["o"]\ndash = "solid"', r"expected a marker of .*, got \['o'\]"),
        ('[mine]\ncolour = "#123456"\nmarker = "o"\ndash = 1', "a dash of dash-dot, dashed, dotted, solid, got 1"),
    ],
)
def test_style_that_can_not_be_drawn_is_named(tmp_path, text, message):
    (tmp_path / "style.toml").write_text(text)
    with pytest.raises(UserError, match=message):
        read(tmp_path)
