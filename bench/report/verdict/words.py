"""Sentences on who is best by a metric, and on what is not decided."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from bench.report.tables.model import Line
from bench.report.text import count
from bench.report.verdict.judgement import SEVERAL, Judgement, rounded
from bench.report.verdict.phrases import (
    amount,
    behind,
    interval,
    joined,
    metric_name,
    name,
    named,
    value,
    with_value,
)

_FEW = 3
"""Leaders for each of which it is said how many methods it beats."""
_ESTIMATED = 2
"""Pairs for which it is said how many questions would decide."""


def on_leaders(block: Judgement) -> Iterator[str]:
    """Who leads a block, and by how much."""
    if block.metric == "brier":
        yield from _on_constant(block)
    if block.state == "sure":
        yield from _on_winner(block)
    elif block.state == "tied":
        yield from _on_tied(block)
    else:
        yield _on_untested(block)


def on_undecided(block: Judgement) -> Iterator[str]:
    """How many questions would decide between the best mean and those that can't be distinguished from it."""
    if block.state != "tied":
        return
    needs = [(line, block.needed(line)) for line in block.rivals]
    told = sorted(((n, i) for i, (_, n) in enumerate(needs) if n is not None and n < math.inf))
    if told:
        yield _on_questions(block, [(needs[i][0], n) for n, i in told])
    hopeless = [line for line, n in needs if n == math.inf]
    if hopeless:
        yield _on_hopeless(block, hopeless)


# --- who leads --------------------------------------------------------------------------------------------------------


def _by(block: Judgement) -> str:
    """The words that begin a sentence."""
    by = f"y {metric_name(block.metric)}, "
    return f"Among methods recalibrated with {block.recalibration}, b{by}" if block.recalibration else f"B{by}"


def _on_constant(block: Judgement) -> Iterator[str]:
    """Where a constant confidence does as well."""
    if not block.ranked or not block.ranked[0].is_worse_than_constant or not block.ranked[0].standing:
        return
    best, constant = block.ranked[0], block.ranked[0].standing.constant
    of_constant = "" if constant is None else f" ({100 * constant:.1f})"
    if all(line.is_worse_than_constant for line in block.ranked):
        methods = "no ranked method is" if len(block.ranked) > 1 else f"{name(best)} is not"
    else:
        methods = f"{name(best)}, the best mean, is not"
    yield (
        f"{_by(block)}{methods} better than giving every answer the same confidence, the share of right answers in"
        f" training{of_constant}."
    )


def _on_winner(block: Judgement) -> Iterator[str]:
    best, following = block.best, block.others[0]
    lead = block.lead(best, following)
    if len(block.others) == 1:
        size = f", which {behind(lead)}" if lead else ""
        yield f"{_by(block)}{with_value(best, block.metric)} is significantly better than {name(following)}{size}."
        return
    yield (
        f"{_by(block)}{with_value(best, block.metric)} is best: significantly better than each of the"
        f" {len(block.others)} other ranked methods."
    )
    if lead:
        yield f"The next, {name(following)}, {behind(lead)}."


def _on_tied(block: Judgement) -> Iterator[str]:
    leaders = [with_value(line, block.metric) for line in block.leaders]
    if len(leaders) == 1:
        yield from _on_unsure(block)
    elif not block.others:
        if len(leaders) == SEVERAL:
            yield f"{_by(block)}{joined(leaders)} can't be distinguished."
        else:
            none = f"none of the {len(leaders)} ranked methods can be distinguished from another"
            yield f"{_by(block)}{none}: {named(leaders)}."
    else:
        yield f"{_by(block)}no single method is best: {named(leaders)} can't be distinguished."
        yield _on_followers(block)


def _on_unsure(block: Judgement) -> Iterator[str]:
    """One leader that is not significantly better than every other."""
    rivals = [name(line) for line in block.rivals]
    number = len(block.others)
    yield (
        f"{_by(block)}{with_value(block.best, block.metric)} leads, but can't be distinguished from {named(rivals)}."
    )
    yield (
        f"It is significantly better than {number - len(rivals)} of the {number} other ranked methods, and is the only"
        " one than which none is significantly better."
    )


