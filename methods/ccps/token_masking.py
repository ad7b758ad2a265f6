"""Analyses `tokens` and `tokens-raw` of CCPS: change of the confidence in an open answer when one token is masked.

They follow the paper's appendix on token importance (arXiv:2505.21772). The features of one token are set to 0, and the
network is evaluated again. The absolute change of its confidence is the token's impact, a mean over the run's networks,
one per seed. Impacts of content words and function words are compared.

`tokens` sets standardised features to 0, so that a masked token looks like an average token of train, and like padding.
The paper doesn't say whether it masks before or after standardising, so `tokens-raw` sets the raw features to 0.
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
from methods.ccps import impact_contrasts
from methods.ccps.analyses import prepare, require_ccps
from methods.ccps.impact_contrasts import Effect, LinearisedEstimate, TokenImpacts
from methods.ccps.networks import Network, probabilities
from methods.ccps.word_classes import Word, WordClass, align_tokens, tag_words, tagger

N_STRIPS, STRIPS_SEED = 20, 0
"""Number of answers that are shown with coloured tokens, and the seed of their random choice."""
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
ALL, WITHIN, WITHOUT_FIRST, SAME_PLACES, WORDS_ONCE = (
    f"content \u2212 function, {how}"
    for how in ("all tokens", "within answers", "first token left out", "same places", "same places, words once")
)
TOO_FEW = "too few answers have words of one kind at places where others of the same length have the other"
"""Message shown if too few answers allow a comparison of words at the same token positions."""
_ALPHA = 0.05
_Row = dict[str, str | float | None]


@dataclass(frozen=True, eq=False)
class TokenWords:
    """Answer tokens that the networks read, with their words; the t tokens of all n answers are concatenated."""

    ids: Sequence[str]
    """Question ids of the n answers."""
    pieces: Sequence[Sequence[str]]
    """Text of every token of each answer."""
    answer: IntArray
    """`(t,)` index of each token's answer."""
    place: IntArray
    """`(t,)` position of each token in its answer."""
    word: Sequence[Word | None]
    """Word of each token; None for a token without a word."""
    is_first: BoolArray
    """`(t,)` whether the token is the first of its word."""

    @cached_property
    def kind(self) -> np.ndarray[Any, np.dtype[np.str_]]:
        """`(t,)` class of each token's word, e.g. "content"; "other" for a token without a word."""
        return np.array([word.kind if word else "other" for word in self.word], dtype=np.str_)

    def tokens(self, impact: FloatArray) -> TokenImpacts:
        """Return the content and function tokens with their impacts, given the impacts of all tokens, `(seeds, t)`."""
        kind, lengths = self.kind, np.bincount(self.answer, minlength=len(self.ids))
        all_tokens = TokenImpacts(
            self.answer, self.place, lengths[self.answer], kind == "content", impact, len(self.ids)
        )
        return all_tokens.take((kind == "content") | (kind == "function"))


def tokens(data: AnalysisInput) -> Measures:
    """Impact of single tokens of open answers on the confidence, by masking them (docs/methods.md §5.5)."""
    return _mask_tokens(data, is_raw=False)


def tokens_raw(data: AnalysisInput) -> Measures:
    """Impact of single tokens as in `tokens`, but with raw features of a masked token set to 0, not to train's mean."""
    return _mask_tokens(data, is_raw=True)


def _mask_tokens(data: AnalysisInput, *, is_raw: bool) -> Measures:
    """Train the networks of a run's seeds, mask each token of the test answers in turn, and report the impacts."""
    if next(iter(data.contexts.values())).format is not Format.OPEN:
        raise UserError(
            "token masking needs open answers: here each answer is a single token, without which nothing is left; name"
            " an open task, e.g. --task atlas-oe"
        )
    tagged = read_tokens(data, require_ccps(data.method).max_tokens)
    method, splits, inputs = prepare(data)
    mask = -method.mean_ / method.scale_ if is_raw else np.zeros_like(method.mean_)
    results = []
    for seed, ctx in data.contexts.items():
        data.say(f"{method.name}: training with seed {seed}, then masking {len(tagged.answer):,} tokens")
        results.append(token_impacts(method.train_network(splits, ctx), inputs, mask, tagged))
    confidence, impact = zip(*results, strict=True)
    return build_measures(tagged, np.stack(confidence), np.stack(impact))


