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
from typing import Any

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
from methods.ccps.analyses import Material, material_of, required
from methods.ccps.contrasts import Estimate, Linear, Tokens
from methods.ccps.networks import Network, probabilities
from methods.ccps.tagging import Word, WordClass, tagger, word_of_tokens, words_of
from methods.ccps.verdict import FEW, Compared, answer_of

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
    for how in (
        "all tokens",
        "within answers",
        "first token left out",
        "same places",
        "same places, words once",
    )
)


@dataclass(frozen=True, eq=False)
class Read:
    """Answer tokens that the networks read, one answer after the other, t in all."""

    ids: Sequence[str]
    """Questions of the n answers."""
    pieces: Sequence[Sequence[str]]
    """Texts of all tokens of each answer."""
    words: Sequence[Sequence[Word]]
    """Words of each answer."""
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

    def tokens(self, impact: FloatArray) -> Tokens:
        """Tokens of content and function words with their impacts `(seeds, t)`."""
        kind, lengths = self.kind, np.bincount(self.answer, minlength=len(self.ids))
        every = Tokens(self.answer, self.place, lengths[self.answer], kind == "content", impact, len(self.ids))
        return every.take((kind == "content") | (kind == "function"))


def tokens(given: AnalysisInput) -> Measures:
    """Which words of an open answer move the confidence: one token masked at a time (docs/methods.md §5.5)."""
    return _analysed(given, is_raw=False)


def tokens_raw(given: AnalysisInput) -> Measures:
    """The same, masking a token by raw features of 0 instead of the mean of train."""
    return _analysed(given, is_raw=True)


def _analysed(given: AnalysisInput, *, is_raw: bool) -> Measures:
    if next(iter(given.contexts.values())).format is not Format.OPEN:
        raise UserError(
            "token masking needs open answers: here each answer is a single token, without which nothing is left; name"
            " an open task, e.g. --task atlas-oe"
        )
    read = read_tokens(given, required(given.method).max_tokens)
    confidence, impact = _impacts(given, material_of(given), read, is_raw=is_raw)
    return measures_of(read, confidence, impact)


# --- tokens and their words -------------------------------------------------------------------------------------------


def read_tokens(given: AnalysisInput, limit: int) -> Read:
    """Tokens of the test answers that the networks read, with their words.

    Raises:
        UserError: there is no tagger.
    """
    tag = tagger()
    pieces, lengths = given.pieces(given.test), np.minimum(given.test[TokenIds(Of.ANSWER)].lengths, limit)
    words = {text: words_of(text, tag) for text in dict.fromkeys("".join(row) for row in pieces)}
    of_answer = [words["".join(row)] for row in pieces]
    word: list[Word | None] = []
    is_first: list[bool] = []
    for row, own, length in zip(pieces, of_answer, lengths, strict=True):
        numbers = word_of_tokens(row, own)[:length]
        word += [None if k is None else own[k] for k in numbers]
        is_first += [k is not None and k not in numbers[:i] for i, k in enumerate(numbers)]
    answer = np.repeat(np.arange(len(pieces)), lengths)
    place = np.arange(len(answer)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return Read(given.test.ids, pieces, of_answer, answer, place, word, np.array(is_first, dtype=np.bool_))


# --- impacts ----------------------------------------------------------------------------------------------------------


def _impacts(given: AnalysisInput, material: Material, read: Read, *, is_raw: bool) -> tuple[FloatArray, FloatArray]:
    """Confidences `(seeds, n)` and impacts `(seeds, t)` of the networks that a run trains."""
    method, splits, inputs = material
    mask = -method.mean_ / method.scale_ if is_raw else np.zeros_like(method.mean_)
    found = []
    for seed, each in given.contexts.items():
        given.say(f"{method.name}: training with seed {seed}, then masking {len(read.answer):,} tokens")
        found.append(impacts_of(method.trained(splits, each), inputs, mask, read))
    confidence, impact = zip(*found, strict=True)
    return np.stack(confidence), np.stack(impact)


def impacts_of(network: Network, inputs: Tensor, mask: FloatArray, read: Read) -> tuple[FloatArray, FloatArray]:
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


def measures_of(read: Read, confidence: FloatArray, impact: FloatArray) -> Measures:
    """Means by class, differences with their controls, a verdict, and some answers coloured.

    Args:
        read: the t tokens of n answers.
        confidence: `(seeds, n)`.
        impact: `(seeds, t)`.
    """
    own = read.tokens(impact)
    rest = own.take(own.place > 0)
    compared = [
        _comparison(ALL, own, contrasts.over_all(own)),
        _comparison(WITHIN, own.take(own.has_both[own.answer]), contrasts.within_answers(own)),
        _comparison(REST, rest.take(rest.has_both[rest.answer]), contrasts.within_answers(rest)),
        _comparison(PLACES, own, contrasts.within_places(own)),
    ]
    if not read.is_first[[word is not None for word in read.word]].all():
        first = own.take(read.is_first[np.isin(read.kind, ("content", "function"))])
        compared.append(_comparison(SPLIT, first, contrasts.within_places(first)))
    rows = [*_class_rows(read, impact), *map(_row_of, compared)] if own.has_both.any() else []
    return Measures(
        QUESTION, answer_of(compared, int(own.has_both.sum()), len(read.ids)), COLUMNS, rows, "difference",
        published="token_masking.csv", notes=_notes(read, own, compared), strips=_strips(read, own, confidence, impact),
    )  # fmt: skip


def _comparison(what: str, own: Tokens, pair: tuple[Linear, Linear] | None) -> Compared:
    if pair is None:
        return Compared(what, len(own.answer), None, None)
    difference, floor = pair
    ratio = contrasts.lift(difference, floor)
    lift = None if ratio is None else contrasts.estimate(ratio)
    return Compared(what, len(own.answer), contrasts.estimate(difference), lift)


def _class_rows(read: Read, impact: FloatArray) -> list[dict[str, str | float | None]]:
    rows: list[dict[str, str | float | None]] = []
    for kind, name in CLASSES.items():
        of = np.flatnonzero(read.kind == kind)
        content = np.ones(len(of), dtype=np.bool_)
        some = Tokens(read.answer[of], read.place[of], read.place[of], content, impact[:, of], len(read.ids))
        mean = contrasts.mean_impact(some)
        if mean is not None:
            found = contrasts.estimate(mean)
            rows.append({"what": name, "answers": mean.answers, "tokens": len(of), **_values("impact", found)})
    return rows


def _row_of(compared: Compared) -> dict[str, str | float | None]:
    found = compared.difference
    if found is None:
        return {"what": compared.what, "tokens": compared.tokens}
    return {
        "what": compared.what, "answers": found.counted, "tokens": compared.tokens, "p": found.p,
        **_values("difference", found), **({} if compared.lift is None else _values("lift", compared.lift)),
    }  # fmt: skip


def _values(key: str, found: Estimate) -> dict[str, str | float | None]:
    return {key: found.value, f"{key}_low": found.low, f"{key}_high": found.high}


def _notes(read: Read, own: Tokens, compared: Sequence[Compared]) -> list[str]:
    try:
        hanta = f"HanTa {version('HanTa')}"
    except PackageNotFoundError:
        hanta = "HanTa"
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
        f"Words are tagged by a program ({hanta}, trained on British English), which errs. {_left_out(read, own)}",
    ]
    if any(each.what == PLACES and each.difference is None for each in compared):
        notes.append(f"Same places: not known, {FEW}.")
    if any(each.what == SPLIT for each in compared):
        notes.append("Words once: of a word of several tokens only the first counts.")
    return notes


