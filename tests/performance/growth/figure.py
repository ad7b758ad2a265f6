"""The figure: time and memory of each stage by the number of questions, both axes logarithmic."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.report.figures.drawing import use_style
from bench.report.style import FAINT, INK, TEXT_WIDTH

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FIGURE = Path(__file__).with_name("growth.svg")
_HEIGHT = 2.4
"""Inches."""
_LEAST_SECONDS = 0.01
"""What took less is not drawn."""


def drawn(runs: Sequence[Mapping[str, Any]], stages: Sequence[str]) -> bytes:
    """The figure as SVG; the same numbers give the same bytes.

    Args:
        runs: what was measured at each number of questions.
        stages: names, in order.
    """
    from matplotlib.figure import Figure

    with use_style():
        figure = Figure(figsize=(TEXT_WIDTH, _HEIGHT), layout="constrained")
        for axes, what, title in zip(
            figure.subplots(1, 2), ("seconds", "peak_mb"), ("processor time, s", "peak memory, MB"), strict=True
        ):
            _panel(axes, runs, stages, what)
            axes.set_title(title)
        figure.legend(*axes.get_legend_handles_labels(), loc="outside right center", frameon=False)
        content = io.BytesIO()
        figure.savefig(content, format="svg", metadata={"Date": None})
    return content.getvalue()


def _panel(axes: Axes, runs: Sequence[Mapping[str, Any]], stages: Sequence[str], what: str) -> None:
    counts = [run["questions"] for run in runs]
    axes.set_xscale("log")
    axes.set_yscale("log" if what == "seconds" else "linear")
    axes.yaxis.set_major_formatter("{x:,g}")
    axes.set_xlabel("questions")
    axes.set_xticks(counts, [f"{count:,}" for count in counts])
    for name in stages:
        points = [(run["questions"], run["stages"][name][what]) for run in runs]
        points = [point for point in points if point[1] > _LEAST_SECONDS]
        axes.plot(*zip(*points, strict=True), marker="o", markersize=2.5, label=name) if points else None
    whole = [run[what] for run in runs]
    axes.plot(counts, whole, color=INK, linewidth=1.6, marker="o", markersize=2.5, label="the whole run")
    if what == "seconds":
        axes.plot(
            counts, [whole[-1] * count / counts[-1] for count in counts], color=FAINT, linestyle="--", label="linear"
        )
    else:
        axes.set_ylim(0)
