"""Selection of questions: a validation split held out of train, and the first questions per subject for `--limit`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bench.api import Question, Split


@dataclass(frozen=True, order=True)
class TaskSplit:
    """A split of a task, e.g. `mmlu-oe/test`."""

    task: str
    split: Split

    def __str__(self) -> str:
        return f"{self.task}/{self.split}"


def held_out(questions: Sequence[Question], fraction: float, seed: int) -> npt.NDArray[np.bool_]:
    """Return a mask `(n,)` over a train split's questions: true where a question is held out for validation.

    The held-out questions (at least one, but none of a single question) are a random sample stratified by subject: of
    each subject's questions the share `fraction` is held out, rounded by largest remainders. `seed` is that of the
    protocol, so that runs with different seeds hold out the same questions.
    """
    rng = np.random.default_rng(seed)
    subjects = np.asarray([question.subject for question in questions])
    rows = {
        subject: rng.permutation(np.flatnonzero(subjects == subject)) for subject in dict.fromkeys(subjects.tolist())
    }
    shares = {subject: fraction * len(of_subject) for subject, of_subject in rows.items()}
    total = min(max(1, round(fraction * len(questions))), len(questions) - 1)
    sizes = {subject: int(share) for subject, share in shares.items()}
    by_remainder = sorted(rows, key=lambda subject: sizes[subject] - shares[subject])
    for subject in by_remainder[: max(0, total - sum(sizes.values()))]:
        sizes[subject] += 1
    mask = np.zeros(len(questions), dtype=np.bool_)
    for subject, of_subject in rows.items():
        mask[of_subject[: sizes[subject]]] = True
    return mask


def limit_by_subject(questions: Sequence[Question], limit: int) -> list[Question]:
    """Select `limit` questions in rounds of one question per subject; return them in their original order."""
    turns: dict[str, int] = {}
    keyed = []
    for row, question in enumerate(questions):
        turn = turns[question.subject] = turns.get(question.subject, -1) + 1
        keyed.append((turn, row))
    return [questions[row] for _, row in sorted(sorted(keyed)[:limit], key=lambda pair: pair[1])]