def _on_followers(block: Judgement) -> str:
    """How the leaders compare with the other ranked methods."""
    number, following = len(block.others), block.others[0]
    others = f"each of the {number} other ranked methods" if number > 1 else f"{name(following)}, the only other one"
    beaten = {line.key: len(block.beaten_by(line)) for line in block.leaders}
    if set(beaten.values()) == {number}:
        lead = block.lead(block.best, following)
        nearest = f"; {name(following)}, the next, {behind(lead, name(block.best))}" if lead and number > 1 else ""
        all_of_them = "Both are" if len(beaten) == SEVERAL else f"All {len(beaten)} are"
        return f"{all_of_them} significantly better than {others}{nearest}."
    if number == 1:
        winners = [name(line) for line in block.leaders if beaten[line.key]]
        tested = f"{named(winners)} {'is' if len(winners) == 1 else 'are'}" if winners else "none of them is"
        return f"{tested[0].upper() if not winners else tested[0]}{tested[1:]} significantly better than {others}."
    if len(beaten) <= _FEW:
        best, *rest = [(name(line), beaten[line.key]) for line in block.leaders]
        counts = joined([f"{best[0]} is significantly better than {best[1]}", *(f"{n} than {k}" for n, k in rest)])
        return f"Of the {number} other ranked methods, {counts}."
    most = max(block.leaders, key=lambda line: beaten[line.key])
    least = min(block.leaders, key=lambda line: beaten[line.key])
    return (
        f"Of the {number} other ranked methods, these are significantly better than {beaten[least.key]}"
        f" ({name(least)}) to {beaten[most.key]} ({name(most)})."
    )


def _on_untested(block: Judgement) -> str:
    by = _by(block)
    if not block.is_good_or_bad:
        return f"{by}no method is best: it is a yardstick, neither good nor bad."
    if not block.known:
        return f"{by}there is nothing to compare: no method has a value."
    if len(block.known) == 1:
        return f"{by}there is nothing to compare: {with_value(block.known[0], block.metric)} is the only method."
    best = with_value(block.known[0], block.metric)
    return f"{by}{best} has the best mean, but nothing was tested: {_why_untested(block)}."


def _why_untested(block: Judgement) -> str:
    from bench.stats import TESTED

    if block.standings is None:
        return "intervals and tests were not computed"
    if block.metric not in TESTED:
        return f"there is no test of {metric_name(block.metric)}"
    reasons = [p.fixed.reason for p in block.standings.pairs if p.metric == block.metric and p.p is None]
    if any(reasons):
        return next(filter(None, reasons))
    standings = [line.standing for line in block.known if line.standing]
    if len({standing.labels for standing in standings}) == len(block.known):
        return "no two methods rest on the same answers and labels"
    if len(block.ranked) == 1:
        return f"{name(block.ranked[0])} is the only ranked method"
    return "no method could be ranked"


# --- what is not decided ----------------------------------------------------------------------------------------------


def _on_questions(block: Judgement, needs: Sequence[tuple[Line, float]]) -> str:
    """Sentence on the questions that would decide.

    Args:
        block: whose best mean is compared.
        needs: other lines with the questions, the fewest first.
    """
    best, n = name(block.best), needs[0][0].n or 0
    (first, number), *rest = needs[:_ESTIMATED]
    pair = block.lead(block.best, first)
    seen = f" ({amount(block.metric, pair.difference)}; {interval(pair)})" if pair else ""
    text = (
        f"About {count(rounded(number))} questions instead of {count(n)} would decide between {best} and {name(first)}"
        f" in 4 of 5 such tests, if the difference is as large as seen{seen}"
    )
    text += "".join(f"; about {count(rounded(other))} between {best} and {name(line)}" for line, other in rest)
    left = len(needs) - _ESTIMATED
    text += f"; more for {left} other{'s' * (left > 1)}" if left > 0 else ""
    alone = pair is not None and pair.p is not None and pair.p < 1 - block.level
    return text + ("; tested alone, this pair would differ significantly." if alone else ".")


def _on_hopeless(block: Judgement, lines: Sequence[Line]) -> str:
    names = named([name(line) for line in lines], "or")
    difference = "the difference is" if len(lines) == 1 else "the differences are"
    return (
        f"No number of questions that one would ask decides between {name(block.best)} and {names}: {difference} less"
        " than a tenth of the width of the interval."
    )
