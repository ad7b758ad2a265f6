"""Draws of labelled questions: random, nested, and the same for all methods.

Questions of a split are ordered by a hash of the seed, the split and their id, so that the first k of them are a simple
random sample, contained in the first k + 1. Neither labels, nor answers, nor methods enter.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress

from bench.data.splits import TaskSplit
from bench.signals.reading import Reading

LEAST_VALIDATION = 4
"""Validation labels at least, where a method is told labels of both splits: fewer say nothing about a step."""


def ordered(ids: Sequence[str], where: TaskSplit, seed: int) -> list[str]:
    """Ids in the order in which they are drawn.

    Args:
        ids: of questions, in any order.
        where: the split that they are of.
        seed: of the draw.
    """
    return sorted(ids, key=lambda one: hashlib.sha256(f"{seed}\0{where}\0{one}".encode()).digest())


def shares(size: int, train: int, validation: int) -> tuple[int, int]:
    """Training and validation labels of a budget, in the proportion of the two splits.

    Both grow with the budget, so that draws are nested.

    Args:
        size: the budget.
        train: labels that there are in training.
        validation: labels that there are in validation.

    >>> shares(100, 1280, 320), shares(20, 1280, 320), shares(20, 18_650, 2_000), shares(9_999, 1280, 320)
    ((80, 20), (16, 4), (16, 4), (1280, 320))
    """
    if size >= train + validation:
        return train, validation
    proportional = round(size * validation / (train + validation))
    held = min(validation, max(LEAST_VALIDATION, proportional, size - train))
    return size - held, held


@dataclass(frozen=True, eq=False)
class Pool:
    """Labels that a method can be told: of the split that it learns from, and of one that it chooses or scales by."""

    learned: Reading | None
    """None of a method that learns nothing."""
    validation: Reading | None = None

    @property
    def readings(self) -> list[Reading]:
        """The splits that there are."""
        return [reading for reading in (self.learned, self.validation) if reading is not None]

    @property
    def available(self) -> int:
        """Labels that there are."""
        return sum(int(reading.usable.sum()) for reading in self.readings)

    def shares(self, size: int) -> tuple[int, int]:
        """Labels of each of the two splits at most."""
        if self.learned is None or self.validation is None:
            return size, size
        return shares(size, int(self.learned.usable.sum()), int(self.validation.usable.sum()))

    def drawn(self, size: int, seed: int) -> tuple[Mapping[TaskSplit, Reading], int]:
        """The splits with all but the drawn questions left out, and how many labels these are.

        A method that is told labels of one split only gets the whole budget from it, or all that it has. With all
        labels nothing is left out, so that fits are those of an ordinary run.
        """
        found, told = {}, 0
        for reading, most in zip((self.learned, self.validation), self.shares(size), strict=True):
            if reading is None:
                continue
            ids = [question.id for question in reading.questions]
            usable = list(compress(ids, reading.usable))
            found[reading.where] = reading
            if most < len(usable):
                chosen = ordered(usable, reading.where, seed)[:most]
                left_out = reading.left_out | frozenset(ids).difference(chosen)
                found[reading.where] = replace(reading, left_out=left_out)
            told += min(most, len(usable))
        return found, told
