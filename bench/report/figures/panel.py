"""A panel: a place on a sheet with its own scales, frame and ticks.

Panels are transforms and not matplotlib's axes, because a figure of 55 panels would spend its time on thousands of
ticks. Artists keep the data they show, with a label that begins with the panel's name. Example:
`Panel(page, "atlas-oe/ccps", (0.3, 0.2, 1.0, 1.0)).line([0, 1], [0, 1], "diagonal", color="grey")`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bench.report.figures.sheet import POINT, Sheet
from bench.report.style import FAINT, INK, MUTED

if TYPE_CHECKING:
    from matplotlib.transforms import Transform, TransformedBbox

TICK_LENGTH = 2 * POINT
TICK_PAD = 1.5 * POINT
AXIS_X = 0.27
"""Inches below a panel for tick labels and the name of the axis."""
AXIS_Y = 0.36
"""Inches beside it."""
LABELS_X = 0.13
"""Inches below a panel for tick labels alone."""


@dataclass(frozen=True, eq=False)
class Panel:
    """Draws in data coordinates at a place of a sheet."""

    page: Sheet
    name: str
    """Begins the labels of its artists."""
    place: tuple[float, float, float, float]
    """Left, top, width and height in inches, on the part of the sheet to draw on."""
    x: tuple[float, float] = (0.0, 1.0)
    """Data values at the left and the right end."""
    y: tuple[float, float] = (0.0, 1.0)
    """Data values at the lower and the upper end."""
    labelled: bool = True
    """Whether the y axis has tick labels."""

    @property
    def transform(self) -> Transform:
        """Data -> display."""
        from matplotlib.transforms import Bbox, BboxTransform

        data = Bbox([[self.x[0], self.y[0]], [self.x[1], self.y[1]]])
        return BboxTransform(data, Bbox(self._box())) + self.page.figure.dpi_scale_trans

    @property
    def inside(self) -> TransformedBbox:
        """Area of the panel, as a `clip_box` of lines that may leave it."""
        from matplotlib.transforms import Bbox, TransformedBbox

        return TransformedBbox(Bbox(self._box()), self.page.figure.dpi_scale_trans)

    def line(self, x: npt.ArrayLike, y: npt.ArrayLike, label: str, **settings: Any) -> None:
        """A line or markers."""
        from matplotlib.lines import Line2D

        self._add(Line2D(np.asarray(x), np.asarray(y), transform=self.transform, **settings), label)

    def segments(self, ends: npt.ArrayLike, label: str, **settings: Any) -> None:
        """Straight lines.

        Args:
            ends: shape (k, 2, 2), float; both points of each.
            label: what they show.
            settings: of matplotlib's LineCollection.
        """
        from matplotlib.collections import LineCollection

        self._add(LineCollection(list(np.asarray(ends)), transform=self.transform, **settings), label)

    def verticals(self, x: Sequence[float], label: str = "grid", **settings: Any) -> None:
        """Lines from the lower to the upper end; a faint grid by default."""
        ends = [[(at, self.y[0]), (at, self.y[1])] for at in x]
        self.segments(ends, label, **{"colors": FAINT, "linewidths": 0.4, "zorder": 0.3, **settings})

    def cell_borders(self) -> None:
        """White lines between the cells of a matrix, each of which is one wide and one high."""
        across, down = int(self.x[1]), int(self.y[0])
        lines = [[(k, 0), (k, down)] for k in range(across + 1)] + [[(0, k), (across, k)] for k in range(down + 1)]
        self.segments(lines, "grid", colors="white", linewidths=0.8, zorder=1)

    def bars(self, boxes: npt.ArrayLike, label: str, **settings: Any) -> None:
        """Rectangles.

        Args:
            boxes: shape (k, 4), float; left, bottom, right, top.
            label: what they show.
            settings: of matplotlib's PolyCollection.
        """
        from matplotlib.collections import PolyCollection

        corners = np.asarray(boxes, dtype=np.float64).reshape(-1, 4)[:, [0, 1, 2, 1, 2, 3, 0, 3]].reshape(-1, 4, 2)
        self._add(PolyCollection(list(corners), transform=self.transform, linewidths=0, **settings), label)

    def area(self, x: npt.ArrayLike, low: npt.ArrayLike, high: npt.ArrayLike, label: str, **settings: Any) -> None:
        """Area between two lines."""
        from matplotlib.collections import PolyCollection

        x, low, high = np.asarray(x), np.asarray(low), np.asarray(high)
        outline = np.column_stack([np.append(x, x[::-1]), np.append(low, high[::-1])])
        self._add(PolyCollection([outline], transform=self.transform, linewidths=0, **settings), label)

    def words(self, x: float, y: float, text: str, **settings: Any) -> None:
        """Text; x and y are shares of the panel, from its lower left corner."""
        left, top, width, height = self.place
        self.page.text(left + x * width, top + (1 - y) * height, text, **settings)

    def absent(self, reason: str) -> None:
        """A faint frame that says why there is nothing in it."""
        (left, low), (right, high) = self._box()
        self._lines([[(left, low), (right, low), (right, high), (left, high), (left, low)]], color=FAINT)
        self.words(0.5, 0.5, reason, ha="center", va="center", color=MUTED)

    def x_axis(self, ticks: Sequence[float], labels: Sequence[str] = ()) -> None:
        """The lower line with its ticks; labels at the ends stay within the panel."""
        (left, low), (right, _) = self._box()
        at = [left + (tick - self.x[0]) / (self.x[1] - self.x[0]) * (right - left) for tick in ticks]
        self._lines([[(left, low), (right, low)], *([(x, low), (x, low - TICK_LENGTH)] for x in at)], color=INK)
        bottom = self.place[1] + self.place[3] + TICK_LENGTH + TICK_PAD
        for x, label in zip(at, labels, strict=False):
            side = "left" if x < left + 0.1 else "right" if x > right - 0.1 else "center"
            outwards = {"left": -0.02, "right": 0.02, "center": 0.0}[side]
            self.page.text(x + outwards, bottom, label, ha=side)

    def y_axis(self, ticks: Sequence[float], labels: Sequence[str] = ()) -> None:
        """The left line with its ticks."""
        (left, low), (_, high) = self._box()
        at = [low + (tick - self.y[0]) / (self.y[1] - self.y[0]) * (high - low) for tick in ticks]
        self._lines([[(left, low), (left, high)], *([(left, y), (left - TICK_LENGTH, y)] for y in at)], color=INK)
        for y, label in zip(at, labels, strict=False):
            above = self.page.height - self.page.top - y
            self.page.text(left - TICK_LENGTH - TICK_PAD, above, label, ha="right", va="center_baseline")

    def _box(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """Lower left and upper right corner in inches from the lower left corner of the figure."""
        left, top, width, height = self.place
        low = self.page.height - self.page.top - top - height
        return (left, low), (left + width, low + height)

    def _lines(self, paths: Sequence[Sequence[tuple[float, float]]], color: str) -> None:
        from matplotlib.collections import LineCollection

        lines = LineCollection(paths, transform=self.page.figure.dpi_scale_trans, colors=color, linewidths=0.5)
        self.page.figure.add_artist(lines)

    def _add(self, artist: Any, label: str) -> None:
        artist.set_label(f"{self.name}/{label}")
        self.page.figure.add_artist(artist)


def percent(ticks: Sequence[float]) -> list[str]:
    """Fractions as tick labels in percent.

    >>> percent((0.0, 0.5, 1.0))
    ['0', '50', '100']
    """
    return [f"{100 * tick:g}" for tick in ticks]
