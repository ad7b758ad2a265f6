"""The judge is asked in the official code's words, and only a first word yes or no is a verdict."""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.grading import prompt
from bench.grading.grade import JudgeCase

PAGE = (Path(__file__).parents[3] / "docs/methods.md").read_text(encoding="utf-8")
ASKED = JudgeCase("Where does the Tove end?\n", "in the {sea}", 'a "lake"')


@pytest.mark.parametrize(("wording", "place"), [(prompt.GRADING, 0), (prompt.COMPARING, 1)])
def test_the_words_are_those_of_the_methods_page(wording: prompt.JudgePrompt, place: int) -> None:
    section = PAGE.partition("### 1.7 ")[2].partition("\n### ")[0]
    asked = re.findall(r"```text\n(.*?)\n```", section, re.DOTALL)[place] + " "
    system, user = prompt.messages(JudgeCase("{question}", "{gold}", "{answer}"), wording)
    assert f"`{system.content}`" in section
    assert user.content == asked


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


def test_several_right_answers_are_listed_in_words_that_their_version_is_bound_to() -> None:
    _, user = prompt.messages(replace(ASKED, others=('the "lake"', "Tove")))
    told = 'The correct answers for this problem are: "in the {sea}", "the "lake"", "Tove"\nA student submitted'
    assert told in user.content
    assert "semantically equivalent to one of the correct answers\u2014that is" in user.content
    digest = hashlib.sha256(prompt.GRADING.several.encode()).hexdigest()
    assert (prompt.GRADING.id, digest[:16]) == ("judge/1", "8feb28ad400fcfc6")
    assert prompt.COMPARING.several == ""
    assert prompt.messages(replace(ASKED, others=())) == prompt.messages(ASKED)


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
