"""Figures of a multiverse analysis: ranks of methods, and the share of universes (analyses) in which a claim holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bench.report.figures.drawing import (
    AXIS,
    draw_boxes,
    name_rows,
    new_figure,
    set_fraction_axes,
    use_style,
    write_beside,
)
from bench.report.multiverse.model import SURVIVES, Multiverse, by_survival
from bench.report.multiverse.verdict import THRESHOLD, describe_decider, format_claim, format_share
from bench.report.style import BAND, INK, TEXT_WIDTH, tint

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROW = 0.15
"""Height of the row of a method or claim, in inches."""
SHOWN, SURVIVING, FALLEN = "#2b6cb0", "#9ec5e8", "#e08a3c"
"""Colours of claims that are significant, survive or don't survive; blue and orange differ for every kind of colour
vision."""
_DARK = 0.6
"""Share of universes (analyses) from which on a cell of the heat map is so dark that its text is white."""
_MOST = 16
"""Maximum number of claims of one kind that the figure shows."""


def plot_ranks(multiverse: Multiverse) -> Figure | None:
    """Plot heat maps of ranks: rows are methods, columns ranks, and colour is the share of universes (analyses).

    Each family (kind of claims, e.g. on calibration) has a heat map. Returns None if no family has ranks.
    """
    families = [(f, [p for p in multiverse.places if p.family == f.name]) for f in multiverse.families]
    families = [(family, ranks) for family, ranks in families if ranks]
    if not families:
        return None
    with use_style():
        note = (
            "Share of universes in percent in which a method has a place: 1 plus the methods with a better value."
            " Framed: the median. Universes are those in which all methods of a block have numbers: "
            + ", ".join(f"{family.name} {len(multiverse.complete(family.name)):,}" for family, _ in families)
            + ". They are a list of analyses, not a sample."
        )
        figure, axes = _panels(multiverse, [len(ranks) for _, ranks in families], "places of methods", note)
        for ax, (family, ranks) in zip(axes.flat, families, strict=True):
            by = f", by {len(family.definitions)} definitions" if len(family.definitions) > 1 else ""
            ax.set_label(family.name)
            ax.set_title(f"{family.name}{by}", loc="left")
            m = len(ranks)
            name_rows(ax, [dist.method for dist in ranks])
            ax.set_xlim(0.5, m + 0.5)
            ax.set_xticks(range(1, m + 1))
            ax.tick_params(length=0)
            ax.grid(visible=False)
            ax.set_facecolor(BAND)
            for i, dist in enumerate(ranks):
                n = sum(dist.counts.values())
                for rank, count in dist.counts.items():
                    fraction = count / n
                    cell = [(rank - 0.49, i - 0.46, rank + 0.49, i + 0.46)]
                    draw_boxes(ax, cell, f"{dist.method}/{rank}", facecolor=tint(SHOWN, fraction))
                    ax.text(rank, i, format_share(fraction).removesuffix(" %"), ha="center", va="center",
                            color="white" if fraction >= _DARK else INK)  # fmt: skip
                median = dist.spread.median
                x = [median + side for side in (-0.5, 0.5, 0.5, -0.5, -0.5)]
                y = [i + side for side in (-0.5, -0.5, 0.5, 0.5, -0.5)]
                ax.plot(x, y, label=f"{dist.method}/median", color=INK, linewidth=0.7, zorder=2)
        return figure


def _panels(multiverse: Multiverse, sizes: Sequence[int], what: str, note: str) -> tuple[Figure, Any]:
    """Return a figure with a panel for each family, of this many rows each; `what` is judged under every choice."""
    heights = [ROW * size + AXIS for size in sizes]
    title = f"{multiverse.model} on {multiverse.task}: {what} under every choice"
    shape, size = (len(sizes), 1), (TEXT_WIDTH, sum(heights))
    return new_figure(shape, size, gridspec_kw={"height_ratios": heights}, note=note, title=title)


def plot_claims(multiverse: Multiverse) -> Figure | None:
    """Plot two bars per claim: shares of universes (analyses) in which it holds, and in which it is significant.

    Returns None if the table makes no claim.
    """
    families = [(family, by_survival(multiverse.claims(family.name))[:_MOST]) for family in multiverse.families]
    families = [(family, claims) for family, claims in families if claims]
    if not families:
        return None
    with use_style():
        note = (
            "Length: universes in which the first method is better by value, of those that have both. Dark: universes"
            " with a test in which it is significantly better, as a share of those with a test. Orange: the claim does"
            f" not survive, as it holds in fewer than {THRESHOLD} (dashed) or its opposite is significant somewhere."
            " Beside: both shares, the choice that turns it most, and the share of its direction that this explains."
        )
        figure, axes = _panels(multiverse, [len(claims) for _, claims in families], "claims of the table", note)
        for ax, (family, claims) in zip(axes.flat, families, strict=True):
            n, more = len(multiverse.of(family.name)), len(multiverse.claims(family.name)) - len(claims)
            hidden = f"; {more} other claims hold at least as often" if more else ""
            ax.set_label(family.name)
            ax.set_title(f"{family.name}, {n:,} universes{hidden}", loc="left")
            ax.set_title("holds | significant | turned by", loc="right")
            set_fraction_axes(ax)
            ax.set(xlim=(0, 1), xticks=(0, 0.25, 0.5, 0.75, 1))
            ax.grid(axis="x")
            name_rows(ax, [format_claim(outcome) for outcome in claims])
            for i, outcome in enumerate(claims):
                colour = SURVIVING if outcome.survives else FALLEN
                ax.barh(
                    i, outcome.holds / outcome.n, 0.6, color=colour, label=f"{format_claim(outcome)}/holds", zorder=1
                )
                if outcome.tested:
                    shown = outcome.significant / outcome.tested
                    ax.barh(i, shown, 0.28, color=SHOWN, label=f"{format_claim(outcome)}/significant", zorder=1.5)
                tested = format_share(outcome.significant / outcome.tested) if outcome.tested else "no test"
                opposite = f"{outcome.reversed} reversed" * bool(outcome.reversed)
                texts = [format_share(outcome.share), tested, describe_decider(outcome), opposite]
                write_beside(ax, i, " | ".join(filter(None, texts)))
            ax.axvline(SURVIVES, label="threshold", color=INK, linewidth=0.7, linestyle=(0, (3, 2)), zorder=2)
        axes[-1, 0].set_xlabel("universes (%)")
        return figure
