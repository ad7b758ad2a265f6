"""Helpers for matplotlib: figures with title, legend and note, settings of axes, artists, and files.

Axes and artists that show numbers have labels, so that tests can read the numbers back. Example: `figure, axes =
new_figure((1, 2), (TEXT_WIDTH, 2.0), title="tiny on atlas-oe", note="n 400")`.
"""

from __future__ import annotations

import io
import textwrap
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.api import FloatArray
from bench.metrics import METRICS
from bench.report.style import FAINT, INK, MUTED, RC, SMALL, Style
from bench.report.text import MINUS, plain
from bench.store.files import write_atomic

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

LINE = 1.25 * SMALL / 72
"""Distance between two lines of text in the small font size, in inches."""
TITLE = 8.0
"""Font size of the title, in points."""
AXIS = 0.42
"""Height in inches of the headings, tick labels and x label of a figure; the height of its rows comes on top."""
MARKER_SIZE = 3.2
"""Size of a marker, in points."""
LONGEST = 34
"""Maximum number of characters of a method's or task's name in figures; longer names lose their end."""
REFERENCE: Mapping[str, Any] = MappingProxyType({"color": FAINT, "linewidth": 0.6, "zorder": 0.5})
"""matplotlib's `Line2D` arguments of reference lines, e.g. of the diagonal of a reliability diagram."""
NO_GLYPH = r"Glyph .* missing from font"
_LETTERS, _TITLE_LETTERS = 20.5, 15
"""Number of characters per inch: in a line of the note, and in a line of the title."""


@contextmanager
def use_style() -> Iterator[None]:
    """Use matplotlib's defaults with the settings in `style.RC`; the user's own settings have no effect."""
    import matplotlib

    with matplotlib.rc_context(), warnings.catch_warnings():
        # Characters that the font lacks are drawn as boxes in PNG and PDF; in SVG they are text that browsers can show.
        warnings.filterwarnings("ignore", message=NO_GLYPH)
        warnings.filterwarnings("ignore", message=r"Matplotlib currently does not support .* natively")
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(dict[Any, Any](RC))
        yield


def new_figure(
    shape: tuple[int, int],
    size: tuple[float, float],
    *,
    title: str,
    note: str,
    key: Sequence[tuple[str, Style]] = (),
    lines: bool = True,
    **settings: Any,
) -> tuple[Figure, Any]:
    """Create a figure with title, note and legend, and a grid of axes; return the figure and the array of axes.

    Args:
        shape: numbers of rows and columns of axes.
        size: in inches: width of the figure, and height of the axes with their labels.
        title: title of the figure; a long one is broken into lines.
        note: text below the axes with what a reader must know; it is broken into lines.
        key: names and styles in the legend.
        lines: whether the legend shows lines with markers; otherwise it shows markers alone.
        settings: further arguments of `Figure.subplots`.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    width, height = size
    beside_key = 0.4 + max((len(shorten_name(name)) for name, _ in key), default=0) / _LETTERS if key else 0.0
    note_lines, title_lines = _wrap(note, width * _LETTERS), _wrap(title, (width - beside_key) * _TITLE_LETTERS)
    figure = Figure(figsize=(width, height + text_height(note_lines, title_lines)), dpi=RC["savefig.dpi"])
    FigureCanvasAgg(figure)
    figure.set_layout_engine("constrained", w_pad=0.03, h_pad=0.03, wspace=0.02, hspace=0.02)
    figure.suptitle(title_lines, x=0.005, ha="left", fontsize=TITLE, linespacing=1.15)
    figure.supxlabel(note_lines, x=0.005, ha="left", fontsize=SMALL, color=MUTED, linespacing=1.15)
    if key:
        handles = [
            Line2D([], [], label=shorten_name(name), **(line_settings(style) if lines else dot_settings(style)))
            for name, style in key
        ]
        figure.legend(handles=handles, loc="outside right upper", handlelength=2.2 if lines else 1.0)
    return figure, figure.subplots(*shape, squeeze=False, **settings)


def _wrap(text: str, letters: float) -> str:
    """Break text into lines of at most `letters` characters; a number and its percent sign stay on one line."""
    words = " ".join(filter(None, map(plain, text.replace(" %", "\u00a0%").split(" "))))
    return "\n".join(textwrap.wrap(words, int(letters)))


def text_height(note: str, title: str) -> float:
    """Return the height of a figure's note and title together, in inches."""
    lines = [len(text.split("\n")) if text else 0 for text in (note, title)]
    return LINE * lines[0] + LINE * TITLE / SMALL * lines[1] + 0.1


