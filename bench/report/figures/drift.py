"""Draw the drift between two ways to run one model: probabilities by one against those by the other."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.report.figures.drawing import REFERENCE, dot_settings, new_figure, set_fraction_axes, use_style
from bench.report.style import TEXT_WIDTH, read

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@use_style()
def drift_figure(found: Mapping[str, Any]) -> Figure:
    """Draw a point for each letter's share, and for each confidence; `found` is the comparison of both."""
    key = [(name, read(Path()).of(name)) for name in found["values"]]
    title, note = f"{found['questions']} questions of {found['test']}", f"A: {found['a']}. B: {found['b']}."
    figure, ((axes,),) = new_figure((1, 1), (TEXT_WIDTH * 0.8, 4.0), title=title, note=note, key=key, lines=False)
    set_fraction_axes(axes)
    axes.set(xlabel="probability by A (%)", ylabel="by B (%)")
    axes.axline((0, 0), slope=1, label="equal", **REFERENCE)
    for name, style in key:
        axes.plot(*found["values"][name], label=name, **dot_settings(style, 2.0))
    return figure
