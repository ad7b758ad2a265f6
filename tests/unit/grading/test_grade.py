"""Letters are read however models write them; open answers are compared by their words and the value of numbers."""

from __future__ import annotations

import string
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from bench.api import Question
from bench.api.protocol import FIXED, REFCODE, LetterRule
from bench.api.question import Answer
from bench.grading.grade import (
    JudgeCase,
    MatchJudge,
    grade_choice,
    grade_open,
    normalise_text,
    parse_letter,
    same_text,
    substring_rule,
)
from bench.progress import Silent

LETTERS = string.ascii_lowercase
RENDERINGS = ["{}", " {}", "({})", "{}.", "{})", "[{}]", "{}:", " ({}). ", "\n{}\n", ".{}"]


def choice(text: str, gold: int = 0, n: int = 4, rule: LetterRule = LetterRule.EXACT, letters: str = LETTERS) -> Answer:
    question = Question("q", "s", "Which?", tuple(f"option {i}" for i in range(n)), gold)
    protocol = replace(FIXED, letter_rule=rule, letters=letters)
    return grade_choice(question, text, protocol)


@given(st.sampled_from(LETTERS), st.sampled_from(RENDERINGS), st.booleans())
def test_letter_is_read_however_it_is_written(letter: str, rendering: str, upper: bool) -> None:
    assert parse_letter(rendering.format(letter.upper() if upper else letter), LETTERS) == letter


@given(st.sampled_from(string.ascii_uppercase), st.sampled_from(RENDERINGS))
def test_letter_is_read_as_a_capital_one(letter: str, rendering: str) -> None:
    assert parse_letter(rendering.format(letter.lower()), string.ascii_uppercase) == letter


@pytest.mark.parametrize("text", ["", " ", "The", "the", "a b", "ab", "aa", "(a) Tove", "Answer: a", "()", ".", "1",
                                  "é", "a,", "a?", "\N{FULLWIDTH LATIN SMALL LETTER A}"])  # fmt: skip
def test_other_text_is_no_letter(text: str) -> None:
    assert parse_letter(text, LETTERS) is None


@given(st.text())
def test_letter_is_one_of_the_options_or_none(text: str) -> None:
    letter = parse_letter(text, "abcd")
    assert letter is None or letter in "abcd"
    if letter is not None:
        assert sum(character.isalnum() for character in text) == 1


def test_letter_beyond_the_options_is_wrong() -> None:
    assert choice("e", gold=3, n=4) == Answer("e", None, correct=False, parsed=False)
    assert choice("d", gold=3, n=4).correct


def test_letter_rules_disagree_as_methods_md_says() -> None:
    the = choice("The", gold=4, n=5)
    assert (the.parsed, the.correct) == (False, False)
    assert choice("The", gold=4, n=5, rule=LetterRule.SUBSTRING).correct  # the official code's accident
    assert choice("A", gold=0).correct
    assert not choice("A", gold=0, rule=LetterRule.SUBSTRING).correct  # and its case-sensitivity
    assert REFCODE.letter_rule is LetterRule.SUBSTRING
    for rule in LetterRule:
        empty = choice("", rule=rule)
        assert (empty.correct, empty.parsed) == (False, False)


@given(st.sampled_from("abcd"), st.sampled_from("abcd"))
def test_letter_rules_agree_on_bare_small_letters(said: str, gold: str) -> None:
    row = "abcd".index(gold)
    assert choice(said, gold=row).correct == choice(said, gold=row, rule=LetterRule.SUBSTRING).correct == (said == gold)
    assert substring_rule(said, gold) == (said == gold)


def open_answer(text: str, gold: str = "The Blue Delta") -> Answer:
    question = Question("q", "s", "Where?", (gold, "Elsewhere"), 0)
    (correct,) = MatchJudge().verdicts([JudgeCase(question.text, gold, text)], "judge", Silent())
    return grade_open(text, correct=bool(correct))


RIGHT = [
    "blue delta",
    "The blue-delta.",
    "  BLUE   DELTA ",
    "a blue delta",
    "\N{FULLWIDTH LATIN CAPITAL LETTER B}lue delta",
]


@pytest.mark.parametrize(
    ("text", "right"),
    [
        *((text, True) for text in RIGHT),
        *((t, False) for t in ("blue", "blue delta river", "theblue delta", "Elsewhere")),
    ],
)
def test_open_answers_ignore_case_punctuation_and_articles(text: str, *, right: bool) -> None:
    answer = open_answer(text)
    assert (answer.correct, answer.parsed, answer.letter) == (right, True, None)


@pytest.mark.parametrize(("said", "right"), [("A", True), ("a.", True), ("the", False), ("?", False), ("B", False)])
def test_articles_are_compared_where_they_stand_alone(said: str, right: bool) -> None:
    assert open_answer(said, gold="A").correct == right
    assert not open_answer("", gold="The").correct


def test_any_right_answer_is_right() -> None:
    cases = [
        JudgeCase("q", "Paris", said, ("City of Paris", "1,000"))
        for said in ("paris", "city of paris", "1000.0", "Lyon", "")
    ]
    assert MatchJudge().verdicts(cases, "judge", Silent()) == [True, True, True, False, False]