def shorten_name(name: str, most: int = LONGEST) -> str:
    """Shorten a name to one printable line of at most `most` characters."""
    name = plain(name)
    return name if len(name) <= most else f"{name[: most - 1]}…"


# --- axes -------------------------------------------------------------------------------------------------------------


def name_rows(axes: Axes, names: Sequence[str]) -> None:
    """Give axes a row for each name, from the top: row i is at y = i, with the name at the left and a grid line."""
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_yticks(range(len(names)), [shorten_name(name) for name in names])
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", linewidth=0.3)
    axes.set_axisbelow(True)
    axes.spines["left"].set_visible(False)


def write_beside(axes: Axes, row: float, words: str, **settings: Any) -> None:
    """Write text to the right of the axes, at the height of a row."""
    axes.text(1.02, row, words, transform=axes.get_yaxis_transform(), va="center_baseline", **settings)


def no_data(axes: Axes, reason: str) -> None:
    """Write into empty axes why there is nothing to draw."""
    axes.text(0.5, 0.5, reason, transform=axes.transAxes, ha="center", va="center", color=MUTED)
    axes.tick_params(length=0, labelbottom=False, labelleft=False)
    for spine in axes.spines.values():
        spine.set(visible=True, color=FAINT)


def set_metric_ticks(axis: Axis, metric: str, most: int = 5) -> None:
    """Set ticks at round values of a metric, with labels in percent if the metric is a fraction."""
    set_ticks(axis, most, percent=METRICS[metric].is_fraction)


def set_ticks(axis: Axis, most: int = 5, *, percent: bool = True) -> None:
    """Set ticks at round values, with at most `most` intervals between them.

    With `percent`, labels show a fraction in percent.
    """
    from matplotlib.ticker import MaxNLocator

    factor = 100 if percent else 1

    axis.set_major_locator(MaxNLocator(most, steps=[1, 2, 2.5, 5, 10], min_n_ticks=3))
    axis.set_major_formatter(lambda value, _: f"{round(factor * value, 6):g}".replace("-", MINUS))


def set_fraction_axes(axes: Axes) -> None:
    """Set the range of the x and y axis to [0, 1], with labels in percent."""
    axes.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), xticks=(0, 0.5, 1), yticks=(0, 0.5, 1))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _: f"{100 * value:g}")


def format_quantity(value: float) -> str:
    """Format a number as a tick label of a logarithmic axis.

    >>> [format_quantity(value) for value in (0, 0.001, 1, 10_000, 1e9)]
    ['0', '0.001', '1', '10k', '1G']
    """
    for unit, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= unit:
            return f"{value / unit:g}{letter}"
    return f"{value:g}"


def padded_limits(values: Sequence[float], least: float = 0.01) -> tuple[float, float]:
    """Return axis limits (low, high) around all values, with a margin of 6 % of their range on each side.

    If all values are equal, the margin is `least`.
    """
    room = 0.06 * (max(values) - min(values)) or least
    return min(values) - room, max(values) + room


# --- artists ----------------------------------------------------------------------------------------------------------


def draw_segments(axes: Axes, points: Any, label: str, **settings: Any) -> None:
    """Draw k line segments; `points` has shape (k, 2, 2): segment, one of its two ends, x or y."""
    from matplotlib.collections import LineCollection

    axes.add_collection(LineCollection(list(np.asarray(points)), label=label, **settings), autolim=False)


def vertical_lines(x: FloatArray, low: FloatArray, high: FloatArray) -> FloatArray:
    """Return vertical line segments (k, 2, 2) at `x` from `low` to `high`, each of shape (b,).

    The array's dimensions are: segment, one of its two ends, x or y. Segments with NaN are left out, so k <= b.
    """
    ends = np.stack([np.column_stack([x, low]), np.column_stack([x, high])], axis=1)
    lines: FloatArray = ends[~np.isnan(ends).any(axis=(1, 2))]
    return lines


