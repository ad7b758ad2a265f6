"""Sentences on who is best by a metric, and on what is not decided."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from bench.report.competition import CALIBRATION, SEVERAL
from bench.report.tables.model import Line
from bench.report.text import count, metric_name
from bench.report.verdict.judgement import Judgement, rounded
from bench.report.verdict.phrases import (
    amount,
    behind,
    interval,
    joined,
    name,
    named,
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
    """Number of questions that would decide between the best mean and those that can't be distinguished from it."""
    if block.state != "tied":
        return
    needs = [(line, block.needed(line)) for line in block.rivals]
    told = sorted(((n, i) for i, (_, n) in enumerate(needs) if n is not None and n < math.inf))
    if told:
        yield _on_questions(block, [(needs[i][0], n) for n, i in told])
    hopeless = [line for line, n in needs if n == math.inf]
    same = [line for line in hopeless if _is_same(block, line)]
    if same:
        yield (
            f"No number of such questions decides between {name(block.best)} and {named([*map(name, same)], 'or')}:"
            " they don't differ on any of these."
        )
    hopeless = [line for line in hopeless if line not in same]
    if hopeless:
        yield _on_hopeless(block, hopeless)


# --- who leads --------------------------------------------------------------------------------------------------------


def _by(block: Judgement) -> str:
    """The words that begin a sentence."""
    by = f"y {metric_name(block.metric)}, "
    return f"Among methods recalibrated by {block.recalibration}, b{by}" if block.recalibration else f"B{by}"


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
    useless = [name(line) for line in block.leaders if line.is_worse_than_constant]
    if block.metric == "brier" and useless and not block.ranked[0].is_worse_than_constant:
        yield f"Of these, {named(useless)} {'is' if len(useless) == 1 else 'are'} no better than a constant confidence."


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
    """Comparison of the leaders with the other ranked methods."""
    number, following = len(block.others), block.others[0]
    lead = block.lead(block.best, following)
    nearest = (
        f"; the first behind these, {name(following)}, {behind(lead, name(block.best))}" if lead and number > 1 else ""
    )
    missed = {line.key: _not_beaten(block, line) for line in block.leaders}
    if not any(missed.values()):
        all_of_them = "Both are" if len(missed) == SEVERAL else f"All {len(missed)} are"
        others = (
            f"each of the {number} other ranked methods" if number > 1 else f"the only other one, {name(following)}"
        )
        return f"{all_of_them} significantly better than {others}{nearest}."
    if number == 1:
        winners = [name(line) for line in block.leaders if not missed[line.key]]
        those = f"only {named(winners)} {'is' if len(winners) == 1 else 'are'}" if winners else "none of these is"
        return f"Compared with {name(following)}, the only other ranked method, {those} significantly better."
    if len(missed) <= _FEW:
        best, *rest = [(name(line), _beaten(missed[line.key], number)) for line in block.leaders]
        each = [f"{best[0]} is significantly better than {best[1]}", *(f"{who} than {whom}" for who, whom in rest)]
        return f"Of the {number} other ranked methods, {joined(each)}{nearest}."
    most = min(block.leaders, key=lambda line: len(missed[line.key]))
    least = max(block.leaders, key=lambda line: len(missed[line.key]))
    few, many = (number - len(missed[line.key]) for line in (least, most))
    counts = f"{few} ({name(least)}) to {many} ({name(most)})" if few < many else f"{many}"
    return f"Each of these is significantly better than {counts} of the {number} other ranked methods{nearest}."


def _not_beaten(block: Judgement, line: Line) -> list[str]:
    """Names of the lines that don't lead and that a leader is not significantly better than."""
    beaten = {other.key for other in block.beaten_by(line)}
    return [name(other) for other in block.others if other.key not in beaten]


def _beaten(missed: Sequence[str], number: int) -> str:
    """Count of the methods that are beaten, said by those that are not."""
    if not missed:
        return "all of them"
    if len(missed) == number:
        return "none"
    return f"all but {joined(missed)}" if len(missed) <= SEVERAL else str(number - len(missed))


def _on_untested(block: Judgement) -> str:
    by = _by(block)
    if not block.is_good_or_bad:
        return f"{by}no method is best: it is a yardstick, neither good nor bad."
    if block.ranked and not block.leaders:
        return f"{by}no method that orders answers leads: each is significantly worse than one that doesn't."
    if not block.known:
        return f"{by}there is nothing to compare: no method has a value."
    if len(block.known) == 1:
        return f"{by}there is nothing to compare: {with_value(block.known[0], block.metric)} is the only method."
    best = with_value(block.known[0], block.metric)
    return f"{by}{best} has the best mean, but nothing was tested: {next(_why_untested(block))}."


def _why_untested(block: Judgement) -> Iterator[str]:
    """Reasons for which there are no ranks; the first is the one to tell."""
    from bench.stats import TESTED

    if block.standings is None:
        yield "intervals and tests were not computed"
    elif block.metric not in TESTED:
        yield f"there is no test of {metric_name(block.metric)}"
    else:
        untested = (pair for pair in block.standings.pairs if pair.metric == block.metric and pair.p is None)
        yield from (pair.fixed.reason for pair in untested if pair.fixed.reason)
        labels = {line.standing.labels for line in block.known if line.standing}
        if len(labels) == len(block.known):
            yield "no two methods rest on the same answers and labels"
        if block.metric == CALIBRATION and not any(line.orders_answers for line in block.known):
            yield "no method orders right answers before wrong ones beyond chance, and a constant is calibrated, too"
        yield f"{name(block.ranked[0])} is the only ranked method" if block.ranked else "no method could be ranked"


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
        f" with a probability of 80 %, if the true difference is the one seen{seen}"
    )
    text += "".join(f"; about {count(rounded(other))} between {best} and {name(line)}" for line, other in rest)
    left = len(needs) - _ESTIMATED
    text += f"; more for {left} other{'s' * (left > 1)}" if left > 0 else ""
    alone = pair is not None and pair.p is not None and pair.p < 1 - block.level
    together = " The interval is of this pair alone: tested together with all pairs, the difference is not significant."
    return f"{text}.{together if alone else ''}"


def _is_same(block: Judgement, line: Line) -> bool:
    """Whether a line and the best one don't differ at all, so that there is no interval to speak of."""
    pair = block.lead(block.best, line)
    return pair is not None and not pair.difference and pair.fixed.low == pair.fixed.high == 0


def _on_hopeless(block: Judgement, lines: Sequence[Line]) -> str:
    names = named([name(line) for line in lines], "or")
    difference = "the difference is" if len(lines) == 1 else "the differences are"
    return (
        f"No number of questions that one would ask decides between {name(block.best)} and {names}: {difference} less"
        " than a tenth of the width of the interval."
    )
