"""Questions of a split that take part: validation where a task has none, and the first ones of a partial run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bench.api import Question, Split


@dataclass(frozen=True, order=True)
class TaskSplit:
    """A split of a task."""

    task: str
    split: Split

    def __str__(self) -> str:
        return f"{self.task}/{self.split}"


def held_out(questions: Sequence[Question], fraction: float, seed: int) -> npt.NDArray[np.bool_]:
    """`(n,)` bool: the share of a train split that serves as validation, at least one question, from all subjects.

    Every subject gives its share; where that is no whole number, those with the largest rests give one more, so that
    many small subjects give as much as a large one. The seed is the protocol's, never the run's, so that answers are
    made once for all seeds.
    """
    rng = np.random.default_rng(seed)
    subjects = np.asarray([question.subject for question in questions])
    rows = {
        subject: rng.permutation(np.flatnonzero(subjects == subject)) for subject in dict.fromkeys(subjects.tolist())
    }
    shares = {subject: fraction * len(of_subject) for subject, of_subject in rows.items()}
    total = min(max(1, round(fraction * len(questions))), len(questions) - 1)
    given = {subject: int(share) for subject, share in shares.items()}
    by_rest = sorted(rows, key=lambda subject: given[subject] - shares[subject])
    for subject in by_rest[: max(0, total - sum(given.values()))]:
        given[subject] += 1
    chosen = np.zeros(len(questions), dtype=np.bool_)
    for subject, of_subject in rows.items():
        chosen[of_subject[: given[subject]]] = True
    return chosen


def spread(questions: Sequence[Question], limit: int) -> list[Question]:
    """The first questions of each subject in turn until there are `limit`, in the source's order."""
    turns: dict[str, int] = {}
    keyed = []
    for row, question in enumerate(questions):
        turn = turns[question.subject] = turns.get(question.subject, -1) + 1
        keyed.append((turn, row))
    return [questions[row] for _, row in sorted(sorted(keyed)[:limit], key=lambda pair: pair[1])]