def _left_out(read: Read, own: Tokens) -> str:
    content, function = (own.sums(of.astype(np.float64)) > 0 for of in (own.content, ~own.content))
    counts = {
        "no function word": int((content & ~function).sum()),
        "no content word": int((~content & function).sum()),
        "neither": int((~content & ~function).sum()),
    }
    left = ", ".join(f"{count:,} have {what}" for what, count in counts.items() if count)
    both = f"{int(own.has_both.sum()):,} of {len(read.ids):,} answers have content and function words"
    return f"{both}, {left}." if left else f"{both}."


# --- coloured answers -------------------------------------------------------------------------------------------------


def _strips(read: Read, own: Tokens, confidence: FloatArray, impact: FloatArray) -> Strips:
    """Some answers, drawn without a look at their numbers, from those with both kinds of words if there are any."""
    among = np.flatnonzero(own.has_both) if own.has_both.any() else np.arange(len(read.ids))
    count = min(STRIPS, len(among))
    drawn = np.sort(np.random.default_rng(STRIPS_SEED).choice(among, count, replace=False))
    mean = 100 * impact.mean(axis=0)
    which = "that have content and function words" if own.has_both.any() else "of the test"
    return Strips(
        "impact in percentage points",
        f"{count} of the {len(among):,} answers {which}, drawn with a fixed seed and not by their numbers. The number"
        " of a token is by how much the confidence moves, up or down, when that token alone is masked.",
        [_strip(read, row, float(confidence[:, row].mean()), mean) for row in drawn.tolist()],
        {"content": "content word", "function": "function word"},
    )


def _strip(read: Read, row: int, confidence: float, mean: FloatArray) -> Strip:
    at = np.flatnonzero(read.answer == row)
    found = []
    for k, text in enumerate(read.pieces[row]):
        if k >= len(at):
            found.append(Piece(text, told="not read by the network"))
            continue
        word = read.word[int(at[k])]
        mark = word.kind if word and word.kind in {"content", "function"} else ""
        told = f"{CLASSES[word.kind].removesuffix('s')} ({word.tag or 'not tagged'})" if word else "no word"
        found.append(Piece(text, float(mean[at[k]]), mark, told))
    kinds = Counter(read.kind[at].tolist())
    told_kinds = ", ".join(f"{kinds[kind]} {kind}" for kind in CLASSES if kinds[kind])
    return Strip(read.ids[row], found, f"confidence {confidence:.2f}; tokens: {told_kinds}")
