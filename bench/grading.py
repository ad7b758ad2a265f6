"""Generation -> Answer: which option was meant, or whether a text is right; what can't be read is counted."""

from __future__ import annotations

import re
import string
import unicodedata
from typing import TYPE_CHECKING

from bench.protocol import LetterRule
from bench.records import Answer, Format, Generation, Question

if TYPE_CHECKING:
    from bench.protocol import Protocol

_AROUND = "()[].:"
_ARTICLES = re.compile(r"\b(a|an|the)\b")


def parse_letter(text: str, letters: str) -> str | None:
    """The option letter that a text is, or None (methods.md §1.7).

    White space and surrounding `()[].:` are dropped and case is ignored; whatever else stands there makes it no letter.

    >>> parse_letter(" (B).", "abcd"), parse_letter("The", "abcde"), parse_letter("e", "abcd")
    ('b', None, None)
    """
    bare = text.strip().strip(_AROUND).strip()
    if len(bare) != 1:
        return None
    for letter in letters:
        if bare.casefold() == letter.casefold():
            return letter
    return None


def normalise_text(text: str) -> str:
    """Case, accents' encoding, punctuation, articles and runs of white space taken out, for comparing open answers.

    Articles stay where nothing else is there: the blood group A is an answer.

    >>> normalise_text("  The Blue-Green  Delta. "), normalise_text("A")
    ('blue green delta', 'a')
    """
    plain = unicodedata.normalize("NFKC", text).casefold()
    plain = plain.translate(str.maketrans(string.punctuation, " " * len(string.punctuation)))
    return " ".join(_ARTICLES.sub(" ", plain).split() or plain.split())


def grade(question: Question, generation: Generation, fmt: Format, protocol: Protocol) -> Answer:
    """Right or wrong, by the protocol's rule."""
    text = generation.text
    if fmt is Format.OPEN:
        correct = bool(text) and normalise_text(text) == normalise_text(question.answer)
        return Answer(question.id, text, None, correct, parsed=bool(text))
    letters = protocol.letters[: len(question.choices)]
    letter = parse_letter(text, letters)
    gold = letters[question.gold]
    correct = letter == gold if protocol.letter_rule is LetterRule.EXACT else substring_rule(text, gold)
    return Answer(question.id, text, letter, correct, parsed=letter is not None)


def agrees(text: str, answer: Answer, question: Question, fmt: Format, protocol: Protocol) -> bool:
    """Does another text say what an answer said: the same letter, or the same normalised text (methods.md §2.14)."""
    if fmt is Format.OPEN:
        return normalise_text(text) == normalise_text(answer.text)
    letter = parse_letter(text, protocol.letters[: len(question.choices)])
    return letter is not None and letter == answer.letter


def substring_rule(text: str, gold: str) -> bool:
    """The official code's rule: the gold letter occurs anywhere in the output, case-sensitively (methods.md §6 #44)."""
    return gold in text
