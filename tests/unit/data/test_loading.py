"""Questions of a run: which validation takes out of train, and how many of a split a partial run keeps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import pytest

from bench.api import Format, PromptStyle, Question, Split, Task, TaskCard
from bench.api.protocol import Protocol
from bench.data.loading import Loader
from bench.data.splits import TaskSplit, held_out

SUBJECTS = {"bells": 400, "moss": 150, "tides": 45, "rust": 5}
"""Subject -> questions of train; tests have a tenth."""
TRAIN, VALIDATION, TEST = (TaskSplit("marsh", split) for split in ("train", "validation", "test"))


class Marsh(Task):
    """Six hundred questions to learn from, sixty to test, and no validation split."""

    name: ClassVar[str] = "marsh"
    format: ClassVar[Format] = Format.CHOICE
    card: ClassVar[TaskCard] = TaskCard(
        license="MIT", version=1, splits={"train": "train", "test": "test"}, sizes={"train": 600, "test": 59},
        options=(2, 2), why="For tests.",
    )  # fmt: skip
    style: ClassVar[PromptStyle] = PromptStyle(header="", footer="", context="{text}")

    def questions(self, split: Split) -> Iterator[Question]:
        for subject, n in SUBJECTS.items():
            for i in range(n if split == "train" else n // 10):
                yield Question(f"{split}/{subject}/{i}", subject, f"Where is {subject} {i}?", ("here", "there"), 0)


def loader(limit: int | None = None, *, scaled: bool = False, **protocol: Any) -> Loader:
    task: Any = Marsh(None)  # type: ignore[arg-type]
    shares = {"marsh": [TEST]} if scaled else None
    return Loader({"marsh": task}, {TEST}, {TRAIN, VALIDATION}, Protocol(**protocol), limit, scaled_by=shares)


def ids(found: Loader, where: TaskSplit) -> set[str]:
    return {question.id for question in found.load(where).questions}


# --- validation out of train ------------------------------------------------------------------------------------------


def test_validation_is_drawn_by_the_split_seed() -> None:
    first, second = loader(split_seed=1), loader(split_seed=2)
    assert ids(first, VALIDATION) == ids(loader(split_seed=1), VALIDATION)
    assert ids(first, VALIDATION) != ids(second, VALIDATION)
    for found in (first, second):
        assert not ids(found, VALIDATION) & ids(found, TRAIN)
        assert len(ids(found, VALIDATION) | ids(found, TRAIN)) == 600


@pytest.mark.parametrize("fraction", [0.1, 0.25])
def test_validation_takes_its_share_of_every_subject(fraction: float) -> None:
    found = Counter(q.subject for q in loader(validation_fraction=fraction).load(VALIDATION).questions)
    assert found.total() == 600 * fraction
    assert all(abs(found[subject] - fraction * n) < 1 for subject, n in SUBJECTS.items())


def test_validation_of_many_small_subjects_is_as_large() -> None:
    """A tenth of each is less than one question."""
    questions = [Question(f"{i}", f"subject {i // 4}", "?", ("a", "b"), 0) for i in range(80)]
    taken = np.flatnonzero(held_out(questions, 0.1, seed=23))
    assert len(taken) == 8
    assert len(set(taken // 4)) == 8


# --- partial runs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("limit", "learned"), [(8, 320), (320, 320), (321, 321), (1000, 540)])
def test_a_limit_leaves_training_320_questions(limit: int, learned: int) -> None:
    found = loader(limit)
    assert len(ids(found, TEST)) == min(limit, 59)
    assert len(ids(found, TRAIN)) == learned
    assert len(ids(found, VALIDATION)) == 60


def test_training_scaled_down_keeps_the_tests_share() -> None:
    found = loader(6, scaled=True)
    assert [len(ids(found, where)) for where in (TEST, TRAIN, VALIDATION)] == [6, 55, 32]  # at least 32
