"""Figures of a multiverse: where each method stands over the universes, and in how many of them each claim holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.report.figures.drawing import AXIS, beside, boxes, drawing, fractions, name_rows, styled
from bench.report.multiverse.model import SURVIVES, Multiverse, by_survival
from bench.report.multiverse.verdict import THRESHOLD, claim, decided_by, share
from bench.report.style import BAND, INK, TEXT_WIDTH, tint

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROW = 0.15
"""Inches of a method or a claim."""
SHOWN, HELD, FALLEN = "#2b6cb0", "#9ec5e8", "#e08a3c"
"""Significant, surviving, and not: blue and orange are told apart with any kind of colour vision."""
_DARK = 0.6
"""Share from which on numbers are white."""
_MOST = 16
"""Claims of a family that are drawn."""


def places_drawn(found: Multiverse) -> Figure | None:
    """Axes for each family: rows are methods, columns places, the colour and number a share of universes."""
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
        rows = [ROW * len(places) + AXIS for _, places in families]
        figure, axes = drawing(
            (len(families), 1), (TEXT_WIDTH, sum(rows)), gridspec_kw={"height_ratios": rows}, note=note,
            title=f"{found.model} on {found.task}: places of methods under every choice",
        )  # fmt: skip
        for here, (family, places) in zip(axes.flat, families, strict=True):
            by = f", by {len(family.definitions)} definitions" if len(family.definitions) > 1 else ""
            here.set_label(family.name)
            here.set_title(f"{family.name}{by}", loc="left")
            m = len(places)
            name_rows(here, [each.method for each in places])
            here.set_xlim(0.5, m + 0.5)
            here.set_xticks(range(1, m + 1))
            here.tick_params(length=0)
            here.grid(visible=False)
            here.set_facecolor(BAND)
            for i, one in enumerate(places):
                n = sum(one.counts.values())
                for place, count in one.counts.items():
                    part = count / n
                    cell = [(place - 0.49, i - 0.46, place + 0.49, i + 0.46)]
                    boxes(here, cell, f"{one.method}/{place}", facecolor=tint(SHOWN, part))
                    here.text(place, i, share(part).removesuffix(" %"), ha="center", va="center",
                              color="white" if part >= _DARK else INK)  # fmt: skip
                at = one.spread.median
                x = [at + side for side in (-0.5, 0.5, 0.5, -0.5, -0.5)]
                y = [i + side for side in (-0.5, -0.5, 0.5, 0.5, -0.5)]
                here.plot(x, y, label=f"{one.method}/median", color=INK, linewidth=0.7, zorder=2)
        return figure


def claims_drawn(found: Multiverse) -> Figure | None:
    """A bar for each claim: the share of universes in which it holds, and in which it is significant."""
    parts = [(family, by_survival(found.claims(family.name))[:_MOST]) for family in found.families]
    parts = [(family, claims) for family, claims in parts if claims]
    if not parts:
        return None
    with styled():
        note = (
            "Length: universes in which the first method is better by value, of those that have both. Dark: universes"
            " with a test in which it is significantly better, as a share of those with a test. Orange: the claim does"
            f" not survive, as it holds in fewer than {THRESHOLD} (dashed) or its opposite is significant somewhere."
            " Beside: both shares, the choice that turns it most, and the share of its direction that this explains."
        )
        rows = [ROW * len(claims) + AXIS for _, claims in parts]
        figure, axes = drawing(
            (len(parts), 1), (TEXT_WIDTH, sum(rows)), gridspec_kw={"height_ratios": rows}, note=note,
            title=f"{found.model} on {found.task}: claims of the table under every choice",
        )  # fmt: skip
        for here, (family, claims) in zip(axes.flat, parts, strict=True):
            n, more = len(found.of(family.name)), len(found.claims(family.name)) - len(claims)
            hidden = f"; {more} other claims hold at least as often" if more else ""
            here.set_label(family.name)
            here.set_title(f"{family.name}, {n:,} universes{hidden}", loc="left")
            here.set_title("holds | significant | turned by", loc="right")
            fractions(here)
            here.set(xlim=(0, 1), xticks=(0, 0.25, 0.5, 0.75, 1))
            here.grid(axis="x")
            name_rows(here, [claim(each) for each in claims])
            for i, each in enumerate(claims):
                if each.share is None:
                    continue
                colour = HELD if each.survives else FALLEN
                here.barh(i, each.share, 0.6, color=colour, label=f"{claim(each)}/holds", zorder=1)
                if each.tested:
                    shown = each.significant / each.tested
                    here.barh(i, shown, 0.28, color=SHOWN, label=f"{claim(each)}/significant", zorder=1.5)
                tested = share(each.significant / each.tested) if each.tested else "no test"
                words = [share(each.share), tested, decided_by(each), f"{each.reversed} reversed" * bool(each.reversed)]
                beside(here, i, " | ".join(filter(None, words)))
            here.axvline(SURVIVES, label="threshold", color=INK, linewidth=0.7, linestyle=(0, (3, 2)), zorder=2)
        axes[-1, 0].set_xlabel("universes (%)")
        return figure
