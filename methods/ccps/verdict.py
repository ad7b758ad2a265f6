"""Verdict of token masking in sentences: whether content words matter more, and whether places explain it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from methods.ccps.contrasts import MIN_ANSWERS, Estimate

_ALPHA = 0.05
_MINUS = "\u2212"
FEW = "too few answers have words of one kind at places where others of the same length have the other"
"""Reason why the difference at the same places isn't known."""


class Compared(NamedTuple):
    """Comparison of content words with function words."""

    what: str
    tokens: int
    difference: Estimate | None
    """Mean impact of the former less that of the latter; None where it can't be known."""
    lift: Estimate | None
    """The same over that of the latter."""


def answer_of(compared: Sequence[Compared], both: int, n: int) -> str:
    """Sentences on comparisons: over all tokens, within answers, at the same places, and there of first tokens.

    "More" is said where it holds both within answers and at the same places; each at 5 %, which together is at most
    5 % (an intersection-union test; Berger, Technometrics 1982).

    Args:
        compared: all tokens, within answers, there but for their first token, at the same places, and there words by
            their first token; the last one may be missing.
        both: answers with both kinds of words.
        n: all answers.
    """
    if not both:
        return f"It can't be said: none of {n:,} answers has both a content word and a function word."
    every, within, rest, places, *split = compared
    if both < MIN_ANSWERS or within.difference is None or within.difference.p is None:
        have = "answer has" if both == 1 else "answers have"
        return (
            f"It can't be said: {both} of {n:,} {have} both a content word and a function word; intervals need"
            f" {MIN_ANSWERS}."
        )
    sentences = [_lead(within.difference, rest.difference, places.difference), _published(every)]
    sentences.append(f"Within the {both:,} answers that have both the difference is {_told(within.difference)}.")
    if places.difference is not None:
        sentences.append(f"With places taken out it is {_told(places.difference)}.")
    if split and is_shown(places.difference) and not _agree(places.difference, split[0].difference):
        known = split[0].difference
        told = f"it is {_told(known)}" if known is not None else "it can't be known"
        sentences.append(f"Of the first tokens of words alone {told}: how words are split may explain it.")
    return " ".join(filter(None, sentences))


def is_shown(found: Estimate | None) -> bool:
    """Whether a difference is significant at 5 %."""
    return found is not None and found.p is not None and found.p < _ALPHA


def _agree(one: Estimate | None, other: Estimate | None) -> bool:
    """Whether both are significant and of the same sign."""
    if one is None or other is None or not (is_shown(one) and is_shown(other)):
        return False
    return (one.value > 0) is (other.value > 0)


def _lead(within: Estimate, rest: Estimate | None, places: Estimate | None) -> str:
    if within.low == within.value == within.high == 0:
        return (
            "Nothing shows: masking any token of an answer moves it alike, so that this masking tells nothing of words."
        )
    if not is_shown(within):
        begin = "Nothing shows: within answers no difference is significant."
        if places is None or not is_shown(places):
            return begin
        return f"{begin} With places taken out they move it {_side(places)}, so that places hide a difference."
    if _agree(within, places):
        return f"Content words move it {_side(within)}, also with their places taken out."
    doubt = _without_first(within, rest) if places is None else _at_places(places)
    return f"Within an answer content words move it {_side(within)}, {doubt}"


def _at_places(places: Estimate) -> str:
    """End of a sentence on a difference within answers, where that at the same places is another."""
    if is_shown(places):
        return "but with places taken out it is the other way round: where words stand makes the difference."
    return "but with places taken out no difference is significant: it may be due to where they stand."


def _without_first(within: Estimate, rest: Estimate | None) -> str:
    """End of a sentence on a difference within answers, where that at the same places can't be known."""
    unknown = f"At the same places it can't be told: {FEW}."
    if rest is None or rest.p is None:
        return f"which may be due to the words or to where they stand. {unknown}"
    without, value = "without the first token of each answer", _told(rest)
    if _agree(within, rest):
        return f"also {without}, {value}. {unknown}"
    if is_shown(rest):
        cause = "the first tokens make the difference, by where they stand or by what they say"
        return f"but {without} {_side(rest)}, {value}: {cause}. {unknown}"
    return f"but {without} no difference is significant, {value}: it may be due to where they stand. {unknown}"


def _side(found: Estimate) -> str:
    return "more" if found.value > 0 else "less"


def _published(every: Compared) -> str:
    if every.lift is None:
        return ""
    return f"Over all tokens, as published, the lift is {_percent(every.lift)}."


def _told(found: Estimate) -> str:
    value = f"{_signed(100 * found.value, 2)} points"
    if found.low is None or found.high is None or found.p is None:
        return f"{value}, without interval"
    p = "p <0.001" if found.p < 0.0005 else f"p {found.p:.3f}"  # noqa: PLR2004 - would be printed as 0.000
    return f"{value} ({_number(100 * found.low, 2)} to {_number(100 * found.high, 2)}), {p}"


def _percent(found: Estimate) -> str:
    value = f"{_signed(100 * found.value, 0)} %"
    if found.low is None or found.high is None:
        return value
    return f"{value} ({_number(100 * found.low, 0)} to {_number(100 * found.high, 0)})"


def _signed(value: float, decimals: int) -> str:
    text = _number(value, decimals)
    return f"+{text}" if value > 0 and text.strip("0.") else text


def _number(value: float, decimals: int) -> str:
    text = f"{value:.{decimals}f}"
    return (text if float(text) else text.lstrip("-")).replace("-", _MINUS)
