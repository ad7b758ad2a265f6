"""Figures of a multiverse: where each method stands over the universes, and in how many of them each claim holds."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from bench.report.figures.intervals import rows
from bench.report.figures.panel import AXIS_X, Panel, percent
from bench.report.figures.sheet import EDGE, LINE, Sheet, fitted, room_of, sheet, styled
from bench.report.multiverse.model import SURVIVES, Contest, Multiverse, Places, by_survival
from bench.report.multiverse.verdict import THRESHOLD, claim, decided_by, share
from bench.report.style import BAND, FAINT, INK, MUTED, NORMAL, TEXT_WIDTH, tint

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROW = 0.15
"""Inches of a method or a claim."""
GAP = 0.13
"""Inches between families."""
NAME_WIDTH, CLAIM_WIDTH, CHOICE_WIDTH = 1.35, 2.1, 2.15
SHOWN, HELD, FALLEN = "#2b6cb0", "#9ec5e8", "#e08a3c"
"""Significant, surviving, and not: blue and orange are told apart with any kind of colour vision."""
_DARK = 0.6
"""Share from which on numbers are white."""
_MOST = 16
"""Claims of a family that are drawn."""


def places_drawn(found: Multiverse) -> Figure | None:
    """A block for each family: rows are methods, columns places, the colour and number a share of universes."""
    families = [(f, [p for p in found.places if p.family == f.name]) for f in found.families]
    families = [(family, places) for family, places in families if places]
    if not families:
        return None
    with styled():
        note = (
            "Share of universes in percent in which a method has a place: 1 plus the methods with a better value."
            " Framed: the median. Universes are those in which all methods of a block have numbers: "
            + ", ".join(f"{family.name} {len(found.complete(family.name)):,}" for family, _ in families)
            + ". They are a list of analyses, not a sample."
        )
        heights = [LINE * 1.5 + LINE * 1.2 + ROW * len(places) for _, places in families]
        page = sheet(
            TEXT_WIDTH, sum(heights) + GAP * (len(families) - 1) + 0.04,
            title=f"{found.model} on {found.task}: places of methods under every choice", note=note,
        )  # fmt: skip
        y = 0.0
        for (family, places), height in zip(families, heights, strict=True):
            by = f", by {len(family.definitions)} definitions" if len(family.definitions) > 1 else ""
            page.text(EDGE, y, f"{family.name}{by}", fontsize=NORMAL)
            _block(page, places, y + LINE * 2.7)
            y += height + GAP
        return page.figure


def _block(page: Sheet, places: Sequence[Places], top: float) -> None:
    left = room_of((each.method for each in places), NAME_WIDTH)
    m = len(places)
    each_width = min((TEXT_WIDTH - left - EDGE) / m, 0.55)
    panel = Panel(page, places[0].family, (left, top, each_width * m, ROW * m), (0.0, float(m)), (float(m), 0.0))
    for k in range(m):
        page.text(left + (k + 0.5) * each_width, top - LINE * 1.15, str(k + 1), ha="center", color=MUTED)
    for i, one in enumerate(places):
        page.name(left, top + (i + 0.5) * ROW, one.method)
        n = sum(one.counts.values())
        panel.bars([(0, i, m, i + 1)], f"{one.method}/none", facecolors=BAND, zorder=0.4)
        for place, count in one.counts.items():
            part = count / n
            colour = tint(SHOWN, part)
            panel.bars([(place - 1, i, place, i + 1)], f"{one.method}/{place}", facecolors=colour, zorder=0.5)
            page.text(left + (place - 0.5) * each_width, top + (i + 0.5) * ROW, share(part).removesuffix(" %"),
                      ha="center", va="center_baseline", color="white" if part >= _DARK else INK)  # fmt: skip
        at = one.spread.median
        frame = [(at - 1, i), (at, i), (at, i + 1), (at - 1, i + 1), (at - 1, i)]
        panel.segments(list(pairwise(frame)), f"{one.method}/median", colors=INK, linewidths=0.7,
                       zorder=2)  # fmt: skip
    panel.cell_borders()


def claims_drawn(found: Multiverse) -> Figure | None:
    """A bar for each claim: the share of universes in which it holds, and in which it is significant."""
    parts = [(family, by_survival(found.claims(family.name))[:_MOST]) for family in found.families]
    parts = [(family, claims) for family, claims in parts if claims]
    if not parts:
        return None
    with styled():
        left = room_of((claim(c) for _, claims in parts for c in claims), CLAIM_WIDTH)
        note = (
            "Length: universes in which the first method is better by value, of those that have both. Dark: universes"
            " with a test in which it is significantly better, as a share of those with a test. Orange: the claim does"
            f" not survive, as it holds in fewer than {THRESHOLD} (dashed) or its opposite is significant somewhere."
            " Beside: the choice that turns it most, and the share of its direction that this explains."
        )
        heights = [LINE * 1.6 + ROW * len(claims) + AXIS_X for _, claims in parts]
        page = sheet(
            TEXT_WIDTH, sum(heights) + GAP * (len(parts) - 1),
            title=f"{found.model} on {found.task}: claims of the table under every choice", note=note,
        )  # fmt: skip
        y = 0.0
        for (family, claims), height in zip(parts, heights, strict=True):
            n, more = len(found.of(family.name)), len(found.claims(family.name)) - len(claims)
            hidden = f"; {more} other claims hold at least as often" if more else ""
            page.text(EDGE, y, f"{family.name}, {n:,} universes{hidden}", fontsize=NORMAL)
            page.text(TEXT_WIDTH - CHOICE_WIDTH + 0.06, y + LINE * 0.2, "holds | significant | turned by", color=MUTED)
            _bars(page, claims, left, y + LINE * 1.6)
            y += height + GAP
        return page.figure


def _bars(page: Sheet, claims: Sequence[Contest], left: float, top: float) -> None:
    width = TEXT_WIDTH - left - EDGE - CHOICE_WIDTH
    rows(page, (left, top, width, ROW), [claim(each) for each in claims])
    panel = Panel(page, claims[0].family, (left, top, width, ROW * len(claims)), (0.0, 1.0), (float(len(claims)), 0.0))
    panel.verticals((0.25, 0.5, 0.75, 1.0), colors=FAINT)
    for i, each in enumerate(claims):
        if each.share is None:
            continue
        colour = HELD if each.survives else FALLEN
        panel.bars([(0, i + 0.2, each.share, i + 0.8)], f"{claim(each)}/holds", facecolors=colour, zorder=1)
        if each.tested:
            shown = each.significant / each.tested
            panel.bars([(0, i + 0.36, shown, i + 0.64)], f"{claim(each)}/significant", facecolors=SHOWN, zorder=1.5)
        tested = share(each.significant / each.tested) if each.tested else "no test"
        parts = [share(each.share), tested, decided_by(each), f"{each.reversed} reversed" * bool(each.reversed)]
        words = " | ".join(filter(None, parts))
        page.text(left + width + 0.06, top + (i + 0.5) * ROW, fitted(words, CHOICE_WIDTH - 0.08), va="center_baseline")
    panel.segments([[(SURVIVES, 0), (SURVIVES, len(claims))]], "threshold", colors=INK, linewidths=0.7, zorder=2,
                   linestyles=[(0, (3, 2))])  # fmt: skip
    ticks = (0.0, 0.25, 0.5, 0.75, 1.0)
    panel.x_axis(ticks, percent(ticks))
    page.text(left + width / 2, top + ROW * len(claims) + AXIS_X - LINE, "universes (%)", ha="center")
