"""Select the few-shot exemplars that are shown before a question."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from bench.api import Question, Task
from bench.api.protocol import ExemplarOrder, Protocol


def indices_in_subject(questions: Sequence[Question]) -> dict[str, int]:
    """Return question id -> index of the question among those of its subject.

    The index is `question.index_in_subject` if that is set. The official code seeds the choice of exemplars with it.
    """
    seen: Counter[str] = Counter()
    numbers = {}
    for question in questions:
        index = question.index_in_subject
        numbers[question.id] = seen[question.subject] if index is None else index
        seen[question.subject] += 1
    return numbers


def exemplars(
    task: Task, question: Question, index_in_subject: int, pool: Sequence[Question], protocol: Protocol
) -> list[Question]:
    """Return the exemplars shown before a question, never the question itself (docs/methods.md §0.3, §1.4).

    Args:
        task: the task; it says whether exemplars are drawn at random from a large pool.
        question: the question that is asked after the exemplars.
        index_in_subject: index of the question within its subject.
        pool: questions from which exemplars are chosen, in the order of the data source.
        protocol: number, order and seed of exemplars.
    """
    order: Sequence[int] = range(min(protocol.shots + 1, len(pool)))
    if task.draws_exemplars or protocol.exemplar_order is ExemplarOrder.PERMUTED:
        sets = protocol.exemplar_sets if task.draws_exemplars else 0
        seed_offset = index_in_subject % sets if sets else index_in_subject
        order = _permutation_head(len(pool), protocol.exemplar_seed + seed_offset, protocol.shots + 1)
    candidates = (pool[i] for i in order)
    return [exemplar for exemplar in candidates if exemplar.id != question.id][: protocol.shots]


@lru_cache(maxsize=4096)
def _permutation_head(n: int, seed: int, count: int) -> tuple[int, ...]:
    """Return the first `count` of `n` indices in the random order of the official code (docs/methods.md §1.4)."""
    return tuple(np.random.default_rng(seed).permutation(n)[:count].tolist())
