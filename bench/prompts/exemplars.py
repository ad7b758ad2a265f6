"""Exemplars that stand before a question."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from bench.api import Question, Task
from bench.api.protocol import ExemplarOrder, Protocol


def indices_in_subject(questions: Sequence[Question]) -> dict[str, int]:
    """Question id -> index within its subject, with which the official code seeds exemplars.

    A question's own `index_in_subject` comes first; without one, its subject's questions are counted.
    """
    seen: Counter[str] = Counter()
    numbers = {}
    for question in questions:
        own = question.index_in_subject
        numbers[question.id] = seen[question.subject] if own is None else own
        seen[question.subject] += 1
    return numbers


def exemplars(
    task: Task, question: Question, index_in_subject: int, pool: Sequence[Question], protocol: Protocol
) -> list[Question]:
    """The questions shown before this one, never the question itself (docs/methods.md §0.3, §1.4).

    Args:
        task: says whether prompts draw their exemplars from a large pool.
        question: the one that is asked.
        index_in_subject: its number within its subject.
        pool: what may be shown, in the source's order.
        protocol: how many, in which order, drawn with which seed.
    """
    order: Sequence[int] = range(min(protocol.shots + 1, len(pool)))
    if task.draws_exemplars or protocol.exemplar_order is ExemplarOrder.PERMUTED:
        sets = protocol.exemplar_sets if task.draws_exemplars else 0
        draw = index_in_subject % sets if sets else index_in_subject
        order = _drawn(len(pool), protocol.exemplar_seed + draw, protocol.shots + 1)
    candidates = (pool[i] for i in order)
    return [exemplar for exemplar in candidates if exemplar.id != question.id][: protocol.shots]


@lru_cache(maxsize=4096)
def _drawn(n: int, seed: int, count: int) -> tuple[int, ...]:
    """The first of a permutation of `n`, as the official code draws them (docs/methods.md §1.4)."""
    return tuple(np.random.default_rng(seed).permutation(n)[:count].tolist())
