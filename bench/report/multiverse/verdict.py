"""A multiverse in words: which claims keep their direction, which choice turns the others, and what shares are not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bench.report.multiverse.definitions import DEFINITION, Family
from bench.report.multiverse.model import SURVIVES, Multiverse, PairOutcome
from bench.report.text import MINUS, several

_FEW = 4
"""Claims that a sentence names one by one."""
THRESHOLD = f"{100 * SURVIVES:g} %"


def label(name: str) -> str:
    """A definition as people read it."""
    return name.replace(" - ", f" {MINUS} ")


def share(fraction: float | None) -> str:
    """A share in whole percent; only all is 100 and only none is 0.

    >>> share(0.999), share(1.0), share(0.001), share(None)
    ('>99 %', '100 %', '<1 %', '')
    """
    if fraction is None:
        return ""
    text = f"{100 * fraction:.0f}"
    if fraction < 1 and text == "100":
        return ">99 %"
    return "<1 %" if fraction > 0 and text == "0" else f"{text} %"


def claim(contest: PairOutcome) -> str:
    """The claim of a pair."""
    return f"{contest.first} beats {contest.second}"


def decided_by(contest: PairOutcome) -> str:
    """The choice that turns a claim, with how much of its direction it explains; empty where nothing does."""
    return "" if contest.decides is None else f"{contest.decides} ({share(contest.explained_most)})"


def weakest(contest: PairOutcome) -> str:
    """The option under which a claim holds least."""
    least = contest.weakest
    if least is None:
        return ""
    named = label(least.option) if least.dimension == DEFINITION else f"{least.dimension} {least.option}"
    return f"{named}: {least.holds} of {least.n}"


def verdict(found: Multiverse) -> tuple[str, ...]:
    """Facts, a line each: what survives in each family, what falls and why, who is first, what was open to picking."""
    told, firsts = [], []
    for family in found.families:
        claims, n = found.claims(family.name), len(found.of(family.name))
        start = f"{family.name[0].upper()}{family.name[1:]} ({several(n, 'universe')})"
        kept = [c for c in claims if c.survives]
        tested, shown = sum(c.tested > 0 for c in kept), sum(c.is_shown for c in kept)
        few = "" if n * (1 - SURVIVES) >= 1 else ", with so few in all"
        told.append(
            f"{start}: {len(kept)} of {len(claims)} claims of the table survive in at least {THRESHOLD} of these{few};"
            f" {shown} of {several(tested, 'survivor')} with a test are also significant in {THRESHOLD} of their tests."
            if claims
            else f"{start}: the table claims nothing, so nothing can fall."
        )
        # by the share of universes, of those in which all have numbers, in which a method's value is the best
        own = [places for places in found.places if places.family == family.name and places.spread.first > 0]
        own.sort(key=lambda places: -places.spread.first)
        first = ", ".join(f"{places.method} in {share(places.spread.first)}" for places in own[:_FEW])
        more = f" and {len(own) - _FEW} others" if len(own) > _FEW else ""
        n = len(found.complete(family.name))
        if own:
            of = f"of {several(n, 'universe')} with numbers of all"
            firsts.append(f"First in {family.name} by value, {of}: {first}{more}.")
    told += [sentence for family in found.families for sentence in _fallen(found.claims(family.name), family)]
    pairs = [contest for contest in found.contests if not contest.is_claim and contest.tested]
    decided = [contest for contest in pairs if contest.significant or contest.reversed]
    both = sum(bool(contest.significant and contest.reversed) for contest in decided)
    n_open, ways = several(len(pairs), "pair"), f" ({both} of them in either direction)" if both else ""
    if decided:
        firsts.append(
            f"Of {n_open} that the table leaves open, {len(decided)} could be claimed by picking"
            f" a universe{ways}: there the difference is significant, corrected for all pairs."
        )
    elif pairs:
        firsts.append(f"None of {n_open} that the table leaves open is significant in any universe.")
    return (
        *told,
        *firsts,
        ("Universes are a list of analyses that somebody could defend, not a sample of anything:"
        f" {THRESHOLD} is a share of that list, and no level of confidence."),
    )  # fmt: skip


def _fallen(claims: Sequence[PairOutcome], family: Family) -> Iterator[str]:
    fallen = sorted((c for c in claims if not c.survives), key=lambda c: (c.share or 0.0, c.first, c.second))
    for each in fallen[:_FEW]:
        why = f"it holds in {each.holds} of {each.n} universes"
        if each.share is None:
            why = "no universe has numbers of both"
        elif each.weakest is not None:
            why += f", least under {weakest(each)}"
        if each.decides is not None:
            why += f"; the choice of {each.decides} explains {share(each.explained_most)} of that"
        if each.reversed:
            why += f"; the opposite is significant in {each.reversed} of {each.tested} with a test"
        yield f"In {family.name}, “{claim(each)}” does not survive: {why}."
    if len(fallen) > _FEW:
        yield f"Further claims in {family.name} that do not survive: {len(fallen) - _FEW}."
