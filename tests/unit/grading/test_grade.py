"""A letter is read as that letter in every way models write it, and nothing else is read as a letter."""

from __future__ import annotations

import string
from dataclasses import replace

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
def test_a_letter_is_read_back_however_it_is_written(letter: str, rendering: str, upper: bool) -> None:
    assert parse_letter(rendering.format(letter.upper() if upper else letter), LETTERS) == letter


@given(st.sampled_from(string.ascii_uppercase), st.sampled_from(RENDERINGS))
def test_with_capital_option_letters_the_capital_comes_back(letter: str, rendering: str) -> None:
    assert parse_letter(rendering.format(letter.lower()), string.ascii_uppercase) == letter


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "The",
        "the",
        "a b",
        "ab",
        "aa",
        "(a) Tove",
        "Answer: a",
        "()",
        ".",
        "1",
        "é",
        "a,",
        "a?",
        "\N{FULLWIDTH LATIN SMALL LETTER A}",
    ],
)
def test_other_text_is_no_letter(text: str) -> None:
    assert parse_letter(text, LETTERS) is None


@given(st.text())
def test_whatever_comes_is_one_of_the_letters_or_none(text: str) -> None:
    letter = parse_letter(text, "abcd")
    assert letter is None or letter in "abcd"
    if letter is not None:
        assert sum(character.isalnum() for character in text) == 1


@given(st.text(alphabet=string.ascii_letters, min_size=2))
def test_a_word_is_no_letter(word: str) -> None:
    assert parse_letter(word, LETTERS) is None


def test_a_letter_beyond_the_options_is_not_parsed_and_wrong() -> None:
    answer = choice("e", gold=3, n=4)
    assert answer == Answer("e", None, correct=False, parsed=False)
    assert choice("d", gold=3, n=4).correct


def test_the_two_rules_disagree_as_methods_md_says() -> None:
    the = choice("The", gold=4, n=5)
    assert (the.parsed, the.correct) == (False, False)
    assert choice("The", gold=4, n=5, rule=LetterRule.SUBSTRING).correct  # the official code's accident
    assert choice("A", gold=0).correct
    assert not choice("A", gold=0, rule=LetterRule.SUBSTRING).correct  # and its case-sensitivity
    assert REFCODE.letter_rule is LetterRule.SUBSTRING


@given(st.sampled_from("abcd"), st.sampled_from("abcd"))
def test_on_bare_small_letters_the_rules_agree(said: str, gold: str) -> None:
    row = "abcd".index(gold)
    assert choice(said, gold=row).correct == choice(said, gold=row, rule=LetterRule.SUBSTRING).correct == (said == gold)
    assert substring_rule(said, gold) == (said == gold)


@pytest.mark.parametrize("rule", list(LetterRule))
def test_no_answer_is_wrong_under_either_rule(rule: LetterRule) -> None:
    answer = choice("", rule=rule)
    assert not answer.correct
    assert not answer.parsed


def open_answer(text: str, gold: str = "The Blue Delta") -> Answer:
    question = Question("q", "s", "Where?", (gold, "Elsewhere"), 0)
    (correct,) = MatchJudge().verdicts([JudgeCase(question.text, gold, text)], "judge", Silent())
    return grade_open(text, correct=bool(correct))


@pytest.mark.parametrize(
    "text",
    [
        "blue delta",
        "The blue-delta.",
        "  BLUE   DELTA ",
        "a blue delta",
        "\N{FULLWIDTH LATIN CAPITAL LETTER B}lue delta",
    ],
)
def test_open_answers_are_compared_without_case_punctuation_and_articles(text: str) -> None:
    assert open_answer(text).correct


@pytest.mark.parametrize("text", ["blue", "blue delta river", "theblue delta", "Elsewhere"])
def test_other_open_answers_are_wrong_but_parsed(text: str) -> None:
    answer = open_answer(text)
    assert (answer.correct, answer.parsed, answer.letter) == (False, True, None)


def test_an_empty_open_answer_is_wrong_even_where_nothing_is_left_of_the_gold_one() -> None:
    assert not open_answer("", gold="The").correct


@pytest.mark.parametrize(("said", "right"), [("A", True), ("a.", True), ("the", False), ("?", False), ("B", False)])
def test_an_answer_that_is_an_article_is_not_compared_as_nothing(said: str, right: bool) -> None:
    assert open_answer(said, gold="A").correct == right


@given(st.text())
def test_normalising_twice_changes_nothing_more(text: str) -> None:
    once = normalise_text(text)
    assume(not {"a", "an", "the"} & set(once.split()))
    assert normalise_text(once) == once


def test_any_right_answer_is_right() -> None:
    cases = [
        JudgeCase("q", "Paris", said, ("City of Paris", "1,000"))
        for said in ("paris", "city of paris", "1000.0", "Lyon", "")
    ]
    assert MatchJudge().verdicts(cases, "judge", Silent()) == [True, True, True, False, False]
