"""Search for contamination and duplicates: questions in both train and test splits, or more than once in a split."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

from bench.api import Question


def normalise_wording(text: str) -> str:
    r"""Casefold a text and collapse white space (docs/methods.md §0.18).

    >>> normalise_wording("  Which  BONE is\nlongest? ")
    'which bone is longest?'
    """
    return " ".join(text.casefold().split())


def contaminated_ids(train_questions: Iterable[Question], tested: Iterable[Question]) -> frozenset[str]:
    """Return ids of training questions whose text and parts also occur in the test set; options may differ."""
    texts = {_wording(question) for question in tested}
    return frozenset(question.id for question in train_questions if _wording(question) in texts)


def count_duplicates(questions: Sequence[Question]) -> dict[str, int]:
    """Count questions whose text and options occur earlier in the split; none is removed.

    Returns:
        Description -> number, without numbers of 0. Questions with the same right answer as the earlier one and
        questions with another right answer are counted separately.
    """
    answers: dict[tuple[str, ...], str] = {}
    repeated = contradictory = 0
    for question in questions:
        key = (_wording(question), *sorted(map(normalise_wording, question.choices)))
        answer = normalise_wording(question.answer)
        if key in answers:
            repeated += answers[key] == answer
            contradictory += answers[key] != answer
        answers.setdefault(key, answer)
    counts = {"repeated questions": repeated, "questions with another answer than before": contradictory}
    return {what: n for what, n in counts.items() if n}


def count_in_own_prompt(prompted: Iterable[tuple[Question, Sequence[Question]]]) -> int:
    """Count questions whose own prompt already shows them as an exemplar, with the right answer.

    Args:
        prompted: pairs of a question and its exemplars; no exemplar has the question's id.
    """
    return sum(_wording(question) in map(_wording, shown) for question, shown in prompted)


@lru_cache(maxsize=2**16)  # an exemplar stands in many prompts
def _wording(question: Question) -> str:
    return "\n".join(normalise_wording(text) for text in (question.text, *(value for _, value in question.parts)))
