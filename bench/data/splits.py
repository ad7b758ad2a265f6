"""Selection of questions: a validation split held out of train, `--limit` and `--train-limit`, samples of labels."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bench.api import Question, Split, UserError

MIN_LABELS = 10
"""Smallest label budget that is divided between training and validation."""
MIN_VALIDATION = 4
"""Smallest number of validation labels in a budget that also has training labels: fewer can't choose a training
step."""


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


# --- labels to learn from ---------------------------------------------------------------------------------------------


def sampling_order(ids: Sequence[str], where: TaskSplit, seed: int) -> list[str]:
    """Sort question IDs in a random order that depends on the seed and the split alone.

    Args:
        ids: question IDs, in any order.
        where: split of the questions.
        seed: seed of the sample.
    """
    return sorted(ids, key=lambda one: hashlib.sha256(f"{seed}\0{where}\0{one}".encode()).digest())


def budget_shares(size: int, train: int, validation: int) -> tuple[int, int]:
    """Divide a label budget into training and validation labels, in proportion to the sizes of the splits.

    Both numbers grow with the budget, so that smaller samples are contained in larger ones.

    Args:
        size: the label budget.
        train: number of available training labels.
        validation: number of available validation labels.

    >>> budget_shares(100, 1280, 320), budget_shares(20, 18_650, 2_000), budget_shares(9_999, 1280, 320)
    ((80, 20), (16, 4), (1280, 320))
    """
    if size >= train + validation:
        return train, validation
    proportional = round(size * validation / (train + validation))
    validation_labels = min(validation, max(MIN_VALIDATION, proportional, size - train))
    return size - validation_labels, validation_labels


@dataclass(frozen=True)
class TrainLimit:
    """Value of `--train-limit`: the largest number of questions whose labels are learned from."""

    train: int
    """Number for the training split; for training and validation together if `validation` is None."""
    validation: int | None = None

    @classmethod
    def parse(cls, text: str) -> TrainLimit:
        """Parse `N` or `N+M`.

        Raises:
            UserError: the text is neither, or a number is too small.
        """
        is_valid = re.fullmatch(r"\d{1,18}(\+\d{1,18})?", text, flags=re.ASCII)
        numbers = [int(number) for number in text.split("+")] if is_valid else [0]
        if min(numbers) < (MIN_LABELS if len(numbers) == 1 else 1):
            raise UserError(
                f"--train-limit: expected a number of labels from {MIN_LABELS} on, which training and validation share,"
                f" or N+M for each of the two, from 1 on; got {text!r}"
            )
        return cls(*numbers)

    def __str__(self) -> str:
        return f"{self.train}" if self.validation is None else f"{self.train}+{self.validation}"

    def shares(self, train: int, validation: int) -> tuple[int, int]:
        """Return the largest numbers of training and of validation questions.

        Args:
            train: number of questions of the training split.
            validation: number of questions of the validation split.
        """
        if self.validation is not None:
            return self.train, self.validation
        return budget_shares(self.train, train, validation)


def spread_sample(questions: Sequence[Question], n: int, where: TaskSplit, seed: int) -> list[Question]:
    """Draw n questions at random, spread over subjects as by `limit_by_subject`; return them in their original order.

    Args:
        questions: questions of the split.
        n: size of the sample; samples of smaller sizes are contained in it.
        where: the split.
        seed: seed of the protocol, so that runs with different seeds learn from the same questions.
    """
    by_id = {question.id: question for question in questions}
    drawn = {question.id for question in limit_by_subject([by_id[i] for i in sampling_order([*by_id], where, seed)], n)}
    return [question for question in questions if question.id in drawn]