# --- numbers ----------------------------------------------------------------------------------------------------------

SAME = [
    ("1,000", "1000"), ("1000", "1000.0"), ("1,000.50", "1000.5"), ("12,345,678", "12345678"), ("007", "7"),
    ("1/2", "0.5"), ("2/4", ".5"), ("\u00bd", "0.5"), ("1e3", "1,000"), ("1e-3", "0.001"), ("+5", "5"), ("-0", "0"),
    ("\u22123", "-3"), ("\u20133", "-3"), ("(-3)", "-3"), ("5.", "5"), ("The 5", "5"), ("$5", "5"), ("-$5", "-5"),
    ("50%", "50 %"), ("0.50 %", "0.5%"), ("\uff15\uff10\uff05", "50%"), ("\u0663", "3"), ("\u0967\u0968", "12"),
    ("-3.0 \u00b0C", "-3 \u00b0C"), ("1,000 km", "1000.0 km."), ("2 to 1", "2 to 1"), ("x = -3", "x: \u22123"),
    ("COVID-19", "covid 19"), ("3-5", "3 5"), ("vitamin B-12", "vitamin b 12"), ("24/7", "24/7"), ("1.2.3", "1 2 3"),
    ("1/0", "1 0"), ("10\u00b2", "10^2"), ("CO\u2082", "co2"), ("+", "+"), ("?!", " ?!"), ("9" * 6000, "9" * 6000),
]  # fmt: skip

OTHER = [
    ("-3", "3"), ("\u22123", "3"), ("-3 \u00b0C", "3 \u00b0C"), ("(2, -3)", "(2, 3)"), ("(2,-3)", "(2,3)"),
    ("-$5", "$5"), ("-\u20ac5", "\u20ac5"), ("1.5", "1 5"), ("1.5", "15"), ("1.5", "1,5"), ("1.5 mg", "15 mg"),
    ("1/2", "1 2"), ("1/2", "12"), ("50%", "50"), ("50%", "0.5"), ("1,000", "1 000"), ("1,000", "1"),
    ("10\u00b2", "102"), ("10\u207b\u00b3", "10\u00b3"), ("1\u00bd", "11/2"), ("1e-3", "1e+3"), ("0.333", "1/3"),
    ("5", "five"), ("\u20ac5", "$5"), ("B12", "12"), ("5a", "5"), ("+", "-"), ("?", "!"), ("1.2.3", "1.23"),
    ("2.50.1", "2.5.1"), ("9" * 6000, "9" * 6001),
]  # fmt: skip


ALIKE = [
    ("x+1", "x + 1."), ("(x+1)/2", "( x + 1 ) / 2"), ("n*2", "n \u00d7 2"), ("x<=2", "x \u2264 2"), ("x**2", "x^2"),
    ("3 \u00d7 10\u2078 m/s", "3*10^8 m/s"), ("10\u207b\u00b3", "10^-3"), ("$x^2$", "x\u00b2"),
    ("\u2212x", "-x"), ("a & b", "A&B"), ("\\(-\\pi\\)", "-\\pi"), ("0.5x + 1", "1/2 x + 1"),
    ("2x - 3", "2 x \u2212 3"),
    ("(+5)", "5"), ("-5.0", "-5"), ("1e-5", "0.00001"), ("3-5", "3 5"), ("B-12", "b 12"),
    ("Na-23", "Na 23"), ("U-2", "U 2"), ("A-B", "A B"), ("X-ray", "x ray"), ("1990 - 1995", "1990\u20131995"),
    ("The answer is +5", "the answer is 5"), ("from -1 to +1", "from -1 to 1"), ("1969!", "1969"), ("A!", "A."),
    ("Vitamin C!", "vitamin C"), ("CO2!", "CO2"), ("-Paris", "Paris"), ("\u2014Paris", "Paris"), ("* Paris", "Paris"),
    ("- Paris\n- Rome", "Paris Rome"), ("**Paris**", "Paris"), ("**5**", "5"), ("- 5", "5"), ("-> 5", "5"),
    ("-\\frac{1}{2}", "\\(-\\frac{1}{2}\\)"), ("\\theta=-5", "\\theta = -5"), ("\\lambda/2", "\\lambda / 2"),
    ("x \\in [-1,1]", "$x \\in [-1,1]$."), ("\\boxed{+5}", "\\boxed{5}"), ("\\textbf{B-12}", "\\textbf{B 12}"),
    ("5~\\mathrm{km}", "5 \\mathrm{km}"), ("-\\textbf{Paris}", "\\textbf{Paris}"), ("- \\frac{1}{2}", "\\frac{1}{2}"),
    ("x -\\frac{1}{2}", "x-\\frac{1}{2}"), ("3x -\\frac12", "3x - \\frac12"), ("\\bb+", "\\bb"),
    ("\u2212\\frac{1}{2}", "-\\frac{1}{2}"),
    ("a hammer & a nail", "hammer & nail"), ("an egg + an apple", "egg + apple"), ("the sun", "sun"), ("~5", "5"),
    ("and/or", "and or"), ("AC/DC", "AC DC"), ("<Paris>", "Paris"), ("x = 5", "x: 5"), ("well-known", "well known"),
]  # fmt: skip

