"""Heat map of a transfer matrix: the metric of every cell, coloured by the price of the cell's training corpus.

The price is how much worse the method is than with the reference corpus of the test task.
"""

from __future__ import annotations

import textwrap
from itertools import product
from typing import TYPE_CHECKING

from bench.metrics import METRICS
from bench.report.figures.drawing import draw_boxes, name_rows, new_figure, shorten_name, use_style
from bench.report.style import BAND, INK, MUTED, TEXT_WIDTH, tint
from bench.report.text import plain, with_arrow
from bench.report.transfer.model import Matrix
from bench.report.transfer.views import SAME, SHOWN, format_value, ordered_corpora

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROW, HEADER = 0.15, 0.9
"""Heights in inches: of a method's row, and of the header above the rows."""
LETTERS = 100
"""Total number of characters that fit side by side into all columns of a figure."""
WORSE, BETTER = "#e08a3c", "#4b8fcc"
"""Colours of cells where a method is worse, or better, than with the reference corpus; the two differ for every kind of
colour vision."""
FULL = 0.10
"""Difference to the reference corpus, as a fraction, at which the colour is darkest; larger ones have the same
colour."""


def heat_map(matrix: Matrix, metric: str) -> Figure:
    """Plot heat maps of a metric, one for each test task, side by side: rows are methods, columns training corpora.

    Args:
        matrix: a transfer matrix in which the metric is defined in at least one cell.
        metric: name in `bench.metrics.METRICS`.
    """
    with use_style():
        about, names = matrix.about, matrix.methods
        seeds = ", ".join(map(str, about.seeds))
        note = (
            f"{METRICS[metric].label} in percent, {matrix.over}, ± half the 95 % interval. Colour: the price"
            " against the first column of a block (where methods learn by default, or --home), on the same questions;"
            f" orange is worse, blue better, full at {100 * FULL:g} points. {SHOWN}: shown to differ (Holm's"
            " correction)."
            " Without the subject: no question of the tested subject was learned from."
            f" {SAME}: the method is told nothing, so its price is 0 by construction."
            f" Preset {about.preset}; seed {seeds}. {' '.join(matrix.remarks)}"
        )
        blocks = [(test, ordered_corpora(matrix, test)) for test in about.tests]
        widths = [len(corpora) for _, corpora in blocks]
        figure, axes = new_figure(
            (1, len(blocks)), (TEXT_WIDTH, ROW * len(names) + HEADER), note=note, sharey=True,
            title=f"{about.model}: {with_arrow(metric)} by what methods learned on",
            gridspec_kw={"width_ratios": widths},
        )  # fmt: skip
        width = max(8, LETTERS // sum(widths))
        for ax, (test, corpora) in zip(axes.flat, blocks, strict=True):
            ax.set_label(f"{metric}/{test}")
            ax.set_title(f"tested on {shorten_name(test, width * len(corpora) - 8)}; learned on", loc="left")
            name_rows(ax, names)
            ax.set_xlim(-0.5, len(corpora) - 0.5)
            # broken, not shortened, since names may differ only at the end
            ax.set_xticks(range(len(corpora)), ["\n".join(textwrap.wrap(plain(c.label), width)) for c in corpora])
            ax.tick_params(length=0, labelbottom=False, labeltop=True)
            ax.grid(visible=False)
            ax.spines["bottom"].set_visible(False)
            prices = {(p.method, p.corpus): p for p in matrix.prices if (p.metric, p.test) == (metric, test)}
            for (i, name), (j, corpus) in product(enumerate(names), enumerate(corpora)):
                price = prices.get((name, corpus))
                entry = matrix.entry(name, corpus, test, metric)
                text, colour = "missing" if matrix.reason(name, corpus, test) else "undefined", MUTED
                if entry is not None and (entry.corpus or not j):
                    text, colour = format_value(metric, entry) + SHOWN * bool(price and price.is_shown), INK
                elif entry is not None:
                    text = SAME
                points = 0.0 if price is None else price.points
                face = BAND if price is None else tint(WORSE if points > 0 else BETTER, abs(points) / FULL)
                cell = [(j - 0.49, i - 0.46, j + 0.49, i + 0.46)]
                draw_boxes(ax, cell, f"{name}/{corpus.label}", facecolor=face, zorder=0.5)
                ax.text(j, i, text, ha="center", va="center", color=colour)
        return figure
