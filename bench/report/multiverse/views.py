"""Tables of a multiverse analysis: claims, ranks and analysis choices, for the terminal, Markdown, CSV and JSON."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Any

from bench.metrics import METRICS
from bench.report.multiverse.definitions import DEFINITION, FAMILIES, Family
from bench.report.multiverse.model import Multiverse, PairOutcome, by_survival
from bench.report.multiverse.verdict import (
    THRESHOLD,
    describe_decider,
    describe_weakest,
    format_claim,
    format_definition,
    format_share,
    verdict,
)
from bench.report.tables.grid import Cell, Column, Grid, GridRow, TableViews
from bench.report.text import EN_DASH, metric_name, p_text, precise, seeds_text
from bench.report.verdict.phrases import join_with_and
from bench.stats import TESTED

_MOST = 10
"""Maximum number of surviving claims of one kind that are printed; CSV and JSON have all."""


def views(multiverse: Multiverse, methods: Collection[str] = ()) -> TableViews:
    """Return a multiverse analysis (a table's claims under other analysis choices) as grids, CSV records and JSON data.

    Args:
        multiverse: the analyses of one model and task, and the outcome of each claim in them.
        methods: print only the claims about these methods. Default: all.
    """
    grids = [_summary(multiverse)]
    ranked = {ranks.family for ranks in multiverse.places}
    grids += [_places(multiverse, family) for family in multiverse.families if family.name in ranked]
    for family in multiverse.families:
        claims = [c for c in multiverse.claims(family.name) if not methods or {c.first, c.second} & set(methods)]
        grids += [_claims(multiverse, family, claims)] if claims else []
    grids.append(_choices(multiverse))
    return TableViews(grids, lambda: list(_records(multiverse)), lambda: _data(multiverse))


# --- for people -------------------------------------------------------------------------------------------------------


def _summary(multiverse: Multiverse) -> Grid:
    columns = (
        Column("claims in", is_left=True), Column("universes"), Column("claims"), Column("survive"), Column("shown"),
        Column("reversed", droppable=2), Column("open"), Column("open, decided somewhere", droppable=1),
    )  # fmt: skip
    rows = []
    for family in multiverse.families:
        claims = multiverse.claims(family.name)
        open_pairs = [c for c in multiverse.contests if c.family == family.name and not c.is_claim]
        rows.append(
            GridRow([
                Cell(family.name), Cell(f"{len(multiverse.of(family.name)):,}"), Cell(str(len(claims))),
                Cell(str(sum(c.survives for c in claims))), Cell(str(sum(c.is_shown for c in claims))),
                Cell(str(sum(c.reversed > 0 for c in claims))), Cell(str(len(open_pairs))),
                Cell(str(sum(c.significant + c.reversed > 0 for c in open_pairs))),
            ])
        )  # fmt: skip
    tested = [d.label for family in FAMILIES for d in family.definitions if d.metric in TESTED]
    facts = (
        f"{multiverse.model} on {multiverse.task}: the table under every choice that costs no forward pass",
        f"Preset {multiverse.preset}, {seeds_text(multiverse.seeds)}, {multiverse.n:,} questions.",
    )
    legend = (
        "A claim is a significant difference of the table, corrected for all pairs.",
        (
            f"Survive: its direction holds, by value, in at least {THRESHOLD} of the universes that have both methods,"
            " and no universe shows the opposite."
        ),
        (
            f"Shown: it survives, and is significant in at least {THRESHOLD} of the universes with a test;"
            f" {join_with_and(tested)} have one, other definitions are compared by value."
        ),
        (
            "Reversed: claims whose opposite is significant in some universe. Open: pairs that the table does not"
            " decide; decided somewhere: significant in some universe, whoever is better there."
        ),
    )
    return Grid(facts, columns, tuple(rows), legend, multiverse.remarks, verdict=verdict(multiverse), is_folded=True)


def _places(multiverse: Multiverse, family: Family) -> Grid:
    columns = (
        Column("method", is_left=True), Column("rank"), Column("median", is_metric=True),
        Column("5 to 95 %", is_metric=True), Column("first", is_metric=True), Column("leads", is_metric=True),
    )  # fmt: skip
    rows = []
    for dist in (ranks for ranks in multiverse.places if ranks.family == family.name):
        low, high = dist.spread.low, dist.spread.high
        rows.append(
            GridRow([
                Cell(dist.method), Cell(EN_DASH if dist.in_table is None else str(dist.in_table)),
                Cell(str(dist.spread.median)), Cell(str(low) if low == high else f"{low}{EN_DASH}{high}"),
                Cell(format_share(dist.spread.first)), Cell(format_share(dist.leads) or EN_DASH),
            ])
        )  # fmt: skip
    n = len(multiverse.complete(family.name))
    facts = (f"{multiverse.model} on {multiverse.task}: places in {family.name} over {n:,} universes",)
    legend = (
        "Rank: that of the table, 1 plus the methods that are significantly better.",
        (
            "Median, 5 to 95 %: of places, 1 plus the methods with a better value, over the universes in which all"
            " methods have numbers."
        ),
        "First: share of these universes in which its place is 1.",
        "Leads: share of those with a test in which no method is significantly better.",
    )
    return Grid(facts, columns, tuple(rows), legend)


def _claims(multiverse: Multiverse, family: Family, claims: Sequence[PairOutcome]) -> Grid:
    metric = METRICS[family.metric]
    columns = (
        Column("claim", is_left=True), Column("difference", droppable=3), Column("p", droppable=2), Column("universes"),
        Column("holds"), Column("significant"), Column("reversed", droppable=1), Column("survives", is_left=True),
        Column("turned most by", is_left=True), Column("holds least under", is_left=True),
    )  # fmt: skip
    ordered = by_survival(claims)
    shown = ordered[: sum(not c.survives for c in claims) + _MOST]
    rows = [
        GridRow([
            Cell(format_claim(c)), Cell(precise(metric, c.difference)),
            Cell(p_text(c.p) or EN_DASH), Cell(f"{c.n:,}"),
            Cell(format_share(c.share) or EN_DASH),
            Cell(format_share(c.significant / c.tested) if c.tested else EN_DASH), Cell(str(c.reversed)),
            Cell("shown" if c.is_shown else "yes" if c.survives else "no"),
            Cell(describe_decider(c)), Cell(describe_weakest(c)),
        ])
        for c in shown
    ]  # fmt: skip
    facts = [f"{multiverse.model} on {multiverse.task}: claims in {family.name}, those that hold least first"]
    if len(shown) < len(ordered):
        facts.append(f"Shown are {len(shown)} of {len(ordered)}; the others survive and hold at least as often.")
    unit = ", in percent" if metric.is_fraction else ""
    legend = (
        f"Difference: {metric_name(family.metric)} of the first minus that of the second in the table{unit}.",
        "P values are corrected for all pairs of the table.",
        (
            "Turned most by: the choice whose options differ most in whether the claim holds, and the share of the"
            " variance of holding that lies between them (correlation ratio)."
        ),
    )
    return Grid(tuple(facts), columns, tuple(rows), legend, is_folded=True)


def _choices(multiverse: Multiverse) -> Grid:
    """Build the table of analysis choices: how often the results table's claims hold with each option."""
    columns = (
        Column("choice", is_left=True), Column("option", is_left=True),
        *(Column(family.name, is_metric=True) for family in multiverse.families),
    )  # fmt: skip
    rows = []
    for dimension, group in groupby(multiverse.options, key=lambda option: option.dimension):
        options = list(group)
        for i, option in enumerate(options if len(options) > 1 else ()):
            notes = (option.note,) if option.note and option.dimension != DEFINITION else ()
            cells = [
                Cell("" if i else dimension),
                Cell(format_definition(option.name), mark="=" * option.is_tables, notes=notes),
            ]  # fmt: skip
            for family in multiverse.families:
                shares = [
                    s
                    for pair in multiverse.claims(family.name)
                    for s in pair.shares
                    if (s.dimension, s.option) == (dimension, option.name)
                ]
                n = sum(s.n for s in shares)
                cells.append(Cell(format_share(sum(s.holds for s in shares) / n) if n else ""))
            rows.append(GridRow(cells, begins_block=not i))
    facts = (f"{multiverse.model} on {multiverse.task}: the choices, and how often the table's claims hold under each",)
    legend = (
        "Percent: share of all pairs of a claim and a universe with that option in which the claim's direction holds.",
        "=: the option of the table, which averages seeds.",
    )
    return Grid(facts, columns, tuple(rows), legend)


# --- data -------------------------------------------------------------------------------------------------------------


def _records(m: Multiverse) -> Iterator[dict[str, Any]]:
    """Yield a CSV record for each pair of methods of the results table."""
    for pair in m.contests:
        least = pair.weakest
        yield {
            "model": m.model, "task": m.task, "family": pair.family, "first": pair.first, "second": pair.second,
            "difference": pair.difference, "p_corrected": pair.p, "is_claim": pair.is_claim, "universes": pair.n,
            "holds": pair.holds, "tested": pair.tested, "significant": pair.significant, "reversed": pair.reversed,
            **_survival(pair), "turned_by": pair.decides,
            "explained": pair.explained_most, "weakest_dimension": least.dimension if least else None,
            "weakest_option": least.option if least else None,
        }  # fmt: skip


def _survival(pair: PairOutcome) -> dict[str, bool | None]:
    """Return whether a claim survives, and whether most tests confirm it, too.

    Both are None for a pair without a claim, i.e. without a significant difference in the results table, and for a
    claim that no universe (analysis) examines.
    """
    is_claim = pair.is_claim and pair.n > 0
    return {"survives": pair.survives if is_claim else None, "shown": pair.is_shown if is_claim else None}


def _data(m: Multiverse) -> dict[str, Any]:
    return {
        "verdict": list(verdict(m)),
        "about": {
            "model": m.model, "task": m.task, "preset": m.preset, "seeds": list(m.seeds),
            "questions": m.n,
            "families": {name: {"methods": list(names), "universes": len(m.of(name)),
                                "universes_with_all": len(m.complete(name))}
                         for name, names in m.methods.items()},
        },
        "choices": [asdict(option) for option in m.options],
        "places": [
            {**asdict(pair), "spread": pair.spread._asdict(), "counts": {str(k): n for k, n in pair.counts.items()}}
            for pair in m.places
        ],
        "claims": [
            {**asdict(pair), "share": pair.share, **_survival(pair),
             "turned_by": pair.decides}
            for pair in m.contests
        ],
        "universes": [
            {"family": u.family, "choices": dict(u.choices), "values": dict(u.values),
             "significant": None if u.wins is None else [list(pair) for pair in sorted(u.wins)]}
            for u in m.universes
        ],
        "remarks": list(m.remarks),
    }  # fmt: skip
