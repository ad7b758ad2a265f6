"""Questions of a run: which validation takes out of train, and how many of a split a partial run keeps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import pytest

from bench.api import Format, PromptStyle, Question, Split, Task, TaskCard, UserError
from bench.api.errors import AbsentError
from bench.api.protocol import Protocol
from bench.api.question import Released
from bench.data.answer_files import AnswerFile
from bench.data.loading import Loader
from bench.data.splits import TaskSplit, TrainLimit, held_out

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


def loader(
    limit: int | None = None,
    train_limit: str | None = None,
    learned: TaskSplit = TRAIN,
    **protocol: Any,
) -> Loader:
    task: Any = Marsh(None)  # type: ignore[arg-type]
    most = None if train_limit is None else TrainLimit.parse(train_limit)
    return Loader({"marsh": task}, {TEST}, Protocol(**protocol), limit, None, most, {"marsh": learned})


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


@pytest.mark.parametrize(("hub", "size", "counts"), [
    ("far/marsh", 14_042, {"questions in test, instead of 14,042": 59}),
    ("far/marsh", 59, {}),
    (None, 14_042, {}),
])  # fmt: skip
def test_benchmark_of_another_size_is_counted(
    monkeypatch: pytest.MonkeyPatch, hub: str | None, size: int, counts: dict[str, int]
) -> None:
    """Such as a file in --data-dir that was cut; train is counted before validation is taken out of it."""
    card = replace(Marsh.card, hub=hub, revision="0" * 40, folder="marsh", sizes={"train": 600, "test": size})
    monkeypatch.setattr(Marsh, "card", card)
    found = loader(limit=8)
    assert (len(ids(found, TEST)), len(ids(found, TRAIN))) == (8, 540)
    assert found.tasks["marsh"].counts == counts


# --- partial runs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "kept"),
    [
        ((8, None), (8, 540, 60)),  # tests alone
        ((None, "100"), (59, 90, 10)),  # as train and validation are divided
        ((8, "20"), (8, 16, 4)),  # at least four choose a step
        ((None, "7+55"), (59, 7, 55)),
        ((1000, "9999"), (59, 540, 60)),
        ((None, "9999+1"), (59, 540, 1)),
    ],
)
def test_limits_keep_so_many_of_each_split(limits: tuple[int | None, str | None], kept: tuple[int, ...]) -> None:
    found = loader(*limits)
    assert tuple(len(ids(found, where)) for where in (TEST, TRAIN, VALIDATION)) == kept
    assert {name.split("/")[1] for name in ids(found, TEST)} == {"bells", "moss", "tides"}


@pytest.mark.parametrize("error", [UserError, AbsentError])
def test_training_has_all_labels_without_validation(monkeypatch: pytest.MonkeyPatch, error: type[Exception]) -> None:
    """Not where it is unreadable for now: the same options would name other labels then."""
    found = loader(train_limit="100")
    read = Loader._split

    def split(self: Loader, where: TaskSplit) -> list[Question]:
        if where == VALIDATION:
            raise error("its rows are lost")
        return read(self, where)

    monkeypatch.setattr(Loader, "_split", split)
    if error is AbsentError:
        assert len(ids(found, TRAIN)) == 100
    else:
        with pytest.raises(error, match="its rows are lost"):
            found.load(TRAIN)


def test_validation_that_is_learned_on_has_all_labels() -> None:
    assert len(ids(loader(train_limit="20", learned=VALIDATION), VALIDATION)) == 20


def test_validation_has_all_labels_where_train_lacks_answers() -> None:
    """They are enough to scale scores."""
    answers = dict.fromkeys((*ids(loader(), TEST), *ids(loader(), VALIDATION)), Released(None, "a", None))
    file = AnswerFile("said.jsonl", "0" * 64, answers, None)
    assert [len(ids(replace(loader(train_limit=n), release=file), VALIDATION)) for n in ("20", "9999")] == [20, 60]


@pytest.mark.parametrize(("train_limit", "kept"), [(None, 540), ("100", 90)])
def test_train_read_alone_lacks_validation_questions(train_limit: str | None, kept: int) -> None:
    alone = ids(loader(train_limit=train_limit), TRAIN)
    assert not alone & ids(loader(), VALIDATION)
    assert len(alone) == kept


def test_labels_are_spread_over_subjects_and_nested() -> None:
    sizes = ("10", "40", "41", "400")
    drawn = [loader(train_limit=size).load(TRAIN).questions for size in sizes]
    assert all({q.id for q in few} < {q.id for q in more} for few, more in pairwise(drawn))
    assert Counter(q.subject for q in drawn[1]) == {"bells": 11, "moss": 10, "tides": 10, "rust": 5}
    first = {f"train/{subject}/{i}" for subject in SUBJECTS for i in range(11)}
    assert not {q.id for q in drawn[1]} <= first  # a file may be sorted
    assert drawn[1] != loader(train_limit="40", split_seed=1).load(TRAIN).questions
    every = loader().load(TRAIN).questions
    assert drawn[1] == [q for q in every if q in drawn[1]]  # in the order of the split


def test_fewer_labels_than_subjects_are_of_different_ones() -> None:
    (one, other) = loader(train_limit="2+1").load(TRAIN).questions
    assert one.subject != other.subject
