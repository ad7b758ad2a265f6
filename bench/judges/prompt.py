"""What a judge is asked, and how its answer is read (methods.md §1.7); the wording has an id with a version."""

from __future__ import annotations

import re

from bench.grading import Asked
from bench.records import Message

ID = "judge/1"

SYSTEM = "You are an automated grading assistant helping a teacher grade student answers."

USER = (
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
"""The official code's form (methods.md §1.7); the blank at the end belongs to it."""

_OUTSIDE = re.compile(r"^[\W_]+|[\W_]+$")


def messages(asked: Asked) -> tuple[Message, Message]:
    """The conversation that asks for one verdict."""
    text = USER.format(question=asked.question, gold=asked.gold, answer=asked.answer)
    return Message("system", SYSTEM), Message("user", text)


def parse(text: str) -> bool | None:
    """The verdict that a judge's text begins with; None where its first word is neither yes nor no.

    >>> parse("**Yes**, it is."), parse("No: yes would be wrong"), parse("Nothing"), parse("yes/no")
    (True, False, None, None)
    """
    words = (_OUTSIDE.sub("", word) for word in text.casefold().split())
    return {"yes": True, "no": False}.get(next(filter(None, words), ""))
