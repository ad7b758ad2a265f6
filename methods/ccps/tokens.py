"""Token masking: by how much does the confidence of CCPS in an open answer move when one token is masked?

After the paper's appendix on token importance (arXiv:2505.21772): the features of one token are set to 0, the network
is asked again, and the absolute change of its confidence is the token's impact; impacts of content words and function
words are compared. Networks are those of a run, one for each seed; impacts are means over them. Standardised features
are set to 0, so that a masked token looks like an average one of train, and like the places after an answer's end; the
paper doesn't say whether it does this before or after standardising, so `tokens-raw` sets the raw ones to 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from bench.api import (
    AnalysisInput,
    BoolArray,
    FloatArray,
    Format,
    IntArray,
    MeasureColumn,
    Measures,
    Of,
    Piece,
    Strip,
    Strips,
    TokenIds,
    UserError,
)
from methods.ccps import contrasts
from methods.ccps.analyses import material_of, required
from methods.ccps.contrasts import Effect, Impacts, Linear
from methods.ccps.networks import Network, probabilities
from methods.ccps.tagging import Word, WordClass, tagger, word_of_tokens, words_of

STRIPS, STRIPS_SEED = 20, 0
"""Answers that are shown coloured, and the seed they are drawn with."""
QUESTION = "Do content words move the confidence of CCPS more than function words?"
COLUMNS = (
    MeasureColumn("what", "what", "text"),
    MeasureColumn("answers", "answers", "count"),
    MeasureColumn("tokens", "tokens", "count"),
    MeasureColumn("impact", "impact (points)", "percent", "impact_low", "impact_high", decimals=2),
    MeasureColumn("difference", "difference (points)", "points", "difference_low", "difference_high", decimals=2),
    MeasureColumn("p", "p", "probability"),
    MeasureColumn("lift", "lift (%)", "points", "lift_low", "lift_high"),
)
CLASSES: Mapping[WordClass, str] = {
    "content": "content words",
    "function": "function words",
    "numeral": "numerals",
    "other": "other tokens",
}
ALL, WITHIN, REST, PLACES, SPLIT = (
    f"content \u2212 function, {how}"
    for how in ("all tokens", "within answers", "first token left out", "same places", "same places, words once")
)
FEW = "too few answers have words of one kind at places where others of the same length have the other"
"""Reason why the difference at the same places isn't known."""
_ALPHA = 0.05
_Row = dict[str, str | float | None]


@dataclass(frozen=True, eq=False)
class ReadTokens:
    """Answer tokens that the networks read, one answer after the other, t in all."""

    ids: Sequence[str]
    """Questions of the n answers."""
    pieces: Sequence[Sequence[str]]
    """Texts of all tokens of each answer."""
    answer: IntArray
    """`(t,)` number of the answer."""
    place: IntArray
    """`(t,)` place in it."""
    word: Sequence[Word | None]
    """Word of each token."""
    is_first: BoolArray
    """`(t,)` no token before it is of the same word."""

    @cached_property
    def kind(self) -> np.ndarray[Any, np.dtype[np.str_]]:
        """`(t,)` class of the token's word; "other" without one."""
        return np.array([word.kind if word else "other" for word in self.word], dtype=np.str_)

    def tokens(self, impact: FloatArray) -> Impacts:
        """Tokens of content and function words with their impacts `(seeds, t)`."""
        kind, lengths = self.kind, np.bincount(self.answer, minlength=len(self.ids))
        every = Impacts(self.answer, self.place, lengths[self.answer], kind == "content", impact, len(self.ids))
        return every.take((kind == "content") | (kind == "function"))


def tokens(given: AnalysisInput) -> Measures:
    """Which words of an open answer move the confidence: one token masked at a time (docs/methods.md §5.5)."""
    return _analysed(given, is_raw=False)


def tokens_raw(given: AnalysisInput) -> Measures:
    """The same, masking a token by raw features of 0 instead of the mean of train."""
    return _analysed(given, is_raw=True)


