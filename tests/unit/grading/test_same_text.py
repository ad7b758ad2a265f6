"""Two open answers are one where their words are the same and their numbers have the same value."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.grading.grade import normalise_text, same_text

SAME = [
    ("1,000", "1000"), ("1000", "1000.0"), ("1,000.50", "1000.5"), ("12,345,678", "12345678"), ("007", "7"),
    ("1/2", "0.5"), ("2/4", ".5"), ("\u00bd", "0.5"), ("1e3", "1,000"), ("1e-3", "0.001"), ("+5", "5"), ("-0", "0"),
    ("\u22123", "-3"), ("\u20133", "-3"), ("(-3)", "-3"), ("5.", "5"), ("The 5", "5"), ("$5", "5"), ("-$5", "-5"),
    ("50%", "50 %"), ("0.50 %", "0.5%"), ("\uff15\uff10\uff05", "50%"), ("\u0663", "3"), ("\u0967\u0968", "12"),
    ("-3.0 \u00b0C", "-3 \u00b0C"), ("1,000 km", "1000.0 km."), ("2 to 1", "2 to 1"), ("x = -3", "x: \u22123"),
    ("COVID-19", "covid 19"), ("3-5", "3 5"), ("vitamin B-12", "vitamin b 12"), ("24/7", "24/7"), ("1.2.3", "1 2 3"),
    ("1/0", "1 0"), ("10\u00b2", "10 2"), ("CO\u2082", "co2"), ("+", "+"), ("?!", " ?!"), ("9" * 6000, "9" * 6000),
]  # fmt: skip

OTHER = [
    ("-3", "3"), ("\u22123", "3"), ("-3 \u00b0C", "3 \u00b0C"), ("(2, -3)", "(2, 3)"), ("(2,-3)", "(2,3)"),
    ("-$5", "$5"), ("-\u20ac5", "\u20ac5"), ("1.5", "1 5"), ("1.5", "15"), ("1.5", "1,5"), ("1.5 mg", "15 mg"),
    ("1/2", "1 2"), ("1/2", "12"), ("50%", "50"), ("50%", "0.5"), ("1,000", "1 000"), ("1,000", "1"),
    ("10\u00b2", "102"), ("10\u207b\u00b3", "10\u00b3"), ("1\u00bd", "11/2"), ("1e-3", "1e+3"), ("0.333", "1/3"),
    ("5", "five"), ("\u20ac5", "$5"), ("B12", "12"), ("5a", "5"), ("+", "-"), ("?", "!"), ("1.2.3", "1.23"),
    ("2.50.1", "2.5.1"), ("9" * 6000, "9" * 6001),
]  # fmt: skip


@pytest.mark.parametrize(("one", "other"), SAME)
def test_numbers_of_one_value_are_one_answer(one: str, other: str) -> None:
    assert same_text(one, other)
    assert same_text(other, one)


@pytest.mark.parametrize(("one", "other"), OTHER)
def test_other_numbers_are_other_answers(one: str, other: str) -> None:
    assert not same_text(one, other)
    assert not same_text(other, one)


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
def test_fractions_agree_exactly_where_their_values_do(
    n: int, d: int, m: int, e: int, one: st.DataObject, other: st.DataObject
) -> None:
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


NUMERIC = st.text(alphabet="0123459eE.,/-+%$\u20ac ()a_x\u00bd\u00b2\u207b\u0663:!\u2212\u2013", max_size=12)


@given(NUMERIC)
def test_normalising_twice_changes_nothing_more(text: str) -> None:
    once = normalise_text(text)
    assert normalise_text(once) == once


@given(st.text(), st.text())
def test_any_text_equals_itself_and_the_order_does_not_matter(one: str, other: str) -> None:
    assert same_text(one, one)
    assert same_text(one, other) == same_text(other, one)


@given(st.text(alphabet=st.characters(categories=["Lu", "Ll"], max_codepoint=0x24F), min_size=1, max_size=20))
def test_words_are_compared_without_the_punctuation_around_them(text: str) -> None:
    assert same_text(f"  ({text})!", f"{text.upper()}." if text.isascii() else text)
