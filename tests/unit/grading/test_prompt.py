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
def test_wording_is_that_of_the_methods_page(wording: prompt.JudgePrompt, place: int) -> None:
    section = PAGE.partition("### 1.7 ")[2].partition("\n### ")[0]
    asked = re.findall(r"```text\n(.*?)\n```", section, re.DOTALL)[place] + " "
    system, user = prompt.messages(JudgeCase("{question}", "{gold}", "{answer}"), wording)
    assert f"`{system.content}`" in section
    assert user.content == asked


def test_wording_is_bound_to_its_version() -> None:
    """A changed wording needs a new version: verdicts are kept by it."""
    texts = (prompt.GRADING.user, prompt.GRADING.several, prompt.COMPARING.user)
    digests = [hashlib.sha256(text.encode()).hexdigest()[:16] for text in texts]
    assert digests == ["37fa80dfb69b7904", "8feb28ad400fcfc6", "b5b816d061b8bbe2"]
    assert (prompt.GRADING.id, prompt.COMPARING.id, prompt.COMPARING.several) == ("judge/1", "pair/1", "")
    assert [message.role for message in prompt.messages(ASKED)] == ["system", "user"]


def test_several_right_answers_are_listed() -> None:
    _, user = prompt.messages(replace(ASKED, others=('the "lake"', "Tove")))
    told = 'The correct answers for this problem are: "in the {sea}", "the "lake"", "Tove"\nA student submitted'
    assert told in user.content
    assert "semantically equivalent to one of the correct answers\u2014that is" in user.content
    assert prompt.messages(replace(ASKED, others=())) == prompt.messages(ASKED)


YES = ["yes", "Yes", "YES", " yes.", "**Yes**", '"Yes"', "\nyes\n", "Yes, it does.", "- yes", "\u201cYes\u201d",
       "yes no", "Yes: no doubt", "_yes_", "(yes)"]  # fmt: skip
NO = ["no", "No.", "NO", "No, yes would be wrong", "**no**", "no\nyes"]
NEITHER = ["", " ", "...", "a", "yes/no", "yesterday", "nope", "Not yes", "The answer is yes", "<think> yes", "y", "n",
           "1", "true", "ye s", "oui"]  # fmt: skip


@pytest.mark.parametrize(("words", "verdict"), [(YES, True), (NO, False), (NEITHER, None)])
def test_verdict_is_the_first_word(words: list[str], verdict: bool | None) -> None:
    assert {word: prompt.parse(word) for word in words} == dict.fromkeys(words, verdict)


@given(st.text())
def test_any_text_has_a_verdict_or_none(text: str) -> None:
    assert prompt.parse(text) in {True, False, None}


@given(st.sampled_from(["yes", "no"]), st.text(alphabet=" \n\t.,:;!*\"'()[]-_"), st.text())
def test_verdict_ignores_punctuation_and_later_words(word: str, before: str, after: str) -> None:
    assert prompt.parse(f"{before}{word}. {after}") is (word == "yes")
