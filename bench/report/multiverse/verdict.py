"""Sentences on a multiverse analysis: which claims hold under other analysis choices, and which choices reverse any."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bench.report.multiverse.definitions import DEFINITION, Family
from bench.report.multiverse.model import SURVIVES, Multiverse, PairOutcome
from bench.report.text import MINUS, plural
from bench.report.verdict.phrases import name_first_few

_FEW = 4
"""Maximum number of claims, or of methods, that a sentence names."""
THRESHOLD = f"{100 * SURVIVES:g} %"


def format_definition(name: str) -> str:
    """Return the name of a metric definition for people, with a typographic minus sign."""
    return name.replace(" - ", f" {MINUS} ")


def format_share(fraction: float | None) -> str:
    """Format a share in whole percent; only exactly 1 becomes "100 %", and only exactly 0 becomes "0 %".

    >>> format_share(0.999), format_share(1.0), format_share(0.001), format_share(None)
    ('>99 %', '100 %', '<1 %', '')
    """
    if fraction is None:
        return ""
    text = f"{100 * fraction:.0f}"
    if fraction < 1 and text == "100":
        return ">99 %"
    return "<1 %" if fraction > 0 and text == "0" else f"{text} %"


def format_claim(pair: PairOutcome) -> str:
    """Return the claim about a pair of methods as text, e.g. "a beats b"."""
    return f"{pair.first} beats {pair.second}"


def describe_decider(pair: PairOutcome) -> str:
    """Return the analysis choice that explains most of whether a claim holds, with the share of variance it explains.

    Empty if no choice explains any.
    """
    return "" if pair.decides is None else f"{pair.decides} ({format_share(pair.explained_most)})"


def describe_weakest(pair: PairOutcome) -> str:
    """Return the option with which a claim holds least often, with counts; empty if the claim holds always or never."""
    least = pair.weakest
    if least is None:
        return ""
    option = format_definition(least.option) if least.dimension == DEFINITION else f"{least.dimension} {least.option}"
    return f"{option}: {least.holds} of {least.n}"


def verdict(multiverse: Multiverse) -> tuple[str, ...]:
    """Return the sentences on a multiverse analysis.

    They say how many claims of each family (kind) survive, which no universe examines, and why the others fall. They
    name the methods that most often have the best value. They say what analyses show about pairs that are not
    significant in the table.
    """
    sentences, leaders = [], []
    for family in multiverse.families:
        claims, n = multiverse.claims(family.name), len(multiverse.of(family.name))
        scope = f"{family.name[0].upper()}{family.name[1:]} ({plural(n, 'universe')})"
        survivors = [c for c in claims if c.survives]
        tested, shown = sum(c.tested > 0 for c in survivors), sum(c.is_shown for c in survivors)
        few = "" if n * (1 - SURVIVES) >= 1 else ", with so few in all"
        also = f"; {shown} of {tested} survivors with a test are also significant in {THRESHOLD} of their tests"
        sentences.append(
            f"{scope}: {len(survivors)} of {len(claims)} claims of the table survive in at least {THRESHOLD} of"
            f" these{few}{also * bool(tested)}."
            if claims
            else f"{scope}: the table claims nothing that these examine, so nothing can fall."
        )
        unseen = [c for c in multiverse.contests if c.family == family.name and c.is_claim and not c.n]
        if named := [f"“{format_claim(c)}”" for c in unseen]:
            why = f"Not examined in {family.name}, as no universe has numbers of both"
            sentences.append(f"{why}: {name_first_few(named, _FEW)}.")
        # share of the universes with values of all methods in which a method has the best value
        ranked = [ranks for ranks in multiverse.places if ranks.family == family.name and ranks.spread.first > 0]
        ranked.sort(key=lambda ranks: -ranks.spread.first)
        first = ", ".join(f"{ranks.method} in {format_share(ranks.spread.first)}" for ranks in ranked[:_FEW])
        more = f" and {len(ranked) - _FEW} others" if len(ranked) > _FEW else ""
        n = len(multiverse.complete(family.name))
        if ranked:
            among = f"of {plural(n, 'universe')} with numbers of all"
            leaders.append(f"First in {family.name} by value, {among}: {first}{more}.")
    for family in multiverse.families:
        sentences += _fallen(multiverse.claims(family.name), family)
    pairs = [pair for pair in multiverse.contests if not pair.is_claim and pair.tested]
    decided = [pair for pair in pairs if pair.significant or pair.reversed]
    both = sum(bool(pair.significant and pair.reversed) for pair in decided)
    n_open, ways = plural(len(pairs), "pair"), f" ({both} of them in either direction)" if both else ""
    if decided:
        leaders.append(
            f"Of {n_open} that the table leaves open, {len(decided)} could be claimed by picking"
            f" a universe{ways}: there the difference is significant, corrected for all pairs."
        )
    elif pairs:
        leaders.append(f"None of {n_open} that the table leaves open is significant in any universe.")
    return (
        *sentences,
        *leaders,
        ("Universes are a list of analyses that somebody could defend, not a sample of anything:"
        f" {THRESHOLD} is a share of that list, and no level of confidence."),
    )  # fmt: skip


def _fallen(claims: Sequence[PairOutcome], family: Family) -> Iterator[str]:
    fallen = sorted((c for c in claims if not c.survives), key=lambda c: (c.share or 0.0, c.first, c.second))
    for c in fallen[:_FEW]:
        why = f"it holds in {c.holds} of {c.n} universes"
        if c.weakest is not None:
            why += f", least under {describe_weakest(c)}"
        if c.decides is not None:
            why += f"; the choice of {c.decides} explains {format_share(c.explained_most)} of that"
        if c.reversed:
            why += f"; the opposite is significant in {c.reversed} of {c.tested} with a test"
        yield f"In {family.name}, “{format_claim(c)}” does not survive: {why}."
    if len(fallen) > _FEW:
        yield f"Further claims in {family.name} that do not survive: {len(fallen) - _FEW}."
