"""Prompts of a judge, each with an id and version, and parsing of the judge's answer (docs/methods.md §1.7)."""

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
"""Prompt of the CCPS paper's official code, with the blank at its end (docs/methods.md §1.7)."""

_SEVERAL = _USER.replace(
    'The correct answer for this problem is: "{gold}"', "The correct answers for this problem are: {gold}"
).replace("semantically equivalent to the correct answer", "semantically equivalent to one of the correct answers")
"""Prompt for questions with several right answers. Its wording is confbench's own, because the official data sets have
no such questions."""

_PAIR = (
    "The problem is: {question}\n"
    "\n"
    "Student A submitted the answer: {gold}\n"
    " Student B submitted the answer: {answer}\n"
    "Your task is to evaluate if these two answers are equivalent, so the teacher can group matching answers together."
    " Small differences in formatting should not be a reason to mark the answers as different."
    " Did the two students provide equivalent answers? Please answer yes or no without any explanation: "
)
"""Prompt of Kapoor et al. that compares two answers (docs/methods.md §1.7)."""


class JudgePrompt(NamedTuple):
    """Prompt template of a judge, with `{question}`, `{gold}` and `{answer}`."""

    id: str
    """Name and version of the prompt, part of the cache key of a verdict. A changed wording needs a new version."""
    user: str
    several: str = ""
    """Template for questions with several right answers, which are listed in quotes in place of `{gold}`. Empty if the
    prompt is only for questions with one right answer."""


GRADING = JudgePrompt("judge/1", _USER, _SEVERAL)
"""Prompt that asks whether an answer means the same as the gold answer."""
COMPARING = JudgePrompt("pair/1", _PAIR)
"""Prompt that asks whether two answers mean the same."""

_SURROUNDING = re.compile(r"^[\W_]+|[\W_]+$")


def messages(case: JudgeCase, wording: JudgePrompt = GRADING) -> tuple[Message, Message]:
    """Build the chat messages that request one verdict."""
    several = ", ".join(f'"{gold}"' for gold in (case.gold, *case.others)) if case.others else ""
    words = wording.several if several else wording.user
    text = words.format(question=case.question, gold=several or case.gold, answer=case.answer)
    return Message("system", SYSTEM), Message("user", text)


def parse(text: str) -> bool | None:
    """Return the verdict in the first word of a judge's answer; None if this word is neither yes nor no.

    >>> parse("**Yes**, it is."), parse("No: yes would be wrong"), parse("Nothing"), parse("yes/no")
    (True, False, None, None)
    """
    words = (_SURROUNDING.sub("", word) for word in text.casefold().split())
    return {"yes": True, "no": False}.get(next(filter(None, words), ""))
