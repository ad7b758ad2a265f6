"""Heat map of a matrix: a number in every cell, coloured by the price of having learned there."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from bench.metrics import METRICS
from bench.report.figures.panel import Panel
from bench.report.figures.sheet import EDGE, LINE, Sheet, arrow, fitted, sheet, styled, text_width
from bench.report.style import BAND, INK, MUTED, NORMAL, TEXT_WIDTH
from bench.report.text import plain
from bench.report.transfer.model import Matrix
from bench.report.transfer.tables import SAME, SHOWN, columns_of, text_of
from bench.results.transfer import Corpus

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROW = 0.15
"""Inches of a method."""
NAME_WIDTH = 1.35
GAP = 0.1
"""Inches between tests."""
WORSE, BETTER = (0xE0, 0x8A, 0x3C), (0x4B, 0x8F, 0xCC)
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
            f"{METRICS[metric].label} in percent, mean over subjects, ± half the 95 % interval. Colour: the price"
            " against the first column of a block (where methods learn by default, or --home), on the same questions;"
            f" orange is worse, blue better, full at {100 * FULL:g} points. {SHOWN}: shown to differ (Holm's"
            " correction)."
            " Without the subject: no question of the tested subject was learned from."
            f" {SAME}: the method is told nothing, so its price is 0 by construction."
            f" Preset {about.preset}; seed {seeds}. {' '.join(matrix.remarks)}"
        )
        left = min(max(text_width(plain(name)) for name in names), NAME_WIDTH) + EDGE + 0.07
        blocks = [(test, columns_of(matrix, test)) for test in about.tests]
        total = sum(len(corpora) for _, corpora in blocks)
        each = (TEXT_WIDTH - left - EDGE - GAP * (len(blocks) - 1)) / total
        heads = {corpus: heading(plain(corpus.label), each - 0.04) for _, corpora in blocks for corpus in corpora}
        above = LINE * (2.8 + max(map(len, heads.values())))
        title = f"{about.model}: {METRICS[metric].label}{arrow(metric)} by what methods learned on"
        page = sheet(TEXT_WIDTH, above + ROW * len(names) + 0.04, title=title, note=note)
        for i, name in enumerate(names):
            page.text(left - 0.06, above + (i + 0.5) * ROW, fitted(plain(name), left - EDGE - 0.05), ha="right",
                      va="center_baseline")  # fmt: skip
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
            words, colour = "missing", MUTED
            if entry is not None:
                words, colour = text_of(entry) + SHOWN * bool(price and price.is_shown), INK
            elif (untold := matrix.entry(name, None, test, metric)) is not None:
                words, colour = (SAME, MUTED) if j else (text_of(untold), INK)
            elif not any((m.method, m.test) == (name, test) for m in matrix.missing):
                words = "undefined"
            fill = BAND if price is None else _tint(price.points)
            panel.bars([(j, i, j + 1, i + 1)], f"{name}/{corpus.label}", facecolors=fill, zorder=0.5)
            page.text(x + (j + 0.5) * each, y + (i + 0.5) * ROW, fitted(words, each - 0.02), ha="center",
                      va="center_baseline", color=colour)  # fmt: skip
    lines = [[(k, 0), (k, len(names))] for k in range(len(corpora) + 1)]
    lines += [[(0, k), (len(corpora), k)] for k in range(len(names) + 1)]
    panel.segments(lines, "grid", colors="white", linewidths=0.8, zorder=1)


def _tint(points: float) -> str:
    """White at 0; orange where learning elsewhere is worse, blue where it is better.

    >>> _tint(0.0), _tint(1.0), _tint(-1.0)
    ('#ffffff', '#e08a3c', '#4b8fcc')
    """
    share = min(1.0, abs(points) / FULL)
    full = WORSE if points > 0 else BETTER
    return "#" + "".join(f"{round(255 + share * (value - 255)):02x}" for value in full)
