"""Questions as callers in Python give them, texts or dicts -> questions, and the answers that came with them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any

from bench.api import Format, Question, UserError
from bench.api.errors import did_you_mean, require_text
from bench.api.question import Released
from bench.data.asked_files import GIVEN

FIELDS = ("question", "choices", "subject", "id")
"""Keys of a question that is a dict; `given` beside them is its answer, and `answer`, the right one, is not read."""


def with_equal_options(questions: Sequence[Question]) -> list[str]:
    """Return ids of questions of which two options are equal, so that two letters mean the same."""
    return [q.id for q in questions if len({choice.strip() for choice in q.choices}) < len(q.choices)]


def _is_list(value: object) -> bool:
    """Return whether a value has places, as lists, tuples, arrays and columns of tables have; sets have none."""
    return hasattr(type(value), "__getitem__") and not isinstance(value, str | Mapping)


def questions_of(
    questions: Sequence[str | Mapping[str, Any] | Question],
    answers: Sequence[str | None] | None,
    subject: str,
    kind: Format,
) -> tuple[list[Question], dict[str, Released]]:
    """Questions, and those answers that are given by question id.

    Args:
        questions: whatever they were given as.
        answers: one for each, None where the model is to answer; None: those that the questions bring.
        subject: of a question that names none.
        kind: of the questions; a dict with options is no open one.

    Raises:
        UserError: one of them is not as it must be, two questions have one id, or an answer was given twice.
    """
    for name, each in (("questions", questions), ("answers", answers)):
        if each is not None and not _is_list(each):
            raise UserError(f"expected a list of {name}, got {type(each).__name__} {each!r:.60}; make it a list")
    asked = [_question(question, i, subject, kind) for i, question in enumerate(questions)]
    if twice := [key for key, n in Counter(question.id for question in asked).items() if n > 1]:
        raise UserError(f"expected questions with ids of their own, got {twice[0]!r:.60} twice; change one of them")
    brought = [_answer(each.get(GIVEN), i) if isinstance(each, Mapping) else None for i, each in enumerate(questions)]
    told = brought if answers is None else [_answer(answer, i) for i, answer in enumerate(answers)]
    if len(told) != len(asked):
        raise UserError(f"expected an answer to each of {len(asked):,} questions, got {len(told):,}")
    for i, (own, text) in enumerate(zip(brought, told, strict=True)):
        if own not in {None, text}:
            raise UserError(
                f"question {i}: it has the answer {own!r:.60} in {GIVEN!r}, and {text!r:.60} was given beside it; leave"
                " one of them out"
            )
    pairs = zip(asked, told, strict=True)
    return asked, {question.id: Released(None, text.strip(), None) for question, text in pairs if text is not None}


def _answer(answer: object, i: int) -> str | None:
    if answer is not None and not isinstance(answer, str):
        raise UserError(f"question {i}: expected answers as text, got {type(answer).__name__} {answer!r:.60}")
    if answer is not None:
        require_text(answer, f"the answer to question {i}")
    return answer


def _question(question: object, i: int, usual: str, kind: Format) -> Question:
    """A question from whatever it was given as."""
    if isinstance(question, Question):
        return question
    values = {"question": question} if isinstance(question, str) else question
    if not isinstance(values, Mapping):
        raise UserError(f"expected a question as text or as a dict, got {type(question).__name__} {question!r:.60}")
    for key in (str(key) for key in values if key not in (*FIELDS, "answer", GIVEN)):
        hint = did_you_mean(key, [name for name in (*FIELDS, GIVEN) if name not in values])
        if hint or "question" not in values:
            raise UserError(f"question {i}: nothing is known of {key!r}, expected {', '.join(FIELDS)}.{hint}")
    text, subject, own = values.get("question"), values.get("subject"), values.get("id")
    if not isinstance(text, str) or not text.strip():
        raise UserError(f"question {i}: expected a text that is not empty, got {text!r:.60}")
    if not isinstance(subject, str | None):
        raise UserError(f"question {i}: expected a subject as text, got {type(subject).__name__} {subject!r:.60}")
    if not isinstance(own, str | Integral | None) or isinstance(own, bool):
        raise UserError(f"question {i}: expected an id as text or a whole number, got {own!r:.60}")
    options = () if values.get("choices") is None else values["choices"]
    choices = tuple(options) if _is_list(options) else ("",)
    if not all(isinstance(each, str) and each.strip() for each in choices):
        raise UserError(f"question {i}: expected choices as a list of texts, which letters name, got {options!r:.60}")
    if choices and kind is Format.OPEN:
        raise UserError(f"question {i}: expected no choices, got {len(choices)}; the head is for open questions")
    require_text("\n".join((text, subject or "", str(own), *choices)), f"question {i}")
    return Question(f"asked:{i}" if own in {None, ""} else str(own), subject or usual, text, choices or ("",), 0)
