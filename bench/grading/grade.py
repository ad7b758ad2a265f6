"""Grading of answer texts: `grade_choice` and `grade_open` build an `Answer`; a `Judge` decides on open answers."""

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

_SURROUNDING = "()[].:"
_ARTICLES = re.compile(r"\b(a|an|the)\b")

_CHARACTER_MAP = str.maketrans({**dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-"), "\u2044": "/"})
"""Translation table for open answers: Unicode dashes and the minus sign -> hyphen; the fraction slash -> slash."""
_BEFORE_SMALL_DIGIT = re.compile(r"(?<=\d)(?=[\u00b2\u00b3\u00b9\u00bc-\u00be\u2070-\u208e\u2150-\u215e\u2189])")
"""Matches the place between a digit and a superscript or fraction character. Text is split there, so that 10² does not
become 102, and 1½ does not become 11/2."""
_NUMBER_OR_PUNCTUATION = re.compile(
    r"""
    (?: (?<![^\W_]) (?<![)\]}%+-]) (?P<sign>[+-]) (?P<currency>[$\u20ac\u00a3\u00a5])?  # no hyphen, as in covid-19
      | (?<![^\W_]) (?<![0-9][.,/]) )
    (?P<number>
        [0-9]++ / 0*+ [1-9][0-9]*+
      | (?: (?: [0-9]{1,3} (?:,[0-9]{3})++ (?![0-9]) | [0-9]++ ) (?:\.[0-9]++)?+ | \.[0-9]++ )
        (?: e[+-]?[0-9]{1,3} (?![^\W_]) )?+ )
    (?![.,/e][0-9])  # dates and versions are no numbers, but their parts are
    (?P<percent>\s*%)?
    | (?<![^\W_]) (?P<part> [0-9]++ (?: e[0-9]{1,3} (?![^\W_]) )?+ )
    | (?<!-) (?P<minus> - (?=\\(?!text)[a-z]) | (?<=\S[ ]) - (?=[ ]\\(?!text)[a-z]) )  # of LaTeX, as -\frac{1}{2}
    | [!-/:-@[-`{-~]  # string.punctuation
    """,
    re.VERBOSE,
)

_SMALL = "\u00b2\u00b3\u00b9\u2070-\u207e"
_POWER = re.compile(rf"(?<=[\w)\]}}])(?<![{_SMALL}])(?=[{_SMALL}])")
"""Matches the place before superscripts that directly follow something."""
_SIGNS = str.maketrans({"\u00d7": "*", "\u22c5": "*", "\u2264": "<=", "\u2265": ">=", "\u2260": "!="})
_PART = re.compile(
    r"""
    (?P<operator> -> | => | <- | [<>!]= | \*\* | [-+*/^<>~&|] )
    | (?P<number>
        (?: [0-9]+ / 0*[1-9][0-9]*
          | (?: [0-9]+ (?: ,[0-9]{3} )* (?: \.[0-9]+ )? | \.[0-9]+ ) (?: e[+-]?[0-9]{1,3} (?!\w) )? ) %? )
    | (?P<name> (?: (?:arc)?(?:sin|cos|tan) | sqrt | log | ln | exp | pi | [^\W\d_] | \u221e ) (?![^\W\d_]) )
    | [\s!-/:-@[-`{-~]  # other ASCII punctuation
    """,
    re.VERBOSE,
)
"""A part of an expression: an operator, a number, the name of a variable or function, or what is left out."""
_COMPARED = {"<", ">", "<=", ">=", "!=", "^", "**"}


def parse_letter(text: str, letters: str) -> str | None:
    """Return the option letter that a text consists of, or None (docs/methods.md §1.7).

    Case, white space and surrounding `()[].:` are ignored. The result is None if anything else is in the text.

    >>> parse_letter(" (B).", "abcd"), parse_letter("The", "abcde"), parse_letter("e", "abcd")
    ('b', None, None)
    """
    bare = text.strip().strip(_SURROUNDING).strip()
    equal = (letter for letter in letters if len(bare) == 1 and letter.casefold() == bare.casefold())
    return next(equal, None)


def normalise_text(text: str) -> str:
    """Normalise an open answer for comparison: case, Unicode form, punctuation, articles and white space are removed.

    A number becomes its value. It may have a sign, decimals, thousands separators, a fraction, an exponent and a
    percent sign, and digits of any script. Units other than percent are words, and `$` is punctuation: 5 equals $5, but
    not 5%. A decimal comma is not understood, and words like `five` are no numbers.

    A text that has only articles or punctuation stays: the blood group A and the operator + are answers. In an
    expression operators stay, see `_expression`; elsewhere a minus before a command of LaTeX becomes a word.

    >>> normalise_text("  The Blue-Green  Delta. "), normalise_text("A")
    ('blue green delta', 'a')
    >>> normalise_text("-$1,000.50"), normalise_text("1/2 cup"), normalise_text("50 %"), normalise_text("COVID-19")
    ('-2001/2', '1/2 cup', '50%', 'covid 19')
    >>> normalise_text("y = 2x - 3"), normalise_text("10\u00b2"), normalise_text("**Paris** - a city!")
    ('y 2 x - 3', '10 ^ 2', 'paris city')
    """
    text = "".join(str(unicodedata.decimal(c)) if c.isdecimal() else c for c in text)
    if (expression := _expression(text)) is not None:
        return expression
    digits = _BEFORE_SMALL_DIGIT.sub(" ", text)
    bare = unicodedata.normalize("NFKC", digits).casefold().translate(_CHARACTER_MAP)
    plain = _NUMBER_OR_PUNCTUATION.sub(_number_value, bare)
    return " ".join(_ARTICLES.sub(" ", plain).split() or plain.split() or bare.split())


def _expression(text: str) -> str | None:
    """Return the parts of an expression with blanks between, without brackets; None if the text is something else.

    An expression has no other words than numbers, single letters and functions. It compares, has a power, or has
    operators beside letters or functions. Capital letters and numbers joined by hyphens are a name (B-12), numbers
    alone a range (3-5).
    """
    plain = unicodedata.normalize("NFKC", _POWER.sub("^", text.strip(" \t\n*_"))).translate(_CHARACTER_MAP)
    folded = plain.casefold().translate(_SIGNS)
    parts = [*_PART.finditer(folded)]
    if sum(len(part[0]) for part in parts) < len(folded):
        return None
    terms = [
        (part.lastgroup, _NUMBER_OR_PUNCTUATION.sub(_number_value, part[0]) if part["number"] else part[0])
        for part in parts
        if part.lastgroup
    ]
    for end in (0, -1):
        while terms and terms[end][1] in {"*", "**"}:  # Markdown
            terms.pop(end)
    operators, kinds = {term for kind, term in terms if kind == "operator"}, {kind for kind, _ in terms}
    if not operators or ("name" not in kinds and not ("number" in kinds and operators & _COMPARED)):
        return None
    if operators == {"-"} and not any(map(str.islower, plain)) and re.fullmatch(r"[^\w-]*\w+(-\w+)+[^\w-]*", plain):
        return None
    return " ".join(term.replace("**", "^") for _, term in terms)


def _number_value(match: re.Match[str]) -> str:
    """Return the value of a number in an answer as text, the word minus, or a blank if the match is punctuation."""
    number = match["number"] or match["part"]
    if number is None:
        return " minus " if match["minus"] else " "
    try:
        value = str(Fraction((match["sign"] or "") + number.replace(",", "")))
    except ValueError:  # more digits than Python converts
        return match[0]
    currency = (match["currency"] or "").replace("$", "")
    return currency + value + ("%" if match["percent"] else "")


@dataclass(frozen=True, slots=True)
class JudgeCase:
    """An open answer with its question and gold answer, as a judge gets them."""

    question: str
    """The question as the prompt shows it, without exemplars."""
    gold: str
    answer: str
    others: tuple[str, ...] = ()
    """Further right answers, besides the gold one."""

    def fields(self) -> dict[str, object]:
        """Return the fields of the case that a stored verdict has; `others` only if several answers are right."""
        fields: dict[str, object] = {"question": self.question, "gold": self.gold, "answer": self.answer}
        return {**fields, "others": list(self.others)} if self.others else fields


class Judge(typing.Protocol):
    """Decides whether open answers mean the same as their gold answers."""

    @property
    def name(self) -> str:
        """Name of the judge with model and prompt, for results and captions."""

    def verdicts(self, cases: Sequence[JudgeCase], what: str, progress: Progress) -> Sequence[bool | None]:
        """Return one verdict for each case, in order; None where the judge reached none.

        Args:
            cases: the answers to judge; an empty answer is wrong without asking the judge.
            what: name of this stage, for the progress bar.
            progress: advanced with each verdict.

        Raises:
            UserError: the judge can't be used, or fails. The verdicts that it gave before are stored.
        """

    def pairwise_judge(self) -> Judge | None:
        """Return a judge that decides whether two answers mean the same, given as a case's `gold` and `answer`.

        Return None if this judge compares normalised texts; two answers can then be compared in the same way.
        """


class MatchJudge:
    """Judge by exact match: the normalised text, or number, equals that of a right answer."""

    name = "match"

    def verdicts(self, cases: Sequence[JudgeCase], what: str, progress: Progress) -> Sequence[bool | None]:
        """Return one verdict for each case, in order: whether a right answer has the same normalised text."""
        del what, progress
        return [bool(a.answer) and any(same_text(a.answer, gold) for gold in (a.gold, *a.others)) for a in cases]

    def pairwise_judge(self) -> Judge | None:
        """Return None: normalised texts of two answers are compared without a judge (see `agrees`)."""
        return None


def same_text(one: str, other: str) -> bool:
    """Return whether two answers have the same normalised text; numbers, also within text, are compared by value.

    >>> same_text("1,000", "1000.0"), same_text("0.5", "1/2"), same_text("-3", "3"), same_text("1.5", "1 5")
    (True, True, False, False)
    """
    return normalise_text(one) == normalise_text(other)


def grade_open(text: str, *, correct: bool) -> Answer:
    """Build the graded answer from its text and the judge's verdict; an empty text is wrong."""
    return Answer(text, None, correct and bool(text), parsed=bool(text))


def grade_choice(question: Question, text: str, protocol: Protocol) -> Answer:
    """Grade a multiple-choice answer by `protocol.letter_rule`: its parsed letter, or the gold letter in its text."""
    letters = protocol.letters[: len(question.choices)]
    letter = parse_letter(text, letters)
    gold = letters[question.gold]
    exact = protocol.letter_rule is LetterRule.EXACT
    correct = letter == gold if exact else substring_rule(text, gold)
    return Answer(text, letter, correct, parsed=letter is not None)


def grade_released(question: Question, text: str, released: Released, fmt: Format, protocol: Protocol) -> Answer:
    """Build a graded answer from a text and label of a release or of a user's file (docs/methods.md §0.15)."""
    if fmt is Format.OPEN:
        return grade_open(text, correct=bool(released.correct))
    return replace(grade_choice(question, text, protocol), correct=bool(released.correct))


def agrees(text: str, answer: Answer, question: Question, fmt: Format, protocol: Protocol) -> bool:
    """Return whether a text agrees with an answer (docs/methods.md §2.14).

    They agree if their letters are equal or, for open answers, their normalised texts.
    """
    if fmt is Format.OPEN:
        return same_text(text, answer.text)
    letter = parse_letter(text, protocol.letters[: len(question.choices)])
    return letter is not None and letter == answer.letter


def substring_rule(text: str, gold: str) -> bool:
    """Return whether the gold letter occurs anywhere in a text, case-sensitively.

    The CCPS paper's official code grades choice answers by this rule (docs/methods.md §6 #44).
    """
    return gold in text
