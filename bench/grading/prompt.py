"""Prompt of a judge, and how its answer is read (docs/methods.md §1.7); the wording has an id with a version."""

from __future__ import annotations

import re
from typing import NamedTuple

from bench.api.question import Message
from bench.grading.grade import JudgeCase

SYSTEM = "You are an automated grading assistant helping a teacher grade student answers."

_USER = (
    'The problem is: "{question}"\n'
    "\n"
    'The correct answer for this problem is: "{gold}"\n'
    'A student submitted the answer: "{answer}"\n'
    "The student's answer should be semantically equivalent to the correct answer\N{EM DASH}that is, it should express"
    " the same meaning, even if the wording or format is slightly different. However, answers that are ambiguous,"
    " incorrect, or include conflicting or multiple answers should not be considered equivalent. Do not penalize"
    " superficial differences (e.g., spelling, synonyms, or phrasing), but ensure the core meaning is preserved.\n"
    "Did the student provide a semantically equivalent answer to the ground truth? Please answer yes or no without any"
    " explanation: "
)
"""The official code's form (docs/methods.md §1.7); the blank at the end belongs to it."""

_SEVERAL = _USER.replace(
    'The correct answer for this problem is: "{gold}"', "The correct answers for this problem are: {gold}"
).replace("semantically equivalent to the correct answer", "semantically equivalent to one of the correct answers")
"""The same where several answers are right: official data sets have one, so these words are ours."""

_PAIR = (
    "The problem is: {question}\n"
    "\n"
    "Student A submitted the answer: {gold}\n"
    " Student B submitted the answer: {answer}\n"
    "Your task is to evaluate if these two answers are equivalent, so the teacher can group matching answers together."
    " Small differences in formatting should not be a reason to mark the answers as different."
    " Did the two students provide equivalent answers? Please answer yes or no without any explanation: "
)
"""The form of Kapoor et al. for two answers (docs/methods.md §1.7)."""


class JudgePrompt(NamedTuple):
    """Words in which a judge is asked, with `{question}`, `{gold}` and `{answer}`."""

    id: str
    """Name and version; other words need another one."""
    user: str
    several: str = ""
    """The words where several answers are right, which `{gold}` lists in quotes; empty: there is always one."""


GRADING = JudgePrompt("judge/1", _USER, _SEVERAL)
"""Does an answer mean what the gold answer means?"""
COMPARING = JudgePrompt("pair/1", _PAIR)
"""Do two answers mean the same?"""

_OUTSIDE = re.compile(r"^[\W_]+|[\W_]+$")


def messages(case: JudgeCase, wording: JudgePrompt = GRADING) -> tuple[Message, Message]:
    """The conversation that asks for one verdict."""
    several = ", ".join(f'"{gold}"' for gold in (case.gold, *case.others)) if case.others else ""
    words = wording.several if several else wording.user
    text = words.format(question=case.question, gold=several or case.gold, answer=case.answer)
    return Message("system", SYSTEM), Message("user", text)


def parse(text: str) -> bool | None:
    """The verdict that a judge's text begins with; None where its first word is neither yes nor no.

    >>> parse("**Yes**, it is."), parse("No: yes would be wrong"), parse("Nothing"), parse("yes/no")
    (True, False, None, None)
    """
    words = (_OUTSIDE.sub("", word) for word in text.casefold().split())
    return {"yes": True, "no": False}.get(next(filter(None, words), ""))
