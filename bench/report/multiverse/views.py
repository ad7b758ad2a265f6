"""A multiverse as tables: claims, places and choices, for the terminal, Markdown, CSV and JSON."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Any

from bench.metrics import METRICS
from bench.report.multiverse.definitions import DEFINITION, FAMILIES, Family
from bench.report.multiverse.model import Multiverse, PairOutcome, by_survival
from bench.report.multiverse.verdict import THRESHOLD, claim, decided_by, label, share, verdict, weakest
from bench.report.tables.grid import Cell, Column, Grid, GridRow, TableViews
from bench.report.text import EN_DASH, metric_name, precise, probability, seeds_text
from bench.report.verdict.phrases import joined

_MOST = 10
"""Surviving claims of a family that are printed; CSV and JSON have all."""


def views(found: Multiverse, methods: Collection[str] = ()) -> TableViews:
    """The multiverse for every format.

    Args:
        found: the multiverse.
        methods: claims about these alone are printed; by default all.
    """
    grids = [_summary(found)]
    ranked = {places.family for places in found.places}
    grids += [_places(found, family) for family in found.families if family.name in ranked]
    for family in found.families:
        claims = [c for c in found.claims(family.name) if not methods or {c.first, c.second} & set(methods)]
        grids += [_claims(found, family, claims)] if claims else []
    grids.append(_choices(found))
    return TableViews(grids, lambda: list(_records(found)), lambda: _data(found))


# --- for people -------------------------------------------------------------------------------------------------------


def _summary(found: Multiverse) -> Grid:
    columns = (
        Column("claims in", is_left=True), Column("universes"), Column("claims"), Column("survive"), Column("shown"),
        Column("reversed", droppable=2), Column("open"), Column("open, decided somewhere", droppable=1),
    )  # fmt: skip
    rows = []
    for family in found.families:
        claims = found.claims(family.name)
        left = [c for c in found.contests if c.family == family.name and not c.is_claim]
        rows.append(
            GridRow([
                Cell(family.name), Cell(f"{len(found.of(family.name)):,}"), Cell(str(len(claims))),
                Cell(str(sum(c.survives for c in claims))), Cell(str(sum(c.is_shown for c in claims))),
                Cell(str(sum(c.reversed > 0 for c in claims))), Cell(str(len(left))),
                Cell(str(sum(c.significant + c.reversed > 0 for c in left))),
            ])
        )  # fmt: skip
    tested = [each.label for family in FAMILIES for each in family.definitions if each.is_tested]
    facts = (
        f"{found.model} on {found.task}: the table under every choice that costs no forward pass",
        f"Preset {found.preset}, {seeds_text(found.seeds)}, {found.n:,} questions.",
    )
    legend = (
        "A claim is a significant difference of the table, corrected for all pairs.",
        (
            f"Survive: its direction holds, by value, in at least {THRESHOLD} of the universes that have both methods,"
            " and no universe shows the opposite."
        ),
        (
            f"Shown: it survives, and is significant in at least {THRESHOLD} of the universes with a test;"
            f" {joined(tested)} have one, other definitions are compared by value."
        ),
        (
            "Reversed: claims whose opposite is significant in some universe. Open: pairs that the table does not"
            " decide; decided somewhere: significant in some universe, whoever is better there."
        ),
    )
    return Grid(facts, columns, tuple(rows), legend, found.remarks, verdict=verdict(found), is_folded=True)


def _places(found: Multiverse, family: Family) -> Grid:
    columns = (
        Column("method", is_left=True), Column("rank"), Column("median", is_metric=True),
        Column("5 to 95 %", is_metric=True), Column("first", is_metric=True), Column("leads", is_metric=True),
    )  # fmt: skip
    rows = []
    for each in (places for places in found.places if places.family == family.name):
        low, high = each.spread.low, each.spread.high
        rows.append(
            GridRow([
                Cell(each.method), Cell(EN_DASH if each.in_table is None else str(each.in_table)),
                Cell(str(each.spread.median)), Cell(str(low) if low == high else f"{low}{EN_DASH}{high}"),
                Cell(share(each.spread.first)), Cell(share(each.leads) or EN_DASH),
            ])
        )  # fmt: skip
    n = len(found.complete(family.name))
    facts = (f"{found.model} on {found.task}: places in {family.name} over {n:,} universes",)
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


def _claims(found: Multiverse, family: Family, claims: Sequence[PairOutcome]) -> Grid:
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
            Cell(claim(c)), Cell(precise(metric, c.difference)), Cell(EN_DASH if c.p is None else probability(c.p)),
            Cell(f"{c.n:,}"), Cell(share(c.share) or EN_DASH),
            Cell(share(c.significant / c.tested) if c.tested else EN_DASH), Cell(str(c.reversed)),
            Cell("shown" if c.is_shown else "yes" if c.survives else "no"), Cell(decided_by(c)), Cell(weakest(c)),
        ])
        for c in shown
    ]  # fmt: skip
    facts = [f"{found.model} on {found.task}: claims in {family.name}, those that hold least first"]
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


def _choices(found: Multiverse) -> Grid:
    """Dimensions with their options, and how often the table's claims hold under each."""
    columns = (
        Column("choice", is_left=True), Column("option", is_left=True),
        *(Column(family.name, is_metric=True) for family in found.families),
    )  # fmt: skip
    rows = []
    for dimension, own in groupby(found.options, key=lambda option: option.dimension):
        options = list(own)
        for i, option in enumerate(options if len(options) > 1 else ()):
            notes = (option.note,) if option.note and option.dimension != DEFINITION else ()
            cells = [
                Cell("" if i else dimension), Cell(label(option.name), mark="=" * option.is_tables, notes=notes)
            ]  # fmt: skip
            for family in found.families:
                shares = [
                    each
                    for contest in found.claims(family.name)
                    for each in contest.shares
                    if (each.dimension, each.option) == (dimension, option.name)
                ]
                n = sum(each.n for each in shares)
                cells.append(Cell(share(sum(each.holds for each in shares) / n) if n else ""))
            rows.append(GridRow(cells, is_apart=not i))
    facts = (f"{found.model} on {found.task}: the choices, and how often the table's claims hold under each",)
    legend = (
        "Percent: share of all pairs of a claim and a universe with that option in which the claim's direction holds.",
        "=: the option of the table, which averages seeds.",
    )
    return Grid(facts, columns, tuple(rows), legend)