def _analysed(given: AnalysisInput, *, is_raw: bool) -> Measures:
    """Train the networks of a run, and mask each test token in turn."""
    if next(iter(given.contexts.values())).format is not Format.OPEN:
        raise UserError(
            "token masking needs open answers: here each answer is a single token, without which nothing is left; name"
            " an open task, e.g. --task atlas-oe"
        )
    read = read_tokens(given, required(given.method).max_tokens)
    method, splits, inputs = material_of(given)
    mask = -method.mean_ / method.scale_ if is_raw else np.zeros_like(method.mean_)
    found = []
    for seed, each in given.contexts.items():
        given.say(f"{method.name}: training with seed {seed}, then masking {len(read.answer):,} tokens")
        found.append(impacts_of(method.trained(splits, each), inputs, mask, read))
    confidence, impact = zip(*found, strict=True)
    return measures_of(read, np.stack(confidence), np.stack(impact))


# --- tokens and their words -------------------------------------------------------------------------------------------


def read_tokens(given: AnalysisInput, limit: int) -> ReadTokens:
    """Tokens of the test answers that the networks read, with their words.

    Raises:
        UserError: there is no tagger.
    """
    tag = tagger()
    pieces, lengths = given.pieces(given.test), np.minimum(given.test[TokenIds(Of.ANSWER)].lengths, limit)
    words = {text: words_of(text, tag) for text in dict.fromkeys("".join(row) for row in pieces)}
    word: list[Word | None] = []
    is_first: list[bool] = []
    for row, length in zip(pieces, lengths, strict=True):
        own = words["".join(row)]
        numbers = word_of_tokens(row, own)[:length]
        word += [None if k is None else own[k] for k in numbers]
        is_first += [k is not None and k not in numbers[:i] for i, k in enumerate(numbers)]
    answer = np.repeat(np.arange(len(pieces)), lengths)
    place = np.arange(len(answer)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return ReadTokens(given.test.ids, pieces, answer, place, word, np.array(is_first, dtype=np.bool_))


def impacts_of(network: Network, inputs: Tensor, mask: FloatArray, read: ReadTokens) -> tuple[FloatArray, FloatArray]:
    """Confidences `(n,)` and impacts `(t,)` of one network.

    Args:
        network: trained.
        inputs: `(n, places, features)` standardised, 0 after an answer's end.
        mask: `(features,)` in the place of those of the masked token.
        read: the t tokens.
    """
    confidence, impact = probabilities(network, inputs), np.zeros(len(read.answer))
    value = torch.as_tensor(mask, dtype=inputs.dtype, device=inputs.device)
    for place in range(inputs.shape[1]):
        at = np.flatnonzero(read.place == place)
        if len(at):
            masked = inputs[torch.from_numpy(read.answer[at]).to(inputs.device)]  # a copy
            masked[:, place] = value
            impact[at] = np.abs(confidence[read.answer[at]] - probabilities(network, masked))
    return confidence, impact


# --- the table --------------------------------------------------------------------------------------------------------


def measures_of(read: ReadTokens, confidence: FloatArray, impact: FloatArray) -> Measures:
    """Means by class, differences with their controls, a verdict, and some answers coloured.

    Args:
        read: the t tokens of n answers.
        confidence: `(seeds, n)`.
        impact: `(seeds, t)`.
    """
    own = read.tokens(impact)
    rest, both = own.take(own.place > 0), own.has_both
    compared = [
        _comparison(ALL, own, contrasts.over_all(own)),
        _comparison(WITHIN, own.take(both[own.answer]), contrasts.within_answers(own)),
        _comparison(REST, rest.take(rest.has_both[rest.answer]), contrasts.within_answers(rest)),
        _comparison(PLACES, own, contrasts.within_places(own)),
    ]
    if not read.is_first[[word is not None for word in read.word]].all():
        first = own.take(read.is_first[np.isin(read.kind, ("content", "function"))])
        compared.append(_comparison(SPLIT, first, contrasts.within_places(first)))
    rows = _rows(read, impact, compared) if both.any() else []
    return Measures(
        QUESTION, answer_of(compared, int(both.sum()), len(read.ids)), COLUMNS, rows, "difference",
        published="token_masking.csv", notes=_notes(read, own, compared),
        strips=_strips(read, both, confidence, impact),
    )  # fmt: skip


class Contrast(NamedTuple):
    """Comparison of content words with function words."""

    what: str
    tokens: int
    difference: Effect | None
    """Mean impact of the former less that of the latter; None where it can't be known."""
    lift: Effect | None
    """The same over that of the latter."""


def _comparison(what: str, own: Impacts, pair: tuple[Linear, Linear] | None) -> Contrast:
    if pair is None:
        return Contrast(what, len(own.answer), None, None)
    difference, floor = pair
    ratio = contrasts.lift(difference, floor)
    lift = None if ratio is None else contrasts.estimate(ratio)
    return Contrast(what, len(own.answer), contrasts.estimate(difference), lift)


def _rows(read: ReadTokens, impact: FloatArray, compared: Sequence[Contrast]) -> list[_Row]:
    """Rows of the classes of words, then of the comparisons."""

    def values(key: str, found: Effect) -> _Row:
        return {key: found.value, f"{key}_low": found.low, f"{key}_high": found.high}

    rows: list[_Row] = []
    for kind, name in CLASSES.items():
        of = np.flatnonzero(read.kind == kind)
        content = np.ones(len(of), dtype=np.bool_)
        some = Impacts(read.answer[of], read.place[of], read.place[of], content, impact[:, of], len(read.ids))
        mean = contrasts.mean_impact(some)
        if mean is not None:
            found = values("impact", contrasts.estimate(mean))
            rows.append({"what": name, "answers": mean.answers, "tokens": len(of), **found})
    for what, count, difference, lift in compared:
        row: _Row = {"what": what, "tokens": count}
        if difference is not None:
            row |= {"answers": difference.counted, "p": difference.p, **values("difference", difference)}
        rows.append(row | ({} if lift is None else values("lift", lift)))
    return rows


def _notes(read: ReadTokens, own: Impacts, compared: Sequence[Contrast]) -> list[str]:
    try:
        hanta = f"HanTa {version('HanTa')}"
    except PackageNotFoundError:
        hanta = "HanTa"
    content, function = (own.sums(of.astype(np.float64)) > 0 for of in (own.content, ~own.content))
    without = {
        "no function word": content & ~function,
        "no content word": ~content & function,
        "neither": ~content & ~function,
    }
    counts = [f"{int((content & function).sum()):,} of {len(read.ids):,} answers have content and function words"]
    counts += [f"{int(answers.sum()):,} have {what}" for what, answers in without.items() if answers.any()]
    notes = [
        (
            "Impact: percentage points by which the confidence moves, up or down, when a token is masked, mean over"
            " tokens and over the networks of the seeds, with 95 % intervals for other answers and other seeds. Lift:"
            " difference over the function words' mean."
        ),
        (
            "All tokens: means over all, as published. Within answers: each answer with both kinds counts once (paired"
            " t test). First token left out: the same without the first token of each answer. Same places: in the same"
            " answer, with an effect of the place in answers of the same length taken out. Answers of a difference are"
            " counted by their weight: as many that weigh the same tell as much."
        ),
        f"Words are tagged by a program ({hanta}, trained on British English), which errs. {', '.join(counts)}.",
    ]
    if any(each.what == PLACES and each.difference is None for each in compared):
        notes.append(f"Same places: not known, {FEW}.")
    if any(each.what == SPLIT for each in compared):
        notes.append("Words once: of a word of several tokens only the first counts.")
    return notes


# --- the verdict ------------------------------------------------------------------------------------------------------


def answer_of(compared: Sequence[Contrast], both: int, n: int) -> str:
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
    _, within, rest, places, *split = (each.difference for each in compared)
    if both < contrasts.MIN_ANSWERS or within is None or within.p is None:
        have = "answer has" if both == 1 else "answers have"
        return (
            f"It can't be said: {both} of {n:,} {have} both a content word and a function word; intervals need"
            f" {contrasts.MIN_ANSWERS}."
        )
    more = f"move it {'more' if within.value > 0 else 'less'}"
    if within.low == within.value == within.high == 0:
        lead = "Nothing shows: masking any token of an answer moves it alike, which tells nothing of words."
    elif not _sign(within):
        lead = "Nothing shows: within answers no difference is significant."
        if _sign(places):
            more = "more" if _sign(places) > 0 else "less"
            lead += f" With places taken out they move it {more}, so that places hide a difference."
    elif _sign(within) == _sign(places):
        lead = f"Content words {more}, also with their places taken out."
    elif places is None:
        lead = f"Within an answer content words {more}; at the same places it can't be told: {FEW}."
    else:
        end = "it is the other way round" if _sign(places) else "no difference is significant"
        lead = f"Within an answer content words {more}, but with places taken out {end}: it may be due to places."
    sentences = [lead]
    if compared[0].lift is not None:
        sentences.append(f"Over all tokens, as published, the lift is {_told(compared[0].lift, '%', 0)}.")
    sentences.append(f"Within the {both:,} answers that have both the difference is {_told(within)}.")
    if places is not None:
        sentences.append(f"With places taken out it is {_told(places)}.")
    elif rest is not None:
        sentences.append(f"Without the first token of each answer it is {_told(rest)}.")
    if split and _sign(places) and _sign(places) != _sign(split[0]):
        known = "can't be known" if split[0] is None else f"is {_told(split[0])}"
        sentences.append(f"Of the first tokens of words alone it {known}: how words are split may explain it.")
    return " ".join(sentences)


def _sign(found: Effect | None) -> float:
    """1 or -1 where an estimate is significant at 5 %, else 0."""
    return float(np.sign(found.value)) if found is not None and found.p is not None and found.p < _ALPHA else 0.0


def _told(found: Effect, unit: str = "points", decimals: int = 2) -> str:
    def number(value: float, sign: str = "") -> str:
        text = f"{100 * value:{sign}.{decimals}f}"
        return (text if text.strip("+-0.") else text.lstrip("+-")).replace("-", "\u2212")

    value = f"{number(found.value, '+')} {unit}"
    if found.low is None or found.high is None or found.p is None:
        return f"{value}, without interval"
    p = "p <0.001" if found.p < 0.0005 else f"p {found.p:.3f}"  # noqa: PLR2004 - would be printed as 0.000
    return f"{value} ({number(found.low)} to {number(found.high)}), {p}"


# --- coloured answers -------------------------------------------------------------------------------------------------


def _strips(read: ReadTokens, both: BoolArray, confidence: FloatArray, impact: FloatArray) -> Strips:
    """Some answers, drawn without a look at their numbers, from those with both kinds of words if there are any."""
    among = np.flatnonzero(both) if both.any() else np.arange(len(both))
    count = min(STRIPS, len(among))
    mean = 100 * impact.mean(axis=0)
    strips = []
    for row in np.sort(np.random.default_rng(STRIPS_SEED).choice(among, count, replace=False)).tolist():
        at = np.flatnonzero(read.answer == row)
        found = [Piece(text, told="not read by the network") for text in read.pieces[row]]
        for k, token in enumerate(at.tolist()):
            word = read.word[token]
            mark = word.kind if word and word.kind in {"content", "function"} else ""
            told = f"{CLASSES[word.kind].removesuffix('s')} ({word.tag or 'not tagged'})" if word else "no word"
            found[k] = Piece(read.pieces[row][k], float(mean[token]), mark, told)
        kinds = Counter(read.kind[at].tolist())
        counts = ", ".join(f"{kinds[kind]} {kind}" for kind in CLASSES if kinds[kind])
        title = f"confidence {confidence[:, row].mean():.2f}; tokens: {counts}"
        strips.append(Strip(read.ids[row], found, title))
    which = "that have content and function words" if both.any() else "of the test"
    return Strips(
        "impact in percentage points",
        f"{count} of the {len(among):,} answers {which}, drawn with a fixed seed and not by their numbers. The number"
        " of a token is by how much the confidence moves, up or down, when that token alone is masked.",
        strips,
        {"content": "content word", "function": "function word"},
    )
