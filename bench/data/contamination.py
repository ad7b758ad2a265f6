"""Questions that occur more than once: within a split, and in a split that is learned on as well as in a test set."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

from bench.api import Question


def normalised(text: str) -> str:
    r"""Casefolded, with runs of white space as one space (docs/methods.md §0.18).

    >>> normalised("  Which  BONE is\nlongest? ")
    'which bone is longest?'
    """
    return " ".join(text.casefold().split())


def contaminated(learned: Iterable[Question], tested: Iterable[Question]) -> frozenset[str]:
    """Ids of the questions to learn from whose text and parts are also asked in a test set, whatever its options."""
    texts = {_wording(question) for question in tested}
    return frozenset(question.id for question in learned if _wording(question) in texts)


def oddities(questions: Sequence[Question]) -> dict[str, int]:
    """Counts of odd questions, which are kept: repeats of an earlier one, and those that give it another answer."""
    answers: dict[tuple[str, ...], str] = {}
    repeated = contradictory = 0
    for question in questions:
        key = (_wording(question), *sorted(map(normalised, question.choices)))
        answer = normalised(question.answer)
        if key in answers:
            repeated += answers[key] == answer
            contradictory += answers[key] != answer
        answers.setdefault(key, answer)
    counts = {"repeated questions": repeated, "questions with another answer than before": contradictory}
    return {what: n for what, n in counts.items() if n}


def among_own_exemplars(asked: Iterable[tuple[Question, Sequence[Question]]]) -> int:
    """Count of questions that are shown, with their answer, in their own prompt.

    Args:
        asked: each question with its exemplars; that none has its id is seen to elsewhere.
    """
    return sum(_wording(question) in map(_wording, shown) for question, shown in asked)


@lru_cache(maxsize=2**16)  # an exemplar stands in many prompts
def _wording(question: Question) -> str:
    return "\n".join(normalised(text) for text in (question.text, *(value for _, value in question.parts)))
