"""Which questions of a split take part: validation where a task has none, and the first ones of a partial run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from bench.records import Question


def held_out(questions: Sequence[Question], fraction: float, seed: int) -> npt.NDArray[np.bool_]:
    """`(n,)` bool: the share of a train split that serves as validation, the same share of every subject.

    The seed is the protocol's, never the run's, so that answers are made once for all seeds.
    """
    rng = np.random.default_rng(seed)
    subjects = np.asarray([question.subject for question in questions])
    chosen = np.zeros(len(questions), dtype=np.bool_)
    for subject in dict.fromkeys(subjects.tolist()):
        rows = np.flatnonzero(subjects == subject)
        chosen[rng.permutation(rows)[: round(fraction * len(rows))]] = True
    return chosen


def spread(questions: Sequence[Question], limit: int) -> list[Question]:
    """The first questions of each subject in turn until there are `limit`, in the source's order."""
    turns: dict[str, int] = {}
    keyed = []
    for row, question in enumerate(questions):
        turn = turns[question.subject] = turns.get(question.subject, -1) + 1
        keyed.append((turn, row))
    return [questions[row] for _, row in sorted(sorted(keyed)[:limit], key=lambda pair: pair[1])]
