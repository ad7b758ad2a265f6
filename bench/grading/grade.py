"""Text -> Answer: which option was meant, or whether a text is right; what can't be read is counted."""

from __future__ import annotations

import re
import typing
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from bench.api import Format, Question
from bench.api.protocol import LetterRule
from bench.api.question import Answer, Released

if typing.TYPE_CHECKING:
    from bench.api.protocol import Protocol
    from bench.progress import Progress

_AROUND = "()[].:"
_ARTICLES = re.compile(r"\b(a|an|the)\b")

_SIGNS = str.maketrans({**dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-"), "\u2044": "/"})
"""Dashes and the minus sign; the slash of one half."""
_RAISED = re.compile(r"(?<=\d)(?=[\u00b2\u00b3\u00b9\u00bc-\u00be\u2070-\u208e\u2150-\u215e\u2189])")
"""Between a digit and a small one: 10\u00b2 is not 102, and 1\u00bd is not 11/2."""
_NUMBER_OR_PUNCTUATION = re.compile(
    r"""
    (?: (?<![^\W_]) (?<![)\]}%+-]) (?P<sign>[+-]) (?P<currency>[$\u20ac\u00a3\u00a5])?  # no hyphen, as in covid-19
      | (?<![^\W_]) (?<![0-9][.,/]) )
    (?P<number>
        [0-9]++ / 0*+ [1-9][0-9]*+
      | (?: (?: [0-9]{1,3} (?:,[0-9]{3})++ (?![0-9]) | [0-9]++ ) (?:\.[0-9]++)?+ | \.[0-9]++ )
        (?: e[+-]?[0-9]{1,3} (?![^\W_]) )?+ )
    (?![.,/e][0-9])  # dates and versions are no numbers; their parts are
    (?P<percent>\s*%)?
    | (?<![^\W_]) (?P<part> [0-9]++ (?: e[0-9]{1,3} (?![^\W_]) )?+ )
    | [!-/:-@[-`{-~]  # string.punctuation
    """,
    re.VERBOSE,
)


def parse_letter(text: str, letters: str) -> str | None:
    """The option letter that a text is, or None (docs/methods.md §1.7).

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

    What belongs to a number stays, and the number becomes its value: sign, decimals, thousands, fraction, exponent,
    percent, digits of any script. Other units are words, and `$` is punctuation: 5 is the same answer as $5, not as 5%.
    A decimal comma is no part of a number, and words like `five` are no numbers.

    Articles and punctuation stay where nothing else is there: the blood group A and the operator + are answers.

    >>> normalise_text("  The Blue-Green  Delta. "), normalise_text("A")
    ('blue green delta', 'a')
    >>> normalise_text("-$1,000.50"), normalise_text("1/2 cup"), normalise_text("50 %"), normalise_text("COVID-19")
    ('-2001/2', '1/2 cup', '50%', 'covid 19')
    """
    digits = "".join(str(unicodedata.decimal(c)) if c.isdecimal() else c for c in _RAISED.sub(" ", text))
    bare = unicodedata.normalize("NFKC", digits).casefold().translate(_SIGNS)
    plain = _NUMBER_OR_PUNCTUATION.sub(_value, bare)
    return " ".join(_ARTICLES.sub(" ", plain).split() or plain.split() or bare.split())


def _value(found: re.Match[str]) -> str:
    """A number as its value, other punctuation as a blank."""
    number = found["number"] or found["part"]
    if number is None:
        return " "
    try:
        value = str(Fraction((found["sign"] or "") + number.replace(",", "")))
    except ValueError:  # more digits than Python converts
        return found[0]
    currency = (found["currency"] or "").replace("$", "")
    return currency + value + ("%" if found["percent"] else "")


@dataclass(frozen=True, slots=True)
class JudgeCase:
    """An open answer as a judge sees it."""

    question: str
    """The question as the prompt shows it, without exemplars."""
    gold: str
    answer: str
    others: tuple[str, ...] = ()
    """Further answers that are right, beside the gold one."""

    def fields(self) -> dict[str, object]:
        """All that a verdict depends on, as it is kept; without `others` where there are none."""
        told: dict[str, object] = {"question": self.question, "gold": self.gold, "answer": self.answer}
        return {**told, "others": list(self.others)} if self.others else told


class Judge(typing.Protocol):
    """Says whether open answers mean what the gold answers mean."""

    @property
    def name(self) -> str:
        """Name of the judge, with all that a verdict depends on; stands in results and captions."""

    def verdicts(self, cases: Sequence[JudgeCase], what: str, progress: Progress) -> Sequence[bool | None]:
        """One verdict for each, in order; None where the judge came to none.

        Args:
            cases: the answers; an empty one is wrong without asking.
            what: name of this stage, for the progress.
            progress: told of each verdict.

        Raises:
            UserError: the judge can't be asked; verdicts that it gave are kept.
        """

    def comparing(self) -> Judge | None:
        """The same judge for whether two answers mean the same, which are `gold` and `answer` of a case.

        None where the normalised texts alone decide.
        """


class MatchJudge:
    """Right where the normalised text is that of a right answer, or a number of its value."""

    name = "match"

    def verdicts(self, cases: Sequence[JudgeCase], what: str, progress: Progress) -> Sequence[bool | None]:
        """True or False for each."""
        del what, progress
        return [bool(a.answer) and any(same_text(a.answer, gold) for gold in (a.gold, *a.others)) for a in cases]

    def comparing(self) -> Judge | None:
        """None: `agrees` compares the same texts."""
        return None


def same_text(one: str, other: str) -> bool:
    """Whether two answers are one, by normalised text; numbers, alone or within text, are compared by value.

    >>> same_text("1,000", "1000.0"), same_text("0.5", "1/2"), same_text("-3", "3"), same_text("1.5", "1 5")
    (True, True, False, False)
    """
    return normalise_text(one) == normalise_text(other)


def grade_open(text: str, *, correct: bool) -> Answer:
    """An open answer with the judge's verdict on it; one without text is wrong."""
    return Answer(text, None, correct and bool(text), parsed=bool(text))


def grade_choice(question: Question, text: str, protocol: Protocol) -> Answer:
    """A letter, right or wrong by the protocol's rule."""
    letters = protocol.letters[: len(question.choices)]
    letter = parse_letter(text, letters)
    gold = letters[question.gold]
    exact = protocol.letter_rule is LetterRule.EXACT
    correct = letter == gold if exact else substring_rule(text, gold)
    return Answer(text, letter, correct, parsed=letter is not None)


def grade_released(question: Question, text: str, released: Released, fmt: Format, protocol: Protocol) -> Answer:
    """An answer with the label that it came with (docs/methods.md §0.15)."""
    if fmt is Format.OPEN:
        return grade_open(text, correct=bool(released.correct))
    return replace(grade_choice(question, text, protocol), correct=bool(released.correct))


def agrees(text: str, answer: Answer, question: Question, fmt: Format, protocol: Protocol) -> bool:
    """Whether another text agrees with an answer: its letter, or its normalised text (docs/methods.md §2.14)."""
    if fmt is Format.OPEN:
        return same_text(text, answer.text)
    letter = parse_letter(text, protocol.letters[: len(question.choices)])
    return letter is not None and letter == answer.letter


def substring_rule(text: str, gold: str) -> bool:
    """The official code's rule: the gold letter stands anywhere in the output, in its case (docs/methods.md §6 #44)."""
    return gold in text
