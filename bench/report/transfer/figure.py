"""Heat map of a matrix: a number in every cell, coloured by the price of having learned there."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from bench.metrics import METRICS
from bench.report.figures.panel import Panel
from bench.report.figures.sheet import EDGE, LINE, Sheet, fitted, room_of, sheet, styled, text_width
from bench.report.style import BAND, INK, MUTED, NORMAL, TEXT_WIDTH, tint
from bench.report.text import plain, with_arrow
from bench.report.transfer.model import Matrix
from bench.report.transfer.views import SAME, SHOWN, columns_of, text_of
from bench.results.transfer import Corpus

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROW = 0.15
"""Inches of a method."""
NAME_WIDTH = 1.35
GAP = 0.1
"""Inches between tests."""
WORSE, BETTER = "#e08a3c", "#4b8fcc"
"""Orange and blue are told apart with any kind of colour vision; the numbers say it without colour."""
FULL = 0.10
"""Price at which the colour is full, as a fraction."""


def heat_map(matrix: Matrix, metric: str) -> Figure:
    """Rows are methods, columns what they learned on, a block for each test.

    Args:
        matrix: with numbers of this metric.
        metric: by its name in `bench.metrics.METRICS`.
    """
    with styled():
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
        left = room_of(map(plain, names), NAME_WIDTH)
        blocks = [(test, columns_of(matrix, test)) for test in about.tests]
        total = sum(len(corpora) for _, corpora in blocks)
        each = (TEXT_WIDTH - left - EDGE - GAP * (len(blocks) - 1)) / total
        heads = {corpus: heading(plain(corpus.label), each - 0.04) for _, corpora in blocks for corpus in corpora}
        above = LINE * (2.8 + max(map(len, heads.values())))
        title = f"{about.model}: {with_arrow(metric)} by what methods learned on"
        page = sheet(TEXT_WIDTH, above + ROW * len(names) + 0.04, title=title, note=note)
        for i, name in enumerate(names):
            page.name(left, above + (i + 0.5) * ROW, plain(name))
        x = left
        for test, corpora in blocks:
            width = each * len(corpora)
            page.text(x, 0, fitted(f"tested on {plain(test)}", width, NORMAL), fontsize=NORMAL)
            page.text(x, LINE * 1.4, fitted("learned on", width), color=MUTED)
            for j, corpus in enumerate(corpora):
                for k, line in enumerate(heads[corpus]):
                    page.text(x + (j + 0.5) * each, LINE * (2.5 + k), line, ha="center")
            _block(page, matrix, (x, above, width, ROW * len(names)), test, corpora, metric)
            x += width + GAP
        return page.figure


def heading(label: str, inches: float) -> list[str]:
    """Name of a corpus in lines; a long word goes on after a hyphen, since names may differ in their ends alone."""
    lines: list[str] = []
    for word in label.split(" "):
        gap = " " * bool(lines)
        for part in re.findall(r"[^-]*-+|[^-]+", word):
            if lines and text_width(f"{lines[-1]}{gap}{part}") <= inches:
                lines[-1] += f"{gap}{part}"
            else:
                lines.append(fitted(part, inches))
            gap = ""
    return lines


def _block(
    page: Sheet,
    matrix: Matrix,
    at: tuple[float, float, float, float],
    test: str,
    corpora: list[Corpus],
    metric: str,
) -> None:
    x, y, width, _ = at
    names, each = matrix.methods, width / len(corpora)
    panel = Panel(page, f"{metric}/{test}", at, (0.0, float(len(corpora))), (float(len(names)), 0.0))
    prices = {(p.method, p.corpus): p for p in matrix.prices if (p.metric, p.test) == (metric, test)}
    for i, name in enumerate(names):
        for j, corpus in enumerate(corpora):
            price = prices.get((name, corpus))
            entry = matrix.entry(name, corpus, test, metric)
            words, colour = "missing" if matrix.reason(name, corpus, test) else "undefined", MUTED
            if entry is not None and (entry.corpus or not j):
                words, colour = text_of(metric, entry) + SHOWN * bool(price and price.is_shown), INK
            elif entry is not None:
                words = SAME
            points = 0.0 if price is None else price.points
            fill = BAND if price is None else tint(WORSE if points > 0 else BETTER, abs(points) / FULL)
            panel.bars([(j, i, j + 1, i + 1)], f"{name}/{corpus.label}", facecolors=fill, zorder=0.5)
            page.text(x + (j + 0.5) * each, y + (i + 0.5) * ROW, fitted(words, each - 0.02), ha="center",
                      va="center_baseline", color=colour)  # fmt: skip
    panel.cell_borders()