# --- data -------------------------------------------------------------------------------------------------------------


def _records(found: Multiverse) -> Iterator[dict[str, Any]]:
    """One record for each pair of the table."""
    for each in found.contests:
        least = each.weakest
        yield {
            "model": found.model, "task": found.task, "family": each.family, "first": each.first, "second": each.second,
            "difference": each.difference, "p_corrected": each.p, "is_claim": each.is_claim, "universes": each.n,
            "holds": each.holds, "tested": each.tested, "significant": each.significant, "reversed": each.reversed,
            **_fate(each), "turned_by": each.decides,
            "explained": each.explained_most, "weakest_dimension": least.dimension if least else None,
            "weakest_option": least.option if least else None,
        }  # fmt: skip


def _fate(each: PairOutcome) -> dict[str, bool | None]:
    """Whether a claim survives and is shown; None for open pairs, which claim nothing."""
    is_claim = each.is_claim
    return {"survives": each.survives if is_claim else None, "shown": each.is_shown if is_claim else None}


def _data(found: Multiverse) -> dict[str, Any]:
    return {
        "verdict": list(verdict(found)),
        "about": {
            "model": found.model, "task": found.task, "preset": found.preset, "seeds": list(found.seeds),
            "questions": found.n,
            "families": {name: {"methods": list(names), "universes": len(found.of(name)),
                                "universes_with_all": len(found.complete(name))}
                         for name, names in found.methods.items()},
        },
        "choices": [asdict(option) for option in found.options],
        "places": [
            {**asdict(each), "spread": each.spread._asdict(), "counts": {str(k): n for k, n in each.counts.items()}}
            for each in found.places
        ],
        "claims": [
            {**asdict(each), "share": each.share, **_fate(each),
             "turned_by": each.decides}
            for each in found.contests
        ],
        "universes": [
            {"family": u.family, "choices": dict(u.choices), "values": dict(u.values),
             "significant": None if u.wins is None else [list(pair) for pair in sorted(u.wins)]}
            for u in found.universes
        ],
        "remarks": list(found.remarks),
    }  # fmt: skip
