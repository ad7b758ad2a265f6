"""Verdict of a multiverse: which claims keep their direction, and which choice reverses the other claims."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bench.report.multiverse.definitions import DEFINITION, Family
from bench.report.multiverse.model import SURVIVES, Multiverse, PairOutcome
from bench.report.text import MINUS, plural

_FEW = 4
"""Most claims, or methods, that a sentence of the verdict names."""
THRESHOLD = f"{100 * SURVIVES:g} %"


def format_definition(name: str) -> str:
    """Format the label of a metric definition, with a typographic minus."""
    return name.replace(" - ", f" {MINUS} ")


def format_share(fraction: float | None) -> str:
    """Format a share in whole percent; only 1 is 100 % and only 0 is 0 %.

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
    """Format the claim of a pair of methods, e.g. "a beats b"."""
    return f"{pair.first} beats {pair.second}"


def describe_decider(pair: PairOutcome) -> str:
    """Name the dimension that explains most of a claim's direction, with the share that it explains.

    Empty where no dimension explains any.
    """
    return "" if pair.decides is None else f"{pair.decides} ({format_share(pair.explained_most)})"


def describe_weakest(pair: PairOutcome) -> str:
    """Name the option under which a claim holds least often, with counts; empty where it holds always or never."""
    least = pair.weakest
    if least is None:
        return ""
    option = format_definition(least.option) if least.dimension == DEFINITION else f"{least.dimension} {least.option}"
    return f"{option}: {least.holds} of {least.n}"


def verdict(multiverse: Multiverse) -> tuple[str, ...]:
    """Return the sentences of the verdict.

    How many claims of each family survive, why the others don't, which methods are first by value, and what universes
    say of pairs that the table leaves undecided.
    """
    sentences, leaders = [], []
    for family in multiverse.families:
        claims, n = multiverse.claims(family.name), len(multiverse.of(family.name))
        scope = f"{family.name[0].upper()}{family.name[1:]} ({plural(n, 'universe')})"
        survivors = [c for c in claims if c.survives]
        tested, shown = sum(c.tested > 0 for c in survivors), sum(c.is_shown for c in survivors)
        few = "" if n * (1 - SURVIVES) >= 1 else ", with so few in all"
        sentences.append(
            f"{scope}: {len(survivors)} of {len(claims)} claims of the table survive in at least {THRESHOLD} of"
            f" these{few}; {shown} of {plural(tested, 'survivor')} with a test are also significant in {THRESHOLD} of"
            " their tests."
            if claims
            else f"{scope}: the table claims nothing, so nothing can fall."
        )
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
        if c.share is None:
            why = "no universe has numbers of both"
        elif c.weakest is not None:
            why += f", least under {describe_weakest(c)}"
        if c.decides is not None:
            why += f"; the choice of {c.decides} explains {format_share(c.explained_most)} of that"
        if c.reversed:
            why += f"; the opposite is significant in {c.reversed} of {c.tested} with a test"
        yield f"In {family.name}, “{format_claim(c)}” does not survive: {why}."
    if len(fallen) > _FEW:
        yield f"Further claims in {family.name} that do not survive: {len(fallen) - _FEW}."