UNLIKE = [
    ("x + 1", "x - 1"), ("x +1", "x - 1"), ("x - 1", "x 1"), ("y = 2x - 3", "y = 2x + 3"), ("-x", "x"),
    ("x = -y", "x = y"), ("(-x, y)", "(x, y)"), ("-sqrt(2)", "sqrt(2)"), ("-\\sqrt{2}", "\\sqrt{2}"),
    ("-\u221e", "\u221e"),
    ("-(x + 1)", "(x + 1)"), ("3-2i", "3+2i"), ("x<=2", "x>=2"), ("x<=2", "x<2"), ("x != 2", "x = 2"), ("> 5", "< 5"),
    ("n^2", "n*2"), ("2^3", "2 3"), ("10^2", "102"), ("x/2", "x 2"), ("J/s", "J s"), ("2 * x", "2 x"),
    ("~P & Q", "P & Q"), ("P | Q", "P & Q"), ("p -> q", "p > q"), ("|x|", "x"),
    ("O-", "O"), ("O-.", "O"), ("A+", "A-"), ("C++", "C"), ("a + b", "b"), ("a-1", "1"), ("a/b", "b"),
    ("f(x) > g(x)", "f(x) < g(x)"),
    ("-\\frac{1}{2}", "\\frac{1}{2}"), ("$-\\frac12$.", "$\\frac12$"), ("x=-\\frac{1}{2}", "x=\\frac{1}{2}"),
    ("2-\\frac12", "2 \\frac12"), ("x -\\frac12", "x +\\frac12"),
    ("\\boxed{-\\dfrac{1}{2}}", "\\boxed{\\dfrac{1}{2}}"), ("(-\\infty, 5]", "(\\infty, 5]"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("one", "other", "agree"),
    [(*pair, True) for pair in SAME + ALIKE] + [(*pair, False) for pair in OTHER + UNLIKE],
)
def test_numbers_and_expressions_are_compared_by_value(one: str, other: str, *, agree: bool) -> None:
    assert same_text(one, other) is agree
    assert same_text(other, one) is agree


WRITTEN = [
    lambda n, d: f"{n}/{d}",
    lambda n, d: f" {n}/{d}. ",
    lambda n, d: f"{2 * n}/{2 * d}",
    lambda n, d: f"({n}/{d})",
]


@given(
    st.integers(-(10**6), 10**6), st.integers(1, 999), st.integers(-(10**6), 10**6), st.integers(1, 999),
    st.sampled_from(WRITTEN), st.sampled_from(WRITTEN),
)  # fmt: skip
def test_fractions_agree_by_value(n: int, d: int, m: int, e: int, one: st.DataObject, other: st.DataObject) -> None:
    assert same_text(one(n, d), other(n, d))  # type: ignore[operator]
    assert same_text(one(n, d), other(m, e)) == (Fraction(n, d) == Fraction(m, e))  # type: ignore[operator]


@given(st.integers(-(10**12), 10**12), st.integers(0, 6), st.integers(0, 3))
def test_decimals_agree_with_and_without_separators_and_zeros(n: int, places: int, zeros: int) -> None:
    value = Fraction(n, 10**places)
    sign, whole, rest = ("-" if n < 0 else ""), abs(n) // 10**places, abs(n) % 10**places
    decimals = (f".{rest:0{places}}" if places else "") + ("" if places == 0 else "0" * zeros)
    grouped = f"{sign}{whole:,}{decimals}"
    plain = f"{sign}{whole}{decimals}"
    assert same_text(grouped, plain)
    assert same_text(grouped, f"{value.numerator}/{value.denominator}")
    assert same_text(plain, plain.removeprefix("-")) == (n >= 0)
    assert not same_text(plain, f"{plain}%")


EXPRESSIONS = st.text(alphabet="0x5bnPQ +-*/^<>=!&|~()[]{}\\$._%", max_size=12)


NUMERIC = st.text(alphabet="0123459eE.,/-+%$\u20ac ()a_x\u00bd\u00b2\u207b\u0663:!\u2212\u2013", max_size=12)


LATEX = st.lists(st.sampled_from([*"-+ {}[]$=,/~_15xa", "\\frac", "\\bb", "\\text", "\\left("]), max_size=9).map(
    "".join
)


@given(NUMERIC | EXPRESSIONS | LATEX | st.text())
def test_normalising_is_idempotent(text: str) -> None:
    once = normalise_text(text)
    assume(not {"a", "an", "the"} & set(once.split()))
    assert normalise_text(once) == once


@given(st.text(), st.text())
def test_same_text_is_reflexive_and_symmetric(one: str, other: str) -> None:
    assert same_text(one, one)
    assert same_text(one, other) == same_text(other, one)


@given(st.text(alphabet=st.characters(categories=["Lu", "Ll"], max_codepoint=0x24F), min_size=1, max_size=20))
def test_words_are_compared_without_the_punctuation_around_them(text: str) -> None:
    assert same_text(f"  ({text})!", f"{text.upper()}." if text.isascii() else text)
