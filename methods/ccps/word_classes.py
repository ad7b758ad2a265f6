"""Words of an English text with their word classes, and the alignment of tokens to words.

Words are tagged by HanTa (Wartena, KONVENS 2019), a hidden Markov model over morphemes and words that was trained on
the British National Corpus, with that corpus's tags (CLAWS C5). Content words are nouns, proper nouns, main verbs,
adjectives and adverbs; function words are articles, determiners, pronouns, prepositions, particles, conjunctions,
negation, modal verbs, and be, do and have, whose tags don't distinguish main verbs from auxiliaries. Numerals are
neither. Nor are punctuation, symbols, single letters, interjections, and words that are not English.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise
from typing import Any, Literal, NamedTuple

from bench.api import UserError

WordClass = Literal["content", "function", "numeral", "other"]
Tag = Callable[[Sequence[str]], Sequence[str]]
"""Function from the words of a text to their grammatical tags."""

_CONTENT = "NN NN0 NN1 NN2 NP0 AJ0 AJC AJS AV0 VVB VVD VVG VVI VVN VVZ"
_FUNCTION = (
    "AT0 AVP AVQ CJC CJS CJT DPS DT0 DTQ EX0 IN PNI PNP PNQ PNX POS PRF PRP TO0 XX0 VM0"
    " VBB VBD VBG VBI VBN VBZ VDB VDD VDG VDI VDN VDZ VHB VHD VHG VHI VHN VHZ"
)
_NUMERAL = "CRD ORD"
_OTHER = "ITJ PUL PUN PUQ PUR UNC ZZ0 !!! UNKNOWN"
CLASS_OF_TAG: dict[str, WordClass] = {
    **dict.fromkeys(_CONTENT.split(), "content"),
    **dict.fromkeys(_FUNCTION.split(), "function"),
    **dict.fromkeys(_NUMERAL.split(), "numeral"),
    **dict.fromkeys(_OTHER.split(), "other"),
}
"""Grammatical tag -> class of its words. Tags are those of CLAWS C5, and four more of HanTa's English model (NN, IN,
!!!, UNKNOWN)."""

_WORD = re.compile(r"\d+(?:[.,:/]\d+)*|[^\W_]+(?:[-'\u2019][^\W_]+)*|[^\w\s]|_")
_CLITIC = re.compile(r"(?<=\w)(?:n['\u2019]t|['\u2019](?:s|re|ve|ll|d|m))$", re.IGNORECASE)
_CANNOT = re.compile(r"(?<=^can)not$", re.IGNORECASE)
_ENGLISH = re.compile(r"[0-9A-Za-z\u00c0-\u024f]")
"""Matches a letter or digit, of which an English word has at least one. The tagger takes words of other scripts for
names."""
_LONGEST = 60
"""Largest length in characters of a word that is tagged. Tagging time grows with the square, and no English word is
longer."""
_MODEL = "morphmodel_en.pgz"


class Word(NamedTuple):
    """A word of a text: where it is, and its grammatical tag."""

    start: int
    """Index of the word's first character in the text."""
    end: int
    """Index after the word's last character in the text."""
    tag: str
    """Tag of CLAWS C5; empty if the word was not tagged."""
    kind: WordClass


def tagger() -> Tag:
    """Load HanTa's tagger of English.

    Raises:
        UserError: HanTa isn't installed.
    """
    try:
        from HanTa import HanoverTagger
    except ImportError as error:
        raise UserError(
            "the words of answers are tagged by HanTa, which isn't installed: pip install 'confbench[analysis]'"
        ) from error
    model = _load_tagger(HanoverTagger.HanoverTagger)
    return lambda words: [str(tag) for tag in model.tag_sent(list(words), taglevel=0)]


@cache
def _load_tagger(kind: Callable[[str], Any]) -> Any:
    return kind(_MODEL)


def tag_words(text: str, tag: Tag) -> list[Word]:
    """Split a text into words and tag them.

    Contractions are two words, e.g. "does" and "n't", as in the tagger's corpus. Symbols get the class "other",
    whatever the tagger says.

    Raises:
        UserError: a tag is none of `CLASS_OF_TAG`.
    """
    spans: list[tuple[int, int]] = []
    for match in _WORD.finditer(text):
        start, end = match.span()
        clitic = _CLITIC.search(match[0]) or _CANNOT.search(match[0])
        spans += pairwise([start, *([start + clitic.start()] if clitic else []), end])
    taggable = [(a, b) for a, b in spans if b - a <= _LONGEST and _ENGLISH.search(text, a, b)]
    tags = dict(zip(taggable, tag([text[a:b].replace("\u2019", "'") for a, b in taggable]), strict=True))
    for tagged in tags.values():
        if tagged not in CLASS_OF_TAG:
            raise UserError(
                f"HanTa gave the tag {tagged!r}, which is none of CLAWS C5; install another version of HanTa"
            )
    return [Word(a, b, tags.get((a, b), ""), CLASS_OF_TAG[tags.get((a, b), "UNKNOWN")]) for a, b in spans]


def align_tokens(pieces: Sequence[str], words: Sequence[Word]) -> list[int | None]:
    """Return the index of each token's word; None for a token that shares no character with a word.

    A token belongs to the word with which it shares most characters, on ties to the first. A token that ends within a
    character's bytes has no text, and belongs to the word of that character.

    Args:
        pieces: texts of the tokens, which joined give the whole text.
        words: words of the whole text, in order.
    """
    word_numbers: list[int | None] = []
    start, first = 0, 0
    for piece in pieces:
        end = start + max(len(piece), 1)
        while first < len(words) and words[first].end <= start:
            first += 1
        best, most = None, 0
        for k in range(first, len(words)):
            if words[k].start >= end:
                break
            overlap = min(end, words[k].end) - max(start, words[k].start)
            if overlap > most:
                best, most = k, overlap
        word_numbers.append(best)
        start += len(piece)
    return word_numbers