# --- tokens and their words -------------------------------------------------------------------------------------------


def read_tokens(data: AnalysisInput, limit: int) -> TokenWords:
    """Collect the first `limit` tokens of each test answer, which the networks read, with their words.

    Raises:
        UserError: the tagger is not installed.
    """
    tag = tagger()
    pieces, lengths = data.pieces(data.test), np.minimum(data.test[TokenIds(Of.ANSWER)].lengths, limit)
    words = {text: tag_words(text, tag) for text in dict.fromkeys("".join(row) for row in pieces)}
    word: list[Word | None] = []
    is_first: list[bool] = []
    for row, length in zip(pieces, lengths, strict=True):
        text_words = words["".join(row)]
        numbers = align_tokens(row, text_words)[:length]
        word += [None if k is None else text_words[k] for k in numbers]
        is_first += [k is not None and k not in numbers[:i] for i, k in enumerate(numbers)]
    answer = np.repeat(np.arange(len(pieces)), lengths)
    place = np.arange(len(answer)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return TokenWords(data.test.ids, pieces, answer, place, word, np.array(is_first, dtype=np.bool_))


def token_impacts(network: Network, x: Tensor, mask: FloatArray, tagged: TokenWords) -> tuple[FloatArray, FloatArray]:
    """Return one network's confidences `(n,)`, and the impact `(t,)` of masking each token on its answer's confidence.

    Args:
        network: a trained network.
        x: `(n, places, features)` standardised features, 0 on padding.
        mask: `(features,)` values that replace the features of the masked token.
        tagged: the t tokens of the n answers.
    """
    confidence, impact = probabilities(network, x), np.zeros(len(tagged.answer))
    value = torch.as_tensor(mask, dtype=x.dtype, device=x.device)
    for place in range(x.shape[1]):
        rows = np.flatnonzero(tagged.place == place)
        if len(rows):
            masked = x[torch.from_numpy(tagged.answer[rows]).to(x.device)]  # a copy
            masked[:, place] = value
            impact[rows] = np.abs(confidence[tagged.answer[rows]] - probabilities(network, masked))
    return confidence, impact


# --- the table --------------------------------------------------------------------------------------------------------


def build_measures(tagged: TokenWords, confidence: FloatArray, impact: FloatArray) -> Measures:
    """Build the analysis' table, verdict and coloured answers from the impacts of tokens.

    Args:
        tagged: the t tokens of n answers.
        confidence: `(seeds, n)` confidences in the answers.
        impact: `(seeds, t)` impacts of the tokens.
    """
    impacts = tagged.tokens(impact)
    later, both = impacts.take(impacts.place > 0), impacts.has_both
    compared = [
        _contrast(ALL, impacts, impact_contrasts.over_all(impacts)),
        _contrast(WITHIN, impacts.take(both[impacts.answer]), impact_contrasts.within_answers(impacts)),
        _contrast(WITHOUT_FIRST, later.take(later.has_both[later.answer]), impact_contrasts.within_answers(later)),
        _contrast(SAME_PLACES, impacts, impact_contrasts.within_places(impacts)),
    ]
    if not tagged.is_first[[word is not None for word in tagged.word]].all():
        first_tokens = impacts.take(tagged.is_first[np.isin(tagged.kind, ("content", "function"))])
        compared.append(_contrast(WORDS_ONCE, first_tokens, impact_contrasts.within_places(first_tokens)))
    rows = _build_rows(tagged, impact, compared) if both.any() else []
    return Measures(
        QUESTION, build_answer(compared, int(both.sum()), len(tagged.ids)), COLUMNS, rows, "difference",
        published="token_masking.csv", notes=_build_notes(tagged, impacts, compared),
        strips=_build_strips(tagged, both, confidence, impact),
    )  # fmt: skip


class Contrast(NamedTuple):
    """Comparison of the impacts of content words with those of function words, by one estimator."""

    what: str
    tokens: int
    difference: Effect | None
    """Mean impact of content words minus that of function words; None if the data don't identify it."""
    lift: Effect | None
    """The difference divided by the mean impact of function words."""


def _contrast(
    what: str, impacts: TokenImpacts, estimates: tuple[LinearisedEstimate, LinearisedEstimate] | None
) -> Contrast:
    if estimates is None:
        return Contrast(what, len(impacts.answer), None, None)
    difference, floor = estimates
    ratio = impact_contrasts.lift(difference, floor)
    lift = None if ratio is None else impact_contrasts.estimate(ratio)
    return Contrast(what, len(impacts.answer), impact_contrasts.estimate(difference), lift)


def _build_rows(tagged: TokenWords, impact: FloatArray, compared: Sequence[Contrast]) -> list[_Row]:
    """Build the table rows: first the word classes, then the comparisons of content with function words."""

    def values(key: str, effect: Effect) -> _Row:
        return {key: effect.value, f"{key}_low": effect.low, f"{key}_high": effect.high}

    rows: list[_Row] = []
    for kind, name in CLASSES.items():
        i = np.flatnonzero(tagged.kind == kind)
        content = np.ones(len(i), dtype=np.bool_)
        group = TokenImpacts(tagged.answer[i], tagged.place[i], tagged.place[i], content, impact[:, i], len(tagged.ids))
        mean = impact_contrasts.mean_impact(group)
        if mean is not None:
            effect = values("impact", impact_contrasts.estimate(mean))
            rows.append({"what": name, "answers": mean.answers, "tokens": len(i), **effect})
    for what, count, difference, lift in compared:
        row: _Row = {"what": what, "tokens": count}
        if difference is not None:
            row |= {"answers": difference.counted, "p": difference.p, **values("difference", difference)}
        rows.append(row | ({} if lift is None else values("lift", lift)))
    return rows


def _build_notes(tagged: TokenWords, impacts: TokenImpacts, compared: Sequence[Contrast]) -> list[str]:
    try:
        hanta = f"HanTa {version('HanTa')}"
    except PackageNotFoundError:
        hanta = "HanTa"
    content, function = (impacts.sums(mask.astype(np.float64)) > 0 for mask in (impacts.content, ~impacts.content))
    without = {
        "no function word": content & ~function,
        "no content word": ~content & function,
        "neither": ~content & ~function,
    }
    counts = [f"{int((content & function).sum()):,} of {len(tagged.ids):,} answers have content and function words"]
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
    if any(contrast.what == SAME_PLACES and contrast.difference is None for contrast in compared):
        notes.append(f"Same places: not known, {TOO_FEW}.")
    if any(contrast.what == WORDS_ONCE for contrast in compared):
        notes.append("Words once: of a word of several tokens only the first counts.")
    return notes


# --- the verdict ------------------------------------------------------------------------------------------------------


def build_answer(compared: Sequence[Contrast], both: int, n: int) -> str:
    """Build the verdict in sentences on the comparisons over all tokens, within answers, and at the same places.

    The verdict says that content words matter more only if the comparisons within answers and at the same places are
    both significant at 5 %. Together they are a test at 5 % (an intersection-union test; Berger, Technometrics 1982).

    Args:
        compared: the comparisons, in this order: over all tokens, within answers, within answers without first tokens,
            at the same places, and at the same places by the first token of each word. The last may be missing.
        both: number of answers with both kinds of words.
        n: number of all answers.
    """
    if not both:
        return f"It can't be said: none of {n:,} answers has both a content word and a function word."
    _, within, rest, places, *by_word = (contrast.difference for contrast in compared)
    if both < impact_contrasts.MIN_ANSWERS or within is None or within.p is None:
        have = "answer has" if both == 1 else "answers have"
        return (
            f"It can't be said: {both} of {n:,} {have} both a content word and a function word; intervals need"
            f" {impact_contrasts.MIN_ANSWERS}."
        )
    more = f"move it {'more' if within.value > 0 else 'less'}"
    if within.low == within.value == within.high == 0:
        lead = "Nothing shows: masking any token of an answer moves it alike, which tells nothing of words."
    elif not _significant_sign(within):
        lead = "Nothing shows: within answers no difference is significant."
        if _significant_sign(places):
            more = "more" if _significant_sign(places) > 0 else "less"
            lead += f" With places taken out they move it {more}, so that places hide a difference."
    elif _significant_sign(within) == _significant_sign(places):
        lead = f"Content words {more}, also with their places taken out."
    elif places is None:
        lead = f"Within an answer content words {more}; at the same places it can't be told: {TOO_FEW}."
    else:
        end = "it is the other way round" if _significant_sign(places) else "no difference is significant"
        lead = f"Within an answer content words {more}, but with places taken out {end}: it may be due to places."
    sentences = [lead]
    if compared[0].lift is not None:
        sentences.append(f"Over all tokens, as published, the lift is {_format_effect(compared[0].lift, '%', 0)}.")
    sentences.append(f"Within the {both:,} answers that have both the difference is {_format_effect(within)}.")
    if places is not None:
        sentences.append(f"With places taken out it is {_format_effect(places)}.")
    elif rest is not None:
        sentences.append(f"Without the first token of each answer it is {_format_effect(rest)}.")
    if by_word and _significant_sign(places) and _significant_sign(places) != _significant_sign(by_word[0]):
        result = "can't be known" if by_word[0] is None else f"is {_format_effect(by_word[0])}"
        sentences.append(f"Of the first tokens of words alone it {result}: how words are split may explain it.")
    return " ".join(sentences)


def _significant_sign(effect: Effect | None) -> float:
    """Return the sign of an estimate if it is significant at 5 %, else 0."""
    return float(np.sign(effect.value)) if effect is not None and effect.p is not None and effect.p < _ALPHA else 0.0


def _format_effect(effect: Effect, unit: str = "points", decimals: int = 2) -> str:
    def number(value: float, sign: str = "") -> str:
        text = f"{100 * value:{sign}.{decimals}f}"
        return (text if text.strip("+-0.") else text.lstrip("+-")).replace("-", "\u2212")

    value = f"{number(effect.value, '+')} {unit}"
    if effect.low is None or effect.high is None or effect.p is None:
        return f"{value}, without interval"
    p = "p <0.001" if effect.p < 0.0005 else f"p {effect.p:.3f}"  # would be printed as 0.000
    return f"{value} ({number(effect.low)} to {number(effect.high)}), {p}"


# --- coloured answers -------------------------------------------------------------------------------------------------


def _build_strips(tagged: TokenWords, both: BoolArray, confidence: FloatArray, impact: FloatArray) -> Strips:
    """Build strips that show random answers, with tokens coloured by impact.

    Only answers with both content and function words are chosen, if there are any.
    """
    pool = np.flatnonzero(both) if both.any() else np.arange(len(both))
    count = min(N_STRIPS, len(pool))
    mean = 100 * impact.mean(axis=0)
    strips = []
    for row in np.sort(np.random.default_rng(STRIPS_SEED).choice(pool, count, replace=False)).tolist():
        token_rows = np.flatnonzero(tagged.answer == row)
        pieces = [Piece(text, told="not read by the network") for text in tagged.pieces[row]]
        for k, token in enumerate(token_rows.tolist()):
            word = tagged.word[token]
            mark = word.kind if word and word.kind in {"content", "function"} else ""
            label = f"{CLASSES[word.kind].removesuffix('s')} ({word.tag or 'not tagged'})" if word else "no word"
            pieces[k] = Piece(tagged.pieces[row][k], float(mean[token]), mark, label)
        kinds = Counter(tagged.kind[token_rows].tolist())
        counts = ", ".join(f"{kinds[kind]} {kind}" for kind in CLASSES if kinds[kind])
        title = f"confidence {confidence[:, row].mean():.2f}; tokens: {counts}"
        strips.append(Strip(tagged.ids[row], pieces, title))
    which = "that have content and function words" if both.any() else "of the test"
    return Strips(
        "impact in percentage points",
        f"{count} of the {len(pool):,} answers {which}, drawn with a fixed seed and not by their numbers. The number"
        " of a token is by how much the confidence moves, up or down, when that token alone is masked.",
        strips,
        {"content": "content word", "function": "function word"},
    )
