"""The judge is asked in the official code's words, and only a first word yes or no is a verdict."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.grading import prompt
from bench.grading.grade import Asked

SPEC = Path(__file__).parents[4] / "shared" / "spec" / "methods.md"
ASKED = Asked("Where does the Tove end?\n", "in the {sea}", 'a "lake"')


def test_the_words_are_those_of_the_specification() -> None:
    if not SPEC.is_file():
        pytest.skip("the specification is not beside this checkout")
    section = SPEC.read_text(encoding="utf-8").partition("### 1.7 Labels")[2]
    system = re.search(r"system prompt `([^`]+)`", section)
    block = re.search(r"```\n(.*?)\n```", section, re.DOTALL)
    assert system is not None
    assert block is not None
    user = block[1].replace("gt_answer", "gold").replace("llm_answer", "answer")
    assert [m.content for m in prompt.messages(Asked("{question}", "{gold}", "{answer}"))] == [system[1], user]


def test_two_answers_are_compared_in_the_words_of_the_specification() -> None:
    if not SPEC.is_file():
        pytest.skip("the specification is not beside this checkout")
    section = SPEC.read_text(encoding="utf-8").partition("### 1.7 Labels")[2]
    block = re.search(r"two-answers: `([^`]+)`", section)
    assert block is not None
    expected = block[1].replace("\\n", "\n").replace("<question>", "{question}")
    expected = expected.replace("<prediction-a>", "{gold}").replace("<prediction-b>", "{answer}")
    (_, user) = prompt.messages(Asked("{question}", "{gold}", "{answer}"), prompt.COMPARING)
    assert user.content == expected


def test_the_wording_is_fixed_to_the_last_blank() -> None:
    system, user = prompt.messages(ASKED)
    assert (system.role, user.role) == ("system", "user")
    assert user.content.startswith(
        'The problem is: "Where does the Tove end?\n"\n\nThe correct answer for this problem is: "in the {sea}"\n'
        'A student submitted the answer: "a "lake""\nThe student\'s answer should be'
    )
    assert "correct answer\u2014that is, it" in user.content
    assert user.content.endswith("Please answer yes or no without any explanation: ")
    assert len(user.content) - len(ASKED.question + ASKED.gold + ASKED.answer) == 651


@pytest.mark.parametrize("word", ["yes", "Yes", "YES", " yes.", "**Yes**", '"Yes"', "\nyes\n", "Yes, it does.", "- yes",
                                  "\u201cYes\u201d", "yes no", "Yes: no doubt", "_yes_", "(yes)"])  # fmt: skip
def test_yes(word: str) -> None:
    assert prompt.parse(word) is True


@pytest.mark.parametrize("word", ["no", "No.", "NO", "No, yes would be wrong", "**no**", "no\nyes"])
def test_no(word: str) -> None:
    assert prompt.parse(word) is False


@pytest.mark.parametrize("word", ["", " ", "...", "a", "yes/no", "yesterday", "nope", "Not yes", "The answer is yes",
                                  "<think> yes", "y", "n", "1", "true", "ye s", "oui"])  # fmt: skip
def test_anything_else_is_no_verdict(word: str) -> None:
    assert prompt.parse(word) is None


@given(st.text())
def test_whatever_comes_is_read_without_failing(text: str) -> None:
    assert prompt.parse(text) in {True, False, None}


@given(st.sampled_from(["yes", "no"]), st.text(alphabet=" \n\t.,:;!*\"'()[]-_"), st.text())
def test_punctuation_before_and_words_after_change_nothing(word: str, before: str, after: str) -> None:
    assert prompt.parse(f"{before}{word}. {after}") is (word == "yes")