def draw_boxes(axes: Axes, corners: Any, label: str, **settings: Any) -> None:
    """Draw k filled rectangles; `corners` has shape (k, 4): left, bottom, right and top of each."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path as Outline

    outlines = [
        Outline([(x, y), (right, y), (right, top), (x, top), (x, y)], closed=True)
        for x, y, right, top in np.asarray(corners)
    ]
    axes.add_patch(PathPatch(Outline.make_compound_path(*outlines), label=label, linewidth=0, **settings))


def draw_dot(
    axes: Axes, row: int, value: float, ends: tuple[float, float] | None, label: tuple[str, str], style: Style,
    *, hollow: bool = False,
) -> None:  # fmt: skip
    """Draw a value as a dot in a row of the axes, and its interval, if there is one, as a line.

    Args:
        axes: axes with rows from `name_rows`.
        row: index of the row.
        value: x position of the dot.
        ends: both ends of the interval; None without one.
        label: name of the row, and name of the value; both, joined by `/`, become the matplotlib label of the dot. The
            label of the line is the name of the row and `interval`, joined by `/`.
        style: style of the dot.
        hollow: whether the dot is white inside.
    """
    who, what = label
    if ends is not None:
        draw_segments(axes, [[(end, row) for end in ends]], f"{who}/interval", colors=style.colour, linewidths=1.1)
    axes.plot([value], [row], label=f"{who}/{what}", zorder=2, **dot_settings(style, hollow=hollow))


def draw_seeds(axes: Axes, x: Any, y: Any, label: str, *, colour: str, marker: str = "_") -> None:
    """Draw a thin dash at (x, y) for each seed; `x` and `y` hold a coordinate for each seed."""
    size = 3.0 if marker == "_" else 4.5
    axes.plot(
        x, y, label=label, marker=marker, markersize=size, markeredgewidth=0.5, linestyle="none", color=colour,
        zorder=2.1,
    )  # fmt: skip


def line_settings(style: Style, size: float = MARKER_SIZE) -> dict[str, Any]:
    """Return the arguments of matplotlib's `Line2D` that draw a method's line with its markers."""
    dashes: dict[str, Any] = {"dashes": style.dash} if style.dash else {"linestyle": "solid"}
    return {"color": style.colour, **dashes, **marker_settings(style, size)}


def marker_settings(style: Style, size: float = MARKER_SIZE) -> dict[str, Any]:
    """Return the arguments of matplotlib's `Line2D` that set a method's marker."""
    of_strokes = style.marker in "x+12"
    return {
        "marker": style.marker, "markersize": size * (1.3 if style.marker in "*XPx+12" else 1.0), "color": style.colour,
        "markerfacecolor": style.colour, "markeredgecolor": style.colour, "markeredgewidth": 0.9 if of_strokes else 0.5,
        "fillstyle": style.fill, "markerfacecoloralt": "white",
    }  # fmt: skip


def dot_settings(style: Style, size: float = MARKER_SIZE, *, hollow: bool = False) -> dict[str, Any]:
    """Return the arguments of matplotlib's `Line2D` that draw a method's markers without a line.

    With `hollow`, markers are white inside.
    """
    inside = {"markerfacecolor": "white", "fillstyle": "full"} if hollow else {}
    return {"linestyle": "none", **marker_settings(style, size), **inside}


def difference_axis(axes: Axes, values: Sequence[float], most: int = 5, *, percent: bool) -> None:
    """Set up an x axis for differences: its range contains 0 and all values, and a vertical line marks 0."""
    axes.set_xlim(*padded_limits([0.0, *values]))
    set_ticks(axes.xaxis, most, percent=percent)
    axes.grid(axis="x")
    draw_zero_line(axes)


def draw_zero_line(axes: Axes) -> None:
    """Draw a vertical line at 0."""
    axes.axvline(0, color=INK, linewidth=0.6, zorder=0.6, label="zero")


# --- files ------------------------------------------------------------------------------------------------------------


def save(figure: Figure, path: Path) -> Path:
    """Write a figure to a file in the format of the path's suffix, and return the path.

    If writing fails, no partial file is left. The same figure always gives the same bytes.
    """
    write_atomic(path, figure_bytes(figure, path.suffix.removeprefix(".")))
    return path


def figure_bytes(figure: Figure, kind: str, **settings: Any) -> bytes:
    """Return the content of a figure's file in the format `kind` (svg, pdf or png), without dates in the metadata."""
    from matplotlib.layout_engine import PlaceHolderLayoutEngine

    dates = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}
    stream = io.BytesIO()
    with use_style():
        if not isinstance(figure.get_layout_engine(), PlaceHolderLayoutEngine):
            figure.draw_without_rendering()  # places the axes, once for all formats
            figure.set_layout_engine("none")
        figure.savefig(stream, format=kind, metadata=dates[kind], **settings)
    return stream.getvalue()
